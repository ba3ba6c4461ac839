"""Texts of columns as Spark's ``CAST(… AS STRING)`` has them, for keys and values of one column.

Source: ``ToStringBase`` of Spark.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import SchemaError

_EXPONENT = "E"


def text_of(column: Any, name: str, time_zone: str) -> Any:
    """A string array of the column's texts, null where it is null.

    time_zone: of the Spark session, for timestamps. name: of the column, for the error

    Raises SchemaError for a type whose text Spark writes in a way of its own: floating point,
    intervals, and what has fields or elements.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_timestamp(kind):
        return _timestamps(column, None if kind.tz is None else time_zone)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    raise SchemaError(f"column '{name}' of the Arrow type {kind} has no text")


def _decimals(column: Any) -> Any:
    """Without exponents, which Arrow has for the smallest ones."""
    texts = column.cast(pa.string())
    small = pc.match_substring(texts, _EXPONENT).fill_null(False)
    if not pc.any(small).as_py():
        return texts
    plain = [f"{number.as_py():f}" for number in column.filter(small)]
    return pc.replace_with_mask(texts, small, pa.array(plain, pa.string()))


def _timestamps(column: Any, time_zone: str | None) -> Any:
    """``2013-01-01 05:00:00.5``: the fraction as far as it is not zero."""
    kind = pa.timestamp("us") if time_zone is None else pa.timestamp("us", time_zone)
    texts = pc.strftime(column.cast(kind), format="%Y-%m-%d %H:%M:%S")
    return pc.replace_substring_regex(texts, pattern=r"\.?0+$", replacement="")
