"""A real broker whose plugin notes what clients push (KIP-714)."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from spark_kafka_sink.localkafka import fetch_jars
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE
from tests.golden.generate import find_javac
from tests.local_kafka import PatientKafka

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

    @property
    def resource(self):
        return {
            pair.key: pair.value.string_value
            for resource in self.data.resource_metrics
            for pair in resource.resource.attributes
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
