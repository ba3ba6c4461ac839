"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Callable

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_kafka_sink.config.redaction import REGEX_OPTION, SUGGESTED_REGEX

_DEFAULTS = {
    REGEX_OPTION: SUGGESTED_REGEX,
    # Spark's own default of 64 MiB is memory that its JVM maps anew for each Arrow batch of values
    # above 3 KB, that no processor's cache holds, and that the worker waits for.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
}


def defaults_of_jobs(is_set: Callable[[str], bool]) -> dict[str, str]:
    """What a job sets of Spark's configuration where its user has not."""
    return {name: value for name, value in _DEFAULTS.items() if not is_set(name)}


def open_session() -> SparkSession:
    """As spark-submit is asked for it, with what suits the sink where nothing is asked for.

    A job's options are Spark's configuration, which is shown in its UI and in event logs. Every
    secret among them is hidden, unless the configuration says itself what is to be hidden.
    """
    SparkContext._ensure_initialized()  # a SparkConf knows what spark-submit was given from now on
    builder = SparkSession.builder
    for name, value in defaults_of_jobs(SparkConf().contains).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
