"""Registering the sink in a session that does not find it by itself.

With Spark Connect it is the server's Python that looks, and the client sends the sink's name, not
its code.

Spark looks for data sources once, with the Python that the environment of its JVM names
(``PYSPARK_DRIVER_PYTHON``, ``PYSPARK_PYTHON``, else the ``python3`` of the PATH): that one may not
have this package. What it found belongs to a session, and it asks the session that is active in the
calling thread: a Python thread other than the main one has none.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.spark.source import KafkaSinkDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()
_ANY_SCHEMA = "value binary"
_ALREADY_FOUND = "DATA_SOURCE_ALREADY_EXISTS"
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NOT_ON_SERVER = (
    "the Python of the Spark Connect server has no module '{module}'. Install pykafka-sink in the "
    "Python of the server and of its executors; then nothing has to be registered. Or, if that "
    "Python has the packages which the sink needs, bring the sink with this session: "
    "pykafka-sink package --output sink.zip, and in the session "
    'spark.addArtifacts("sink.zip", pyfile=True) before register(spark)'
)


def register(spark: SparkSession) -> None:
    """Make ``format("pykafka-sink")`` work in ``spark`` and in the calling thread.

    Needed only where Spark answers DATA_SOURCE_NOT_FOUND: in a session that was started without
    ``PYSPARK_PYTHON``, and in Python threads. May be called again. With a local master the sink
    then runs in this process's Python, unless ``PYSPARK_PYTHON`` names another; on a cluster in
    the workers' Python, as everything else.

    With Spark Connect it is needed where the server's Python has not the sink and it was brought
    with ``spark.addArtifacts("sink.zip", pyfile=True)`` before. Raises ConfigError if the server
    cannot import it.
    """
    if not _is_classic(spark):
        _register_on_server(spark)
        return
    # The public way to make a session active in this thread.
    spark.createDataFrame([], _ANY_SCHEMA)
    if spark in _registered:
        return  # Spark would warn that one data source replaced another
    context = spark.sparkContext
    configured = context.pythonExec
    context.pythonExec = _python_of_workers(context)
    try:
        _register_class(spark)
    finally:
        context.pythonExec = configured
    _registered.add(spark)


def _register_class(spark: SparkSession) -> bool:
    """Whether Spark did not refuse because it has found the sink by itself, as Spark 4.0 does."""
    try:
        spark.dataSource.register(KafkaSinkDataSource)
    except Exception as error:
        if _ALREADY_FOUND not in str(error):
            raise
        return False
    return True


def _register_on_server(spark: SparkSession) -> None:
    if not _register_class(spark):
        return
    try:
        # Spark makes an instance on the server, which says that it cannot be read from.
        _ = spark.read.format(KafkaSinkDataSource.name()).load().schema
    except Exception as error:
        missing = _NO_MODULE.search(str(error))
        if missing is not None:
            raise ConfigError(_NOT_ON_SERVER.format(module=missing[1])) from error


def _is_classic(spark: SparkSession) -> bool:
    """Whether the session has a JVM of its own; one of Spark Connect has none, and no threads."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _python_of_workers(context: SparkContext) -> str:
    is_local = (context.master or "").startswith("local")
    return sys.executable if is_local and "PYSPARK_PYTHON" not in os.environ else context.pythonExec
