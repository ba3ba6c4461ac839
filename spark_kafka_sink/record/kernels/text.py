"""Write numbers, dates, times, strings and bytes as text. Helpers of kernels.

Each helper writes at an address and returns the address after the text. Except for strings and
bytes, WIDEST_TEXT bytes must be free there, because some helpers use them as scratch space.

Floating point has the format of Java 19 and newer: the shortest text, of at least two digits, that
reads back as the same number. In strings, the hexadecimal digits of escapes are capitals, and only
ASCII characters are escaped, as in Jackson's ``JsonGenerator`` with Spark's settings. Bytes that
are not UTF-8 become U+FFFD, as many as in Java's ``String(byte[], UTF_8)``.

Source: C. Neri and L. Schneider, "Euclidean affine functions and their application to calendar
algorithms"; ``java.math.BigDecimal.toString``; R. Giulietti, "The Schubfach way to render doubles",
and his ``DoubleToDecimal`` of the JDK; Jackson's ``JsonGenerator``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.memory import (
    called,
    copy_bytes,
    inlined,
    leading_zeros,
    load_uint8,
    load_uint32,
    load_uint64,
    multiply_wide,
    store_uint8,
    store_uint16,
    store_uint32,
    store_uint64,
)

SCRATCH_OFFSET = 48

_PAIRS = np.frombuffer(b"".join(b"%02d" % i for i in range(100)), "<u2").astype(np.uint16)
POWERS_OF_TEN = np.array([10**i for i in range(20)], np.uint64)
_MICROS_PER_DAY = 86_400_000_000

# Days and years are added so that no sum is negative: 20,000 times 400 years.
_ERAS = 20_000
_DAYS_PER_ERA = 146_097
_DAYS_BEFORE = 719_468 + _ERAS * _DAYS_PER_ERA


# --- integers --------------------------------------------------------------------------------


@inlined
def digits_count(value: Any) -> Any:
    """Return the count of decimal digits of a uint64: 1 to 20, as int64."""
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
def calendar_date(days: int) -> Any:
    """Return (year, month, day of the month) of a day since 1970, proleptic Gregorian."""
    # Days count from March 1 of a year long ago. A year begins with March.
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
    year, month, day = calendar_date(days)
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
def local_day_and_time(micros: int, offset_seconds: int) -> Any:
    """Return (days since 1970, microseconds of the day) of local time.

    micros: since 1970, UTC
    offset_seconds: local time minus UTC, less than a day. It is added to the time of day, because
        the sum with ``micros`` could exceed int64
    """
    days = micros // _MICROS_PER_DAY
    micros_of_day = micros - days * _MICROS_PER_DAY + offset_seconds * 1_000_000
    if micros_of_day < 0:
        micros_of_day += _MICROS_PER_DAY
        days -= 1
    elif micros_of_day >= _MICROS_PER_DAY:
        micros_of_day -= _MICROS_PER_DAY
        days += 1
    return days, micros_of_day


@called
def put_local_time(at: int, micros: int, offset_seconds: int) -> int:
    """Write microseconds since 1970, UTC, as local time: ``yyyy-MM-ddTHH:mm:ss.SSS``.

    offset_seconds: local time minus UTC, less than a day
    """
    days, micros_of_day = local_day_and_time(micros, offset_seconds)
    millis = np.uint64(micros_of_day) // np.uint64(1000)
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
def put_zone_offset(at: int, seconds: int) -> int:
    """Write an offset from UTC: ``Z``, ``+01:00``, or with seconds if they are not 0."""
    if seconds == 0:
        store_uint8(at, 90)
        return at + 1
    store_uint8(at, 45 if seconds < 0 else 43)
    seconds = abs(seconds)
    end = put_clock(at + 1, seconds)
    return end if seconds % 60 else end - 3


@called
def put_fraction(at: int, fraction: Any, count: int) -> int:
    """Write a point and ``count`` digits without zeros at the end; write nothing for 0."""
    if fraction == np.uint64(0):
        return at
    while fraction % np.uint64(10) == np.uint64(0):
        fraction //= np.uint64(10)
        count -= 1
    store_uint8(at, 46)
    return put_digits(at + 1, fraction, count)


@called
def put_time(at: int, nanos: int) -> int:
    """Write nanoseconds of a day as ``HH:mm:ss`` with as many fraction digits as needed."""
    seconds = nanos // 1_000_000_000
    at = put_clock(at, seconds)
    return put_fraction(at, np.uint64(nanos - seconds * 1_000_000_000), np.int64(9))


# --- decimals --------------------------------------------------------------------------------


@inlined
def _divide_uint128(high: Any, low: Any) -> Any:
    """Divide a uint128 by 10^9; return (high uint64, low uint64, remainder)."""
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
def put_uint128(at: int, high: Any, low: Any) -> int:
    """Write a uint128, which is given as two uint64: 1 to 39 digits."""
    # Split off the last nine digits until the rest is a uint64.
    parts = 0
    first, second, third = np.uint64(0), np.uint64(0), np.uint64(0)
    while high != np.uint64(0):
        third, second = second, first
        high, low, first = _divide_uint128(high, low)
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
    """Write the int128 at ``address`` / 10^scale as Java's BigDecimal does: ``0.01``, ``1E-7``.

    scale: any int32. A negative scale always gives an exponent: ``1.23E+10``
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
        return put_uint128(at, high, low)
    digits = at + SCRATCH_OFFSET
    count = put_uint128(digits, high, low) - digits
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


