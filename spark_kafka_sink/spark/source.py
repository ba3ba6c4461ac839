"""The Spark data source: what ``format("pykafka-sink")`` stands for.

Example::

    df.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value") \\
        .write.format("pykafka-sink") \\
        .option("kafka.bootstrap.servers", "broker:9092") \\
        .option("topic", "flights") \\
        .mode("append") \\
        .save()

Required option: ``kafka.bootstrap.servers``; and ``topic``, unless there is a topic column.
Columns: value, key, headers, topic, partition, timestamp; or any, of which ``value.format`` makes a
value: docs/formats.md. docs/options.md has all options.

Some sessions do not find the sink by themselves, and :func:`register` helps there. Spark looks for
data sources once, with the Python that the environment of its JVM names (``PYSPARK_DRIVER_PYTHON``,
``PYSPARK_PYTHON``, else the ``python3`` of the PATH): that one may not have this package. What it
found belongs to a session, and it asks the session that is active in the calling thread: a Python
thread other than the main one has none. With Spark Connect it is the server's Python that looks,
and the client sends the sink's name, not its code.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.spark.planning import (
    PlanningTime,
    check_surroundings,
    parse_options,
    plan_schemas,
    plan_transactions,
)
from spark_kafka_sink.spark.versions import DataSource, require_data_sources

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.row_planning import PlannedRows
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

NAME = "pykafka-sink"

require_data_sources()


class KafkaSinkDataSource(DataSource):
    """Writes DataFrames and streams to Apache Kafka."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark makes the instance that plans, and unpickles the one that commits: only before the
        # tasks may planning take the transactional ids.
        self._plans = True

    def __getstate__(self) -> dict[str, Any]:
        masked = [(name, Secret(value)) for name, value in self.options.items()]
        return {**self.__dict__, "options": (type(self.options), masked), "_plans": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        made, masked = state["options"]
        options = made({name: value.reveal() for name, value in masked})
        self.__dict__.update({**state, "options": options})

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format()``."""
        return NAME

    def schema(self) -> StructType:
        """Raises: this source cannot be read from."""
        raise ConfigError(f"'{NAME}' only writes. To read from Kafka, use Spark's format('kafka').")

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """The writer of one batch write, after everything that can be checked now is checked."""
        from spark_kafka_sink.spark.writer import KafkaBatchWriter

        time = PlanningTime()
        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka. The only save mode that Spark and this "
                'sink both allow is Append: .mode("append").'
            )
        options, rows = self._checked(schema, is_stream=False)
        plan = plan_transactions(options, is_job=True)
        return KafkaBatchWriter(options, rows.positions, plan, time.until_now(), rows.plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        """The writer of one micro-batch. Output mode complete arrives as ``overwrite``; as with
        Spark's own sink, its rows are appended.
        """
        from spark_kafka_sink.spark.writer import KafkaStreamWriter

        time = PlanningTime()
        options, rows = self._checked(schema, is_stream=True)
        transactions = plan_transactions(options, is_job=False) if self._plans else None
        planned = time.until_now() if self._plans else None
        return KafkaStreamWriter(options, rows.positions, transactions, planned, rows.plan)

    def _checked(self, schema: StructType, is_stream: bool) -> tuple[SinkOptions, PlannedRows]:
        """Options and columns, or the error that says what is wrong with them or the cluster."""
        from spark_kafka_sink.spark.row_planning import plan_rows
        from spark_kafka_sink.spark.worker import freeze_loaded

        options = parse_options(dict(self.options))
        rows = plan_rows(schema, options)
        if self._plans:  # else everything is written, and only the commit is missing
            options = check_surroundings(options, is_stream)
            # The process that starts those that plan, and ends with the driver.
            owner = os.getppid()
            rows, options = plan_schemas(rows, options, owner if is_stream else None, is_stream)
        freeze_loaded()
        return options, rows


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
