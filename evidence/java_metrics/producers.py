"""The two producers that do the same work: Kafka's own in a JVM, and this sink's without Spark."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.base.model import ColumnPositions, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import DEFAULT_VERSION, fetch_jars
from spark_kafka_sink.localkafka.jars import find_java_for_kafka
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE
from spark_kafka_sink.metrics import names
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage, TimedInput
from tests.golden.generate import find_javac

_TIMESTAMP_MS = 1_700_000_000_000
_POSITIONS = ColumnPositions(value=0, partition=1, timestamp=2, topic_option="")
_SOURCE = Path(__file__).with_name("Producing.java")


class Told(NamedTuple):
    """Metrics by name: of the client, of the only topic, of the only broker."""

    producer: dict[str, float]
    topic: dict[str, float]
    node: dict[str, float]


class OurProducer:
    """What a task does, in one process with the test."""

    def __init__(self, settings, topic):
        self._topic = topic
        self._rows = TimedInput(())
        self._producer = ThreadedProducer(ProducerConfig.parse(settings), [topic])

    def send(self, partition, values):
        """All of them at once: an Arrow batch."""
        columns = [
            pa.array(values, pa.binary()),
            pa.array([partition] * len(values), pa.int32()),
            pa.array([_TIMESTAMP_MS * 1000] * len(values), pa.timestamp("us", "UTC")),
        ]
        batch = pa.record_batch(columns, names=["value", "partition", "timestamp"])
        self._producer.append(batch, _POSITIONS._replace(topic_option=self._topic))

    def flush(self):
        """Wait for all acknowledgements."""
        self._producer.flush()

    def metrics(self):
        """As they follow from the line."""
        metrics, report = self._producer.metrics, dict(self._producer.report)
        self._rows.note_in(metrics)
        nodes = {n: node for n, node in self._producer.nodes.items() if node.requests}
        message = KafkaCommitMessage(0, 0, None, report, metrics, nodes=nodes)
        message.started_at_ms = self._rows.started_at_ms
        line = BatchSummary.merge([message]).line("commit", None)
        assert set(report) <= {TopicPartition(self._topic, n) for n in range(100)}
        values = names.values_of(line)
        of_topic = names.topic_or_node_values(line, line["topics"][self._topic])
        of_node = names.topic_or_node_values(line, line["nodes"]["1"])
        return Told(
            {m.name: m.value(values) or 0.0 for m in kafka_metrics.PRODUCER_METRICS},
            {m.name: m.value(of_topic) or 0.0 for m in kafka_metrics.TOPIC_METRICS},
            {m.name: m.value(of_node) or 0.0 for m in kafka_metrics.NODE_METRICS},
        )

    def close(self):
        self._producer.close()


class JavaProducer:
    """Kafka's own, in a process that is told by lines what to do."""

    def __init__(self, settings, topic, classes):
        self._topic = topic
        java = find_java_for_kafka(CLIENT_VERSION)
        options = [f"{name}={value}" for name, value in settings.items()]
        self._process = subprocess.Popen(
            [
                *(java, "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                *("-cp", classes, "Producing", *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, partition, values):
        """One after the other."""
        texts = " ".join(base64.b64encode(value).decode() for value in values)
        self._tell(f"send {self._topic} {partition} {_TIMESTAMP_MS} {texts}")

    def flush(self):
        """Wait for all acknowledgements."""
        self._tell("flush")

    def metrics(self):
        """All that are numbers."""
        told = Told({}, {}, {})
        for line in self._tell("metrics"):
            group, name, topic, node, value = line.split(" ")
            if group == kafka_metrics.PRODUCER_GROUP:
                told.producer[name] = float(value)
            elif group == kafka_metrics.TOPIC_GROUP and topic == self._topic:
                told.topic[name] = float(value)
            elif group == kafka_metrics.NODE_GROUP and node == "node-1":
                told.node[name] = float(value)
        return told

    def close(self):
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, command):
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = []
        while (line := self._process.stdout.readline().rstrip("\n")) != "done":
            if not line:
                raise AssertionError(f"the JVM ended while it was told: {command[:80]}")
            answer.append(line)
        return answer


CLIENT_VERSION = DEFAULT_VERSION


class JavaClasses:
    """The compiled program, with Kafka's jars: a class path."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        modules = [f"org.apache.kafka:kafka_2.13:{CLIENT_VERSION}", LOGGER_MODULE]
        jars = [str(jar) for jar in fetch_jars(modules, f"kafka-{CLIENT_VERSION}")]
        javac = find_javac()
        assert javac is not None, "no javac: install a JDK 17 or newer and put it on the PATH"
        path = os.pathsep.join(jars)
        command = [javac, "-encoding", "UTF-8", "-d", self._folder.name, "-cp", path, str(_SOURCE)]
        subprocess.run(command, check=True)
        return os.pathsep.join([self._folder.name, path])

    def __exit__(self, kind, error, trace):
        self._folder.cleanup()
