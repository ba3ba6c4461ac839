"""Collectors and push gateways that quote what they are sent, or answer without end."""

import base64
import functools
import gzip
import threading
import tracemalloc
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput
from spark_kafka_sink.metrics import background
from spark_kafka_sink.metrics.outputs import check_outputs, write_outputs
from spark_kafka_sink.metrics.prometheus import PushGatewayExporter
from tests.patience import PATIENCE_S
from tests.unit.security.tls_ends import authority, other_authority, server_context
from tests.unit.test_http import ANSWERS, dripping
from tests.unit.test_metrics_line import a_line, of_a_job
from tests.unit.test_metrics_otlp import fresh_senders  # noqa: F401 (a fixture)

OK = b"HTTP/1.1 200 OK\r\n"
PROTOBUF = OK + b"Content-Type: application/x-protobuf\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n"


class Hostile:
    """headers: of the requests; written: bytes that were taken of an answer without end"""

    def __init__(self):
        self.headers = []
        self.written = 0
        self.url = ""


@contextmanager
def answering(first, then=b"", context=None):
    """A server of one answer, which it goes on with until the client hangs up.

    first: bytes, or a function of the request's headers; context: for https
    """
    hostile = Hostile()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            hostile.headers.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(first(self.headers) if callable(first) else first)
            with suppress(OSError):
                while then:
                    self.wfile.write(then)
                    hostile.written += len(then)

        def do_PUT(self):
            self.do_POST()

        def log_message(self, *_):
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hostile.url = f"http://127.0.0.1:{server.server_port}"
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            hostile.url = hostile.url.replace("http:", "https:")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield hostile
        server.shutdown()


def send_by_otlp(url, timeout_ms=60_000, headers=None):
    otlp = OtlpOutput(url, headers, signals=("traces",), timeout_ms=timeout_ms)
    write_outputs(MetricsOutputs(otlp=otlp), a_line())
    assert background._senders[otlp].wait(PATIENCE_S)


def push(url, timeout_ms=60_000):
    PushGatewayExporter(url, "nightly", timeout_ms / 1000).send(of_a_job(a_line()), 0)


SENDERS = {"otlp": send_by_otlp, "gateway": push}


@pytest.fixture(params=SENDERS)
def send(request):
    return SENDERS[request.param]


def only_message(caplog):
    (record,) = caplog.records
    return record.getMessage()


# --- what quotes a header ------------------------------------------------------------------------

TOKEN = "marked-Wq7zR4tL9vB2kM5xYp"
BASIC = base64.b64encode(f"user:{TOKEN}".encode()).decode()


def in_reason(quoted):
    return b"HTTP/1.1 403 no to " + quoted.encode() + b"\r\nContent-Length: 0\r\n\r\n"


def in_partial_success(quoted):
    refusal = ExportTracePartialSuccess(rejected_spans=1, error_message=f"no to {quoted}")
    body = ExportTraceServiceResponse(partial_success=refusal).SerializeToString()
    return PROTOBUF + LENGTH % len(body) + body


def in_another_answer(quoted):
    body = f"no to {quoted}".encode()
    return PROTOBUF + LENGTH % len(body) + body


