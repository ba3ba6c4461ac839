"""Write values for which JSON or Spark has a format of its own. Helpers of the JSON kernel.

A user's pattern of dates and times is int64[1 + 2 * steps]: the count of steps, then two numbers of
each step, its kind and its format.

Source: ``java.time.format.DateTimeFormatterBuilder``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    BINARY,
    BYTE,
    DAY,
    FRACTION,
    HOUR,
    MINUTE,
    MONTH,
    OFFSET_HHMM_SHORT,
    OFFSET_HHMMSS,
    OFFSET_KINDS,
    SECOND,
    STEP_BYTES,
    UNIT_DAY,
    UNIT_HOUR,
    UNIT_MINUTE,
    UNIT_MONTH,
    UNIT_SECOND,
    UNIT_YEAR,
    UNITS,
    YEAR,
    YEAR_OF_CENTURY,
    ZERO_HH,
    ZERO_HH_MM,
    ZERO_Z,
    ZONES_CYCLE,
    ZONES_REPEAT,
)
from spark_kafka_sink.record.kernels.memory import (
    called,
    inlined,
    load_int64,
    load_uint8,
    store_uint8,
    store_uint64,
)
from spark_kafka_sink.record.kernels.text import (
    POWERS_OF_TEN,
    calendar_date,
    digits_count,
    put_digits,
    put_double,
    put_float,
    put_fraction,
    put_integer,
    put_pair,
    put_year,
)

_NAN = 0x224E614E22  # With quotes.
_MICROS = 1_000_000


@inlined
def put_literal(at: int, word: int, count: int) -> int:
    """Write the first ``count`` bytes of ``word``. All eight bytes at ``at`` are overwritten."""
    store_uint64(at, word)
    return at + count


@called
def _put_infinity(at: int, is_negative: bool) -> int:
    """Write ``"Infinity"`` or ``"-Infinity"``, in quotes."""
    store_uint8(at, 34)
    at += 1
    if is_negative:
        store_uint8(at, 45)
        at += 1
    store_uint64(at, 0x7974696E69666E49)
    store_uint8(at + 8, 34)
    return at + 9


@called
def put_json_double(at: int, bits: Any) -> int:
    """Write the float64 with these bits; NaN and infinities are in quotes."""
    if (bits >> np.uint64(52)) & np.uint64(0x7FF) != np.uint64(0x7FF):
        return put_double(at, bits)
    if bits << np.uint64(12) != np.uint64(0):
        return put_literal(at, _NAN, 5)
    return _put_infinity(at, bits >> np.uint64(63) != np.uint64(0))


@called
def put_json_float(at: int, bits: Any) -> int:
    """Write the float32 with these bits; NaN and infinities are in quotes."""
    if (bits >> np.uint64(23)) & np.uint64(0xFF) != np.uint64(0xFF):
        return put_float(at, bits)
    if bits & np.uint64(0x7FFFFF) != np.uint64(0):
        return put_literal(at, _NAN, 5)
    return _put_infinity(at, bits >> np.uint64(31) != np.uint64(0))


@called
def _put_unit(at: int, unit: int) -> int:
    """Write a space and the unit's name."""
    if unit == UNIT_DAY:
        return put_literal(at, 0x59414420, 4)
    if unit == UNIT_HOUR:
        return put_literal(at, 0x52554F4820, 5)
    if unit == UNIT_MINUTE:
        return put_literal(at, 0x4554554E494D20, 7)
    if unit == UNIT_YEAR:
        return put_literal(at, 0x5241455920, 5)
    if unit == UNIT_MONTH:
        return put_literal(at, 0x48544E4F4D20, 6)
    return put_literal(at, 0x444E4F43455320, 7)


@called
def _put_interval_number(at: int, value: int, is_day: bool) -> int:
    """Write a number of a unit. Hours, minutes and seconds have at least two digits."""
    if value < 10 and not is_day:
        store_uint8(at, 48)
        at += 1
    return put_integer(at, value)


