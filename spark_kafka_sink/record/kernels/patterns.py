"""Dates and times by a pattern of the user's own, as steps. Helpers of the JSON kernel.

A pattern is int64[1 + 2 * steps]: how many steps there are, then what each one writes, and how.

Source: ``java.time.format.DateTimeFormatterBuilder``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
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
    YEAR,
    YEAR_OF_CENTURY,
    ZERO_HH,
    ZERO_HH_MM,
    ZERO_Z,
)
from spark_kafka_sink.record.kernels.declared import called
from spark_kafka_sink.record.kernels.memory import load_int64, store_uint8
from spark_kafka_sink.record.kernels.numbers import (
    POWERS_OF_TEN,
    calendar_day,
    digits_count,
    put_digits,
    put_pair,
    put_year,
)

_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400_000_000


@called
def _put_number(at: int, value: int, width: int) -> int:
    """Write what is not negative with zeros in front."""
    number = np.uint64(value)
    return put_digits(at, number, max(digits_count(number), np.int64(width)))


@called
def _put_year_of(at: int, year: int, width: int) -> int:
    if width == 4:
        return put_year(at, year)
    if width < 4:
        if year >= 0:
            return _put_number(at, year, width)
        store_uint8(at, 45)
        return _put_number(at + 1, -year, width)
    # With a sign where the year has more digits than the pattern.
    magnitude = abs(year)
    if year < 0:
        store_uint8(at, 45)
        at += 1
    elif digits_count(np.uint64(magnitude)) > width:
        store_uint8(at, 43)
        at += 1
    return _put_number(at, magnitude, width)


@called
def _put_offset(at: int, seconds: int, how: int) -> int:
    kind, zero = how % OFFSET_KINDS, how // OFFSET_KINDS
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
def put_by_pattern(at: int, pattern: int, days: int, of_day: int, offset: int) -> int:
    """Write a day since 1970 and its microseconds of UTC as a clock shows them.

    offset: seconds that the clock is ahead of UTC, less than a day. Days and the rest are apart, as
        int64 has not the microseconds of all days that a date can be
    """
    rest = of_day + offset * _MICROS_PER_SECOND
    if rest < 0:
        rest += _MICROS_PER_DAY
        days -= 1
    elif rest >= _MICROS_PER_DAY:
        rest -= _MICROS_PER_DAY
        days += 1
    seconds = rest // _MICROS_PER_SECOND
    year, month, day_of_month = calendar_day(days)
    count = _number(pattern)
    for step in range(count):
        address = pattern + 8 + STEP_BYTES * step
        what, how = _number(address), _number(address + 8)
        if what == BYTE:
            store_uint8(at, how)
            at += 1
        elif what == YEAR:
            at = _put_year_of(at, year, how)
        elif what == YEAR_OF_CENTURY:
            at = put_pair(at, abs(year) % 100)
        elif what == MONTH:
            at = _put_number(at, month, how)
        elif what == DAY:
            at = _put_number(at, day_of_month, how)
        elif what == HOUR:
            at = _put_number(at, seconds // 3600, how)
        elif what == MINUTE:
            at = _put_number(at, seconds // 60 % 60, how)
        elif what == SECOND:
            at = _put_number(at, seconds % 60, how)
        elif what == FRACTION:
            fraction = np.uint64(rest - seconds * _MICROS_PER_SECOND)
            if how <= 6:
                at = put_digits(at, fraction // POWERS_OF_TEN[np.uint64(6 - how)], how)
            else:
                at = put_digits(at, fraction * POWERS_OF_TEN[np.uint64(how - 6)], how)
        else:
            at = _put_offset(at, offset, how)
    return at


@called
def _number(address: int) -> Any:
    return np.int64(load_int64(address))
