"""Kafka's own ProducerPerformance: the Java client alone, with one thread."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.limits import sample_of
from benchmarks.measure import Run
from benchmarks.topics import BenchTopic
from spark_kafka_sink.localkafka import LocalKafka, fetch_jars
from spark_kafka_sink.localkafka.jars import find_java
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE

NAME = "producer-performance"
_CLASS = "org.apache.kafka.tools.ProducerPerformance"
_SPEED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_TIMEOUT_S = 600


class ProducerPerformance:
    """A contender outside Spark: it reads the same values from a file in memory.

    LocalKafka.run_tool is not used, because its JVM options suit short runs: they compile little.
    The time is the tool's own report, without the start of its JVM.
    """

    name = NAME

    def __init__(
        self,
        kafka: LocalKafka,
        frame: DataFrame,
        row_bytes: int,
        rows_count: int,
        settings: Mapping[str, str],
        topic: BenchTopic,
    ) -> None:
        self._kafka = kafka
        self._rows_count = rows_count
        self._settings = settings
        self._topic = topic
        sample_rows, values = sample_of(frame, row_bytes)
        size = len(values) // sample_rows
        lines = (values[at : at + size] for at in range(0, len(values), size))
        self._folder = tempfile.TemporaryDirectory()
        self._payload = Path(self._folder.name, "values")
        self._payload.write_bytes(b"\n".join(lines) + b"\n")

    def run(self) -> Run:
        """Run the tool, and read its report."""
        done = subprocess.run(
            self._command(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        reports = _SPEED.findall(done.stdout)
        if done.returncode or not reports:
            raise RuntimeError(f"{_CLASS} failed:\n{done.stdout}\n{done.stderr}")
        records, per_second = int(reports[-1][0]), float(reports[-1][1])
        broker_bytes = self._topic.log_bytes()
        self._topic.empty()
        return Run(round(records / per_second, 4), 0.0, 0.0, 0.0, records, broker_bytes)

    def _command(self) -> list[str]:
        version = self._kafka.version
        modules = [f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "kafka-tools")]
        jars = fetch_jars([*modules, LOGGER_MODULE], f"kafka-tools-{version}")
        settings = {**self._settings, "bootstrap.servers": self._kafka.bootstrap_servers}
        properties = [f"{name}={value}" for name, value in settings.items()]
        return [
            *(find_java(), "-Xmx1g", "-cp", ":".join(str(jar) for jar in jars)),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", _CLASS),
            *("--topic", self._topic.name, "--num-records", str(self._rows_count)),
            *("--throughput", "-1", "--payload-file", str(self._payload)),
            *("--command-property", *properties),
        ]