_LEAST_POWER, _GREATEST_POWER = -324, 292
_MASK_63 = 2**63 - 1


def _table_of_powers() -> Any:
    """Return floor(10^-k / 2^r) + 1 of 126 bits, as two numbers of 63, for each k."""
    table = []
    for k in range(_LEAST_POWER, _GREATEST_POWER + 1):
        r = ((-k * 913_124_641_741) >> 38) - 125
        power = 10**-k if k <= 0 else 1
        divisor = 10**k if k > 0 else 1
        scaled = (power << -r if r < 0 else power >> r) // divisor + 1
        table += [scaled >> 63, scaled & _MASK_63]
    return np.array(table, np.uint64)


_POWERS = _table_of_powers()


@inlined
def _round_to_odd(high: Any, low: Any, value: Any) -> Any:
    _, x1 = multiply_wide(low, value)
    y0, y1 = multiply_wide(high, value)
    z = (y0 >> np.uint64(1)) + x1
    w = y1 + (z >> np.uint64(63))
    return w | (((z & np.uint64(_MASK_63)) + np.uint64(_MASK_63)) >> np.uint64(63))


@called
def _shortest_decimal(q: int, c: Any, is_even_spaced: bool) -> Any:
    """Return (f, k): f * 10^k is the shortest decimal that reads back as c * 2^q.

    f may have one digit more than the shortest decimal.
    is_even_spaced: the next smaller number is as far away as the next larger number
    """
    odd = c & np.uint64(1)
    middle = c << np.uint64(2)
    right = middle + np.uint64(2)
    if is_even_spaced:
        left = middle - np.uint64(2)
        k = (q * 661_971_961_083) >> 41
    else:
        left = middle - np.uint64(1)
        k = (q * 661_971_961_083 - 274_743_187_321) >> 41
    shift = np.uint64(q + ((-k * 913_124_641_741) >> 38) + 2)
    index = np.uint64(2 * (k - _LEAST_POWER))
    high, low = _POWERS[index], _POWERS[index + np.uint64(1)]
    vb = _round_to_odd(high, low, middle << shift)
    vbl = _round_to_odd(high, low, left << shift) + odd
    vbr = _round_to_odd(high, low, right << shift)
    s = vb >> np.uint64(2)
    if s >= np.uint64(100):
        shorter = s // np.uint64(10) * np.uint64(10)
        is_lower_in = vbl <= shorter << np.uint64(2)
        is_upper_in = ((shorter + np.uint64(10)) << np.uint64(2)) + odd <= vbr
        if is_lower_in != is_upper_in:
            return (shorter if is_lower_in else shorter + np.uint64(10)), k
    t = s + np.uint64(1)
    is_lower_in = vbl <= s << np.uint64(2)
    is_upper_in = (t << np.uint64(2)) + odd <= vbr
    if is_lower_in != is_upper_in:
        return (s if is_lower_in else t), k
    twice = (s + t) << np.uint64(1)
    if vb < twice or (vb == twice and (s & np.uint64(1)) == np.uint64(0)):
        return s, k
    return t, k


