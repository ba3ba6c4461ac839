"""Spark's VARIANT as JSON, as its ``Variant.toJson`` writes it. A helper of the JSON kernel.

A variant has two parts: a value, whose objects and arrays have others in them, and metadata, in
which the names of all fields are. Nothing of them is read before it was compared with where they
end.

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
    ZONES_COUNT,
)
from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.encoding import load_offset
from spark_kafka_sink.record.kernels.json_values import escaped_bytes
from spark_kafka_sink.record.kernels.memory import (
    int64_array,
    load_int16,
    load_uint8,
    load_uint32,
    store_uint8,
    store_uint64,
)
from spark_kafka_sink.record.kernels.nodes import field
from spark_kafka_sink.record.kernels.text import MOST_ESCAPED, put_base64, put_string
from spark_kafka_sink.record.kernels.variant_values import (
    BYTES,
    CONTENT_BYTES,
    TEXT,
    TIMESTAMP,
    put_primitive,
)

MOST_BYTES = 2**24
"""Of a value and of metadata: Spark takes no more."""
MOST_TEXT = 2**31 - 1
"""Bytes of text that may be written of one variant, but for its last string."""


# The lower two bits of a value's first byte. Of PRIMITIVE the upper six are its type.
PRIMITIVE = 0
SHORT_TEXT = 1
OBJECT = 2

# Frames of objects and arrays that are being written: int64[MOST_LEVELS, FRAME_FIELDS].
_NAMES = 0  # address of the next field's number in the metadata, 0 in an array
_NAME_WIDTH = 1
_PLACES = 2  # address of the next one's place
_PLACE_WIDTH = 3
_INSIDE = 4  # address that places count from
_LEFT = 5  # how many are to be written

_VERSION = 1
_LONGEST_ESCAPES = 4096
"""As in ``json_rows``: up to here there is room for all bytes of a string to be escaped."""


@inlined
def _unsigned(address: int, width: int) -> Any:
    """An integer of 1 to 4 bytes, as int64. No byte behind it is read."""
    if width == 1:
        return np.int64(load_uint8(address))
    if width == 4:
        return np.int64(load_uint32(address))
    low = np.int64(load_int16(address)) & 0xFFFF
    return low if width == 2 else low | np.int64(load_uint8(address + 2)) << 16


@inlined
def _bytes_at(node: int, position: int) -> tuple[Any, Any]:
    """Address of the bytes of a row of a BINARY, and how many they are."""
    width, offsets = field(node, OFFSET_BYTES), field(node, OFFSETS)
    position += field(node, FIRST)
    start = load_offset(offsets, width, position)
    return field(node, DATA) + start, load_offset(offsets, width, position + 1) - start


@inlined
def _most_bytes(at: int, source: int, count: int, kind: int, last_start: int) -> Any:
    """Bytes that a STRING or a BINARY becomes at most: counted if there is little room."""
    most = MOST_ESCAPED * count
    if at + most > last_start and (kind == BINARY or count > _LONGEST_ESCAPES):
        most = escaped_bytes(source, count, kind)
    return most


@called
def put_variant(at: int, state_address: int, node: int, position: int, frames: int) -> int:
    """Write row ``position`` of the VARIANT ``node`` as JSON.

    frames: address of int64[MOST_LEVELS, FRAME_FIELDS] that may be written over

    Returns the address behind it; NO_ROOM, with what is needed from ``at`` on in NEEDED; or the
    negative of a fault. Values that are there several times, with one place for all of them, are
    MALFORMED: so few bytes could become more text than there is memory for.
    """
    state = int64_array(state_address, STATE_FIELDS)
    last_start = state[LIMIT] - state[SLACK]
    begin = at
    value, value_bytes = _bytes_at(node + NODE_BYTES, position)
    names, names_bytes = _bytes_at(node + 2 * NODE_BYTES, position)
    if names_bytes < 1 or names_bytes > MOST_BYTES or value_bytes > MOST_BYTES:
        return np.int64(-MALFORMED)
    if np.int64(load_uint8(names)) & 15 != _VERSION:
        return np.int64(-MALFORMED)
    width = (np.int64(load_uint8(names)) >> 6) + 1
    names_count = _unsigned(names + 1, width) if names_bytes > width else np.int64(0)
    names_end = names + names_bytes
    texts = names + 1 + (names_count + 2) * width
    end = value + value_bytes
    # How many bytes of the value have not been written yet.
    unwritten = value_bytes
    here = value
    frame = frames
    is_first = True
    while True:
        # The value at ``here``.
        if here >= end:
            return np.int64(-MALFORMED)
        if at > last_start:
            state[NEEDED] = at - begin
            return np.int64(NO_ROOM)
        if at - begin > MOST_TEXT:
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
            most = _most_bytes(at, body, count, written_as, last_start)
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
            # Objects have a number of four bytes where this bit is set, and arrays the one below.
            is_object = basic == OBJECT
            is_large = kind & (16 if is_object else 4) != 0
            count_width = np.int64(4 if is_large else 1)
            if count_width > end - body:
                return np.int64(-MALFORMED)
            count = _unsigned(body, count_width)
            body += count_width
            name_width = ((kind >> 2) & 3) + 1 if is_object else np.int64(0)
            place_width = (kind & 3) + 1
            if count * (name_width + place_width) > end - body:
                return np.int64(-MALFORMED)
            if frame == frames + MOST_LEVELS * FRAME_BYTES:
                return np.int64(-TOO_DEEP)
            places = body + count * name_width
            store_uint64(frame + 8 * _NAMES, body if is_object else np.int64(0))
            store_uint64(frame + 8 * _NAME_WIDTH, name_width)
            store_uint64(frame + 8 * _PLACES, places)
            store_uint64(frame + 8 * _PLACE_WIDTH, place_width)
            store_uint64(frame + 8 * _INSIDE, places + (count + 1) * place_width)
            store_uint64(frame + 8 * _LEFT, count)
            frame += FRAME_BYTES
            store_uint8(at, 123 if is_object else 91)
            at += 1
            is_first = True
            body = places + count * place_width
        unwritten -= body - here
        if unwritten < 0:
            return np.int64(-MALFORMED)
        # What comes next: the end of objects and arrays, or one more in the innermost one.
        while frame != frames and field(frame - FRAME_BYTES, _LEFT) == 0:
            if at > last_start:
                state[NEEDED] = at - begin
                return np.int64(NO_ROOM)
            frame -= FRAME_BYTES
            store_uint8(at, 93 if field(frame, _NAMES) == 0 else 125)
            at += 1
            is_first = False
        if frame == frames:
            return at
        top = frame - FRAME_BYTES
        if not is_first:
            store_uint8(at, 44)
            at += 1
        is_first = False
        name = field(top, _NAMES)
        if name != 0:
            name_width = field(top, _NAME_WIDTH)
            number = _unsigned(name, name_width)
            entry = names + 1 + (number + 1) * width
            if number >= names_count or entry + 2 * width > names_end:
                return np.int64(-MALFORMED)
            start, stop = _unsigned(entry, width), _unsigned(entry + width, width)
            if start > stop or stop > names_end - texts:
                return np.int64(-MALFORMED)
            count = stop - start
            most = _most_bytes(at, texts + start, count, np.int64(STRING), last_start)
            if at + most > last_start:
                state[NEEDED] = at - begin + most
                return np.int64(NO_ROOM)
            at = put_string(at, texts + start, count)
            store_uint8(at, 58)
            at += 1
            store_uint64(top + 8 * _NAMES, name + name_width)
        places, place_width = field(top, _PLACES), field(top, _PLACE_WIDTH)
        here = field(top, _INSIDE) + _unsigned(places, place_width)
        store_uint64(top + 8 * _PLACES, places + place_width)
        store_uint64(top + 8 * _LEFT, field(top, _LEFT) - 1)
