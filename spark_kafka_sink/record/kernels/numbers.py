"""Numbers, dates and times as text. Helpers of kernels: each writes at an address and returns that
after what it wrote. WIDEST_TEXT bytes there must be free: some use what follows as scratch space.

Source: C. Neri and L. Schneider, "Euclidean affine functions and their application to calendar
algorithms"; ``java.math.BigDecimal.toString``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    leading_zeros,
    load_uint64,
    store_uint8,
    store_uint16,
)

SCRATCH = 48

_PAIRS = np.frombuffer(b"".join(b"%02d" % i for i in range(100)), "<u2").astype(np.uint16)
POWERS_OF_TEN = np.array([10**i for i in range(20)], np.uint64)
_MICROS_PER_DAY = 86_400_000_000

# Days and years that are added so that no sum is negative: 20,000 times 400 years.
_ERAS = 20_000
_DAYS_PER_ERA = 146_097
_DAYS_BEFORE = 719_468 + _ERAS * _DAYS_PER_ERA


# --- integers --------------------------------------------------------------------------------


@inlined
def digits_count(value: Any) -> Any:
    """Decimal digits of a uint64: 1 to 20, as int64."""
    count = ((64 - leading_zeros(value | np.uint64(1))) * 1233) >> 12
    if value >= POWERS_OF_TEN[np.uint64(count)]:
        count += 1
    return max(count, np.int64(1))


@inlined
def put_digits(at: int, value: Any, count: int) -> int:
    """Write a uint64 as ``count`` digits, with zeros in front."""
    end = at + count
    while end - at >= 2:
        rest = value // np.uint64(100)
        end -= 2
        store_uint16(end, np.int64(_PAIRS[value - rest * np.uint64(100)]))
        value = rest
    if end > at:
        store_uint8(at, np.int64(np.uint64(48) + value))
    return at + count


@inlined
def put_pair(at: int, value: int) -> int:
    """Write 0 to 99 as two digits."""
    store_uint16(at, np.int64(_PAIRS[np.uint64(value)]))
    return at + 2


@called
def put_unsigned(at: int, value: Any) -> int:
    """Write a uint64."""
    return put_digits(at, value, digits_count(value))


@called
def put_integer(at: int, value: int) -> int:
    """Write an int64."""
    magnitude = np.uint64(value)
    if value < 0:
        store_uint8(at, 45)
        at += 1
        magnitude = np.uint64(0) - magnitude
    return put_digits(at, magnitude, digits_count(magnitude))


# --- dates and times -------------------------------------------------------------------------


@inlined
def calendar_day(days: int) -> Any:
    """Year, month and day of the month of a day since 1970, in the proleptic Gregorian calendar."""
    # Days since March 1 of a year long ago; a year begins with March.
    quarters = np.uint64(days + _DAYS_BEFORE) * np.uint64(4) + np.uint64(3)
    century = quarters // np.uint64(_DAYS_PER_ERA)
    day = (quarters - century * np.uint64(_DAYS_PER_ERA)) // np.uint64(4)
    product = (day * np.uint64(4) + np.uint64(3)) * np.uint64(2_939_745)
    year = np.int64(century * np.uint64(100) + (product >> np.uint64(32))) - _ERAS * 400
    day_of_year = (product & np.uint64(0xFFFFFFFF)) // np.uint64(4 * 2_939_745)
    months = day_of_year * np.uint64(2141) + np.uint64(197_913)
    month = np.int64(months >> np.uint64(16))
    if day_of_year >= np.uint64(306):
        month -= 12
        year += 1
    return year, month, np.int64((months & np.uint64(0xFFFF)) // np.uint64(2141)) + 1


@called
def put_date(at: int, days: int) -> int:
    """Write days since 1970 as ``yyyy-MM-dd``; years before 0 and after 9999 have a sign."""
    year, month, day = calendar_day(days)
    at = put_year(at, year)
    store_uint8(at, 45)
    put_pair(at + 1, month)
    store_uint8(at + 3, 45)
    return put_pair(at + 4, day)


@inlined
def put_year(at: int, year: int) -> int:
    """Write a year with at least four digits."""
    if 0 <= year <= 9999:
        high = np.uint64(year) // np.uint64(100)
        put_pair(at, np.int64(high))
        return put_pair(at + 2, np.int64(np.uint64(year) - high * np.uint64(100)))
    magnitude = np.uint64(year)
    if year < 0:
        store_uint8(at, 45)
        at += 1
        magnitude = np.uint64(0) - magnitude
    elif year > 9999:
        store_uint8(at, 43)
        at += 1
    return put_digits(at, magnitude, max(digits_count(magnitude), np.int64(4)))


@inlined
def put_clock(at: int, seconds: int) -> int:
    """Write seconds of a day as ``HH:mm:ss``."""
    minutes = np.uint64(seconds) // np.uint64(60)
    hours = minutes // np.uint64(60)
    put_pair(at, np.int64(hours))
    store_uint8(at + 2, 58)
    put_pair(at + 3, np.int64(minutes - hours * np.uint64(60)))
    store_uint8(at + 5, 58)
    return put_pair(at + 6, np.int64(np.uint64(seconds) - minutes * np.uint64(60)))


@inlined
def local_day(micros: int, ahead: int) -> Any:
    """Days since 1970, and microseconds of the day, that a clock shows.

    micros: since 1970; ahead: seconds that the clock is ahead, less than a day. They are added to
        the time of day: the sum of both could be more than int64 has
    """
    days = micros // _MICROS_PER_DAY
    of_day = micros - days * _MICROS_PER_DAY + ahead * 1_000_000
    if of_day < 0:
        of_day += _MICROS_PER_DAY
        days -= 1
    elif of_day >= _MICROS_PER_DAY:
        of_day -= _MICROS_PER_DAY
        days += 1
    return days, of_day


@called
def put_local_time(at: int, micros: int, ahead: int) -> int:
    """Write microseconds since 1970 as a clock shows them: ``yyyy-MM-ddTHH:mm:ss.SSS``.

    ahead: seconds that the clock is ahead, less than a day
    """
    days, of_day = local_day(micros, ahead)
    millis = np.uint64(of_day) // np.uint64(1000)
    seconds = millis // np.uint64(1000)
    at = put_date(at, days)
    store_uint8(at, 84)
    at = put_clock(at + 1, np.int64(seconds))
    store_uint8(at, 46)
    millis -= seconds * np.uint64(1000)
    tens = millis // np.uint64(10)
    put_pair(at + 1, np.int64(tens))
    store_uint8(at + 3, np.int64(np.uint64(48) + millis - tens * np.uint64(10)))
    return at + 4


@called
def put_zone(at: int, seconds: int) -> int:
    """Write what a clock is ahead of UTC: ``Z``, ``+01:00``; with seconds where it has some."""
    if seconds == 0:
        store_uint8(at, 90)
        return at + 1
    store_uint8(at, 45 if seconds < 0 else 43)
    seconds = abs(seconds)
    end = put_clock(at + 1, seconds)
    return end if seconds % 60 else end - 3


@called
def put_fraction(at: int, fraction: Any, count: int) -> int:
    """Write a point and ``count`` digits without the zeros at the end; nothing for 0."""
    if fraction == np.uint64(0):
        return at
    while fraction % np.uint64(10) == np.uint64(0):
        fraction //= np.uint64(10)
        count -= 1
    store_uint8(at, 46)
    return put_digits(at + 1, fraction, count)


@called
def put_time(at: int, nanos: int) -> int:
    """Write nanoseconds of a day as ``HH:mm:ss`` with as many digits of a second as needed."""
    seconds = nanos // 1_000_000_000
    at = put_clock(at, seconds)
    return put_fraction(at, np.uint64(nanos - seconds * 1_000_000_000), np.int64(9))


# --- decimals --------------------------------------------------------------------------------


@inlined
def _split_wide(high: Any, low: Any) -> Any:
    """Two uint64 divided by 10^9: the high and the low one of the quotient, and what is left."""
    billion, mask = np.uint64(1_000_000_000), np.uint64(0xFFFFFFFF)
    part = high >> np.uint64(32)
    top = part // billion
    part = ((part - top * billion) << np.uint64(32)) | (high & mask)
    second = part // billion
    part = ((part - second * billion) << np.uint64(32)) | (low >> np.uint64(32))
    third = part // billion
    part = ((part - third * billion) << np.uint64(32)) | (low & mask)
    last = part // billion
    quotient_high = (top << np.uint64(32)) | second
    return quotient_high, (third << np.uint64(32)) | last, part - last * billion


@inlined
def put_wide(at: int, high: Any, low: Any) -> int:
    """Write an unsigned number of 128 bits, as two uint64: 1 to 39 digits."""
    # Nine digits at a time, the last ones first, until the rest has at most twenty.
    parts = 0
    first, second, third = np.uint64(0), np.uint64(0), np.uint64(0)
    while high != np.uint64(0):
        third, second = second, first
        high, low, first = _split_wide(high, low)
        parts += 1
    at = put_unsigned(at, low)
    if parts > 0:
        at = put_digits(at, first, 9)
    if parts > 1:
        at = put_digits(at, second, 9)
    if parts > 2:
        at = put_digits(at, third, 9)
    return at


@called
def put_decimal(at: int, address: int, scale: int) -> int:
    """Write the int128 at ``address`` over 10^scale, as Java's BigDecimal: ``0.01``, ``1E-7``.

    scale: any int32; if it is negative there is always an exponent: ``1.23E+10``
    """
    low, high = load_uint64(address), load_uint64(address + 8)
    if high >> np.uint64(63):
        store_uint8(at, 45)
        at += 1
        low = ~low + np.uint64(1)
        high = ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    if scale == 0:
        return put_wide(at, high, low)
    digits = at + SCRATCH
    count = put_wide(digits, high, low) - digits
    exponent = count - 1 - scale
    if scale < 0 or exponent < -6:
        return _put_scientific(at, digits, count, exponent)
    if count > scale:
        copy_bytes(at, digits, count - scale)
        at += count - scale
        store_uint8(at, 46)
        copy_bytes(at + 1, digits + count - scale, scale)
        return at + 1 + scale
    store_uint16(at, 0x2E30)
    at += 2
    for _ in range(scale - count):
        store_uint8(at, 48)
        at += 1
    copy_bytes(at, digits, count)
    return at + count


@inlined
def _put_scientific(at: int, digits: int, count: int, exponent: int) -> int:
    copy_bytes(at, digits, 1)
    at += 1
    if count > 1:
        store_uint8(at, 46)
        copy_bytes(at + 1, digits + 1, count - 1)
        at += count
    store_uint8(at, 69)
    at += 1
    if exponent > 0:
        store_uint8(at, 43)
        at += 1
    return put_integer(at, exponent)