@inlined
def _copy_24_bytes(at: int, source: int) -> None:
    store_uint64(at, np.int64(load_uint64(source)))
    store_uint64(at + 8, np.int64(load_uint64(source + 8)))
    store_uint64(at + 16, np.int64(load_uint64(source + 16)))


@called
def _without_zeros(f: Any, k: int) -> Any:
    """Return (f, k) of the same f * 10^k without the zeros at the end of f, at most 16."""
    rest = f // np.uint64(100_000_000)
    if rest * np.uint64(100_000_000) == f:
        f, k = rest, k + 8
    rest = f // np.uint64(10_000)
    if rest * np.uint64(10_000) == f:
        f, k = rest, k + 4
    rest = f // np.uint64(100)
    if rest * np.uint64(100) == f:
        f, k = rest, k + 2
    rest = f // np.uint64(10)
    if rest * np.uint64(10) == f:
        f, k = rest, k + 1
        if f % np.uint64(10) == np.uint64(0):
            f, k = f // np.uint64(10), k + 1
    return f, k


@called
def _put_shortest_decimal(at: int, f: Any, k: int) -> int:
    """Write f * 10^k as Java writes floating point. f has at most 17 digits."""
    if f % np.uint64(10) == np.uint64(0):
        f, k = _without_zeros(f, k)
    digits = at + SCRATCH_OFFSET
    count = digits_count(f)
    put_digits(digits, f, count)
    point = count + k
    if 0 < point <= 7:
        _copy_24_bytes(at, digits)
        if count <= point:
            for zero in range(count, point):
                store_uint8(at + zero, 48)
            store_uint16(at + point, 0x302E)
            return at + point + 2
        store_uint8(at + point, 46)
        _copy_24_bytes(at + point + 1, digits + point)
        return at + count + 1
    if -3 < point <= 0:
        store_uint32(at, 0x30302E30)
        _copy_24_bytes(at + 2 - point, digits)
        return at + 2 - point + count
    _copy_24_bytes(at, digits)
    store_uint8(at + 1, 46)
    if count == 1:
        store_uint8(at + 2, 48)
        at += 3
    else:
        _copy_24_bytes(at + 2, digits + 1)
        at += count + 1
    store_uint8(at, 69)
    return put_integer(at + 1, point - 1)


@called
def put_double(at: int, bits: Any) -> int:
    """Write the finite float64 with these bits."""
    return _put_floating(at, bits >> np.uint64(63), bits & np.uint64(_MASK_63), 52, 3)


@called
def put_float(at: int, bits: Any) -> int:
    """Write the finite float32 with these bits, which are a uint64."""
    return _put_floating(at, bits >> np.uint64(31), bits & np.uint64(0x7FFFFFFF), 23, 8)


@inlined
def _put_floating(at: int, sign: Any, bits: Any, fraction_bits: int, tiny: int) -> int:
    """Write a finite number from its sign bit and its other bits.

    tiny: a number of fewer than ``tiny`` smallest steps has one digit, but Java writes two
    """
    if sign != np.uint64(0):
        store_uint8(at, 45)
        at += 1
    if bits == np.uint64(0):
        store_uint16(at, 0x2E30)
        store_uint8(at + 2, 48)
        return at + 3
    first = np.uint64(1) << np.uint64(fraction_bits)
    least = np.int64(-1074) if fraction_bits == 52 else np.int64(-149)
    fraction = bits & (first - np.uint64(1))
    exponent = np.int64(bits >> np.uint64(fraction_bits))
    if exponent == 0:
        if fraction < np.uint64(tiny):
            f, k = _shortest_decimal(least, fraction * np.uint64(10), True)
            return _put_shortest_decimal(at, f, k - 1)
        f, k = _shortest_decimal(least, fraction, True)
        return _put_shortest_decimal(at, f, k)
    c = first | fraction
    power = 1 - least - exponent
    if 0 < power <= fraction_bits:
        whole = c >> np.uint64(power)
        if whole << np.uint64(power) == c:
            return _put_shortest_decimal(at, whole, np.int64(0))
    f, k = _shortest_decimal(-power, c, (fraction != np.uint64(0)) | (exponent == 1))
    return _put_shortest_decimal(at, f, k)


