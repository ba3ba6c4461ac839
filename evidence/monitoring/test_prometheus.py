"""What Prometheus and its push gateway make of the sink's metrics.

They are Debian's: apt-get install prometheus prometheus-pushgateway
"""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from evidence.harness.standalone import tied_to_this_process
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.metrics import listen
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.metrics.prometheus import Exposition
from tests.patience import eventually
from tests.prometheus import Samples
from tests.unit.test_metrics_line import a_line, of_a_job
from tests.unit.test_metrics_prometheus import QUERY, SENT, Spark, of_query, progress

DASHBOARD = Path(__file__).resolve().parents[2] / "examples/grafana/pykafka-sink.json"
# promtool asks for base units and whole words, which Kafka's names have not.
KAFKAS_NAMES = "kafka_producer_"


def program(name):
    found = shutil.which(name)
    assert found is not None, f"no {name}: {__doc__}"
    return found


def fetched(url):
    """The answer; empty while nobody answers."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return ""


@contextmanager
def running(folder, *command):
    with (folder / "log").open("wb") as log:
        tied = tied_to_this_process([program(command[0]), *command[1:]])
        process = subprocess.Popen(tied, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def test_promtool_finds_fault_with_kafkas_names_alone():
    exposition = Exposition()
    exposition.add(a_line())
    exposition.add(of_query(a_line()))
    registry = CollectorRegistry()
    registry.register(exposition)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        check=False,
    )
    assert done.stdout == b""
    complaints = done.stderr.decode().splitlines()
    assert [line for line in complaints if not line.startswith(KAFKAS_NAMES)] == []


def test_a_push_gateway_that_keeps_it(tmp_path):
    (port,) = free_ports(1, "127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    with running(tmp_path, "prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"):
        assert eventually(lambda: fetched(f"{url}/-/ready"))
        outputs = MetricsOutputs(push_url=url, push_job="nightly")
        write_outputs(outputs, of_a_job(a_line()))
        read = Samples(fetched(f"{url}/metrics"))
        assert read(SENT, job="nightly", client_id="c") == 2200
        assert read("push_failure_time_seconds", job="nightly") == 0


class Prometheus:
    """One that scrapes every second."""

    def __init__(self, url):
        self._url = url

    def ask(self, expression):
        """The result of a query at this time; a wrong one raises."""
        answer = fetched(f"{self._url}/api/v1/query?query={urllib.parse.quote(expression)}")
        if not answer:
            return []
        told = json.loads(answer)
        assert told["status"] == "success", told
        return told["data"]["result"]


@contextmanager
def prometheus(folder, target):
    (port,) = free_ports(1, "127.0.0.1")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "sink", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        ],
    }
    file = folder / "prometheus.json"  # JSON is YAML
    file.write_text(json.dumps(config))
    where = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}")
    with running(folder, "prometheus", *where, f"--web.listen-address=127.0.0.1:{port}"):
        yield Prometheus(f"http://127.0.0.1:{port}")


def queries_of_dashboard():
    """What Grafana asks, with its variables replaced."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    for name, value in (("$__rate_interval", "1m"), ("$__range", "5m")):
        found = [query.replace(name, value) for query in found]
    return [query.replace("$client_id", ".*").replace("$query", ".*") for query in found]


def test_prometheus_scrapes_the_listener_and_answers_the_dashboard(tmp_path):
    path = tmp_path / "m.jsonl"
    outputs = MetricsOutputs(str(path))
    spark = Spark()
    with listen(spark, port=0, path=str(path), host="127.0.0.1") as listening:
        write_outputs(outputs, of_query(a_line()))
        spark.listeners[0].onQueryProgress(_Event(progress(QUERY, "orders", 100)))
        with prometheus(tmp_path, listening.port) as server:
            assert eventually(lambda: server.ask(SENT))
            write_outputs(outputs, of_query(a_line()))
            assert eventually(lambda: float(server.ask(SENT)[0]["value"][1]) == 4400)
            (sent,) = server.ask(SENT)
            assert sent["metric"]["query"] == "orders"
            assert eventually(lambda: server.ask(f"rate({SENT}[1m])"))
            aborted = [q for q in queries_of_dashboard() if 'event="abort"' in q]
            for query in queries_of_dashboard():
                assert server.ask(query) or query in aborted, query


class _Event:
    """Spark's QueryProgressEvent."""

    def __init__(self, told):
        self.progress = told
