"""Sending by OTLP: what fails is told once, nothing waits, nothing shows a secret."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics import background
from spark_kafka_sink.metrics.otlp import root_cause
from spark_kafka_sink.metrics.outputs import check_outputs, write_outputs
from spark_kafka_sink.spark.writer import commit_batch
from spark_kafka_sink.transactions.model import Unit
from tests.lines import check_text
from tests.otlp import Receiver, receiver
from tests.patience import PATIENCE_S
from tests.unit.test_metrics_names import a_line, of_a_job

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
SECRET = "Bearer marked-hush"
# Exporters try again after 800 ms at the earliest.
SHORT_MS = 790


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as listening:
        yield listening


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    for sender in background._senders.values():
        sender.close()
    background._senders.clear()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def messages(told: pytest.LogCaptureFixture) -> list[str]:
    """All that was logged, by whomever."""
    return [f"{r.levelname} {r.getMessage()}" for r in told.records]


def to(endpoint: str | None, **more: Any) -> OtlpOutput:
    return OtlpOutput(endpoint=endpoint, **{"timeout_ms": 60_000, "signals": ("traces",), **more})


def put(output: OtlpOutput, **more: Any) -> None:
    """A line that is sent when this returns."""
    write_outputs(MetricsOutputs(otlp=output), {**a_line(), **more})
    assert background._senders[output].wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


# --- where it goes --------------------------------------------------------------------------------


def test_the_environment_tells_what_options_do_not(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{collector.endpoint}/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=lake%20one")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    put(to(None, signals=("metrics", "traces")))
    assert len(collector.metrics) == len(collector.traces) == 1
    assert [headers["x-tenant"] for headers in collector.headers] == ["lake one"] * 2
    assert {headers["Content-Encoding"] for headers in collector.headers} == {"gzip"}


def test_a_signal_can_go_elsewhere(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
    put(to(None))
    assert len(collector.traces) == 1


def test_options_win(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=other")
    put(to(f"{collector.endpoint}/", headers=Secret("X-Tenant=lake%2Cone")))
    assert [headers["x-tenant"] for headers in map(lowered, collector.headers)] == ["lake,one"]


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_what_of_the_environment_has_no_effect_is_told(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    monkeypatch.setenv(temporality, "cumulative")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    put(to(collector.endpoint))
    put(to(collector.endpoint))
    first, second = messages(told)
    assert f"{temporality}=cumulative has no effect" in first
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc has no effect" in second


def test_the_environment_switches_it_off(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    outputs = MetricsOutputs(otlp=to(collector.endpoint))
    check_outputs(outputs)
    assert messages(told) == [
        "WARNING OTEL_SDK_DISABLED=true: metrics.otlp.* sends nothing [PKS-METRICS-005]"
    ]
    write_outputs(outputs, of_a_job(a_line()))
    assert background._senders == {}
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    put(to(collector.endpoint))
    assert len(collector.traces) == 1


def parsed(endpoint: str, headers: str) -> SinkOptions:
    otlp = {"metrics.otlp.endpoint": endpoint, "metrics.otlp.headers": headers}
    return SinkOptions.parse({**SERVERS, **otlp})


# --- secrets --------------------------------------------------------------------------------------


def test_headers_are_secret(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AUTHORIZATION", SECRET)
    options = parsed(collector.endpoint, "Authorization=${env:AUTHORIZATION}")
    assert options.notes == ()
    check_outputs(options.metrics)
    output = options.metrics.otlp
    assert output is not None
    collector.statuses = [401]
    put(output)
    put(output)
    assert [headers["authorization"] for headers in map(lowered, collector.headers)] == [SECRET] * 4
    in_clear = parsed(collector.endpoint, f"Authorization={SECRET}")
    assert "marked-hush" not in f"{messages(told)} {in_clear} {in_clear.notes}"
    assert b"marked-hush" not in pickle.dumps(in_clear)
    assert pickle.loads(pickle.dumps(in_clear)) == in_clear


def test_a_password_in_the_address_is_not_told(told: pytest.LogCaptureFixture) -> None:
    port = free_port()
    put(to(f"http://user:marked-hush@127.0.0.1:{port}", timeout_ms=SHORT_MS))
    (message,) = messages(told)
    assert f"http://127.0.0.1:{port}/v1/traces" in message
    assert "marked-hush" not in message


def test_headers_are_not_taken_to_another_place(
    collector: Receiver, told: pytest.LogCaptureFixture
) -> None:
    collector.statuses = [302]
    put(to(collector.endpoint, headers=Secret(f"x-key={SECRET}")))
    assert len(collector.headers) == 1
    (message,) = messages(told)
    assert "HTTP 302" in message


# --- what fails -----------------------------------------------------------------------------------


def test_what_fails_is_told_once_and_so_is_that_it_no_longer_does(
    told: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    output = to(f"http://127.0.0.1:{port}", timeout_ms=SHORT_MS)
    for _ in range(3):
        put(output)
    where = f"http://127.0.0.1:{port}/v1/traces"
    expected = [
        f"WARNING metrics.otlp: cannot send traces to {where}: Connection refused. Batches go on, "
        "and what is not sent is lost; the log tells when it is sent again [PKS-METRICS-003]"
    ]
    assert messages(told) == expected
    collector = Receiver(port)
    try:
        put(output)
        put(output)
    finally:
        collector.close()
    expected.append(
        f"INFO metrics.otlp: traces are sent to {where} again; those of 3 batch(es) are lost"
    )
    assert messages(told) == expected
    assert len(collector.traces) == 2


def test_certificates_that_are_missing_are_told(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/not/there.pem")
    put(to(collector.endpoint.replace("http:", "https:"), timeout_ms=SHORT_MS))
    (message,) = messages(told)
    assert "/not/there.pem" in message


def test_another_reason_is_told_again(collector: Receiver, told: pytest.LogCaptureFixture) -> None:
    collector.statuses = [401, 401, 404]
    for _ in range(3):
        put(to(collector.endpoint))
    assert [f"HTTP {status}" in text for status, text in zip((401, 404), messages(told))] == [
        True,
        True,
    ]
    assert len(messages(told)) == 2


def test_what_a_receiver_refuses_a_part_of_is_told(
    collector: Receiver, told: pytest.LogCaptureFixture
) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    refusal = ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
    collector.answers["/v1/traces"] = ExportTraceServiceResponse(partial_success=refusal)
    put(to(collector.endpoint))
    (message,) = messages(told)
    assert "2 of them are refused: too old" in message


def test_one_signal_that_fails_does_not_keep_the_other(
    collector: Receiver, told: pytest.LogCaptureFixture
) -> None:
    collector.statuses = [404]
    put(to(collector.endpoint, signals=("metrics", "traces")))
    assert (len(collector.traces), len(collector.metrics)) == (0, 1)
    assert len(messages(told)) == 1


def test_nobody_that_answers_costs_a_job_no_more_than_its_timeout(
    told: pytest.LogCaptureFixture,
) -> None:
    """The address takes connections, and is silent."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        output = to(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=SHORT_MS)
        write_outputs(MetricsOutputs(otlp=output), of_a_job(a_line()))
        assert background._senders[output].wait(PATIENCE_S)
    assert messages(told)[0].startswith(
        "WARNING metrics.otlp: cannot send traces to http://127.0.0.1"
    )
    assert root_cause(requests.ReadTimeout("HTTPConnectionPool(…)")) == "no answer in time"


