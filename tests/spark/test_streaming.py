"""Streams: output modes, restart from a checkpoint, what OpenTelemetry is told, and nothing left behind."""

import json
import os
import re
import threading
import time
import urllib.request

import psutil
import pytest

import spark_kafka_sink
from spark_kafka_sink import metrics as metrics_of_sink
from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.metrics import names
from spark_kafka_sink.metrics.otlp import telemetry_name
from spark_kafka_sink.tools.report_advice import line_findings
from tests.otlp import attributes_of, metrics_in, receiver
from tests.patience import PATIENCE_S, eventually
from tests.prometheus import Samples
from tests.reading import read_topic

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

MICRO_BATCHES = 12
ROWS_PER_FILE = 20


def write_file(folder, number, rows=ROWS_PER_FILE):
    """One input file; it appears at once, as a stream's input must."""
    lines = [json.dumps({"id": number * rows + row, "file": number}) for row in range(rows)]
    hidden = folder / f".{number:05}"
    hidden.write_text("\n".join(lines), encoding="utf-8")
    # Spark takes files in order of their modification time.
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(folder / f"{number:05}.json")


def read_files(spark, folder):
    return (
        spark.readStream.schema("id BIGINT, file INT")
        .option("maxFilesPerTrigger", "1")
        .json(str(folder))
        .selectExpr("cast(id as string) as key", "cast(id as string) as value")
    )


def start(frame, kafka, topic, checkpoint, mode="append", **options):
    return (
        frame.writeStream.format("pykafka-sink")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**{name.replace("_", "."): value for name, value in options.items()})
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )


def broker_connections(kafka):
    """Process id and local port of each connection of a Python process to the broker."""
    port = int(kafka.bootstrap_servers.rsplit(":", 1)[1])
    connected = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if "python" in process.name() and process.pid != os.getpid():
                connected |= {
                    (process.pid, connection.laddr.port)
                    for connection in process.net_connections("tcp")
                    if connection.raddr and connection.raddr.port == port
                }
        except psutil.NoSuchProcess:
            continue
    return connected


def worker_threads(spark):
    """Names of the threads in Spark's Python workers."""
    names = (
        spark.sparkContext.parallelize(range(4), 4)
        .flatMap(lambda _: [thread.name for thread in threading.enumerate()])
        .collect()
    )
    return set(names)


def scraped(port):
    """What Prometheus gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return Samples(answer.read().decode())


def test_many_micro_batches_with_a_restart(spark, kafka, new_topic, tmp_path):
    topic, folder, checkpoint = new_topic(3), tmp_path / "in", tmp_path / "checkpoint"
    metrics = tmp_path / "metrics.jsonl"
    folder.mkdir()
    connections = []
    listening = metrics_of_sink.listen(spark, port=0, path=str(metrics), host="127.0.0.1")
    # Workers of earlier tests keep their idle producers for a while.
    of_others = broker_connections(kafka)
    for first in (0, MICRO_BATCHES // 2):
        for number in range(first, first + MICRO_BATCHES // 2):
            write_file(folder, number)
        query = start(
            read_files(spark, folder),
            kafka,
            topic,
            checkpoint,
            metrics_path=str(metrics),
            metrics_log="false",
            kafka_connections_max_idle_ms="3000",
        )
        while query.isActive:
            connections.append(len(broker_connections(kafka) - of_others))
            query.awaitTermination(1)
        assert query.exception() is None
    records = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int(r.value) for r in records) == list(range(MICRO_BATCHES * ROWS_PER_FILE))

    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert [line["batch_id"] for line in lines] == list(range(MICRO_BATCHES))
    assert all(line["event"] == "commit" for line in lines)
    assert sum(line["records_acknowledged"] for line in lines) == len(records)
    assert len({line["query_id"] for line in lines}) == 1
    for partition in range(3):
        mine = [r for r in records if r.partition == partition]
        reports = [line["partitions"][topic].get(str(partition)) for line in lines]
        reports = [report for report in reports if report is not None]
        assert sum(report["records"] for report in reports) == len(mine)
        assert reports[0]["first_offset"] == mine[0].offset
        assert reports[-1]["last_offset"] == mine[-1].offset

    # As Prometheus has it: lines, and what Spark says of the same query.
    rows = "pykafka_sink_query_input_rows_total"
    # Spark tells of its progress in a thread of its own: of the last micro-batch after its end.
    assert eventually(lambda: scraped(listening.port)(rows) == len(records))
    told = scraped(listening.port)
    listening.close()
    assert told("pykafka_sink_records_acknowledged_total") == len(records)
    assert told("pykafka_sink_batches_total", event="commit") == MICRO_BATCHES
    assert told("kafka_producer_producer_metrics_record_send_total") >= len(records)
    topic_total = "kafka_producer_producer_topic_metrics_record_send_total"
    assert told(topic_total, topic=topic, client_id="pykafka-sink") >= len(records)
    assert told("pykafka_sink_query_phase_seconds_total", phase="addBatch") > 0

    # Never more than a producer per task slot, and on the driver the check and what asks for topics.
    assert max(connections) <= 5


@pytest.mark.long
def test_a_minute_later_nothing_is_left(spark, kafka, new_topic, tmp_path):
    """Spark ends workers that are idle for a minute, and connections are closed before."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    idle = {"kafka_connections_max_idle_ms": "3000"}
    query = start(read_files(spark, folder), kafka, new_topic(3), tmp_path / "checkpoint", **idle)
    assert query.awaitTermination(PATIENCE_S)
    assert eventually(lambda: not broker_connections(kafka))
    assert not {name for name in worker_threads(spark) if "sink" in name}


