"""Write Spark's VARIANT as JSON, as its ``Variant.toJson`` does. Helpers of the JSON kernel.

A variant has two parts. The value contains other values if it is an object or an array. The
metadata contains the names of all fields. No byte is read before its address is compared with the
end of its part.

Source: ``org.apache.spark.types.variant`` of Spark; the Variant encoding of Apache Parquet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    BINARY,
    DATA,
    FIRST,
    FRAME_BYTES,
    LIMIT,
    MALFORMED,
    MOST_LEVELS,
    NEEDED,
    NO_ROOM,
    NO_ZONE,
    NODE_BYTES,
    OFFSET_BYTES,
    OFFSETS,
    SLACK,
    STATE_FIELDS,
    STRING,
    TOO_DEEP,
    TOO_LONG,
    UNKNOWN_TYPE,
    ZONES,
    ZONES_COUNT,
)
from spark_kafka_sink.record.kernels.json_values import (
    find_zone,
    max_escaped_bytes,
    put_json_double,
    put_json_float,
    put_literal,
    time_in_zones_table,
)
from spark_kafka_sink.record.kernels.memory import (
    called,
    copy_bytes,
    field,
    inlined,
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
    store_uint64,
)
from spark_kafka_sink.record.kernels.records import load_offset
from spark_kafka_sink.record.kernels.text import (
    MAX_ESCAPED_BYTES,
    SCRATCH_OFFSET,
    local_day_and_time,
    put_base64,
    put_clock,
    put_date,
    put_fraction,
    put_integer,
    put_pair,
    put_string,
    put_uint128,
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
"""The bytes after a value's first byte, by type; for BYTES and TEXT, the bytes of the length.

An unknown type has -1.
"""

_NULL_WORD = 0x6C6C756E
_TRUE_WORD = 0x65757274
_FALSE_WORD = 0x65736C6166
_MICROS = 1_000_000


@called
def _put_decimal(at: int, body: int, kind: int) -> int:
    """Write a decimal without an exponent, and without zeros at the end of its fraction.

    Returns -1 if the decimal has more digits than its type allows.
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
    digits = at + SCRATCH_OFFSET
    count = put_uint128(digits, high, low) - digits
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
def _put_timestamp(at: int, micros: int, offset_seconds: int) -> int:
    """Write a quote and ``yyyy-MM-dd HH:mm:ss`` with as many fraction digits as needed.

    The caller writes the quote at the end.
    """
    days, micros_of_day = local_day_and_time(micros, offset_seconds)
    store_uint8(at, 34)
    at = put_date(at + 1, days)
    store_uint8(at, 32)
    seconds = micros_of_day // _MICROS
    at = put_clock(at + 1, seconds)
    return put_fraction(at, np.uint64(micros_of_day - seconds * _MICROS), np.int64(6))


