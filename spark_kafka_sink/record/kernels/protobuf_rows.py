"""Write rows of typed columns as Protobuf messages, from their ends: the Protobuf kernel.

A message's length comes before its contents. So the kernel writes rows from the last to the first,
and each row from its last byte to its first. When it writes the length of a message, the contents
have been written. So the kernel needs neither a pass for sizes nor a table of sizes.

The nodes of a message are its fields in descending order of their numbers. A map is a list of
messages with the fields 1 and 2.

Source: "Encoding" of Protobuf's documentation.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    AFTER,
    ALL_WRITTEN,
    BOOLEAN,
    CHECKS_RANGE,
    DATA,
    DECIMAL,
    FAULT_CAUSES,
    FAULTS,
    FAULTS_COUNT,
    FIRST,
    FIXED_4,
    FIXED_8,
    FLOAT,
    FRAME_BYTES,
    FRAME_OWNER,
    FRAME_STOP,
    FRAMES,
    IN_LIST,
    IN_ONEOF,
    IN_STRUCT,
    INNER_TAG,
    INT64,
    IS_COPIED,
    IS_NUMBER,
    IS_PACKED,
    IS_SYMBOL,
    IS_TEXT,
    IS_WRAPPED,
    KIND,
    LEAVES_ZERO_OUT,
    LIMIT,
    NEED_ROOM,
    NEEDED,
    NEEDS_VALUE,
    NEXT_ROW,
    NODE_BYTES,
    NODES,
    NOT_UTF8,
    NULL,
    OF_32_BITS,
    OF_DURATIONS,
    OF_TIMESTAMPS,
    OFFSET_BYTES,
    OFFSETS,
    OUT,
    OUT_OF_RANGE,
    PARAMETER,
    PREFIX,
    PREFIX_BYTES,
    PROTOBUF_AS_DOUBLE,
    PROTOBUF_NO_SYMBOL,
    PROTOBUF_NULL_VALUE,
    RIVAL,
    ROWS_COUNT,
    RULES,
    SIGNED_32,
    SIGNED_SECONDS,
    SKIPPED,
    SLACK,
    STARTS,
    STATE_FIELDS,
    STRING,
    STRUCT,
    TAG,
    TAG_BYTES,
    TWO_OF_ONE,
    UNSIGNED_32,
    VALIDITY,
    VARINT,
    WRITTEN_AS,
    ZIGZAG,
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
    leading_zeros,
    load_float32,
    load_frame,
    load_int64,
    load_integer,
    load_uint8,
    load_uint32,
    save_frame,
    store_float64,
    store_uint8,
    store_uint32,
    store_uint64,
)
from spark_kafka_sink.record.kernels.records import load_offset, zigzag
from spark_kafka_sink.record.kernels.text import copy_utf8

_MICROS = 1_000_000
_FIRST_TIMESTAMP = -62_135_596_800 * _MICROS
_AFTER_TIMESTAMPS = 253_402_300_800 * _MICROS
_AFTER_DURATIONS = 315_576_000_001 * _MICROS
_SECONDS_TAG = 0x08
_NANOS_TAG = 0x10


@inlined
def put_varint_before(at: int, value: int) -> int:
    """Write the 64 bits of ``value`` as a varint that ends at ``at``; return its address."""
    rest = np.uint64(value)
    size = (70 - leading_zeros(rest | np.uint64(1))) // 7
    at -= size
    position = at
    while rest >= np.uint64(128):
        store_uint8(position, np.int64((rest & np.uint64(127)) | np.uint64(128)))
        rest >>= np.uint64(7)
        position += 1
    store_uint8(position, np.int64(rest))
    return at


@called
def put_seconds_before(at: int, micros: int, is_signed: bool) -> int:
    """Write the contents of google.protobuf.Timestamp or, if signed, of Duration."""
    seconds = micros // _MICROS
    nanos = (micros - seconds * _MICROS) * 1000
    if is_signed and seconds < 0 and nanos > 0:
        seconds += 1
        nanos -= 1000 * _MICROS
    if nanos != 0:
        at = put_varint_before(at, nanos) - 1
        store_uint8(at, _NANOS_TAG)
    if seconds != 0:
        at = put_varint_before(at, seconds) - 1
        store_uint8(at, _SECONDS_TAG)
    return at


@called
def is_in_range(value: int, limit: int) -> bool:
    """Return True if ``value`` is in the range ``limit``; see ``nodes`` for ranges."""
    if limit == SIGNED_32:
        return -(2**31) <= value < 2**31
    if limit == UNSIGNED_32:
        return 0 <= value < 2**32
    if limit == OF_TIMESTAMPS:
        return _FIRST_TIMESTAMP <= value < _AFTER_TIMESTAMPS
    if limit == OF_DURATIONS:
        return -_AFTER_DURATIONS < value < _AFTER_DURATIONS
    return value >= 0


@called
def is_enum_number(numbers: int, value: int) -> bool:
    """Return True if ``value`` is one of the numbers of an enum."""
    for position in range(load_int64(numbers)):
        if load_int64(numbers + 8 + 8 * position) == value:
            return True
    return False


@inlined
def _put_tag_before(at: int, tag: int, rules: int) -> int:
    """Write a tag, or none, that ends at ``at``. Up to eight bytes before it are overwritten."""
    store_uint64(at - 8, tag)
    return at - ((rules >> TAG_BYTES) & 15)


@called
def _has_rival(child: int, index: int) -> bool:
    """Return True if another field of the same oneof has a value."""
    rival = field(child, RIVAL)
    while rival != 0:
        validity = field(rival, VALIDITY)
        position = index + field(rival, FIRST)
        if field(rival, KIND) != NULL and (validity == 0 or is_bit_set(validity, position)):
            return True
        rival = field(rival, RIVAL)
    return False


@kernel
def write_protobuf(state_address: int) -> int:
    """Write the rows before NEXT_ROW, the last one first; see ``nodes`` for the state.

    STARTS count from LIMIT, so they are negative. A row that cannot be written gets its fault in
    FAULTS and no bytes. Returns ALL_WRITTEN, or NEED_ROOM if the output has no room for row
    NEXT_ROW - 1.
    """
    state = int64_array(state_address, STATE_FIELDS)
    root = state[NODES]
    frames = state[FRAMES]
    starts = int64_array(state[STARTS], state[ROWS_COUNT] + 1)
    faults = int64_array(state[FAULTS], state[ROWS_COUNT])
    skipped = state[SKIPPED]
    limit = state[LIMIT]
    lowest = state[OUT] + state[SLACK]
    prefix, prefix_bytes = state[PREFIX], state[PREFIX_BYTES]
    at = limit + starts[state[NEXT_ROW]]
    row = state[NEXT_ROW]
    while row > 0:
        row -= 1
        row_stop = at
        if skipped != 0 and load_uint8(skipped + row) != 0:
            starts[row] = at - limit
            continue
        frame = frames
        mode, node, end = np.int64(IN_STRUCT), root + NODE_BYTES, field(root, AFTER)
        # In a list: the index after the next element. In a struct: the row of all fields.
        index = np.int64(row)
        owner, stop = root, at
        fault = np.int64(0)
        bytes_needed = np.int64(0)
        child = node
        while True:
            if at < lowest:
                bytes_needed = state[SLACK]
                break
            # Find the next value, and its position in its column.
            if mode == IN_STRUCT:
                if node == end:
                    if frame == frames:
                        break
                    at = put_varint_before(at, stop - at)
                    at = _put_tag_before(at, field(owner, TAG), field(owner, RULES))
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    owner, stop = field(frame, FRAME_OWNER), field(frame, FRAME_STOP)
                    continue
                child = node
                node = field(child, AFTER)
                position = index + field(child, FIRST)
            else:
                if index == end:
                    if at != stop:
                        rules = field(owner, RULES)
                        if rules & IS_PACKED != 0:
                            at = put_varint_before(at, stop - at)
                            at = _put_tag_before(at, field(owner, TAG), rules)
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    owner, stop = field(frame, FRAME_OWNER), field(frame, FRAME_STOP)
                    continue
                index -= 1
                child = node
                position = index + field(child, FIRST)
            kind = field(child, KIND)
            rules = field(child, RULES)
            validity = field(child, VALIDITY)
            if kind == NULL or (validity != 0 and not is_bit_set(validity, position)):
                if rules & NEEDS_VALUE != 0:
                    fault = np.int64(PROTOBUF_NULL_VALUE)
                    break
                continue
            if rules & IN_ONEOF != 0 and _has_rival(child, index):
                fault = np.int64(TWO_OF_ONE)
                break
            if kind >= STRUCT:
                if rules & IS_COPIED != 0 and field(child + NODE_BYTES, VALIDITY) == 0:
                    offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                    start = load_offset(offsets, width, position)
                    count = load_offset(offsets, width, position + 1) - start
                    if count == 0:
                        continue
                    start += field(child + NODE_BYTES, FIRST)
                    size = field(child, PARAMETER)
                    count *= size
                    if at - count < lowest:
                        bytes_needed = count + state[SLACK]
                        break
                    at -= count
                    copy_bytes(at, field(child + NODE_BYTES, DATA) + size * start, count)
                    at = put_varint_before(at, count)
                    at = _put_tag_before(at, field(child, TAG), rules)
                    continue
                save_frame(frame, mode, node, end, index)
                store_uint64(frame + 8 * FRAME_OWNER, owner)
                store_uint64(frame + 8 * FRAME_STOP, stop)
                frame += FRAME_BYTES
                node = child + NODE_BYTES
                owner, stop = child, at
                if kind == STRUCT:
                    mode = np.int64(IN_STRUCT)
                    end = field(child, AFTER)
                    index = position
                else:
                    offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                    mode = np.int64(IN_LIST)
                    end = load_offset(offsets, width, position)
                    index = load_offset(offsets, width, position + 1)
                continue
            data = field(child, DATA)
            value_stop = at
            value = np.int64(0)
            if kind >= STRING and rules & IS_SYMBOL == 0:
                offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                start = load_offset(offsets, width, position)
                count = load_offset(offsets, width, position + 1) - start
                if count == 0 and rules & LEAVES_ZERO_OUT != 0:
                    continue
                if at - count < lowest:
                    bytes_needed = count + state[SLACK]
                    break
                at -= count
                if rules & IS_TEXT == 0:
                    copy_bytes(at, data + start, count)
                elif not copy_utf8(at, data + start, count):
                    fault = np.int64(NOT_UTF8)
                    break
                if count > 0 or rules & IS_WRAPPED == 0:
                    at = put_varint_before(at, count)
            else:
                if kind <= INT64:
                    if kind == BOOLEAN:
                        value = np.int64(1) if is_bit_set(data, position) else np.int64(0)
                    else:
                        value = load_integer(kind, data, position)
                elif kind == FLOAT:
                    value = np.int64(load_uint32(data + 4 * position))
                    if rules & PROTOBUF_AS_DOUBLE != 0:
                        store_float64(at - 8, np.float64(load_float32(data + 4 * position)))
                        value = load_int64(at - 8)
                elif kind == DECIMAL:
                    value = load_int64(data + 16 * position)
                    if load_int64(data + 16 * position + 8) != 0:
                        fault = np.int64(OUT_OF_RANGE)
                        break
                elif kind == STRING:
                    symbols = field(child, PARAMETER)
                    offsets, width = field(child, OFFSETS), field(child, OFFSET_BYTES)
                    start = load_offset(offsets, width, position)
                    count = load_offset(offsets, width, position + 1) - start
                    number = find_symbol(symbols, data + start, count)
                    if number < 0:
                        fault = np.int64(PROTOBUF_NO_SYMBOL)
                        break
                    numbers = symbols + 8 + 16 * load_int64(symbols)
                    value = load_int64(numbers + 8 * number)
                else:
                    value = load_int64(data + 8 * position)
                if rules & (CHECKS_RANGE | IS_NUMBER | OF_32_BITS) != 0:
                    if rules & CHECKS_RANGE != 0:
                        if not is_in_range(value, field(child, PARAMETER)):
                            fault = np.int64(OUT_OF_RANGE)
                            break
                    elif rules & IS_NUMBER != 0:
                        if not is_enum_number(field(child, PARAMETER), value):
                            fault = np.int64(PROTOBUF_NO_SYMBOL)
                            break
                    else:
                        value &= 0xFFFFFFFF
                if value == 0 and rules & (LEAVES_ZERO_OUT | IS_WRAPPED) != 0:
                    if rules & LEAVES_ZERO_OUT != 0:
                        continue
                else:
                    written_as = field(child, WRITTEN_AS)
                    if written_as == VARINT:
                        at = put_varint_before(at, value)
                    elif written_as == FIXED_8:
                        at -= 8
                        store_uint64(at, value)
                    elif written_as == FIXED_4:
                        at -= 4
                        store_uint32(at, value)
                    elif written_as == ZIGZAG:
                        at = put_varint_before(at, np.int64(zigzag(value)))
                    else:
                        at = put_seconds_before(at, value, written_as == SIGNED_SECONDS)
                        at = put_varint_before(at, value_stop - at)
            if rules & IS_WRAPPED != 0:
                if at != value_stop:
                    at -= 1
                    store_uint8(at, rules >> INNER_TAG)
                at = put_varint_before(at, value_stop - at)
            at = _put_tag_before(at, field(child, TAG), rules)
        if fault != 0:
            faults[row] = fault + FAULT_CAUSES * ((child - root) // NODE_BYTES)
            state[FAULTS_COUNT] += 1
            at = row_stop
        elif bytes_needed != 0:
            state[NEXT_ROW] = row + 1
            state[NEEDED] = row_stop - at + bytes_needed
            return np.int64(NEED_ROOM)
        elif prefix_bytes > 0:
            at -= prefix_bytes
            copy_bytes(at, prefix, prefix_bytes)
        starts[row] = at - limit
    state[NEXT_ROW] = 0
    return np.int64(ALL_WRITTEN)