def test_a_failed_micro_batch_is_reported_and_repeated_after_a_restart(
    spark, kafka, new_topic, tmp_path
):
    topic, folder = new_topic(1, max_message_bytes="2000"), tmp_path / "in"
    metrics = tmp_path / "metrics.jsonl"
    folder.mkdir()
    write_file(folder, 0)
    write_file(folder, 1)
    long = read_files(spark, folder).selectExpr(
        "key", "repeat(value, if(key = '25', 5000, 1)) as value"
    )
    query = start(long, kafka, topic, tmp_path / "checkpoint", metrics_path=str(metrics))
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        query.awaitTermination(PATIENCE_S)
    events = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert [(e["event"], e["batch_id"]) for e in events] == [("commit", 0), ("abort", 1)]
    assert events[1]["failed_tasks"] == 1
    query = start(read_files(spark, folder), kafka, topic, tmp_path / "checkpoint")
    assert query.awaitTermination(PATIENCE_S)
    values = {int(r.value) for r in read_topic(kafka.bootstrap_servers, topic)}
    assert values == set(range(2 * ROWS_PER_FILE))


def test_a_continuous_trigger_loses_nothing(spark, kafka, new_topic, write, tmp_path):
    """Spark drops the rows and goes on; their offsets are not committed."""
    source, topic, checkpoint = new_topic(1), new_topic(1), tmp_path / "continuous"
    write(spark.range(100).selectExpr("cast(id as string) as value"), source)
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
    )
    continuous = (
        rows.writeStream.format("pykafka-sink")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(continuous="1 second")
        .start()
    )
    # The offsets of later epochs are there when the first one was to be committed.
    assert eventually(lambda: (checkpoint / "offsets" / "3").exists())
    assert continuous.isActive
    continuous.stop()
    assert not [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    assert read_topic(kafka.bootstrap_servers, topic) == []
    ordinary = start(rows, kafka, topic, tmp_path / "ordinary")
    assert ordinary.awaitTermination(PATIENCE_S)
    values = sorted(int(r.value) for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == list(range(100))


TRACES = 2
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
    for number in range(TRACES):
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
        collector.wait_for(SIGNALS * TRACES)
    ended_ns = time.time_ns()
    lines = {line["trace_id"]: line for line in lines_of(metrics)}
    assert len(lines) == len(collector.traces) == len(collector.metrics) == TRACES
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
            telemetry_name(kafka_metrics.PRODUCER_GROUP, metric.name): round(value)
            for metric in kafka_metrics.PRODUCER_METRICS
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


FEW_OBJECTS = 20_000
"""A worker that has written: with numba and pandas loaded it has about 170,000."""


def test_a_collection_after_a_task_walks_over_few_objects(spark, kafka, write):
    """Spark makes one after each task; the next one of the worker waits for it."""
    frame = spark.range(0, 20, 1, 4).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    topic = "collections"
    kafka.create_topic(topic, 1)
    for _ in range(2):
        write(
            frame,
            topic,
            interceptors="tests.spark.counting:CountObjects",
            kafka_connections_max_idle_ms="1000",
        )
    counts = [int(read.value) for read in read_topic(kafka.bootstrap_servers, topic) if read.value]
    assert len(counts) == 40
    assert max(counts) < FEW_OBJECTS, counts


def test_a_batch_that_the_user_stops_is_no_failure(spark, kafka, new_topic, tmp_path, caplog):
    """The error of the write says so: in foreachBatch it is known, to a data source Spark passes none."""
    caplog.set_level("INFO", logger="spark_kafka_sink")
    folder, metrics = tmp_path / "in", tmp_path / "metrics.jsonl"
    folder.mkdir()
    write_file(folder, 0)
    writer = spark_kafka_sink.batch_writer(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": new_topic(1),
            "max.bytes.per.second.per.task": "1",
            "kafka.batch.size": "1",
            "metrics.path": str(metrics),
        }
    )
    query = (
        read_files(spark, folder)
        .writeStream.foreachBatch(writer)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    # The limit holds the task for minutes.
    tracker = spark.sparkContext.statusTracker()
    assert eventually(
        lambda: any(tracker.getStageInfo(n).numActiveTasks for n in tracker.getActiveStageIds())
    )
    query.stop()
    assert query.exception() is None
    assert eventually(metrics.exists)
    [line] = [json.loads(text) for text in metrics.read_text(encoding="utf-8").splitlines()]
    assert line["event"] == "abort"
    (finding,) = line_findings(line)
    assert finding.kind == "stopped"
    (record,) = [r for r in caplog.records if r.name == "spark_kafka_sink.spark.commit"]
    assert record.levelname == "INFO"
    assert re.match(r"batch 0 of [0-9a-f]{8} to \S+ was stopped\. ", record.message)
