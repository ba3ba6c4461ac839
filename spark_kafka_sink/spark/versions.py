"""Differences between versions of Spark. No other module checks Spark's version.

    =====  ==============================  ======================================================
    Spark  ``format("pykafka-sink")``      base class of a stream's writer
    =====  ==============================  ======================================================
    3.5    no: Python data sources cannot  none: ``spark_kafka_sink.write`` and ``batch_writer``
           write                           use ``mapInArrow``, in all versions
    4.0    yes                             DataSourceStreamWriter, which gets rows, and
                                           DataSourceArrowWriter, whose instances get Arrow
                                           batches, also in streams
    4.1    yes                             DataSourceStreamArrowWriter
    =====  ==============================  ======================================================

In all versions, tasks get ``pyarrow.RecordBatch`` and a ``TaskContext`` with the query's id.

Source: ``pyspark/sql/worker/write_into_data_source.py`` of each version.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError, warn

logger = logging.getLogger(__name__)

try:
    import pyspark
except ImportError as error:
    raise ImportError(
        "pykafka-sink needs pyspark 3.5 or newer, and there is none: "
        "pip install 'pykafka-sink[spark]'"
    ) from error

OLDEST = (3, 5)
_FIRST_DATA_SOURCES = (4, 0)
_FIRST_ANSI = (4, 0)
_FIRST_STREAM_ARROW_WRITER = (4, 1)
_FIRST_UNIX_SOCKETS = (4, 1)


def release_of(version: str) -> tuple[int, int]:
    """Return major and minor number of a version such as "4.1.0" or "4.2.0.dev1"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


FOUND = release_of(pyspark.__version__)

if FOUND < OLDEST:
    raise ImportError(
        f"pykafka-sink needs pyspark 3.5 or newer; this is pyspark {pyspark.__version__}"
    )

if TYPE_CHECKING or FOUND >= _FIRST_STREAM_ARROW_WRITER:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )
elif FOUND >= _FIRST_DATA_SOURCES:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamWriter,
        WriterCommitMessage,
    )

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Base of a stream's writer that gets Arrow batches."""
else:
    DataSource = DataSourceArrowWriter = DataSourceStreamArrowWriter = object

    class WriterCommitMessage:
        """Base of the message that a task returns."""


def interval_types() -> tuple[type, ...]:
    """Return interval types that Arrow does not have.

    Spark 3.5 itself rejects columns of intervals with mixed units.
    """
    from pyspark.sql import types

    calendar_interval = getattr(types, "CalendarIntervalType", None)
    return () if calendar_interval is None else (calendar_interval,)


def require_data_sources() -> None:
    """Raise ImportError, with the alternative, if Spark has no Python data sources."""
    if FOUND < _FIRST_DATA_SOURCES:
        raise ImportError(
            "format('pykafka-sink') needs Spark 4.0 or newer, and this is pyspark "
            f"{pyspark.__version__}. Here spark_kafka_sink.write(df, options) writes a DataFrame, "
            "and df.writeStream.foreachBatch(spark_kafka_sink.batch_writer(options)) a stream, "
            "with the same options"
        )


def check_pandas() -> None:
    """Raise ConfigError if ``DataFrame.mapInArrow`` would fail because pandas is missing or old."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    try:
        require_minimum_pandas_version()
    except ImportError as error:
        raise ConfigError(
            "spark_kafka_sink.write and batch_writer need pandas on the driver, because Spark's "
            f'mapInArrow does: pip install "pykafka-sink[spark]" ({error})',
            code="SPARK-008",
        ) from None


@cache
def warn_of_unpickling() -> None:
    """Warn a client of Spark Connect, once, if schemas can run code in it.

    Such a PySpark unpickles the class of a user-defined type that it does not find. A schema comes
    from the server, which may have it from a file of another user.

    Source: SPARK-56463, which PySpark 3.5.9, 4.0.5, 4.1.4 and 4.2.1 have.
    """
    from pyspark.sql.types import UserDefinedType

    code = getattr(UserDefinedType.fromJson, "__code__", None)
    if code is not None and "serializedClass" in code.co_consts:
        warn(
            logger,
            "SPARK-012",
            f"PySpark {pyspark.__version__} unpickles the classes of user-defined types, so that a "
            "Spark Connect server, or a file that another user has written, can run code in this "
            "client as soon as it reads a schema: install PySpark 3.5.9, 4.0.5, 4.1.4, 4.2.1, or "
            "a newer one",
        )


def lacks_unix_sockets() -> bool:
    """Return True if this Spark could exchange rows by Unix domain sockets, but does not.

    For a process that Spark starts: the JVM sets the variable.
    """
    has_setting = FOUND >= _FIRST_UNIX_SOCKETS
    return has_setting and os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true"


def is_ansi_by_default() -> bool:
    """Return the default of spark.sql.ansi.enabled."""
    return FOUND >= _FIRST_ANSI and os.environ.get("SPARK_ANSI_SQL_MODE") != "false"


__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceStreamArrowWriter",
    "WriterCommitMessage",
    "interval_types",
    "is_ansi_by_default",
    "require_data_sources",
    "warn_of_unpickling",
]
