"""Lines as Prometheus reads them, by its own parser: names, totals, files, push gateway, HTTP."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.metrics import background, listen
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.metrics.prometheus import (
    Exposition,
    PushGatewayExporter,
    QueryMetricsCollector,
)
from spark_kafka_sink.spark.commit import BatchSummary
from tests.answering import SameAnswer
from tests.prometheus import Samples
from tests.unit.test_metrics_line import a_line, of_a_job

ROOT = Path(__file__).resolve().parents[2]
SENT = "kafka_producer_producer_metrics_record_send_total"
QUERY = "7a1b"


def of_query(line, **more):
    return {**line, "query_id": QUERY, **more}


def samples_of(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    return Samples(generate_latest(registry).decode())


def exposed(*lines):
    exposition = Exposition()
    for line in lines:
        exposition.add(line)
    return samples_of(exposition)


def test_names_and_labels_are_those_of_jmx_exporter():
    read = exposed(a_line())
    assert read(SENT, client_id="c") == 2200
    assert read("kafka_producer_producer_metrics_request_latency_avg", client_id="c") == 10
    topic = "kafka_producer_producer_topic_metrics_record_send_total"
    assert read(topic, client_id="c", topic="t") == 2200
    node = "kafka_producer_producer_node_metrics_request_latency_max"
    assert read(node, client_id="c", node_id="node-1") == 16
    assert read.families[SENT.removesuffix("_total")].type == "counter"
    assert read.families["kafka_producer_producer_metrics_batch_size_avg"].type == "gauge"
    # Totals add up, and the rest is of the last batch; of an aborted one, nothing else is known.
    second, unknown = a_line(), BatchSummary(None, None).line("abort", 3, note="")
    second["metrics"].update(records_sent=300, request_latency_max_ms=99)
    read = exposed(a_line(), second, unknown)
    assert read(SENT, client_id="c") == 2500
    assert read("kafka_producer_producer_metrics_request_latency_max") == 99
    assert read("kafka_producer_producer_metrics_record_send_rate") == 600
    assert read("pykafka_sink_batches_total", event="commit") == 2
    assert read("pykafka_sink_batches_total", event="abort") == 1


def test_queries_are_told_apart_and_each_name_is_described_once():
    """Prometheus refuses a text in which a name has two lines HELP."""
    exposition = Exposition()
    for line in (a_line(), of_query(a_line())):
        exposition.add(line)
    registry = CollectorRegistry()
    registry.register(exposition)
    read = exposed(of_query(a_line()), of_query(a_line(), query_id="other", query_name="orders"))
    assert read(SENT, query=QUERY) == read(SENT, query="orders") == 2200
    described = re.findall(r"^# HELP (\S+)", generate_latest(registry).decode(), re.MULTILINE)
    assert len(described) == len(set(described)) > 80


def test_the_sinks_own():
    read = exposed(a_line())
    assert read("pykafka_sink_records_acknowledged_total") == 2000
    assert read("pykafka_sink_task_part_seconds_total", part="ack_wait") == pytest.approx(0.06)
    assert read("pykafka_sink_current_send_time_seconds") == 0.015
    assert read("pykafka_sink_task_records", extreme="most") == 1000
    assert read("pykafka_sink_request_latency_percentile_seconds", percentile="99") == (
        pytest.approx(0.016, rel=0.045)
    )
    histogram = "pykafka_sink_request_latency_seconds"
    assert read(f"{histogram}_bucket", le="0.004") == 4
    assert read(f"{histogram}_bucket", le="0.008") == 4
    assert read(f"{histogram}_bucket", le="0.016") == 8
    assert read(f"{histogram}_count") == read(f"{histogram}_bucket", le="+Inf") == 8
    assert read(f"{histogram}_sum") == 0.08


@pytest.fixture
def gateway():
    told = []

    class Handler(BaseHTTPRequestHandler):
        """Keeps what it is told."""

        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            told.append((self.command, self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments): ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", told
        server.shutdown()
        thread.join()
    for sender in background._senders.values():
        sender.close()
    background._senders.clear()


def test_a_push_gateway_is_told(gateway):
    url, told = gateway
    outputs = MetricsOutputs(push_url=url, push_job="nightly")
    for _ in range(2):
        write_outputs(outputs, of_a_job(a_line()))
    assert [(method, path) for method, path, _ in told] == [("PUT", "/metrics/job/nightly")] * 2
    assert [Samples(body)(SENT) for _, _, body in told] == [2200, 4400]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 500 \x1b[2J marked-hush\r\nContent-Length: 0\r\n\r\n",
            r"HTTP 500 \x1b[2J [hidden]",
        ),
        (b"\x1b[2J marked-hush\r\n\r\n", "does not speak HTTP (BadStatusLine)"),
        (b"HTTP/1.1 302 x\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n", "HTTP 302 x"),
    ],
)
def test_what_a_gateway_answers_forges_no_line_of_the_log(answer, said, caplog):
    secret = Secret("marked-hush")
    with SameAnswer(answer) as server:
        exporter = PushGatewayExporter(f"http://{server.address}", "nightly", 60)
        exporter.send(of_a_job(a_line()), 0)
    (record,) = caplog.records
    assert said in record.message
    assert record.message.isprintable()
    assert secret.reveal() not in record.message


def progress(query_id, name, rows):
    return SimpleNamespace(
        id=query_id,
        name=name,
        numInputRows=rows,
        inputRowsPerSecond=10.0,
        processedRowsPerSecond=20.0,
        durationMs={"addBatch": 300, "triggerExecution": 500},
    )


def test_lines_and_progress_are_joined_by_query(tmp_path):
    path = tmp_path / "m.jsonl"
    joined = QueryMetricsCollector(str(path))
    joined.onQueryStarted(SimpleNamespace(id=QUERY, name="orders"))
    joined.onQueryProgress(SimpleNamespace(progress=progress(QUERY, "orders", 100)))
    joined.onQueryProgress(SimpleNamespace(progress=progress("elsewhere", "other", 7)))
    assert samples_of(joined).names == set()
    outputs = MetricsOutputs(str(path))
    write_outputs(outputs, of_query(a_line()))
    joined.onQueryProgress(SimpleNamespace(progress=progress(QUERY, "orders", 50)))
    read = samples_of(joined)
    assert read(SENT, query="orders") == 2200
    assert read("pykafka_sink_query_input_rows_total", query="orders") == 150
    phase = "pykafka_sink_query_phase_seconds_total"
    assert read(phase, query="orders", phase="addBatch") == 0.6
    assert read("pykafka_sink_query_active", query="orders") == 1
    assert not any("other" in sample.labels.values() for sample in read.samples)
    joined.onQueryTerminated(SimpleNamespace(id=QUERY))
    assert samples_of(joined)("pykafka_sink_query_active") == 0


class Spark:
    """The two things of a session that listening needs: its conf, and where listeners go."""

    def __init__(self, **properties):
        self.conf = properties
        self.streams = self
        self.listeners = []

    def addListener(self, listener):  # noqa: N802
        self.listeners.append(listener)

    def removeListener(self, listener):  # noqa: N802
        self.listeners.remove(listener)


def test_it_listens_until_it_is_closed(tmp_path):
    path = tmp_path / "m.jsonl"
    spark = Spark(**{"spark.pykafka.metrics.path": f"file://{path}"})
    with listen(spark, port=0, host="127.0.0.1") as listening:
        assert len(spark.listeners) == 1
        write_outputs(MetricsOutputs(str(path)), a_line())
        url = f"http://127.0.0.1:{listening.port}/metrics"
        with urllib.request.urlopen(url) as answer:
            assert Samples(answer.read().decode())(SENT) == 2200
    assert spark.listeners == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


@pytest.mark.parametrize(
    ("port", "name", "problem"),
    [
        (0, None, "listen needs the file that queries write"),
        (0, "s3://bucket/m", "listen needs the file that queries write"),
        (0, "", r"listen reads one file, and .* is a folder"),
        (65_536, "m.jsonl", "listen: port 65536 must be between 0 and 65535"),
        (-1, "m.jsonl", "listen: port -1 must be"),
    ],
)
def test_what_listening_refuses(tmp_path, port, name, problem):
    path = name if name is None or "//" in name else str(tmp_path / name)
    spark = Spark(**({} if path is None else {"spark.pykafka.metrics.path": path}))
    with pytest.raises(ConfigError, match=problem):
        listen(spark, port=port)
    assert spark.listeners == []


def test_the_dashboard_asks_only_for_what_exists(tmp_path):
    dashboard = json.loads((ROOT / "examples/grafana/pykafka-sink.json").read_text())
    joined = QueryMetricsCollector(str(tmp_path / "m.jsonl"))
    write_outputs(MetricsOutputs(str(tmp_path / "m.jsonl")), of_query(a_line()))
    joined.onQueryProgress(SimpleNamespace(progress=progress(QUERY, "orders", 100)))
    known = samples_of(joined)
    labels = {label for sample in known.samples for label in sample.labels}
    expressions = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", ())]
    variables = [
        v["query"]["query"]
        for v in dashboard["templating"]["list"]
        if "query" in v and isinstance(v["query"], dict)
    ]
    assert len(expressions) > 15
    for expression in [*expressions, *variables]:
        asked = set(re.findall(r"\b(?:kafka_producer|pykafka_sink)_\w+", expression))
        assert asked, expression
        assert asked <= known.names, expression
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        used = {name.strip() for names in grouped for name in names.split(",")}
        used |= set(re.findall(r"(\w+)=~?\"", expression))
        assert used <= labels | {"job", "instance"}, expression
