"""Registering the sink in a session that does not find it by itself.

Spark looks for data sources once, with the Python that the environment of its JVM names
(``PYSPARK_DRIVER_PYTHON``, ``PYSPARK_PYTHON``, else the ``python3`` of the PATH): that one may not
have this package. What it found belongs to a session, and it asks the session that is active in the
calling thread: a Python thread other than the main one has none.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from spark_kafka_sink.spark.source import KafkaSinkDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()
_ANY_SCHEMA = "value binary"


def register(spark: SparkSession) -> None:
    """Make ``format("pykafka-sink")`` work in ``spark`` and in the calling thread.

    Needed only where Spark answers DATA_SOURCE_NOT_FOUND: in a session that was started without
    ``PYSPARK_PYTHON``, and in Python threads. May be called again. With a local master the sink
    then runs in this process's Python, unless ``PYSPARK_PYTHON`` names another; on a cluster in
    the workers' Python, as everything else.
    """
    if not _is_classic(spark):
        spark.dataSource.register(KafkaSinkDataSource)
        return
    # The public way to make a session active in this thread.
    spark.createDataFrame([], _ANY_SCHEMA)
    if spark in _registered:
        return  # Spark would warn that one data source replaced another
    context = spark.sparkContext
    configured = context.pythonExec
    context.pythonExec = _python_of_workers(context)
    try:
        spark.dataSource.register(KafkaSinkDataSource)
    finally:
        context.pythonExec = configured
    _registered.add(spark)


def _is_classic(spark: SparkSession) -> bool:
    """Whether the session has a JVM of its own; one of Spark Connect has none, and no threads."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _python_of_workers(context: SparkContext) -> str:
    is_local = (context.master or "").startswith("local")
    return sys.executable if is_local and "PYSPARK_PYTHON" not in os.environ else context.pythonExec
