"""A line as OpenTelemetry has it, as a receiver reads it: names, sums, times, and the slowest task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink import __version__
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput
from spark_kafka_sink.metrics import background, names, otlp
from spark_kafka_sink.metrics.names import OWN_METRICS
from spark_kafka_sink.metrics.otlp import telemetry_name
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage, PlanningSpan
from tests.lines import VALIDATOR
from tests.otlp import Receiver, Span, attributes_of, metrics_in, receiver
from tests.patience import PATIENCE_S
from tests.unit.test_metrics_names import PRODUCER, a_line, of_a_job

DELTA = 1
NS = 1_000_000
T = 1_700_000_000_000
TRACE_ID = "00112233445566778899aabbccddeeff"
SENT = "org.apache.kafka.producer.record.send.total"
LATENCY = "pykafka_sink.request_latency"


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as listening:
        yield listening


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of this machine's environment, or of an earlier test."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    otlp._process_resource.cache_clear()
    yield
    otlp._process_resource.cache_clear()
    for sender in background._senders.values():
        sender.close()
    background._senders.clear()


def timed(**more: Any) -> dict[str, Any]:
    """A line with all that a trace is made of."""
    line = a_line()
    line.update(
        query_name="orders",
        application_id="local-1",
        trace_id=TRACE_ID,
        planning_started_at_ms=T - 80,
        planning_ms=30.7,
        commit_started_at_ms=T + 600,
        time_ms=T + 620,
    )
    line.update(more)
    VALIDATOR.validate(line)
    return line


def put(collector: Receiver, *lines: dict[str, Any], **options: Any) -> None:
    otlp = OtlpOutput(endpoint=collector.endpoint, timeout_ms=60_000, **options)
    for line in lines:
        write_outputs(MetricsOutputs(otlp=otlp), line)
    assert background._senders[otlp].wait(PATIENCE_S)


def spans_of(collector: Receiver) -> dict[str, Span]:
    spans = {span.name: span for span in collector.spans}
    assert len(spans) == len(collector.spans)
    return spans


def value(point: Any) -> float:
    return float(getattr(point, point.WhichOneof("value")))


# --- metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "name", "pushed"),
    [
        ("producer-metrics", "record-send-total", SENT),
        (
            "producer-node-metrics",
            "request-latency-avg",
            "org.apache.kafka.producer.node.request.latency.avg",
        ),
        (
            "producer-topic-metrics",
            "byte-total",
            "org.apache.kafka.producer.topic.byte.total",
        ),
    ],
)
def test_names_are_those_that_kafkas_clients_push(group: str, name: str, pushed: str) -> None:
    assert telemetry_name(group, name) == pushed


def test_each_metric_of_the_producer_has_its_value(collector: Receiver) -> None:
    put(collector, timed())
    for name, expected in PRODUCER.items():
        (point,) = collector.points(telemetry_name(names.PRODUCER_GROUP, name))
        assert value(point) == pytest.approx(expected), name
        assert attributes_of(point) == {"client_id": "c", "query": "orders"}
        assert point.time_unix_nano == (T + 620) * NS
    of_topic = collector.points("org.apache.kafka.producer.topic.record.send.total")
    assert [attributes_of(point)["topic"] for point in of_topic] == ["t"]
    of_nodes = collector.points("org.apache.kafka.producer.node.request.latency.max")
    assert [attributes_of(point)["node_id"] for point in of_nodes] == ["node-1", "node-2"]
    assert [value(point) for point in of_nodes] == [16, 16]


def test_totals_are_monotonic_deltas_of_whole_numbers_and_the_rest_are_gauges(
    collector: Receiver,
) -> None:
    put(collector, timed(), timed(batch_id=4))
    assert [point.as_int for point in collector.points(SENT)] == [2200, 2200]
    for request in collector.metrics:
        for metric in metrics_in(request):
            kind = metric.WhichOneof("data")
            assert (kind == "sum") is (kind != "exponential_histogram" and is_total(metric.name))
            if kind == "sum":
                assert metric.sum.aggregation_temporality == DELTA
                assert metric.sum.is_monotonic
                starts = {point.start_time_unix_nano for point in metric.sum.data_points}
                assert starts == {(T - 80) * NS}


def is_total(name: str) -> bool:
    """As the sink's own names say it, without their units; and Kafka's."""
    plain = name.replace("pykafka_sink.", "pykafka_sink_")
    own = {f"{plain}_total", f"{plain}_seconds_total"}
    return name.endswith(".total") or not own.isdisjoint(metric.name for metric in OWN_METRICS)


def test_the_sinks_own_have_a_unit_where_prometheus_adds_one(collector: Receiver) -> None:
    put(collector, timed())
    units = {metric.name: metric.unit for metric in metrics_in(collector.metrics[0])}
    assert units["pykafka_sink.records_acknowledged"] == ""
    assert units["pykafka_sink.task_part"] == "s"
    (waited,) = (
        point
        for point in collector.points("pykafka_sink.task_part")
        if attributes_of(point)["part"] == "ack_wait"
    )
    assert waited.as_double == pytest.approx(0.06)


def test_latencies_are_the_lines_own_histogram(collector: Receiver) -> None:
    line = timed()
    put(collector, line)
    (point,) = collector.points(LATENCY)
    counts = {
        str(point.positive.offset + place): count
        for place, count in enumerate(point.positive.bucket_counts)
        if count
    }
    assert {"scale": point.scale, "counts": counts} == line["request_latency"]["histogram"]
    assert (point.count, point.sum, point.max) == (8, 80, 16)
    assert not point.HasField("min")


def test_latencies_with_explicit_bounds(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    monkeypatch.setenv(variable, "explicit_bucket_histogram")
    put(collector, timed())
    (point,) = collector.points(LATENCY)
    assert list(point.explicit_bounds)[:6] == [1, 2, 4, 8, 16, 32]
    assert list(point.bucket_counts)[:6] == [0, 0, 4, 0, 4, 0]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert sum(point.bucket_counts) == point.count == 8
    assert len(point.exemplars) == 1


def test_a_batch_without_rows_has_only_what_is_known(collector: Receiver) -> None:
    line = BatchSummary.merge([KafkaCommitMessage(0, 0)]).line("commit", 1)
    put(collector, json.loads(json.dumps(line)))
    assert not [m for m in metrics_in(collector.metrics[0]) if m.name.startswith("org.")]
    assert [value(point) for point in collector.points("pykafka_sink.batches")] == [1]
    assert [span.name for span in collector.spans] == ["micro-batch"]


def test_partitions_are_not_sent(collector: Receiver) -> None:
    """What is sent does not grow with partitions, of which there may be thousands."""
    messages = [
        KafkaCommitMessage(0, 0, "q", partitions_of(count), ProducerMetrics(task_ns=NS))
        for count in (1, 5000)
    ]
    for number, message in enumerate(messages):
        message.started_at_ms = T
        put(collector, json.loads(json.dumps(BatchSummary.merge([message]).line("commit", number))))
    small, large = (len(request.SerializeToString()) for request in collector.metrics)
    assert large < small + 100


def partitions_of(count: int) -> dict[TopicPartition, PartitionReport]:
    return {TopicPartition("t", n): PartitionReport(0, 9, 10, 10**6, 10**7) for n in range(count)}


# --- the resource ---------------------------------------------------------------------------------


def resource_of(collector: Receiver) -> dict[str, Any]:
    (of_resource,) = collector.metrics[0].resource_metrics
    found = attributes_of(of_resource.resource)
    assert all(span.resource == found for span in collector.spans)
    (of_scope,) = of_resource.scope_metrics
    assert (of_scope.scope.name, of_scope.scope.version) == ("spark_kafka_sink", __version__)
    return found


def test_the_resource(collector: Receiver) -> None:
    put(collector, timed())
    found = resource_of(collector)
    assert found["service.name"] == "pykafka-sink"
    assert found["pykafka_sink.query.id"] == "q"
    assert found["pykafka_sink.query.name"] == "orders"
    assert found["spark.application.id"] == "local-1"
    assert "service.instance.id" not in found, "another one for each process"


@pytest.mark.parametrize(
    ("environment", "option", "service"),
    [
        ({"OTEL_SERVICE_NAME": "lake"}, None, "lake"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=lake"}, None, "lake"),
        ({"OTEL_SERVICE_NAME": "lake"}, "orders", "orders"),
    ],
)
def test_the_services_name(
    environment: dict[str, str],
    option: str | None,
    service: str,
    collector: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    put(collector, timed(), service_name=option)
    assert resource_of(collector)["service.name"] == service


def test_attributes_of_the_environment(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = "deployment.environment.name=test,service.instance.id=one"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", attributes)
    put(collector, timed())
    found = resource_of(collector)
    assert found["deployment.environment.name"] == "test"
    assert found["service.instance.id"] == "one"


# --- traces ---------------------------------------------------------------------------------------


def test_a_micro_batch_is_one_trace(collector: Receiver) -> None:
    put(collector, timed())
    spans = spans_of(collector)
    told = {
        name: ((span.start - T * NS) // NS, (span.end - T * NS) // NS)
        for name, span in spans.items()
    }
    assert told == {
        "micro-batch": (-80, 620),
        "planning": (-80, -50),
        "tasks": (0, 500),
        "flush": (470, 500),
        "task": (0, 500),
        "task flush": (470, 500),
        "commit": (600, 620),
    }
    root, tasks, task = spans["micro-batch"], spans["tasks"], spans["task"]
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE_ID}
    assert root.parent == b""
    for name in ("planning", "tasks", "flush", "commit"):
        assert spans[name].parent == root.id
    assert task.parent == tasks.id
    assert spans["task flush"].parent == task.id
    assert root.attributes["pykafka_sink.batch_id"] == 3
    assert root.attributes["messaging.destination.name"] == "t"
    assert root.attributes["messaging.batch.message_count"] == 2000
    assert root.message.status.code == 0


def test_the_slowest_task_has_its_place_and_the_times_of_its_stages(collector: Receiver) -> None:
    line = timed()
    put(collector, line)
    told = spans_of(collector)["task"].attributes
    slowest = line["slowest_tasks"][0]
    for name in slowest.keys() - {"started_at_ms"}:
        assert told[f"pykafka_sink.task.{name}"] == slowest[name]
    assert told["messaging.batch.message_count"] == slowest["records"]


def test_the_histogram_leads_to_the_slowest_task(collector: Receiver) -> None:
    put(collector, timed())
    (point,) = collector.points(LATENCY)
    (exemplar,) = point.exemplars
    task = spans_of(collector)["task"]
    assert (exemplar.trace_id, exemplar.span_id) == (task.trace_id, task.id)
    assert exemplar.as_double == 16 == task.attributes["pykafka_sink.task.request_latency_max_ms"]
    assert task.start <= exemplar.time_unix_nano <= task.end


def test_without_traces_there_is_nothing_to_lead_to(collector: Receiver) -> None:
    put(collector, timed(), signals=("metrics",))
    (point,) = collector.points(LATENCY)
    assert len(point.exemplars) == len(collector.traces) == 0


def test_traces_alone(collector: Receiver) -> None:
    put(collector, timed(), signals=("traces",))
    assert (len(collector.traces), len(collector.metrics)) == (1, 0)


def test_a_job_is_named_so_and_sent_when_it_ends(collector: Receiver) -> None:
    otlp = OtlpOutput(endpoint=collector.endpoint, timeout_ms=60_000)
    write_outputs(MetricsOutputs(otlp=otlp), of_a_job(timed()))
    assert "job" in spans_of(collector)


def test_a_line_without_times_is_a_trace_of_nothing_else(collector: Receiver) -> None:
    line = json.loads(json.dumps(BatchSummary(None, None).line("abort", 3)))
    put(collector, line)
    (span,) = collector.spans
    assert span.start == span.end == line["time_ms"] * NS


def test_clocks_that_differ_make_no_span_end_before_it_begins(collector: Receiver) -> None:
    """The executor's clock is a second behind, then ahead of the driver's."""
    behind = timed(planning_started_at_ms=T + 900, commit_started_at_ms=T + 1600, time_ms=T + 1620)
    ahead = timed(planning_started_at_ms=T - 1100, commit_started_at_ms=T - 400, time_ms=T - 420)
    put(collector, behind, ahead)
    for span in collector.spans:
        assert span.start <= span.end
    for root in (span for span in collector.spans if span.name == "micro-batch"):
        assert root.start <= min(span.start for span in collector.spans if span.parent == root.id)
        assert root.end >= max(span.end for span in collector.spans if span.parent == root.id)


# --- what failed ----------------------------------------------------------------------------------


def aborted(**more: Any) -> dict[str, Any]:
    return timed(**{**timed(), "event": "abort", **more})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"failed_tasks": 1}, "1 of 2 tasks failed: Spark's log has their errors"),
        (
            {"failed_tasks": 0},
            "no task failed, but the commit did, or Spark gave the batch up: see its log",
        ),
        ({"failed_tasks": 1, "error": "ValueError: bad: row"}, "ValueError: bad: row"),
    ],
)
def test_a_batch_that_failed_says_so(more: dict[str, Any], why: str, collector: Receiver) -> None:
    otlp = OtlpOutput(endpoint=collector.endpoint, timeout_ms=60_000)
    line = aborted(**more)
    write_outputs(MetricsOutputs(otlp=otlp), line)
    spans = spans_of(collector)  # it has waited: nothing comes after it
    root = spans["micro-batch"].message
    assert root.status.code == root.status.STATUS_CODE_ERROR
    assert root.status.message == why
    assert {"abort", "tasks", "planning"} < spans.keys()
    events = [(event.name, attributes_of(event)) for event in root.events]
    exception = {"exception.type": "ValueError", "exception.message": "bad: row"}
    assert events == ([("exception", exception)] if "error" in more else [])


def test_what_is_unknown_of_an_abort_is_not_made_up(collector: Receiver) -> None:
    unknown = BatchSummary(None, None, planned=PlanningSpan(T - 80, 30.0))
    put(collector, json.loads(json.dumps(unknown.line("abort", 3, commit_started_at_ms=T))))
    spans = spans_of(collector)
    assert spans.keys() == {"micro-batch", "planning", "abort"}
    assert spans["micro-batch"].message.status.message == "Spark does not tell why"
