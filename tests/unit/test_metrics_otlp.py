"""A line as OpenTelemetry has it, as a receiver reads it: names, sums, times, and the slowest task."""

import importlib.util
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics import background, names, otlp, outputs
from spark_kafka_sink.metrics.names import OWN_METRICS
from spark_kafka_sink.metrics.otlp import telemetry_name
from spark_kafka_sink.metrics.outputs import check_outputs, write_outputs
from spark_kafka_sink.spark.commit import BatchSummary, PlanningSpan
from spark_kafka_sink.spark.writer import commit_batch
from spark_kafka_sink.transactions.model import Unit
from tests.lines import VALIDATOR, check_text
from tests.otlp import Receiver, attributes_of, metrics_in, receiver
from tests.patience import PATIENCE_S
from tests.unit.test_metrics_line import PRODUCER, a_line, of_a_job

DELTA = 1
NS = 1_000_000
T = 1_700_000_000_000
TRACE_ID = "00112233445566778899aabbccddeeff"
SENT = "org.apache.kafka.producer.record.send.total"
LATENCY = "pykafka_sink.request_latency"


UNITS = {"pykafka_sink.records_acknowledged": "", "pykafka_sink.task_part": "s"}


@pytest.fixture
def collector():
    with receiver() as listening:
        yield listening


