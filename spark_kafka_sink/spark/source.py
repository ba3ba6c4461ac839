"""The Spark data source ``format("pykafka-sink")``, and its registration in a session.

Example::

    df.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value") \\
        .write.format("pykafka-sink") \\
        .option("kafka.bootstrap.servers", "broker:9092") \\
        .option("topic", "flights") \\
        .mode("append") \\
        .save()

Required option: ``kafka.bootstrap.servers``; and ``topic`` unless a topic column exists. Columns:
value, key, headers, topic, partition; or any columns that ``value.format`` encodes as a value:
docs/formats.md. docs/options.md lists all options.

Some sessions do not find the sink; for these, call :func:`register`. Spark searches data sources
once, with the Python that the environment of its JVM names (``PYSPARK_DRIVER_PYTHON``,
``PYSPARK_PYTHON``, else the ``python3`` of the PATH). That Python may not have this package. The
result belongs to the session that is active in the calling thread, and a Python thread other than
the main thread has no active session. With Spark Connect, the server's Python searches; the client
sends the sink's name, not its code.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.machine import folder_of_spark
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS, with_query_name
from spark_kafka_sink.spark.planning import (
    NOT_A_QUERY,
    UNNAMED_QUERY,
    PlanningTimer,
    check_surroundings,
    guard_transactions,
    parse_options,
    plan_schemas,
    plan_transactions,
)
from spark_kafka_sink.spark.versions import (
    DataSource,
    lacks_unix_sockets,
    require_data_sources,
)
from spark_kafka_sink.spark.worker import freeze_loaded, sentence_first

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.row_planning import InputLayout
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

NAME = "pykafka-sink"

require_data_sources()


def advise_on_sockets() -> None:
    """Log once, at INFO, that Spark exchanges rows by TCP where Unix domain sockets would do.

    Spark plans in process after process. A file tells the others of the driver that one has logged.
    """
    from spark_kafka_sink.spark.preflight import log_once

    if not lacks_unix_sockets():
        return
    folder = folder_of_spark("hints")
    if folder is not None:
        try:
            (folder / "sockets").touch(exist_ok=False)
        except OSError:
            return  # it exists, or the disk is full
    advice = f"with {UNIX_SOCKETS}=true, each task takes about 40 ms less: pykafka-sink docs tuning"
    log_once([advice], level=logging.INFO)


_ONLY_APPENDS = "SPARK-005"
_NO_OPTIONS = (
    "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as host:port. Spark "
    "passes the sink no options of a table (CREATE TABLE … USING, INSERT): write with "
    f'df.write.format("{NAME}").options(…)'
)


class KafkaSinkDataSource(DataSource):
    """Writes DataFrames and streams to Apache Kafka."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark constructs the instance that plans, and unpickles the instance that commits.
        # Planning may take transactional ids only before the tasks.
        self._plans = True

    def __getstate__(self) -> dict[str, Any]:
        masked = [(name, Secret(value)) for name, value in self.options.items()]
        return {**self.__dict__, "options": (type(self.options), masked), "_plans": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        options_class, masked = state["options"]
        options = options_class({name: value.reveal() for name, value in masked})
        self.__dict__.update({**state, "options": options})

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return NAME

    @sentence_first
    def schema(self) -> StructType:
        """Raise ConfigError, because this source only writes."""
        raise ConfigError(
            f"'{NAME}' only writes. To read from Kafka, use Spark's format('kafka').",
            code=_ONLY_APPENDS,
        )

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """Check options, columns and cluster, and return the writer of one batch write."""
        from spark_kafka_sink.spark.writer import KafkaBatchWriter

        time = PlanningTimer()
        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka. The only save mode that Spark and this "
                'sink both allow is Append: .mode("append").',
                code=_ONLY_APPENDS,
            )
        options, rows = self._checked(schema, is_stream=False)
        plan = plan_transactions(options, is_job=True)
        guard_transactions(options, plan, is_query=False)
        advise_on_sockets()
        return KafkaBatchWriter(options, rows.positions, plan, time.until_now(), rows.plan)

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        """Return the writer of one micro-batch.

        Spark passes output mode complete as ``overwrite``; as in Spark's own sink, rows are
        appended.
        """
        from spark_kafka_sink.spark.writer import KafkaStreamWriter

        time = PlanningTimer()
        options, rows = self._checked(schema, is_stream=True)
        transactions = None
        planned = None
        if self._plans:
            transactions = plan_transactions(options, is_job=False)
            guard_transactions(options, transactions, is_query=True)
            advise_on_sockets()
            planned = time.until_now()
        return KafkaStreamWriter(options, rows.positions, transactions, planned, rows.plan)

    def _checked(self, schema: StructType, is_stream: bool) -> tuple[SinkOptions, InputLayout]:
        """Return checked options and rows. Raises errors of options, columns or the cluster."""
        from spark_kafka_sink.spark.row_planning import plan_rows, written_columns

        if not self.options:
            raise ConfigError(_NO_OPTIONS, code="OPTION-004")
        options = parse_options(dict(self.options))
        if is_stream:
            options = with_query_name(options, options.query_name, UNNAMED_QUERY)
        else:
            options = with_query_name(options, None, NOT_A_QUERY)
        rows = plan_rows(schema, options)
        if options.metrics.openlineage:
            options = replace(options, written_columns=written_columns(schema, rows))
        if self._plans:  # otherwise all rows are written and only the commit follows
            options = check_surroundings(options, is_stream)
            # The process that starts all planning processes and ends with the driver.
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

    Needed only if Spark raises DATA_SOURCE_NOT_FOUND: in a session that was started without
    ``PYSPARK_PYTHON``, and in Python threads. May be called again. With a local master the sink
    then runs in this process's Python unless ``PYSPARK_PYTHON`` names another; on a cluster it runs
    in the workers' Python.

    With Spark Connect it is needed if the server's Python lacks the sink and the session has added
    it with ``spark.addArtifacts("sink.zip", pyfile=True)``. Raises ConfigError if the server cannot
    import the sink.
    """
    if not _is_classic(spark):
        _register_on_server(spark)
        return
    # This public call makes a session active in this thread.
    spark.createDataFrame([], _ANY_SCHEMA)
    if spark in _registered:
        return  # Spark would warn that a data source was replaced
    context = spark.sparkContext
    configured = context.pythonExec
    context.pythonExec = _python_of_workers(context)
    try:
        _register_class(spark)
    finally:
        context.pythonExec = configured
    _registered.add(spark)


def _register_class(spark: SparkSession) -> bool:
    """Register the class; return False if Spark has found the sink already (Spark 4.0)."""
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
        # Spark constructs an instance on the server, whose ``schema`` raises ConfigError.
        _ = spark.read.format(KafkaSinkDataSource.name()).load().schema
    except Exception as error:
        missing = _NO_MODULE.search(str(error))
        if missing is not None:
            text = _NOT_ON_SERVER.format(module=missing[1])
            raise ConfigError(text, code="SPARK-007") from error


def _is_classic(spark: SparkSession) -> bool:
    """Return True for a session with its own JVM, False for Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _python_of_workers(context: SparkContext) -> str:
    is_local = (context.master or "").startswith("local")
    return sys.executable if is_local and "PYSPARK_PYTHON" not in os.environ else context.pythonExec
