"""Shared parts of the benchmarks: a Spark session with all sinks, and stored results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from spark_kafka_sink.config.security_config import REGEX_OPTION
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
from spark_kafka_sink.jobs.settings import defaults_of_jobs
from spark_kafka_sink.localkafka import fetch_jars
from spark_kafka_sink.localkafka.jars import find_java, java_major_version

JVM_SINK = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]
_PACKAGES = (
    *("pyspark", "pyarrow", "numpy", "numba", "lz4", "zstandard", "isal"),
    "confluent-kafka",
)
RESULTS = Path(__file__).resolve().parent / "results"
_is_jvm_started = False

SOCKETS = {UNIX_SOCKETS: "true"}
"""Unix domain sockets, as the ready-made jobs set them. Spark's own default is TCP."""
JOBS_CONF = defaults_of_jobs(lambda name: name == REGEX_OPTION)
"""Settings of the jobs that change how Spark passes rows on: small Arrow batches, Unix sockets."""


@contextmanager
def spark_session(
    cores: int = 2, more_jars: tuple[str, ...] = (), **conf: str
) -> Iterator[SparkSession]:
    """Yield a session that also has Spark's JVM Kafka sink. ``conf`` is for this session only.

    Spark reads ``UNIX_SOCKETS`` once per JVM: the process's first session decides.

    more_jars: further jars, by Maven coordinates
    """
    global _is_jvm_started
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if conf and not _is_jvm_started:
        # The first session's settings become the JVM's own, for all later sessions. Spark reads how
        # workers are connected only then.
        first = _builder(cores, more_jars)
        if UNIX_SOCKETS in conf:
            first = first.config(UNIX_SOCKETS, conf[UNIX_SOCKETS])
        first.getOrCreate().stop()
    _is_jvm_started = True
    builder = _builder(cores, more_jars)
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _builder(cores: int, more_jars: tuple[str, ...]) -> Any:
    jars = fetch_jars(JVM_SINK, "jvm-sink", transitive=False)
    if more_jars:
        jars += fetch_jars(more_jars, "more-of-benchmarks", transitive=False)
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
    )


def machine() -> dict[str, Any]:
    """Describe the machine of the figures, without names of hosts or folders."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": _processor(),
        "system": platform.system(),
        "java": java_major_version(find_java()),
        "python": platform.python_version(),
        # Spark imports pandas into every worker, if it is installed.
        **{name: _version(name) for name in (*_PACKAGES, "pandas")},
        "jvm sink": [jar.split(":", 1)[1] for jar in JVM_SINK],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return Linux' name of the model; elsewhere the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def code_version() -> str:
    """Return the commit that last changed the package, with ``-dirty`` if files differ from it."""
    git = ["git", "-C", str(RESULTS.parents[1])]
    package = ["--", "spark_kafka_sink"]
    try:
        log = subprocess.check_output([*git, "log", "-1", "--format=%h", *package], text=True)
        changed = subprocess.check_output([*git, "status", "--porcelain", *package], text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return log.strip() + ("-dirty" if changed else "")


def save(name: str, result: Mapping[str, Any]) -> Path:
    """Write ``benchmarks/results/<name>.json``, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def load(name: str) -> dict[str, Any]:
    """Return what ``save`` wrote; empty if the file does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