MAX_ESCAPED_BYTES = 6
"""The most bytes that a byte of a string needs."""

_ONES = 0x0101010101010101
_HIGH_BITS = 0x8080808080808080
_REPLACEMENT = 0xBDBFEF  # U+FFFD in UTF-8, little-endian
_UNICODE_ESCAPE = 0x3030755C  # \u00
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).copy()


def _short_escapes() -> Any:
    table = np.zeros(256, np.uint16)
    for char, escaped in (("\b", "b"), ("\t", "t"), ("\n", "n"), ("\f", "f"), ("\r", "r")):
        table[ord(char)] = ord("\\") | ord(escaped) << 8
    for char in '"\\':
        table[ord(char)] = ord("\\") | ord(char) << 8
    return table


_SHORT_ESCAPES = _short_escapes()


@inlined
def _has_special_bytes(word: Any) -> bool:
    """Return True if one of eight bytes is a control, a quote, a backslash, or not ASCII."""
    ones = np.uint64(_ONES)
    quotes = word ^ (np.uint64(0x22) * ones)
    backslashes = word ^ (np.uint64(0x5C) * ones)
    found = (word - np.uint64(0x20) * ones) | (quotes - ones) | (backslashes - ones) | word
    return (found & np.uint64(_HIGH_BITS)) != np.uint64(0)


@inlined
def _copy_if_plain(at: int, source: int, count: int) -> bool:
    """Copy a string without special bytes. Return False if it has special bytes."""
    if count >= 8:
        last = source + count - 8
        position = source
        while position < last:
            word = load_uint64(position)
            store_uint64(at + (position - source), np.int64(word))
            if _has_special_bytes(word):
                return False
            position += 8
        word = load_uint64(last)
        store_uint64(at + count - 8, np.int64(word))
        return not _has_special_bytes(word)
    if count >= 4:
        first, second = np.uint64(load_uint32(source)), np.uint64(load_uint32(source + count - 4))
        store_uint32(at, np.int64(first))
        store_uint32(at + count - 4, np.int64(second))
        return not _has_special_bytes(first | (second << np.uint64(32)))
    word = np.uint64(0x2020202020202020)
    for position in range(count):
        byte = load_uint8(source + position)
        store_uint8(at + position, np.int64(byte))
        word = (word << np.uint64(8)) | np.uint64(byte)
    return not _has_special_bytes(word)


@called
def put_string(at: int, source: int, count: int) -> int:
    """Write a string in quotes: at most MAX_ESCAPED_BYTES for each of its bytes, and 2."""
    store_uint8(at, 34)
    at += 1
    at = at + count if _copy_if_plain(at, source, count) else _put_escaped(at, source, count)
    store_uint8(at, 34)
    return at + 1


@called
def _put_escaped(at: int, source: int, count: int) -> int:
    end = source + count
    while source < end:
        while source + 8 <= end:
            word = load_uint64(source)
            if _has_special_bytes(word):
                break
            store_uint64(at, np.int64(word))
            at += 8
            source += 8
        # Write these eight bytes one by one.
        stop = min(source + 8, end)
        while source < stop:
            byte = np.int64(load_uint8(source))
            if byte >= 128:
                length = _character_length(source, end, byte)
                if length > 0:
                    for position in range(length):
                        store_uint8(at + position, np.int64(load_uint8(source + position)))
                    at += length
                    source += length
                else:
                    store_uint32(at, _REPLACEMENT)
                    at += 3
                    source -= length
            elif byte >= 32 and byte != 34 and byte != 92:
                store_uint8(at, byte)
                at += 1
                source += 1
            else:
                at = _put_escape(at, byte)
                source += 1
    return at