@called
def _begin_interval(at: int, is_negative: bool) -> int:
    store_uint8(at, 34)
    store_uint64(at + 1, 0x4C41565245544E49)
    store_uint8(at + 9, 32)
    store_uint8(at + 10, 39)
    at += 11
    if is_negative:
        store_uint8(at, 45)
        at += 1
    return at


@called
def _end_interval(at: int, first: int, last: int) -> int:
    store_uint8(at, 39)
    at = _put_unit(at + 1, first)
    if last > first:
        store_uint64(at, 0x4F5420)
        at = _put_unit(at + 3, last)
    store_uint8(at, 34)
    return at + 1


@called
def put_months(at: int, months: int, units: int) -> int:
    """Write an interval of months, such as ``"INTERVAL '1-2' YEAR TO MONTH"``.

    Source: IntervalUtils.toYearMonthIntervalString
    """
    first, last = units // UNITS, units % UNITS
    at = _begin_interval(at, months < 0)
    rest = abs(months)
    if first == UNIT_YEAR:
        at = put_integer(at, rest // 12)
        rest = rest % 12
    if last > first:
        store_uint8(at, 45)
        at += 1
    if last == UNIT_MONTH:
        at = put_integer(at, rest)
    return _end_interval(at, first, last)


@called
def put_interval(at: int, micros: int, units: int) -> int:
    """Write an interval, such as ``"INTERVAL '1 02:03:04.5' DAY TO SECOND"``.

    Source: IntervalUtils.toDayTimeIntervalString
    """
    first, last = units // UNITS, units % UNITS
    at = _begin_interval(at, micros < 0)
    rest = np.uint64(micros)
    if micros < 0:
        rest = np.uint64(0) - rest
    for unit in range(first, last + 1):
        step = np.uint64(86_400 * _MICROS)
        if unit == UNIT_HOUR:
            step = np.uint64(3_600 * _MICROS)
        elif unit == UNIT_MINUTE:
            step = np.uint64(60 * _MICROS)
        elif unit == UNIT_SECOND:
            step = np.uint64(_MICROS)
        if unit > first:
            store_uint8(at, 32 if unit == UNIT_HOUR else 58)
            at += 1
        count = rest // step
        rest -= count * step
        at = _put_interval_number(at, np.int64(count), unit == UNIT_DAY)
    if last == UNIT_SECOND:
        at = put_fraction(at, rest, np.int64(6))
    return _end_interval(at, first, last)


@inlined
def time_in_zones_table(seconds: int) -> int:
    """Return a time before ZONES_REPEAT at which zones have the same offsets as at ``seconds``.

    Both times are in seconds since 1970.
    """
    if seconds < ZONES_REPEAT:
        return seconds
    return ZONES_REPEAT - ZONES_CYCLE + (seconds - ZONES_REPEAT) % ZONES_CYCLE


@called
def find_zone(zones: Any, count: int, seconds: int) -> int:
    """Return the last row of ``zones`` that does not start after ``seconds``."""
    low, high = np.int64(0), np.int64(count)
    while high - low > 1:
        middle = (low + high) >> 1
        if zones[middle, 0] <= seconds:
            low = middle
        else:
            high = middle
    return low


@called
def max_escaped_bytes(source: int, count: int, kind: int) -> int:
    """Return the bytes of Base64, or at most the bytes of an escaped string, without quotes."""
    if kind == BINARY:
        return (count + 2) // 3 * 4
    total = count
    for position in range(count):
        byte = np.int64(load_uint8(source + position))
        if byte < 32:
            total += 5
        elif byte == 34 or byte == 92:
            total += 1
        elif byte >= 128:
            total += 2
    return total


_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400_000_000


@called
def _put_padded_number(at: int, value: int, width: int) -> int:
    """Write a number that is not negative, with zeros in front up to ``width`` digits."""
    number = np.uint64(value)
    return put_digits(at, number, max(digits_count(number), np.int64(width)))


@called
def _put_padded_year(at: int, year: int, width: int) -> int:
    if width == 4:
        return put_year(at, year)
    if width < 4:
        if year >= 0:
            return _put_padded_number(at, year, width)
        store_uint8(at, 45)
        return _put_padded_number(at + 1, -year, width)
    # A year with more digits than the pattern has a sign, and so has a negative year.
    magnitude = abs(year)
    if year < 0:
        store_uint8(at, 45)
        at += 1
    elif digits_count(np.uint64(magnitude)) > width:
        store_uint8(at, 43)
        at += 1
    return _put_padded_number(at, magnitude, width)


@called
def _put_offset(at: int, seconds: int, step_format: int) -> int:
    kind, zero = step_format % OFFSET_KINDS, step_format // OFFSET_KINDS
    magnitude = abs(seconds)
    hours, minutes, rest = magnitude // 3600, magnitude // 60 % 60, magnitude % 60
    has_seconds = kind >= OFFSET_HHMMSS and rest > 0
    if hours == 0 and minutes == 0 and not has_seconds:
        if zero == ZERO_Z:
            store_uint8(at, 90)
            return at + 1
        store_uint8(at, 43)
        at = put_pair(at + 1, 0)
        if zero == ZERO_HH_MM:
            store_uint8(at, 58)
            at += 1
        return at if zero == ZERO_HH else put_pair(at, 0)
    has_colons = kind % 2 == 0  # OFFSET_HH_MM, OFFSET_HH_MM_SS
    store_uint8(at, 45 if seconds < 0 else 43)
    at = put_pair(at + 1, hours)
    if kind != OFFSET_HHMM_SHORT or minutes > 0:
        if has_colons:
            store_uint8(at, 58)
            at += 1
        at = put_pair(at, minutes)
    if has_seconds:
        if has_colons:
            store_uint8(at, 58)
            at += 1
        at = put_pair(at, rest)
    return at


@called
def put_by_pattern(at: int, pattern: int, days: int, micros_of_day: int, offset: int) -> int:
    """Write a day since 1970 and its microseconds, both of UTC, as local time in a pattern.

    offset: local time minus UTC in seconds, less than a day

    Days and microseconds are separate numbers, because the microseconds since 1970 of some dates
    exceed int64.
    """
    rest = micros_of_day + offset * _MICROS_PER_SECOND
    if rest < 0:
        rest += _MICROS_PER_DAY
        days -= 1
    elif rest >= _MICROS_PER_DAY:
        rest -= _MICROS_PER_DAY
        days += 1
    seconds = rest // _MICROS_PER_SECOND
    year, month, day_of_month = calendar_date(days)
    count = _load_number(pattern)
    for step in range(count):
        address = pattern + 8 + STEP_BYTES * step
        step_kind, step_format = _load_number(address), _load_number(address + 8)
        if step_kind == BYTE:
            store_uint8(at, step_format)
            at += 1
        elif step_kind == YEAR:
            at = _put_padded_year(at, year, step_format)
        elif step_kind == YEAR_OF_CENTURY:
            at = put_pair(at, abs(year) % 100)
        elif step_kind == MONTH:
            at = _put_padded_number(at, month, step_format)
        elif step_kind == DAY:
            at = _put_padded_number(at, day_of_month, step_format)
        elif step_kind == HOUR:
            at = _put_padded_number(at, seconds // 3600, step_format)
        elif step_kind == MINUTE:
            at = _put_padded_number(at, seconds // 60 % 60, step_format)
        elif step_kind == SECOND:
            at = _put_padded_number(at, seconds % 60, step_format)
        elif step_kind == FRACTION:
            fraction = np.uint64(rest - seconds * _MICROS_PER_SECOND)
            if step_format <= 6:
                at = put_digits(
                    at, fraction // POWERS_OF_TEN[np.uint64(6 - step_format)], step_format
                )
            else:
                at = put_digits(
                    at, fraction * POWERS_OF_TEN[np.uint64(step_format - 6)], step_format
                )
        else:
            at = _put_offset(at, offset, step_format)
    return at


@called
def _load_number(address: int) -> Any:
    return np.int64(load_int64(address))