@called
def _put_offset(at: int, offset_seconds: int) -> int:
    """Write an offset from UTC: ``+05:30``. Seconds are omitted, as in Spark."""
    minutes = abs(offset_seconds) // 60
    store_uint8(at, 45 if offset_seconds < 0 and minutes > 0 else 43)
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
    """Write a primitive value except BYTES and TEXT. Return -1 if the value is invalid."""
    if kind <= FALSE:
        if kind == NULL:
            return put_literal(at, _NULL_WORD, 4)
        return put_literal(at, _TRUE_WORD, 4) if kind == TRUE else put_literal(at, _FALSE_WORD, 5)
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
        zone = find_zone(zones, zones_count, time_in_zones_table(micros // _MICROS))
        offset_seconds = zones[zone, 1]
        at = _put_offset(_put_timestamp(at, micros, offset_seconds), offset_seconds)
    else:
        at = _put_timestamp(at, micros, np.int64(0))
    store_uint8(at, 34)
    return at + 1


MAX_VARIANT_BYTES = 2**24
"""Spark's limit for the bytes of a value, and for the bytes of metadata."""
MAX_TEXT_BYTES = 2**31 - 1
"""The most bytes of text of one variant, without its last string."""


# The lower two bits of a value's first byte. The upper six bits of a PRIMITIVE are its type.
PRIMITIVE = 0
SHORT_TEXT = 1
OBJECT = 2

# Frames of the objects and arrays being written: int64[MOST_LEVELS, FRAME_FIELDS].
_FIELD_IDS = 0  # Address of the next field's id, its number in the metadata; 0 in an array.
_FIELD_ID_BYTES = 1
_VALUE_OFFSETS = 2  # Address of the next value's offset.
_VALUE_OFFSET_BYTES = 3
_VALUES_START = 4  # Address from which the offsets count.
_REMAINING = 5  # Count of the values that are not written yet.

_VERSION = 1
_MAX_UNCOUNTED_BYTES = 4096
"""The most bytes of a string whose escapes are not counted when room is short."""


@inlined
def _unsigned(address: int, width: int) -> Any:
    """Return the unsigned integer of 1 to 4 bytes, as int64. No byte after it is read."""
    if width == 1:
        return np.int64(load_uint8(address))
    if width == 4:
        return np.int64(load_uint32(address))
    low = np.int64(load_int16(address)) & 0xFFFF
    return low if width == 2 else low | np.int64(load_uint8(address + 2)) << 16


@inlined
def _binary_at(node: int, position: int) -> tuple[Any, Any]:
    """Return (address, count) of the bytes of a row of a BINARY."""
    width, offsets = field(node, OFFSET_BYTES), field(node, OFFSETS)
    position += field(node, FIRST)
    start = load_offset(offsets, width, position)
    return field(node, DATA) + start, load_offset(offsets, width, position + 1) - start


@inlined
def _max_text_bytes(at: int, source: int, count: int, kind: int, last_start: int) -> Any:
    """Return the most bytes that a STRING or a BINARY needs, counted if room is short."""
    most = MAX_ESCAPED_BYTES * count
    if at + most > last_start and (kind == BINARY or count > _MAX_UNCOUNTED_BYTES):
        most = max_escaped_bytes(source, count, kind)
    return most


@called
def put_variant(at: int, state_address: int, node: int, position: int, frames: int) -> int:
    """Write row ``position`` of the VARIANT ``node`` as JSON.

    frames: address of int64[MOST_LEVELS, FRAME_FIELDS], which is overwritten

    Returns the address after the text; NO_ROOM, with the bytes needed from ``at`` on in NEEDED; or
    a negated fault. If several fields or elements share one offset, the variant is MALFORMED:
    otherwise a few bytes could become more text than memory can hold.
    """
    state = int64_array(state_address, STATE_FIELDS)
    last_start = state[LIMIT] - state[SLACK]
    begin = at
    value, value_bytes = _binary_at(node + NODE_BYTES, position)
    metadata, metadata_bytes = _binary_at(node + 2 * NODE_BYTES, position)
    if metadata_bytes < 1 or metadata_bytes > MAX_VARIANT_BYTES or value_bytes > MAX_VARIANT_BYTES:
        return np.int64(-MALFORMED)
    if np.int64(load_uint8(metadata)) & 15 != _VERSION:
        return np.int64(-MALFORMED)
    width = (np.int64(load_uint8(metadata)) >> 6) + 1
    names_count = _unsigned(metadata + 1, width) if metadata_bytes > width else np.int64(0)
    metadata_end = metadata + metadata_bytes
    names_start = metadata + 1 + (names_count + 2) * width
    end = value + value_bytes
    # Bytes of the value that have not been written yet.
    unwritten = value_bytes
    here = value
    frame = frames
    is_first = True
    while True:
        # Write the value at ``here``.
        if here >= end:
            return np.int64(-MALFORMED)
        if at > last_start:
            state[NEEDED] = at - begin
            return np.int64(NO_ROOM)
        if at - begin > MAX_TEXT_BYTES:
            return np.int64(-TOO_LONG)
        header = np.int64(load_uint8(here))
        basic, kind = header & 3, header >> 2
        body = here + 1
        if basic == SHORT_TEXT or (basic == PRIMITIVE and TEXT >= kind >= BYTES):
            count = kind
            if basic == PRIMITIVE:
                if end - body < 4:
                    return np.int64(-MALFORMED)
                count = np.int64(load_uint32(body))
                body += 4
            if count > end - body:
                return np.int64(-MALFORMED)
            written_as = np.int64(BINARY if basic == PRIMITIVE and kind == BYTES else STRING)
            most = _max_text_bytes(at, body, count, written_as, last_start)
            if at + most > last_start:
                state[NEEDED] = at - begin + most
                return np.int64(NO_ROOM)
            if written_as == BINARY:
                at = put_base64(at, body, count)
            else:
                at = put_string(at, body, count)
            body += count
        elif basic == PRIMITIVE:
            count = np.int64(CONTENT_BYTES[np.uint64(kind)])
            if count < 0:
                return np.int64(-UNKNOWN_TYPE)
            if count > end - body:
                return np.int64(-MALFORMED)
            if kind == TIMESTAMP and state[ZONES_COUNT] == 0:
                return np.int64(-NO_ZONE)
            at = put_primitive(at, body, kind, state_address)
            if at < 0:
                return np.int64(-MALFORMED)
            body += count
        else:
            # This bit of an object or an array means that its count has four bytes.
            is_object = basic == OBJECT
            is_large = kind & (16 if is_object else 4) != 0
            count_width = np.int64(4 if is_large else 1)
            if count_width > end - body:
                return np.int64(-MALFORMED)
            count = _unsigned(body, count_width)
            body += count_width
            field_id_bytes = ((kind >> 2) & 3) + 1 if is_object else np.int64(0)
            value_offset_bytes = (kind & 3) + 1
            if count * (field_id_bytes + value_offset_bytes) > end - body:
                return np.int64(-MALFORMED)
            if frame == frames + MOST_LEVELS * FRAME_BYTES:
                return np.int64(-TOO_DEEP)
            value_offsets = body + count * field_id_bytes
            store_uint64(frame + 8 * _FIELD_IDS, body if is_object else np.int64(0))
            store_uint64(frame + 8 * _FIELD_ID_BYTES, field_id_bytes)
            store_uint64(frame + 8 * _VALUE_OFFSETS, value_offsets)
            store_uint64(frame + 8 * _VALUE_OFFSET_BYTES, value_offset_bytes)
            store_uint64(
                frame + 8 * _VALUES_START, value_offsets + (count + 1) * value_offset_bytes
            )
            store_uint64(frame + 8 * _REMAINING, count)
            frame += FRAME_BYTES
            store_uint8(at, 123 if is_object else 91)
            at += 1
            is_first = True
            body = value_offsets + count * value_offset_bytes
        unwritten -= body - here
        if unwritten < 0:
            return np.int64(-MALFORMED)
        # End the complete objects and arrays, then continue in the innermost incomplete one.
        while frame != frames and field(frame - FRAME_BYTES, _REMAINING) == 0:
            if at > last_start:
                state[NEEDED] = at - begin
                return np.int64(NO_ROOM)
            frame -= FRAME_BYTES
            store_uint8(at, 93 if field(frame, _FIELD_IDS) == 0 else 125)
            at += 1
            is_first = False
        if frame == frames:
            return at
        top = frame - FRAME_BYTES
        if not is_first:
            store_uint8(at, 44)
            at += 1
        is_first = False
        field_ids = field(top, _FIELD_IDS)
        if field_ids != 0:
            field_id_bytes = field(top, _FIELD_ID_BYTES)
            field_id = _unsigned(field_ids, field_id_bytes)
            entry = metadata + 1 + (field_id + 1) * width
            if field_id >= names_count or entry + 2 * width > metadata_end:
                return np.int64(-MALFORMED)
            start, stop = _unsigned(entry, width), _unsigned(entry + width, width)
            if start > stop or stop > metadata_end - names_start:
                return np.int64(-MALFORMED)
            count = stop - start
            most = _max_text_bytes(at, names_start + start, count, np.int64(STRING), last_start)
            if at + most > last_start:
                state[NEEDED] = at - begin + most
                return np.int64(NO_ROOM)
            at = put_string(at, names_start + start, count)
            store_uint8(at, 58)
            at += 1
            store_uint64(top + 8 * _FIELD_IDS, field_ids + field_id_bytes)
        value_offsets = field(top, _VALUE_OFFSETS)
        value_offset_bytes = field(top, _VALUE_OFFSET_BYTES)
        here = field(top, _VALUES_START) + _unsigned(value_offsets, value_offset_bytes)
        store_uint64(top + 8 * _VALUE_OFFSETS, value_offsets + value_offset_bytes)
        store_uint64(top + 8 * _REMAINING, field(top, _REMAINING) - 1)