QUOTES = {
    "the header": lambda sent: sent,
    "without its scheme": lambda sent: sent.split()[-1],
    "cut": lambda sent: sent.split()[-1][:17],
    "its end": lambda sent: sent.split()[-1][-17:],
    "decoded": lambda sent: f"user:{TOKEN}",
}


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("place", [in_reason, in_partial_success, in_another_answer])
@pytest.mark.parametrize(
    ("headers", "environment"),
    [
        (f"Authorization=Bearer%20{TOKEN}", {}),
        (f"x-tenant=lake,api-key={TOKEN}", {}),
        ("Authorization=Bearer%20${env:T}", {"T": TOKEN}),
        ("Authorization=Basic%20${env:T}", {"T": BASIC}),
        (None, {"OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{TOKEN}"}),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"Authorization=Basic%20{BASIC}"}),
    ],
)
def test_no_header_that_a_collector_quotes_is_logged(
    headers, environment, place, quote, caplog, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def answer(sent):
        return place(QUOTES[quote](sent["Authorization"] or sent["api-key"]))

    with answering(answer) as collector:
        send_by_otlp(collector.url, headers=None if headers is None else Secret(headers))
    assert TOKEN in str(collector.headers) or BASIC in str(collector.headers)
    message = only_message(caplog)
    assert not [secret for secret in (TOKEN, BASIC) if has_half(secret, message)]


WRAPPED = base64.encodebytes(f"collector-user:{TOKEN * 4}".encode()).decode()
ESCAPED = WRAPPED.replace("\n", "%0A")
VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"


@pytest.mark.parametrize(
    ("headers", "name", "value"),
    [
        ("Authorization=Basic ${env:T}", "T", WRAPPED),
        (None, VARIABLE, f"Authorization=Basic%20{ESCAPED}"),
        ("x-tenant=lake,${env:T}", "T", f"x-key={TOKEN},{TOKEN}"),
        (None, VARIABLE, f"Authorization: Bearer {TOKEN}"),
        ("x-key=${env:T}", "T", f"{TOKEN}\u20ac"),
    ],
    ids=["base64 in lines", "in the environment", "without a name", "a colon", "not Latin-1"],
)
def test_what_cannot_be_a_header_is_neither_sent_nor_shown(
    headers, name, value, caplog, monkeypatch
):
    monkeypatch.setenv(name, value)
    with answering(OK + LENGTH % 0) as collector:
        if headers is not None:
            output = OtlpOutput(collector.url, Secret(headers))
            with pytest.raises(ConfigError) as raised:
                check_outputs(MetricsOutputs(otlp=output))
            assert not has_half(TOKEN, str(raised.value))
        send_by_otlp(collector.url, headers=None if headers is None else Secret(headers))
    assert not has_half(TOKEN, str(collector.headers))
    message = only_message(caplog)
    assert "PKS-" in message
    assert not [secret for secret in (TOKEN, WRAPPED.split()[0]) if has_half(secret, message)]


def has_half(secret, message):
    half = len(secret) // 2
    return any(secret[at : at + half] in message for at in range(len(secret) - half + 1))


def test_a_password_in_the_environments_address_is_sent_as_a_header_and_not_shown(
    caplog, monkeypatch
):
    with answering(lambda sent: in_reason(sent["Authorization"])) as collector:
        address = collector.url.replace("//", f"//user:{TOKEN}@")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        send_by_otlp(None)
    assert collector.headers[0]["Authorization"] == f"Basic {BASIC}"
    message = only_message(caplog)
    assert not has_half(BASIC, message)
    assert not has_half(TOKEN, message)


def test_a_collector_is_known_by_the_environments_certificate_and_knows_the_driver(
    tmp_path, caplog, monkeypatch
):
    trusted = write_private(tmp_path / "ca.pem", authority().pem)
    asks_for_ours = server_context(clients=authority())
    with answering(OK + LENGTH % 0, context=asks_for_ours) as collector:
        send_by_otlp(collector.url, timeout_ms=790)
        assert "CERTIFICATE_VERIFY_FAILED" in only_message(caplog)
        caplog.clear()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(trusted))
        own = authority().issue("driver", ["driver"])
        for name, pem in (
            ("CLIENT_KEY", own.private_key()),
            ("CLIENT_CERTIFICATE", own.certificate_chain),
        ):
            write_private(tmp_path / name, pem)
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(tmp_path / name))
        send_by_otlp(collector.url)
    assert caplog.records == []
    assert len(collector.headers) == 1


def test_certificates_that_are_replaced_are_used_by_the_next_batch(tmp_path, caplog, monkeypatch):
    trusted = write_private(tmp_path / "ca.pem", other_authority().pem)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(trusted))
    with answering(OK + LENGTH % 0, context=server_context()) as collector:
        send_by_otlp(collector.url, timeout_ms=790)
        assert "CERTIFICATE_VERIFY_FAILED" in only_message(caplog)
        write_private(trusted, authority().pem)
        send_by_otlp(collector.url)
    assert len(collector.headers) == 1


# --- what has no end -----------------------------------------------------------------------------

MIB = 1024 * 1024


@pytest.mark.parametrize("place", ["nothing at all", "status line", "headers", "small chunks"])
def test_an_answer_that_drips_ends_with_the_timeout(place, send, caplog):
    with dripping(ANSWERS[place]) as server:
        send(server.url, timeout_ms=790)
    assert "no answer in time" in only_message(caplog)


@pytest.mark.parametrize("is_late", [True, False], ids=["late", "cut"])
def test_what_a_collector_may_have_is_not_sent_again(is_late, caplog):
    """Sums are deltas, so the collector would add them twice."""
    over = threading.Event()

    def answer(_):
        if is_late:
            over.wait(PATIENCE_S)
        return OK + LENGTH % 9 + b"cut"

    with answering(answer) as collector:
        send_by_otlp(collector.url, timeout_ms=790 if is_late else 60_000)
        over.set()
    assert len(collector.headers) == 1
    assert ("no answer in time" if is_late else "cut") in only_message(caplog)


@pytest.mark.parametrize("first", [OK, PROTOBUF, b"HTTP/1.1 500 no\r\n"])
def test_an_answer_without_end_is_not_taken(first, send, caplog):
    with answering(first + b"\r\n", b"x" * 65_536) as server:
        send(server.url)
    assert server.written < 64 * MIB
    assert ("HTTP 500 no" if b"500" in first else "more than") in only_message(caplog)


@functools.cache
def zeros_in_gzip():
    return gzip.compress(b"\0" * (64 * MIB))


@pytest.mark.parametrize("first", [PROTOBUF, b"HTTP/1.1 500 no\r\n"])
def test_an_answer_is_not_unpacked(first, send, caplog):
    """64 KiB of gzip are 64 MiB of text."""
    body = zeros_in_gzip()
    send("http://127.0.0.1:1", timeout_ms=790)
    caplog.clear()
    with answering(first + b"Content-Encoding: gzip\r\n" + LENGTH % len(body) + body) as server:
        tracemalloc.start()
        try:
            send(server.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 16 * MIB
    assert server.headers[0]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("body", [b"\xff" * 9, b"not OTLP"])
def test_an_answer_that_is_not_otlp_is_told(body, caplog):
    with answering(PROTOBUF + LENGTH % len(body) + body) as collector:
        send_by_otlp(collector.url)
    assert "no answer of OTLP" in only_message(caplog)
