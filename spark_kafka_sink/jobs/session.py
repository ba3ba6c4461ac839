"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Callable

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_kafka_sink.config.security_config import REGEX_OPTION, SUGGESTED_REGEX
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS

_DEFAULTS = {
    REGEX_OPTION: SUGGESTED_REGEX,
    # Spark's own default is 64 MiB. For each Arrow batch of values above 3 KB, its JVM maps that
    # memory again. No processor cache holds it, and the worker waits for it.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    # Since Spark 4.1. Over TCP, Nagle's algorithm in Spark's JVM waits for the worker's delayed
    # acknowledgement, about 40 ms a task.
    UNIX_SOCKETS: "true",
}


def defaults_of_jobs(is_set: Callable[[str], bool]) -> dict[str, str]:
    """Return the Spark settings that a job sets, without those that its user has set."""
    return {name: value for name, value in _DEFAULTS.items() if not is_set(name)}


def open_session() -> SparkSession:
    """Open the session that spark-submit requests, with the sink's defaults for unset values.

    A job's options are Spark's configuration, which Spark shows in its UI and in event logs.
    Secrets in it are hidden, unless the configuration sets its own redaction.
    """
    SparkContext._ensure_initialized()  # from now on, a SparkConf has spark-submit's settings
    builder = SparkSession.builder
    for name, value in defaults_of_jobs(SparkConf().contains).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
