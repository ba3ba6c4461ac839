"""The Spark session of a job."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_kafka_sink.config.redaction import REGEX_OPTION, SUGGESTED_REGEX


def open_session() -> SparkSession:
    """As spark-submit is asked for it.

    A job's options are Spark's configuration, which is shown in its UI and in event logs. Every
    secret among them is hidden, unless the configuration says itself what is to be hidden.
    """
    SparkContext._ensure_initialized()  # a SparkConf knows what spark-submit was given from now on
    builder = SparkSession.builder
    if not SparkConf().contains(REGEX_OPTION):
        builder = builder.config(REGEX_OPTION, SUGGESTED_REGEX)
    return builder.getOrCreate()
