"""What a real broker's plugin gets of this producer (KIP-714), beside what it gets of librdkafka's."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from spark_kafka_sink.localkafka import fetch_jars
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE
from spark_kafka_sink.producer import telemetry
from tests.broker.producing import batch_of, open_producer, plan_of, producer_for
from tests.golden.generate import find_javac
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS, PATIENCE_S, until

_PLUGIN = Path(__file__).with_name("Telemetry.java")
PREFIX = "org.apache.kafka.producer."


class Push(NamedTuple):
    """What a client has pushed at once."""

    client_id: str
    instance_id: str
    is_last: bool
    content_type: str
    data: MetricsData

    @property
    def metrics(self):
        return {
            metric.name.removeprefix(PREFIX): metric
            for resource in self.data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def kinds(self):
        """By name: sum or gauge."""
        return {name: str(metric.WhichOneof("data")) for name, metric in self.metrics.items()}

    def values(self, name):
        metric = self.metrics[name]
        points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
        return [
            point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
            for point in points
        ]


class WatchingKafka(PatientKafka):
    """One broker, which asks clients for ``prefix`` every ``interval_ms``."""

    def __init__(self, folder, interval_ms, prefix=PREFIX):
        self.file = folder / "pushes"
        reporting = {"metric.reporters": "Telemetry", "telemetry.file": str(self.file)}
        super().__init__(server_properties=reporting)
        self._toolbox._jars = [*self._toolbox._jars, _compiled(self.version, folder)]
        self._asked = ("--metrics", prefix, "--interval", str(interval_ms))

    def start(self):
        super().start()
        self.run_tool(
            "ClientMetricsCommand",
            *("--bootstrap-server", self.bootstrap_servers, "--alter", "--name", "test"),
            *self._asked,
        )

    def pushes(self, client_id):
        """All that a client has pushed until now; a line that is being written is left out."""
        lines = self.file.read_text("utf-8").split("\n")[:-1] if self.file.exists() else []
        told = [line.split(" ") for line in lines if line.startswith(f"{client_id} ")]
        return [
            Push(
                client,
                instance_id,
                is_last == "true",
                content_type,
                MetricsData.FromString(base64.b64decode(data)),
            )
            for client, instance_id, is_last, content_type, data in told
        ]


def _compiled(version, folder):
    """The plugin's classes."""
    javac = find_javac()
    assert javac is not None, "no javac: install a JDK 17 or newer and put it on the PATH"
    modules = [f"org.apache.kafka:kafka_2.13:{version}", LOGGER_MODULE]
    jars = [str(jar) for jar in fetch_jars(modules, f"kafka-{version}")]
    classes = Path(tempfile.mkdtemp(dir=folder))
    subprocess.run(
        [javac, "-nowarn", "-d", str(classes), "-cp", os.pathsep.join(jars), str(_PLUGIN)],
        check=True,
        capture_output=True,
    )
    return classes


INTERVAL_MS = 1_000
ROWS = 100

JOB = """
import sys
from pyspark.sql import SparkSession

servers, rows = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(int(rows)).selectExpr("CAST(id AS STRING) AS value")
options = {"kafka.bootstrap.servers": servers, "kafka.client.id": "job", "topic": "watched"}
frame.write.format("pykafka-sink").options(**options).mode("append").save()
spark.stop()
"""


@pytest.fixture(scope="module", autouse=True)
def patience():
    """A broker on a busy machine may take longer than closing waits for it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(telemetry, "CLOSE_TIMEOUT_MS", PATIENCE_MS)
        yield


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    with WatchingKafka(tmp_path_factory.mktemp("telemetry"), INTERVAL_MS) as kafka:
        kafka.create_topic("watched", 3)
        yield kafka


def is_subscribed(producer):
    return producer.telemetry is not None and producer.telemetry.subscription is not None


@pytest.fixture(scope="module")
def ours(watching):
    """Rows, again and again, until there are a few pushes; then the end."""
    batch = batch_of(value=[b"%0100d" % number for number in range(ROWS)])
    written = 0

    def write():
        nonlocal written
        producer.append(batch, plan_of(batch, "watched"))
        producer.flush()
        written += ROWS

    with producer_for(
        watching.bootstrap_servers, client_id="ours", client_rack="zone-b", linger_ms="0"
    ) as producer:
        until(lambda: len(watching.pushes("ours")) >= 4, write)
    pushes = watching.pushes("ours")
    sent = sum(sum(push.values("record.send.total")) for push in pushes)
    assert sent == written, "deltas add up"
    return pushes


@pytest.fixture(scope="module")
def theirs(watching):
    """The same by librdkafka."""
    _write_as_them(watching)
    until(lambda: watching.pushes("theirs")[-1].is_last, lambda: None)
    return watching.pushes("theirs")


def _write_as_them(watching):
    """Their producer is closed when nobody refers to it any more."""
    producer = Producer(
        {"bootstrap.servers": watching.bootstrap_servers, "client.id": "theirs", "linger.ms": 0}
    )

    def write():
        for number in range(ROWS):
            producer.produce("watched", b"%0100d" % number)
        producer.flush()

    until(lambda: len(watching.pushes("theirs")) >= 4, write)


def test_names_and_types_are_those_of_librdkafka_and_more(ours, theirs):
    known = {name: kind for push in theirs for name, kind in push.kinds().items()}
    told = {name: kind for push in ours for name, kind in push.kinds().items()}
    assert "node.request.latency.avg" in known
    assert {name: told.get(name) for name in known} == known
    assert len(told) > len(known)


def test_only_the_last_push_is_flagged_as_such(ours, theirs):
    for pushes in (ours, theirs):
        assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
        assert {push.content_type for push in pushes} == {"OTLP"}


def test_what_is_shorter_than_the_interval_pushes_once_at_its_end(watching):
    batch = batch_of(value=[b"one"])
    producer = open_producer(watching.bootstrap_servers, client_id="short", linger_ms="0")
    producer.append(batch, plan_of(batch, "watched"))
    producer.flush()
    until(lambda: is_subscribed(producer), lambda: None)
    producer.close()
    (push,) = watching.pushes("short")
    assert push.is_last
    assert push.values("record.send.total") == [1]


def test_a_job_that_ends_takes_leave_of_the_brokers_in_each_of_its_workers(watching):
    """Spark ends its Python workers with the executor: nobody closes their producers."""
    rows = 20_000
    command = [sys.executable, "-c", JOB, watching.bootstrap_servers, str(rows)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]

    def has_ended():
        pushes = watching.pushes("job")
        ended = {push.instance_id for push in pushes if push.is_last}
        return bool(ended) and ended == {push.instance_id for push in pushes}

    until(has_ended, lambda: None)
    pushes = watching.pushes("job")
    assert sum(sum(push.values("record.send.total")) for push in pushes) == rows
