"""Encode rows of typed columns as records in Avro's binary encoding: the Avro kernel.

Source: Avro's specification, "Binary encoding". An array or a map is one block, as in Java's
``GenericDatumWriter``.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    AFTER,
    ALL_WRITTEN,
    AT_KEY,
    AVRO_AS_DOUBLE,
    AVRO_NO_SYMBOL,
    AVRO_NULL_VALUE,
    BOOLEAN,
    CONSTANT,
    DATA,
    DECIMAL,
    DIVIDED,
    DOUBLE,
    ENUM,
    FAULT_CAUSES,
    FAULTS,
    FAULTS_COUNT,
    FIRST,
    FIXED,
    FLOAT,
    FRAME_BYTES,
    FRAMES,
    IN_LIST,
    IN_STRUCT,
    INT64,
    KIND,
    LIMIT,
    LIST,
    NAME,
    NAME_BYTES,
    NEED_ROOM,
    NEEDED,
    NEXT_ROW,
    NO_NULLS,
    NODE_BYTES,
    NODES,
    NULL,
    NULL_BRANCH,
    OFFSET_BYTES,
    OFFSETS,
    OUT,
    PARAMETER,
    PLAIN,
    PREFIX,
    PREFIX_BYTES,
    ROWS_COUNT,
    SKIPPED,
    SLACK,
    STARTS,
    STATE_FIELDS,
    STRUCT,
    VALIDITY,
    VALUE_BRANCH,
    WRITTEN_AS,
    WRONG_SIZE,
)
from spark_kafka_sink.record.kernels.memory import (
    called,
    copy_bytes,
    field,
    find_symbol,
    inlined,
    int64_array,
    is_bit_set,
    kernel,
    load_float32,
    load_frame,
    load_integer,
    load_uint8,
    load_uint32,
    load_uint64,
    save_frame,
    store_float32,
    store_float64,
    store_uint8,
    store_uint32,
    store_uint64,
)
from spark_kafka_sink.record.kernels.records import load_offset, put_varint

_WIDEST_VALUE = 16


@inlined
def _put_decimal_bytes(at: int, address: int, count: int) -> int:
    """Write an int128 as a big-endian integer of ``count`` bytes."""
    sign = np.int64(load_uint8(address + 15)) >> 7
    for position in range(count):
        byte = -sign
        if position < _WIDEST_VALUE:
            byte = np.int64(load_uint8(address + position))
        store_uint8(at + count - 1 - position, byte)
    return at + count


@called
def _decimal_size(address: int) -> int:
    """Return the bytes that an int128 needs, including its sign: 1 to 16."""
    sign = (np.int64(load_uint8(address + 15)) >> 7) * 255
    count = np.int64(_WIDEST_VALUE)
    while count > 1:
        top = np.int64(load_uint8(address + count - 1))
        below = np.int64(load_uint8(address + count - 2))
        if top != sign or below >> 7 != sign >> 7:
            break
        count -= 1
    return count


@inlined
def _put_floating_point(at: int, kind: int, data: int, position: int, written_as: int) -> int:
    """Write a number as a float, or as a double if ``written_as`` is AVRO_AS_DOUBLE."""
    if kind == FLOAT:
        value = np.float64(load_float32(data + 4 * position))
    else:
        value = np.float64(load_integer(kind, data, position))
    if written_as == AVRO_AS_DOUBLE:
        store_float64(at, value)
        return at + 8
    if kind == FLOAT:
        store_uint32(at, np.int64(load_uint32(data + 4 * position)))
    else:
        store_float32(at, np.float32(load_integer(kind, data, position)))
    return at + 4


@kernel
def write_avro(state_address: int) -> int:
    """Write rows from NEXT_ROW on; see ``nodes`` for the state.

    A row that cannot be written gets its fault in FAULTS and no bytes. Returns ALL_WRITTEN, or
    NEED_ROOM if the output has no room for row NEXT_ROW.
    """
    state = int64_array(state_address, STATE_FIELDS)
    root = state[NODES]
    frames = state[FRAMES]
    starts = int64_array(state[STARTS], state[ROWS_COUNT] + 1)
    faults = int64_array(state[FAULTS], state[ROWS_COUNT])
    skipped = state[SKIPPED]
    last_start = state[LIMIT] - state[SLACK]
    out = state[OUT]
    prefix, prefix_bytes = state[PREFIX], state[PREFIX_BYTES]
    at = out + starts[state[NEXT_ROW]]
    for row in range(state[NEXT_ROW], state[ROWS_COUNT]):
        starts[row] = at - out
        if skipped != 0 and load_uint8(skipped + row) != 0:
            continue
        if at + prefix_bytes > last_start:
            state[NEXT_ROW] = row
            state[NEEDED] = state[SLACK] + prefix_bytes
            return np.int64(NEED_ROOM)
        if prefix_bytes > 0:
            copy_bytes(at, prefix, prefix_bytes)
            at += prefix_bytes
        frame = frames
        mode, node, end = np.int64(IN_STRUCT), root + NODE_BYTES, field(root, AFTER)
        # In a list or a map: the next element. In a struct: the row of all fields.
        index = np.int64(row)
        fault = np.int64(0)
        bytes_needed = np.int64(0)
        child = node
        while True:
            if at > last_start:
                bytes_needed = state[SLACK]
                break
            # Find the next value, and its position in its column.
            if mode == IN_STRUCT:
                if node == end:
                    if frame == frames:
                        break
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    continue
                child = node
                position = index + field(child, FIRST)
                node = field(child, AFTER)
            else:
                if index == end:
                    store_uint8(at, 0)
                    at += 1
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    continue
                child = node
                if mode == AT_KEY:
                    position = index + field(child, FIRST)
                    offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                    start = load_offset(offsets, width, position)
                    count = load_offset(offsets, width, position + 1) - start
                    if at + count > last_start:
                        bytes_needed = count + state[SLACK]
                        break
                    at = put_varint(at, count)
                    copy_bytes(at, field(child, DATA) + start, count)
                    at += count
                    child += NODE_BYTES
                    if at > last_start:
                        bytes_needed = state[SLACK]
                        break
                position = index + field(child, FIRST)
                index += 1
            kind = field(child, KIND)
            if kind == CONSTANT:
                copy_bytes(at, field(child, NAME), field(child, NAME_BYTES))
                at += field(child, NAME_BYTES)
                continue
            validity = field(child, VALIDITY)
            if kind == NULL or (validity != 0 and not is_bit_set(validity, position)):
                branch = field(child, NULL_BRANCH)
                if branch >= 0:
                    at = put_varint(at, branch)
                elif branch == NO_NULLS:
                    fault = np.int64(AVRO_NULL_VALUE)
                    break
                continue
            branch = field(child, VALUE_BRANCH)
            if branch >= 0:
                at = put_varint(at, branch)
            written_as = field(child, WRITTEN_AS)
            data = field(child, DATA)
            if kind <= INT64:
                if kind == BOOLEAN:
                    store_uint8(at, 1 if is_bit_set(data, position) else 0)
                    at += 1
                elif written_as <= DIVIDED:
                    value = load_integer(kind, data, position)
                    if written_as == DIVIDED:
                        value //= field(child, PARAMETER)
                    at = put_varint(at, value)
                else:
                    at = _put_floating_point(at, kind, data, position, written_as)
            elif kind == DOUBLE:
                store_uint64(at, np.int64(load_uint64(data + 8 * position)))
                at += 8
            elif kind == FLOAT:
                if written_as == PLAIN:
                    store_uint32(at, np.int64(load_uint32(data + 4 * position)))
                    at += 4
                else:
                    at = _put_floating_point(at, kind, data, position, written_as)
            elif kind == DECIMAL:
                address = data + 16 * position
                size = field(child, PARAMETER)
                if written_as != FIXED:
                    size = _decimal_size(address)
                    at = put_varint(at, size)
                at = _put_decimal_bytes(at, address, size)
            elif kind < STRUCT:
                offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                start = load_offset(offsets, width, position)
                count = load_offset(offsets, width, position + 1) - start
                if at + count > last_start:
                    bytes_needed = count + state[SLACK]
                    break
                if written_as == ENUM:
                    symbol = find_symbol(field(child, PARAMETER), data + start, count)
                    if symbol < 0:
                        fault = np.int64(AVRO_NO_SYMBOL)
                        break
                    at = put_varint(at, symbol)
                    continue
                if written_as == FIXED:
                    if count != field(child, PARAMETER):
                        fault = np.int64(WRONG_SIZE)
                        break
                else:
                    at = put_varint(at, count)
                copy_bytes(at, data + start, count)
                at += count
            else:
                save_frame(frame, mode, node, end, index)
                frame += FRAME_BYTES
                node = child + NODE_BYTES
                if kind == STRUCT:
                    mode = np.int64(IN_STRUCT)
                    end = field(child, AFTER)
                    index = position
                else:
                    offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                    index = load_offset(offsets, width, position)
                    end = load_offset(offsets, width, position + 1)
                    mode = np.int64(IN_LIST if kind == LIST else AT_KEY)
                    if index < end:
                        at = put_varint(at, end - index)
        if fault != 0:
            faults[row] = fault + FAULT_CAUSES * ((child - root) // NODE_BYTES)
            state[FAULTS_COUNT] += 1
            at = out + starts[row]
        elif bytes_needed != 0:
            state[NEXT_ROW] = row
            state[NEEDED] = at - out - starts[row] + bytes_needed
            return np.int64(NEED_ROOM)
    starts[state[ROWS_COUNT]] = at - out
    state[NEXT_ROW] = state[ROWS_COUNT]
    return np.int64(ALL_WRITTEN)