def test_a_defect_is_told_and_no_batch_fails(
    collector: Receiver, told: pytest.LogCaptureFixture
) -> None:
    output = to(collector.endpoint)
    put(output, slowest_tasks=[{}])
    put(output, slowest_tasks=[{}])
    put(output)
    (message,) = messages(told)
    assert message.startswith("WARNING metrics of a batch are not sent: KeyError")
    assert len(collector.traces) == 1


def test_a_committed_batch_names_its_trace(collector: Receiver, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    otlp = {"metrics.otlp.endpoint": collector.endpoint, "metrics.path": str(path)}
    options = SinkOptions.parse({**SERVERS, **otlp})
    commit_batch(options, [], Unit("q", 7, None))
    collector.wait_for(2)
    text = path.read_text(encoding="utf-8")
    check_text(text)
    assert {span.trace_id.hex() for span in collector.spans} == {json.loads(text)["trace_id"]}


# --- processes -------------------------------------------------------------------------------------


def test_a_process_of_the_users_own_sends_all_before_it_ends(collector: Receiver) -> None:
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


def test_a_fork_has_a_thread_of_its_own(collector: Receiver) -> None:
    output = to(collector.endpoint)
    put(output)
    child = os.fork()
    if child == 0:
        try:
            put(output)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(collector.traces) == 2
