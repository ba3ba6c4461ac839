"""Texts of columns as Spark's ``CAST(… AS STRING)`` has them, for keys and values of one column.

Source: ``ToStringBase`` of Spark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import JSON, FormatPlan, PlannedField
from spark_kafka_sink.formats.zones import seconds_ahead

_EXPONENT = "E"
_MICROS = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS
# Of an object with one field without a name, what is before and behind the text.
_BEFORE, _BEHIND = len('{"":"'), len('"}')


def text_of(column: Any, name: str, time_zone: str, is_ansi: bool) -> Any:
    """Return a string array of the column's texts, null where it is null.

    time_zone: of the Spark session, for timestamps. name: of the column, for the error
    is_ansi: spark.sql.ansi.enabled: whether decimals have no exponent

    Raises SchemaError for a type whose text Spark writes in a way of its own: floating point,
    intervals, and what has fields or elements. FormatError for a time zone that is not known.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_date32(kind):
        return _written(column).cast(pa.string())
    if pa.types.is_decimal(kind):
        return _plain_decimals(column) if is_ansi else column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _timestamps(column, None if kind.tz is None else time_zone)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    raise SchemaError(f"column '{name}' of the Arrow type {kind} has no text")


def _plain_decimals(column: Any) -> Any:
    """Without exponents, which Arrow has where Java's BigDecimal has them."""
    texts = column.cast(pa.string())
    small = pc.match_substring(texts, _EXPONENT).fill_null(False)
    if not pc.any(small).as_py():
        return texts
    numbers = column.filter(small).to_pylist()
    # A zero with a negative scale is one digit in Java.
    plain = [f"{number:f}" if number or column.type.scale > 0 else "0" for number in numbers]
    return pc.replace_with_mask(texts, small, pa.array(plain, pa.string()))


def _timestamps(column: Any, time_zone: str | None) -> Any:
    """``2013-01-01 05:00:00.5``: the fraction as far as it is not zero."""
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, of_day = np.divmod(micros, _MICROS_PER_DAY)
    if time_zone is not None:
        # Not added to the whole: the sum could be more than int64 has.
        of_day = of_day + _MICROS * seconds_ahead(micros // _MICROS, time_zone)
        more, of_day = np.divmod(of_day, _MICROS_PER_DAY)
        days = days + more
    dates = _written(_array(days.astype(np.int32), pa.date32()))
    times = _written(_array(of_day * 1000, pa.time64("ns")))
    texts = pc.binary_join_element_wise(dates, times, pa.scalar(b" ", dates.type))
    return pc.if_else(column.is_valid(), texts, None).cast(pa.string())


def _array(values: npt.NDArray[Any], kind: Any) -> Any:
    return pa.array(values).view(kind)


def _written(column: Any) -> Any:
    """What the JSON kernel writes of dates or of times of a day: Arrow knows the years to 9999."""
    schema = pa.schema([("c", column.type)])
    encoder = RowEncoder(FormatPlan(JSON, (PlannedField(("c",), ""),)), schema)
    values = encoder.encode(pa.record_batch([column], schema=schema)).values
    texts = pc.binary_slice(values, _BEFORE, -_BEHIND)
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts
