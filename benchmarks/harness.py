"""What every benchmark needs: a broker, a Spark session, rows, and fair pairs.

Absolute times on a shared machine mean little. So runs alternate, A B A B …, each pair close
together in time, and what is reported is the ratio of each pair: median and spread.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.localkafka import LocalKafka, fetch_jars

JVM_SINK = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]
RESULTS = Path(__file__).resolve().parent / "results"
_MIB = 1 << 20
_topics = itertools.count(1)


@contextmanager
def spark_session(cores: int = 2, **conf: str) -> Iterator[SparkSession]:
    """A session that has Spark's JVM Kafka sink as well."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = fetch_jars(JVM_SINK, "jvm-sink", transitive=False)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
    )
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def text_rows(spark: SparkSession, count: int, value_bytes: int, tasks: int = 2) -> DataFrame:
    """Keyless rows: a line of ``value_bytes`` that begins with its number and compresses about
    3 : 1, as logs do.
    """
    repeats = max(1, value_bytes // 21)
    line = (
        "concat('{\"id\":', lpad(cast(id as string), 9, '0'), ',\"hash\":\"', hex(xxhash64(id)), "
        '\'","customer":"customer-\', cast(id % 1000 as string), \'","city":"Springfield",\', '
        f'repeat(\'"status":"delivered",\', {repeats}))'
    )
    value = f"cast(substring({line}, 1, {value_bytes}) as binary) as value"
    return spark.range(0, count, 1, tasks).selectExpr(value)


def create_topic(kafka: LocalKafka, partitions: int = 6) -> str:
    """A topic that nobody else writes to."""
    name = f"bench-{next(_topics)}"
    kafka.create_topic(name, partitions)
    return name


def write(
    frame: DataFrame, sink: str, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> float:
    """Seconds that one whole Spark job takes. ``sink``: a format name."""
    writer = frame.write.format(sink).mode("append").options(**options)
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if sink == "pykafka-sink":
        writer = writer.option("metrics.log", "false")
    started = time.perf_counter()
    writer.option("topic", topic).save()
    return time.perf_counter() - started


def python_workers() -> list[psutil.Process]:
    """Spark's Python processes below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


class PeakMemory:
    """Largest resident size of any Python worker while the block runs, in MiB."""

    def __init__(self, interval_s: float = 0.05) -> None:
        self.mib = 0.0
        self._interval_s = interval_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._interval_s):
            for process in python_workers():
                try:
                    self.mib = max(self.mib, process.memory_info().rss / _MIB)
                except psutil.NoSuchProcess:
                    continue


def alternate(
    first: Callable[[], float], second: Callable[[], float], pairs: int, warmups: int = 1
) -> list[tuple[float, float]]:
    """Times of ``pairs`` runs of both, in turn, after ``warmups`` that do not count."""
    for _ in range(warmups):
        first()
        second()
    return [(first(), second()) for _ in range(pairs)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median and spread."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import pyspark

    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
    }


def save(name: str, result: Mapping[str, Any]) -> Path:
    """Write ``benchmarks/results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n", encoding="utf-8")
    return path
