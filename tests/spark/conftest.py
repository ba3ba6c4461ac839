"""A Spark session with the sink under test, and Spark's own JVM Kafka sink beside it."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import JVM_SINK
from spark_kafka_sink.localkafka import LocalKafka, fetch_jars

# Of every driver that a test starts. They run for minutes at most: Java's slower compiler would
# take half of the CPU.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = fetch_jars(JVM_SINK, "jvm-sink", transitive=False)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka-sink tests")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.task.maxFailures", "1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def new_topic(kafka: LocalKafka) -> Callable[..., str]:
    """Creates a topic with a name of its own."""

    def create(partitions: int = 3, **configs: str) -> str:
        name = f"spark-{next(_numbers)}"
        kafka.create_topic(
            name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        return name

    return create


@pytest.fixture
def write(kafka: LocalKafka) -> Callable[..., None]:
    """Writes a DataFrame with the sink under test, or with ``format``."""

    def save(frame: Any, topic: str | None, sink: str = "pykafka-sink", **options: str) -> None:
        writer = frame.write.format(sink).mode("append")
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**{k.replace("_", "."): v for k, v in options.items()}).save()

    return save


@pytest.fixture
def read_by_spark(spark: SparkSession, kafka: LocalKafka) -> Callable[..., DataFrame]:
    """All that is in a topic now, read by Spark's own Kafka source."""

    def read(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return reader.option("includeHeaders", "true").options(**options).load()

    return read