@pytest.fixture(autouse=True)
def fresh_senders(monkeypatch):
    """Nothing of this machine's environment, or of an earlier test."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name, raising=False)
    otlp._process_resource.cache_clear()
    yield
    otlp._process_resource.cache_clear()
    for sender in background._senders.values():
        sender.close()
    background._senders.clear()


def timed(**more):
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


def put(collector, *lines, **options):
    otlp = OtlpOutput(endpoint=collector.endpoint, timeout_ms=60_000, **options)
    for line in lines:
        write_outputs(MetricsOutputs(otlp=otlp), line)
    assert background._senders[otlp].wait(PATIENCE_S)


def spans_of(collector):
    spans = {span.name: span for span in collector.spans}
    assert len(spans) == len(collector.spans)
    return spans


def value(point):
    return float(getattr(point, point.WhichOneof("value")))


# --- metrics --------------------------------------------------------------------------------------


def test_each_metric_of_the_producer_has_its_value(collector):
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
    # Totals are monotonic deltas, and the rest are gauges.
    put(collector, timed(batch_id=4))
    assert [point.as_int for point in collector.points(SENT)] == [2200, 2200]
    for metric in metrics_in(collector.metrics[0]):
        kind = metric.WhichOneof("data")
        assert (kind == "sum") is (kind != "exponential_histogram" and is_total(metric.name))
        if metric.name in UNITS:
            assert metric.unit == UNITS[metric.name]
        if kind == "sum":
            assert metric.sum.aggregation_temporality == DELTA
            assert metric.sum.is_monotonic
            starts = {point.start_time_unix_nano for point in metric.sum.data_points}
            assert starts == {(T - 80) * NS}


def is_total(name):
    """As the sink's own names say it, without their units; and Kafka's."""
    plain = name.replace("pykafka_sink.", "pykafka_sink_")
    own = {f"{plain}_total", f"{plain}_seconds_total"}
    return name.endswith(".total") or not own.isdisjoint(metric.name for metric in OWN_METRICS)


def test_latencies_are_the_lines_own_histogram(collector, monkeypatch):
    line = timed()
    put(collector, line)
    parts = collector.points("pykafka_sink.task_part")
    waits = {attributes_of(point)["part"]: value(point) for point in parts}
    assert waits["ack_wait"] == pytest.approx(0.06)
    (point,) = collector.points(LATENCY)
    counts = {
        str(point.positive.offset + place): count
        for place, count in enumerate(point.positive.bucket_counts)
        if count
    }
    assert {"scale": point.scale, "counts": counts} == line["request_latency"]["histogram"]
    assert (point.count, point.sum, point.max) == (8, 80, 16)
    assert not point.HasField("min")
    variable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    monkeypatch.setenv(variable, "explicit_bucket_histogram")
    put(collector, timed(batch_id=4), service_name="explicit")
    point = collector.points(LATENCY)[-1]
    assert list(point.explicit_bounds)[:6] == [1, 2, 4, 8, 16, 32]
    assert list(point.bucket_counts)[:6] == [0, 0, 4, 0, 4, 0]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert sum(point.bucket_counts) == point.count == 8
    assert len(point.exemplars) == 1


# --- the resource ---------------------------------------------------------------------------------


LAKE = {"service.name": "lake"}
BOTH = {"RESOURCE_ATTRIBUTES": "service.name=lake,service.instance.id=one"}


@pytest.mark.parametrize(
    ("environment", "option", "expected"),
    [
        ({}, None, {"service.name": "pykafka-sink"}),
        ({"SERVICE_NAME": "lake"}, None, LAKE),
        ({"SERVICE_NAME": "lake"}, "orders", {"service.name": "orders"}),
        (BOTH, None, {**LAKE, "service.instance.id": "one"}),
    ],
)
def test_the_resource(environment, option, expected, collector, monkeypatch):
    for name, text in environment.items():
        monkeypatch.setenv(f"OTEL_{name}", text)
    put(collector, timed(), service_name=option)
    (of_resource,) = collector.metrics[0].resource_metrics
    found = attributes_of(of_resource.resource)
    assert all(span.resource == found for span in collector.spans)
    (of_scope,) = of_resource.scope_metrics
    assert (of_scope.scope.name, of_scope.scope.version) == ("spark_kafka_sink", __version__)
    assert found.items() >= expected.items()
    names = ("pykafka_sink.query.id", "pykafka_sink.query.name", "spark.application.id")
    assert [found[name] for name in names] == ["q", "orders", "local-1"]
    # Another one for each process: only if a user sets it.
    assert found.get("service.instance.id") == expected.get("service.instance.id")


# --- traces ---------------------------------------------------------------------------------------


def test_a_micro_batch_is_one_trace(collector):
    line = timed()
    put(collector, line)
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
    slowest = line["slowest_tasks"][0]
    for name in slowest.keys() - {"started_at_ms"}:
        assert task.attributes[f"pykafka_sink.task.{name}"] == slowest[name]
    assert task.attributes["messaging.batch.message_count"] == slowest["records"]


def test_the_histogram_leads_to_the_slowest_task(collector):
    put(collector, timed())
    (point,) = collector.points(LATENCY)
    (exemplar,) = point.exemplars
    task = spans_of(collector)["task"]
    assert (exemplar.trace_id, exemplar.span_id) == (task.trace_id, task.id)
    assert exemplar.as_double == 16 == task.attributes["pykafka_sink.task.request_latency_max_ms"]
    assert task.start <= exemplar.time_unix_nano <= task.end
    put(collector, timed(batch_id=4), signals=("metrics",))
    assert len(collector.traces) == 1
    slowest = {**timed()["slowest_tasks"][0], "request_latency_max_ms": 0}
    put(collector, timed(batch_id=5, slowest_tasks=[slowest]))
    assert not [one for point in collector.points(LATENCY)[1:] for one in point.exemplars]


def test_clocks_that_differ_make_no_span_end_before_it_begins(collector):
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


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"failed_tasks": 1}, "1 of 2 tasks failed: Spark's log has their errors"),
        ({"failed_tasks": 0}, "no task failed, but the commit did, or Spark gave the batch up"),
        ({"failed_tasks": 1, "error": "ValueError: bad: row"}, "ValueError: bad: row"),
    ],
)
def test_a_batch_that_failed_says_so(more, why, collector):
    otlp = OtlpOutput(endpoint=collector.endpoint, timeout_ms=60_000)
    write_outputs(MetricsOutputs(otlp=otlp), timed(event="abort", **more))
    spans = spans_of(collector)  # it has waited: nothing comes after it
    root = spans["micro-batch"].message
    assert root.status.code == root.status.STATUS_CODE_ERROR
    assert root.status.message.startswith(why)
    assert {"abort", "tasks", "planning"} < spans.keys()
    events = [(event.name, attributes_of(event)) for event in root.events]
    exception = {"exception.type": "ValueError", "exception.message": "bad: row"}
    assert events == ([("exception", exception)] if "error" in more else [])


@pytest.mark.parametrize("planned", [None, PlanningSpan(T - 80, 30.0)])
def test_what_is_unknown_of_an_abort_is_not_made_up(planned, collector):
    summary = BatchSummary(None, None, planned=planned)
    more = {} if planned is None else {"commit_started_at_ms": T}
    line = json.loads(json.dumps(summary.line("abort", 3, **more)))
    put(collector, line)
    spans = spans_of(collector)
    root = spans["micro-batch"]
    assert spans.keys() == {"micro-batch"} | ({"planning", "abort"} if planned else set())
    assert root.message.status.message == "Spark does not tell why"
    assert planned or root.start == root.end == line["time_ms"] * NS
    assert not [m for m in metrics_in(collector.metrics[0]) if m.name.startswith("org.")]
    assert [value(point) for point in collector.points("pykafka_sink.batches")] == [1]


ROOT = Path(__file__).resolve().parents[2]
SERVERS = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}


def otlp_options(**options):
    given = {f"metrics.otlp.{name.replace('_', '.')}": text for name, text in options.items()}
    return SinkOptions.parse({**SERVERS, **given})


def test_the_environment_alone_does_not_switch_it_on(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert otlp_options().metrics == MetricsOutputs()


def test_without_the_package_a_job_does_not_begin(monkeypatch):
    monkeypatch.setattr(outputs, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'pykafka-sink\[otel\]'"):
        check_outputs(MetricsOutputs(otlp=OtlpOutput()))
    monkeypatch.setattr(outputs, "find_spec", importlib.util.find_spec)
    check_outputs(MetricsOutputs(otlp=OtlpOutput()))


def test_nothing_of_it_is_loaded_before_there_is_a_line():
    program = (
        "import sys\n"
        "from spark_kafka_sink.config.sink_options import SinkOptions\n"
        "from spark_kafka_sink.metrics.outputs import check_outputs\n"
        f"options = {{**{SERVERS}, 'metrics.otlp.enable': 'true'}}\n"
        "check_outputs(SinkOptions.parse(options).metrics)\n"
        "import spark_kafka_sink.spark.writer\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.metrics.outputs" in loaded
    assert not loaded & {"requests", "google.protobuf", "opentelemetry.sdk.trace"}


@pytest.mark.parametrize(
    ("option", "variables", "timeout_s", "told"),
    [
        (None, {}, 3, []),
        (None, {"TIMEOUT": "10000"}, 10, []),
        (None, {"TIMEOUT": "10000", "TRACES_TIMEOUT": "2000"}, 2, []),
        (None, {"TIMEOUT": "7"}, 0.007, ["OTEL_EXPORTER_OTLP_TIMEOUT=7 is 7 ms, as Open"]),
        *((None, {"TIMEOUT": other}, 3, []) for other in ("x", "-1", "inf", "nan")),
        (250, {"TIMEOUT": "10"}, 0.25, []),
    ],
)
def test_the_timeout(option, variables, timeout_s, told, monkeypatch):
    """Milliseconds: OpenTelemetry Protocol Exporter, "Configuration Options"."""
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    output = OtlpOutput(timeout_ms=option)
    assert outputs.otlp_timeout_s(output, "traces") == timeout_s
    notes = list(outputs.short_timeouts(output))
    assert len(notes) == len(told)
    assert all(note.startswith(begins) for note, begins in zip(notes, told))


def test_a_reference_that_leads_nowhere_is_told_before_a_job_begins():
    options = otlp_options(enable="true", headers="a=${env:PYKAFKA_NOT_SET}")
    with pytest.raises(ConfigError, match=r"metrics\.otlp\.headers: .*PYKAFKA_NOT_SET"):
        check_outputs(options.metrics)


SECRET = "Bearer marked-hush"
# Exporters try again after 800 ms at the earliest.
SHORT_MS = 790


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO)
    return caplog


def messages(told):
    """All that was logged, by whomever."""
    return [f"{r.levelname} {r.getMessage()}" for r in told.records]


def to(endpoint, **more):
    return OtlpOutput(endpoint=endpoint, **{"timeout_ms": 60_000, "signals": ("traces",), **more})


def send(output, **more):
    """A line that is sent when this returns."""
    write_outputs(MetricsOutputs(otlp=output), {**a_line(), **more})
    assert background._senders[output].wait(PATIENCE_S)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


# --- where it goes --------------------------------------------------------------------------------


def test_options_win_and_a_signals_own_variable(collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=other")
    send(to(f"{collector.endpoint}/", headers=Secret("X-Tenant=lake%2Cone")))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
    send(to(None))
    sent = [headers["x-tenant"] for headers in map(lowered, collector.headers)]
    assert sent == ["lake,one", "other"]
    for name in ("TRACES_ENDPOINT", "HEADERS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{collector.endpoint}/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=lake%20one")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    collector.headers.clear()
    send(to(None, signals=("metrics", "traces")))
    assert len(collector.metrics) == 1
    assert [headers["x-tenant"] for headers in collector.headers] == ["lake one"] * 2
    assert {headers["Content-Encoding"] for headers in collector.headers} == {"gzip"}


def lowered(headers):
    return {name.lower(): value for name, value in headers.items()}


def test_what_of_the_environment_has_no_effect_is_told(collector, monkeypatch, told):
    temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    monkeypatch.setenv(temporality, "cumulative")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    send(to(collector.endpoint))
    send(to(collector.endpoint))
    first, second = messages(told)
    assert f"{temporality}=cumulative has no effect" in first
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc has no effect" in second


def test_the_environment_switches_it_off(collector, monkeypatch, told):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    outputs = MetricsOutputs(otlp=to(collector.endpoint))
    check_outputs(outputs)
    assert messages(told) == [
        "WARNING OTEL_SDK_DISABLED=true: metrics.otlp.* sends nothing [PKS-METRICS-005]"
    ]
    write_outputs(outputs, of_a_job(a_line()))
    assert background._senders == {}
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    # A job's line is sent when this returns.
    write_outputs(outputs, of_a_job(timed()))
    assert "job" in spans_of(collector)


IN_CLEAR = "the headers cross the network unencrypted"


@pytest.mark.parametrize(
    ("endpoint", "is_told"),
    [
        ("http://collector:4318", True),
        ("HTTP://Collector", True),
        ("https://collector:4318", False),
        ("http://localhost:4318", False),
        ("http://[::1]:4318", False),
    ],
)
def test_headers_that_go_over_http_are_told(endpoint, is_told):
    notes = [note for note in parsed(endpoint, "a=${env:B}").notes if IN_CLEAR in note]
    assert bool(notes) is is_told
    assert all("PKS-AUTH-002" in note for note in notes)
    assert not [note for note in otlp_options(endpoint=endpoint).notes if IN_CLEAR in note]


HOST = "http://collector.invalid"


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ({"HEADERS": "a=b", "ENDPOINT": f"{HOST}:4318"}, {}),
        ({"TRACES_HEADERS": "a=b"}, {"endpoint": f"{HOST}:4318"}),
        ({"TRACES_ENDPOINT": f"{HOST}/v1/traces"}, {"headers": Secret("a=b")}),
        ({"TRACES_ENDPOINT": "http://u:marked@collector.invalid/v1/traces"}, {}),
    ],
)
def test_headers_of_the_environment_that_go_over_http_are_told(
    environment, option, monkeypatch, told
):
    for name, value in environment.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    send(to(**{"endpoint": None, "timeout_ms": SHORT_MS, **option}))
    (note,) = [text for text in messages(told) if IN_CLEAR in text]
    assert "PKS-AUTH-002" in note
    assert "marked" not in note


def parsed(endpoint, headers):
    otlp = {"metrics.otlp.endpoint": endpoint, "metrics.otlp.headers": headers}
    return SinkOptions.parse({**SERVERS, **otlp})


# --- secrets --------------------------------------------------------------------------------------


def test_headers_are_secret(collector, monkeypatch, told):
    monkeypatch.setenv("AUTHORIZATION", SECRET)
    options = parsed(collector.endpoint, "Authorization=${env:AUTHORIZATION}")
    assert options.notes == ()
    check_outputs(options.metrics)
    output = options.metrics.otlp
    assert output is not None
    collector.statuses = [401]
    send(output)
    send(output)
    assert [headers["authorization"] for headers in map(lowered, collector.headers)] == [SECRET] * 4
    in_clear = parsed(collector.endpoint, f"Authorization={SECRET}")
    assert "marked-hush" not in f"{messages(told)} {in_clear} {in_clear.notes}"
    assert b"marked-hush" not in pickle.dumps(in_clear)
    assert pickle.loads(pickle.dumps(in_clear)) == in_clear


def test_a_header_is_resolved_for_each_line(collector, tmp_path, told):
    path = tmp_path / "token.properties"
    output = to(collector.endpoint, headers=Secret(f"x-key=${{file:{path}:key}}"))

    def sent_with(key):
        if key is None:
            path.unlink()
        else:
            path.write_text(f"key={key}\n")
        collector.headers.clear()
        send(output)
        return [headers["x-key"] for headers in map(lowered, collector.headers)]

    assert [sent_with(key) for key in ("marked-1", "marked-2")] == [["marked-1"], ["marked-2"]]
    assert messages(told) == []
    assert sent_with(None) == []
    assert sent_with("marked-3") == ["marked-3"]
    lost, found = messages(told)
    assert "cannot send traces" in lost
    assert str(path) in lost
    assert "those of 1 batch(es) are lost" in found
    assert "marked" not in lost + found


def test_a_relative_file_of_another_session_is_another_header(collector, tmp_path, monkeypatch):
    output = to(collector.endpoint, headers=Secret("x-key=${file:token:key}"))
    for session in ("first", "second"):
        (tmp_path / session).mkdir()
        (tmp_path / session / "token").write_text(f"key={session}\n")
    for session in ("first", "second"):
        monkeypatch.chdir(tmp_path / session)
        write_outputs(MetricsOutputs(otlp=output), a_line())
    for sender in background._senders.values():
        assert sender.wait(PATIENCE_S)
    assert sorted(lowered(headers)["x-key"] for headers in collector.headers) == ["first", "second"]


def test_headers_are_not_taken_to_another_place(collector, told):
    collector.statuses = [302]
    send(to(collector.endpoint, headers=Secret(f"x-key={SECRET}")))
    assert len(collector.headers) == 1
    (message,) = messages(told)
    assert "HTTP 302" in message


# --- what fails -----------------------------------------------------------------------------------


def test_what_fails_is_told_once_and_so_is_that_it_no_longer_does(told):
    port = free_port()
    output = to(f"http://127.0.0.1:{port}", timeout_ms=SHORT_MS)
    for _ in range(3):
        send(output)
    where = f"http://127.0.0.1:{port}/v1/traces"
    (lost,) = messages(told)
    assert lost.startswith(f"WARNING metrics.otlp: cannot send traces to {where}: Connection ref")
    assert lost.endswith("[PKS-METRICS-003]")
    collector = Receiver(port)
    try:
        send(output)
        send(output)
    finally:
        collector.close()
    again = f"INFO metrics.otlp: traces are sent to {where} again; those of 3 batch(es) are lost"
    assert messages(told) == [lost, again]
    assert len(collector.traces) == 2


def test_certificates_that_are_missing_are_told(collector, monkeypatch, told):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/not/there.pem")
    send(to(collector.endpoint.replace("http:", "https:"), timeout_ms=SHORT_MS))
    (message,) = messages(told)
    assert "/not/there.pem" in message


def test_what_a_receiver_refuses_a_part_of_is_told(collector, told):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    refusal = ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
    collector.answers["/v1/traces"] = ExportTraceServiceResponse(partial_success=refusal)
    send(to(collector.endpoint))
    (message,) = messages(told)
    assert "2 of them are refused: too old" in message


def test_one_signal_that_fails_does_not_keep_the_other(collector, told):
    collector.statuses = [404]
    send(to(collector.endpoint, signals=("metrics", "traces")))
    assert (len(collector.traces), len(collector.metrics)) == (0, 1)
    assert len(messages(told)) == 1


def test_a_defect_is_told_and_no_batch_fails(collector, told):
    output = to(collector.endpoint)
    send(output, slowest_tasks=[{}])
    send(output, slowest_tasks=[{}])
    send(output)
    (message,) = messages(told)
    assert message.startswith("WARNING metrics of a batch are not sent: KeyError")
    assert len(collector.traces) == 1


def test_a_committed_batch_names_its_trace(collector, tmp_path):
    path = tmp_path / "metrics.jsonl"
    otlp = {"metrics.otlp.endpoint": collector.endpoint, "metrics.path": str(path)}
    options = SinkOptions.parse({**SERVERS, **otlp})
    commit_batch(options, [], Unit("q", 7, None))
    collector.wait_for(2)
    text = path.read_text(encoding="utf-8")
    check_text(text)
    assert {span.trace_id.hex() for span in collector.spans} == {json.loads(text)["trace_id"]}


# --- processes -------------------------------------------------------------------------------------


def test_a_process_of_the_users_own_sends_all_before_it_ends(collector):
    program = (
        "from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput\n"
        "from spark_kafka_sink.metrics.outputs import write_outputs\n"
        f"otlp = OtlpOutput({collector.endpoint!r}, timeout_ms=60_000)\n"
        "for number in range(3):\n"
        "    line = {'event': 'commit', 'batch_id': number, 'time_ms': 10**12}\n"
        "    write_outputs(MetricsOutputs(otlp=otlp), line)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    assert [len(collector.traces), len(collector.metrics)] == [3, 3]
