"""Values of Spark's VARIANT that have no others in them, as JSON. Helpers of the JSON kernel.

Source: ``org.apache.spark.types.variant`` of Spark; the Variant encoding of Apache Parquet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import STATE_FIELDS, ZONES, ZONES_COUNT
from spark_kafka_sink.record.kernels.declared import called
from spark_kafka_sink.record.kernels.json_values import (
    put_json_double,
    put_json_float,
    put_word,
    within_table,
    zone_of,
)
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    int64_array,
    int64_table,
    load_int8,
    load_int16,
    load_int32,
    load_int64,
    load_uint8,
    load_uint32,
    load_uint64,
    store_uint8,
)
from spark_kafka_sink.record.kernels.numbers import (
    SCRATCH,
    local_day,
    put_clock,
    put_date,
    put_fraction,
    put_integer,
    put_pair,
    put_wide,
)

# Types of primitive values.
NULL = 0
TRUE = 1
FALSE = 2
INT1 = 3
INT2 = 4
INT4 = 5
INT8 = 6
DOUBLE = 7
DECIMAL4 = 8
DECIMAL8 = 9
DECIMAL16 = 10
DATE = 11
TIMESTAMP = 12
TIMESTAMP_NTZ = 13
FLOAT = 14
BYTES = 15
TEXT = 16
UUID = 20


def _content_bytes() -> Any:
    table = np.full(64, -1, np.int8)
    table[[NULL, TRUE, FALSE]] = 0
    table[INT1], table[INT2] = 1, 2
    table[[INT4, DATE, FLOAT, BYTES, TEXT]] = 4
    table[[INT8, DOUBLE, TIMESTAMP, TIMESTAMP_NTZ]] = 8
    table[[DECIMAL4, DECIMAL8, DECIMAL16]] = 5, 9, 17
    table[UUID] = 16
    return table


CONTENT_BYTES = _content_bytes()
"""Of each type the bytes behind its first one, of BYTES and TEXT those of their length; or -1."""

_NULL_WORD = 0x6C6C756E
_TRUE_WORD = 0x65757274
_FALSE_WORD = 0x65736C6166
_MICROS = 1_000_000


@called
def _put_decimal(at: int, body: int, kind: int) -> int:
    """Write a decimal without an exponent, and without zeros at the end of its fraction.

    -1 where it has more digits than its type may have.
    """
    scale = np.int64(load_uint8(body))
    most = np.int64(38)
    high = np.uint64(0)
    if kind == DECIMAL16:
        low, high = load_uint64(body + 1), load_uint64(body + 9)
        is_negative = load_uint8(body + 16) >= 128
    else:
        most = np.int64(18 if kind == DECIMAL8 else 9)
        number = load_int64(body + 1) if kind == DECIMAL8 else np.int64(load_int32(body + 1))
        low = np.uint64(number)
        is_negative = number < 0
        if is_negative:
            high = ~high
    if is_negative:
        store_uint8(at, 45)
        at += 1
        low = ~low + np.uint64(1)
        high = ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    digits = at + SCRATCH
    count = put_wide(digits, high, low) - digits
    if count > most or scale > most:
        return np.int64(-1)
    if low == np.uint64(0) and high == np.uint64(0):
        scale = np.int64(0)
    while scale > 0 and load_uint8(digits + count - 1) == 48:
        count -= 1
        scale -= 1
    whole = max(count - scale, np.int64(0))
    if whole == 0:
        store_uint8(at, 48)
        at += 1
    copy_bytes(at, digits, whole)
    at += whole
    if scale == 0:
        return at
    store_uint8(at, 46)
    at += 1
    for _ in range(scale - (count - whole)):
        store_uint8(at, 48)
        at += 1
    copy_bytes(at, digits + whole, count - whole)
    return at + count - whole


@called
def _put_moment(at: int, micros: int, ahead: int) -> int:
    """Write ``yyyy-MM-dd HH:mm:ss`` with as many digits of a second as needed, in quotes.

    The one at the end is left out.
    """
    days, of_day = local_day(micros, ahead)
    store_uint8(at, 34)
    at = put_date(at + 1, days)
    store_uint8(at, 32)
    seconds = of_day // _MICROS
    at = put_clock(at + 1, seconds)
    return put_fraction(at, np.uint64(of_day - seconds * _MICROS), np.int64(6))


@called
def _put_offset(at: int, ahead: int) -> int:
    """Write what a clock is ahead of UTC: ``+05:30``. Seconds are left out, as Spark does."""
    minutes = abs(ahead) // 60
    store_uint8(at, 45 if ahead < 0 and minutes > 0 else 43)
    put_pair(at + 1, minutes // 60)
    store_uint8(at + 3, 58)
    return put_pair(at + 4, minutes % 60)


@called
def _put_uuid(at: int, source: int) -> int:
    """Write sixteen bytes as ``00112233-4455-6677-8899-aabbccddeeff``, in quotes."""
    store_uint8(at, 34)
    at += 1
    for position in range(16):
        if position == 4 or position == 6 or position == 8 or position == 10:
            store_uint8(at, 45)
            at += 1
        byte = np.int64(load_uint8(source + position))
        high, low = byte >> 4, byte & 15
        store_uint8(at, high + 48 if high < 10 else high + 87)
        store_uint8(at + 1, low + 48 if low < 10 else low + 87)
        at += 2
    store_uint8(at, 34)
    return at + 1


@called
def put_primitive(at: int, body: int, kind: int, state_address: int) -> int:
    """Write a primitive value, but for BYTES and TEXT. -1 if it is none."""
    if kind <= FALSE:
        if kind == NULL:
            return put_word(at, _NULL_WORD, 4)
        return put_word(at, _TRUE_WORD, 4) if kind == TRUE else put_word(at, _FALSE_WORD, 5)
    if kind == INT1:
        return put_integer(at, np.int64(load_int8(body)))
    if kind == INT2:
        return put_integer(at, np.int64(load_int16(body)))
    if kind == INT4:
        return put_integer(at, np.int64(load_int32(body)))
    if kind == INT8:
        return put_integer(at, np.int64(load_int64(body)))
    if kind == DOUBLE:
        return put_json_double(at, np.uint64(load_uint64(body)))
    if kind == FLOAT:
        return put_json_float(at, np.uint64(load_uint32(body)))
    if kind == DATE:
        store_uint8(at, 34)
        at = put_date(at + 1, np.int64(load_int32(body)))
        store_uint8(at, 34)
        return at + 1
    if kind == UUID:
        return _put_uuid(at, body)
    if kind != TIMESTAMP and kind != TIMESTAMP_NTZ:
        return _put_decimal(at, body, kind)
    micros = np.int64(load_int64(body))
    if kind == TIMESTAMP:
        state = int64_array(state_address, STATE_FIELDS)
        zones_count = state[ZONES_COUNT]
        zones = int64_table(state[ZONES], zones_count, 2)
        ahead = zones[zone_of(zones, zones_count, within_table(micros // _MICROS)), 1]
        at = _put_offset(_put_moment(at, micros, ahead), ahead)
    else:
        at = _put_moment(at, micros, np.int64(0))
    store_uint8(at, 34)
    return at + 1
