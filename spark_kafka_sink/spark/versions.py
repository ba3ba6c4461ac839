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

import inspect
import os
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ConfigError

try:
    import pyspark
except ImportError as error:
    raise ImportError(
        "pykafka-sink needs pyspark 3.5 or newer, and there is none: "
        "pip install 'pykafka-sink[spark]'"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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


def lacks_unix_sockets() -> bool:
    """Return True if this Spark could exchange rows by Unix domain sockets, but does not.

    For a process that Spark starts: the JVM sets the variable.
    """
    has_setting = FOUND >= _FIRST_UNIX_SOCKETS
    return has_setting and os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true"


def is_ansi_by_default() -> bool:
    """Return the default of spark.sql.ansi.enabled."""
    return FOUND >= _FIRST_ANSI and os.environ.get("SPARK_ANSI_SQL_MODE") != "false"


def arrow_schema(schema: StructType) -> Any:
    """Return the pyarrow.Schema that Spark sends. Newer versions need a time zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = _with_nulls(schema)
    wants_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    more: dict[str, Any] = {"timezone": "UTC"} if wants_zone else {}
    return to_arrow_schema(schema, **more)


def _with_nulls(kind: Any) -> Any:
    """Return the type with fields of type null made nullable.

    The elements of ``array()`` have type null but are not nullable, which pyarrow rejects. The keys
    of ``map()`` have type null too; they become texts here.
    """
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        inner = _with_nulls(kind.elementType)
        return types.ArrayType(inner, kind.containsNull or isinstance(inner, types.NullType))
    if isinstance(kind, types.MapType):
        is_empty = isinstance(kind.keyType, types.NullType)
        key = types.StringType() if is_empty else _with_nulls(kind.keyType)
        value = _with_nulls(kind.valueType)
        has_nulls = kind.valueContainsNull or isinstance(value, types.NullType)
        return types.MapType(key, value, has_nulls)
    if isinstance(kind, types.StructType):
        return types.StructType([_field_with_nulls(field) for field in kind.fields])
    return kind


def _field_with_nulls(field: Any) -> Any:
    from pyspark.sql import types

    kind = _with_nulls(field.dataType)
    nullable = field.nullable or isinstance(kind, types.NullType)
    return types.StructField(field.name, kind, nullable, field.metadata)


__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceStreamArrowWriter",
    "WriterCommitMessage",
    "arrow_schema",
    "interval_types",
    "is_ansi_by_default",
    "require_data_sources",
]
