"""What OpenTelemetry is told of real micro-batches: times in order, and the sums of the lines."""

import json
import time

import pytest

import spark_kafka_sink
from spark_kafka_sink.metrics import names
from spark_kafka_sink.metrics.otlp import telemetry_name
from tests.otlp import attributes_of, metrics_in, receiver
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

MICRO_BATCHES = 2
SIGNALS = 2


def lines_of(path):
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def totals_of(request):
    """By name, of the client as a whole."""
    return {
        metric.name: metric.sum.data_points[0].as_int
        for metric in metrics_in(request)
        if metric.name.startswith("org.apache.kafka.producer.")
        and metric.WhichOneof("data") == "sum"
        and attributes_of(metric.sum.data_points[0]).keys() == {"client_id", "query"}
    }


def check_order(spans):
    """Of what follows, by the one clock of this machine."""
    root = spans["micro-batch"]
    assert root.start == spans["planning"].start
    assert spans["planning"].end <= spans["tasks"].start
    assert spans["tasks"].start <= spans["task"].start <= spans["task"].end <= spans["tasks"].end
    assert spans["tasks"].start <= spans["flush"].start <= spans["flush"].end == spans["tasks"].end
    assert spans["task flush"].end == spans["task"].end
    assert spans["tasks"].end <= spans["commit"].start <= spans["commit"].end == root.end


def test_each_micro_batch_is_a_trace_and_its_sums(spark, kafka, new_topic, tmp_path):
    topic, folder, metrics = new_topic(3), tmp_path / "in", tmp_path / "metrics.jsonl"
    folder.mkdir()
    for number in range(MICRO_BATCHES):
        write_file(folder, number)
    began_ns = time.time_ns()
    with receiver() as collector:
        query = start(
            read_files(spark, folder),
            kafka,
            topic,
            tmp_path / "checkpoint",
            metrics_path=str(metrics),
            metrics_otlp_endpoint=collector.endpoint,
        )
        query.awaitTermination()
        assert query.exception() is None
        collector.wait_for(SIGNALS * MICRO_BATCHES)
    ended_ns = time.time_ns()
    lines = {line["trace_id"]: line for line in lines_of(metrics)}
    assert len(lines) == len(collector.traces) == len(collector.metrics) == MICRO_BATCHES
    for (trace_id, line), request in zip(lines.items(), collector.metrics):
        spans = {s.name: s for s in collector.spans if s.trace_id.hex() == trace_id}
        check_order(spans)
        root = spans["micro-batch"]
        # Spans begin with a millisecond.
        assert began_ns - 1_000_000 <= root.start <= root.end <= ended_ns
        assert root.attributes["pykafka_sink.batch_id"] == line["batch_id"]
        assert root.attributes["messaging.batch.message_count"] == ROWS_PER_FILE
        assert root.resource["pykafka_sink.query.id"] == str(query.id)
        totals = totals_of(request)
        assert totals["org.apache.kafka.producer.record.send.total"] >= ROWS_PER_FILE
        values = names.values_of(line)
        assert totals == {
            telemetry_name(names.PRODUCER_GROUP, metric.name): round(value)
            for metric in names.PRODUCER_METRICS
            if metric.is_total and (value := metric.value(values)) is not None
        }


def test_a_write_that_fails_is_told_with_its_error(spark, kafka, new_topic):
    rows = spark.range(10).selectExpr("cast(id as string) as value", "99 as partition")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": new_topic(1)}
    options["kafka.max.block.ms"] = "5000"
    with receiver() as collector:
        with pytest.raises(Exception, match="99"):
            spark_kafka_sink.write(rows, {**options, "metrics.otlp.endpoint": collector.endpoint})
        collector.wait_for(SIGNALS)
    spans = {span.name: span for span in collector.spans}
    root = spans["job"]
    assert root.resource["spark.application.id"] == spark.sparkContext.applicationId
    status = root.message.status
    assert status.code == status.STATUS_CODE_ERROR
    (event,) = root.message.events
    assert attributes_of(event)["exception.message"] in status.message
    assert root.start == spans["planning"].start <= spans["planning"].end <= spans["abort"].start