@inlined
def _put_escape(at: int, byte: int) -> int:
    short = np.int64(_SHORT_ESCAPES[np.uint64(byte)])
    if short != 0:
        store_uint16(at, short)
        return at + 2
    store_uint32(at, _UNICODE_ESCAPE)
    store_uint8(at + 4, np.int64(_HEX[np.uint64(byte >> 4)]))
    store_uint8(at + 5, np.int64(_HEX[np.uint64(byte & 15)]))
    return at + 6


@inlined
def _is_continuation_byte(at: int, end: int) -> bool:
    return at < end and (np.int64(load_uint8(at)) & 0xC0) == 0x80


@called
def _character_length(at: int, end: int, byte: int) -> int:
    """Return the bytes of the UTF-8 character that begins with ``byte``, which is at least 128.

    If the bytes are no character, return -n: n bytes become one U+FFFD.
    """
    if 0xC2 <= byte < 0xE0:
        return np.int64(2) if _is_continuation_byte(at + 1, end) else np.int64(-1)
    if byte < 0xC2 or byte > 0xF4:
        return np.int64(-1)
    if not _is_continuation_byte(at + 1, end):
        return np.int64(-1)
    second = np.int64(load_uint8(at + 1))
    if byte < 0xF0:
        if byte == 0xE0 and second < 0xA0:
            return np.int64(-1)
        if not _is_continuation_byte(at + 2, end):
            return np.int64(-2)
        return np.int64(-3) if byte == 0xED and second >= 0xA0 else np.int64(3)
    if (byte == 0xF0 and second < 0x90) or (byte == 0xF4 and second >= 0x90):
        return np.int64(-1)
    if not _is_continuation_byte(at + 2, end):
        return np.int64(-2)
    return np.int64(4) if _is_continuation_byte(at + 3, end) else np.int64(-3)


@called
def copy_utf8(at: int, source: int, count: int) -> bool:
    """Copy a string. Return False if it is not UTF-8."""
    all_bits = np.uint64(0)
    if count >= 8:
        last = source + count - 8
        position = source
        while position < last:
            word = load_uint64(position)
            store_uint64(at + (position - source), np.int64(word))
            all_bits |= word
            position += 8
        word = load_uint64(last)
        store_uint64(at + count - 8, np.int64(word))
        all_bits |= word
    else:
        for position in range(count):
            byte = load_uint8(source + position)
            store_uint8(at + position, np.int64(byte))
            all_bits |= np.uint64(byte)
    if (all_bits & np.uint64(_HIGH_BITS)) == np.uint64(0):
        return True
    here, end = source, source + count
    while here < end:
        byte = np.int64(load_uint8(here))
        length = np.int64(1) if byte < 128 else _character_length(here, end, byte)
        if length < 0:
            return False
        here += length
    return True


@called
def put_base64(at: int, source: int, count: int) -> int:
    """Write bytes as padded Base64 in quotes: 4 bytes for every 3 or rest of 3, and 2."""
    store_uint8(at, 34)
    at += 1
    for position in range(0, count - 2, 3):
        here = source + position
        high, middle = np.int64(load_uint8(here)), np.int64(load_uint8(here + 1))
        bits = (high << 16) | (middle << 8) | np.int64(load_uint8(here + 2))
        _put_base64_group(at, bits)
        at += 4
    rest = count % 3
    if rest > 0:
        here = source + count - rest
        bits = np.int64(load_uint8(here)) << 16
        if rest == 2:
            bits |= np.int64(load_uint8(here + 1)) << 8
        _put_base64_group(at, bits)
        store_uint8(at + 3, 61)
        if rest == 1:
            store_uint8(at + 2, 61)
        at += 4
    store_uint8(at, 34)
    return at + 1


@inlined
def _put_base64_group(at: int, bits: int) -> None:
    word = np.int64(_BASE64[np.uint64(bits >> 18)])
    word |= np.int64(_BASE64[np.uint64((bits >> 12) & 63)]) << 8
    word |= np.int64(_BASE64[np.uint64((bits >> 6) & 63)]) << 16
    word |= np.int64(_BASE64[np.uint64(bits & 63)]) << 24
    store_uint32(at, word)
