"""Floating point as text, as Java 19 and newer write it. Helpers of kernels.

That is the shortest text that reads back the same, of at least two digits. As in ``numbers``,
WIDEST_TEXT bytes must be free.

Source: R. Giulietti, "The Schubfach way to render doubles", and his ``DoubleToDecimal`` of the JDK.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.memory import (
    load_uint64,
    multiply_wide,
    store_uint8,
    store_uint16,
    store_uint32,
    store_uint64,
)
from spark_kafka_sink.record.kernels.numbers import (
    SCRATCH,
    digits_count,
    put_digits,
    put_integer,
)

_LEAST_POWER, _GREATEST_POWER = -324, 292
_MASK_63 = 2**63 - 1


def _table_of_powers() -> Any:
    """For each k from _LEAST_POWER: floor(10^-k / 2^r) + 1 of 126 bits, as two of 63."""
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
def _shortest(q: int, c: Any, is_even_spaced: bool) -> Any:
    """(f, k): f * 10^k is the shortest that reads back as c * 2^q, or has one digit more.

    is_even_spaced: the next smaller number is as far away as the next larger one
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
def _copy_24(at: int, source: int) -> None:
    store_uint64(at, np.int64(load_uint64(source)))
    store_uint64(at + 8, np.int64(load_uint64(source + 8)))
    store_uint64(at + 16, np.int64(load_uint64(source + 16)))


@called
def _without_zeros(f: Any, k: int) -> Any:
    """f * 10^k without the zeros at f's end, of which there are at most 16."""
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
def _put_shortest(at: int, f: Any, k: int) -> int:
    """Write f * 10^k, f of at most 17 digits, as Java writes floating point."""
    if f % np.uint64(10) == np.uint64(0):
        f, k = _without_zeros(f, k)
    digits = at + SCRATCH
    count = digits_count(f)
    put_digits(digits, f, count)
    point = count + k
    if 0 < point <= 7:
        _copy_24(at, digits)
        if count <= point:
            for zero in range(count, point):
                store_uint8(at + zero, 48)
            store_uint16(at + point, 0x302E)
            return at + point + 2
        store_uint8(at + point, 46)
        _copy_24(at + point + 1, digits + point)
        return at + count + 1
    if -3 < point <= 0:
        store_uint32(at, 0x30302E30)
        _copy_24(at + 2 - point, digits)
        return at + 2 - point + count
    _copy_24(at, digits)
    store_uint8(at + 1, 46)
    if count == 1:
        store_uint8(at + 2, 48)
        at += 3
    else:
        _copy_24(at + 2, digits + 1)
        at += count + 1
    store_uint8(at, 69)
    return put_integer(at + 1, point - 1)


@called
def put_double(at: int, bits: Any) -> int:
    """Write the finite float64 of these bits."""
    return _put_floating(at, bits >> np.uint64(63), bits & np.uint64(_MASK_63), 52, 3)


@called
def put_float(at: int, bits: Any) -> int:
    """Write the finite float32 of these bits, which are a uint64."""
    return _put_floating(at, bits >> np.uint64(31), bits & np.uint64(0x7FFFFFFF), 23, 8)


@inlined
def _put_floating(at: int, sign: Any, bits: Any, fraction_bits: int, tiny: int) -> int:
    """tiny: numbers of less than this many smallest steps have one digit where two are wanted."""
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
            f, k = _shortest(least, fraction * np.uint64(10), True)
            return _put_shortest(at, f, k - 1)
        f, k = _shortest(least, fraction, True)
        return _put_shortest(at, f, k)
    c = first | fraction
    power = 1 - least - exponent
    if 0 < power <= fraction_bits:
        whole = c >> np.uint64(power)
        if whole << np.uint64(power) == c:
            return _put_shortest(at, whole, np.int64(0))
    f, k = _shortest(-power, c, (fraction != np.uint64(0)) | (exponent == 1))
    return _put_shortest(at, f, k)
