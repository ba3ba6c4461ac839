"""Write rows of typed columns as JSON objects, as Spark's ``to_json`` does: the JSON kernel.

Source: Spark's ``JacksonGenerator``.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    AFTER,
    ALL_WRITTEN,
    AT_KEY,
    AT_VALUE,
    BINARY,
    BOOLEAN,
    DATA,
    DATE,
    DECIMAL,
    DOUBLE,
    FAULT_CAUSES,
    FAULTS,
    FAULTS_COUNT,
    FIRST,
    FLAGS,
    FLOAT,
    FRAME_BYTES,
    FRAMES,
    IGNORE_NULLS,
    IN_LIST,
    IN_STRUCT,
    INT8,
    INT64,
    INTERVAL,
    KIND,
    LIMIT,
    LIST,
    MONTHS,
    NAME,
    NAME_BYTES,
    NEED_ROOM,
    NEEDED,
    NEXT_ROW,
    NO_ROOM,
    NO_TIME,
    NODE_BYTES,
    NODES,
    OFFSET_BYTES,
    OFFSETS,
    OUT,
    PARAMETER,
    PREFIX,
    PREFIX_BYTES,
    ROWS_COUNT,
    SKIPPED,
    SLACK,
    STARTS,
    STATE_FIELDS,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VALIDITY,
    VARIANT,
    ZONES,
    ZONES_COUNT,
)
from spark_kafka_sink.record.kernels.json_values import (
    find_zone,
    max_escaped_bytes,
    put_by_pattern,
    put_interval,
    put_json_double,
    put_json_float,
    put_literal,
    put_months,
    time_in_zones_table,
)
from spark_kafka_sink.record.kernels.memory import (
    called,
    copy_bytes,
    field,
    inlined,
    int64_array,
    int64_table,
    is_bit_set,
    kernel,
    load_frame,
    load_int32,
    load_int64,
    load_integer,
    load_uint8,
    load_uint32,
    load_uint64,
    save_frame,
    store_uint8,
    store_uint32,
    store_uint64,
)
from spark_kafka_sink.record.kernels.records import load_offset
from spark_kafka_sink.record.kernels.text import (
    MAX_ESCAPED_BYTES,
    put_base64,
    put_date,
    put_decimal,
    put_integer,
    put_local_time,
    put_string,
    put_time,
    put_zone_offset,
)
from spark_kafka_sink.record.kernels.variant import put_variant

_NULL = 0x6C6C756E
_TRUE = 0x65757274
_FALSE = 0x65736C6166
_MICROS = 1_000_000
_MICROS_PER_DAY = 86_400_000_000
_NANOS_PER_DAY = 1000 * _MICROS_PER_DAY
_MAX_UNCOUNTED_BYTES = 4096
"""The most bytes of a string whose escapes are not counted when room is short."""


@inlined
def _copy_name(at: int, name: int, count: int) -> int:
    """Copy eight bytes at a time: up to 7 bytes more are read and written."""
    for position in range(0, count, 8):
        store_uint64(at + position, np.int64(load_uint64(name + position)))
    return at + count


@called
def _set_fault(state_address: int, row: int, node: int, cause: int) -> None:
    """Set the fault of a row that cannot be written."""
    state = int64_array(state_address, STATE_FIELDS)
    faults = int64_array(state[FAULTS], state[ROWS_COUNT])
    faults[row] = FAULT_CAUSES * ((node - state[NODES]) // NODE_BYTES) + cause
    state[FAULTS_COUNT] += 1


@kernel
def write_json(state_address: int) -> int:
    """Write rows from NEXT_ROW on; see ``nodes`` for the state.

    A row that cannot be written gets its fault in FAULTS and no bytes. Returns ALL_WRITTEN, or
    NEED_ROOM if the output has no room for row NEXT_ROW.
    """
    state = int64_array(state_address, STATE_FIELDS)
    root = state[NODES]
    frames = state[FRAMES]
    zones_count = state[ZONES_COUNT]
    zones = int64_table(state[ZONES], zones_count, 2)
    starts = int64_array(state[STARTS], state[ROWS_COUNT] + 1)
    skipped = state[SKIPPED]
    omits_nulls = state[FLAGS] & IGNORE_NULLS != 0
    last_start = state[LIMIT] - state[SLACK]
    out = state[OUT]
    at = out + starts[state[NEXT_ROW]]
    # Start, stop and offset of the time zone's period with the last timestamp.
    zone_start, zone_stop, zone_offset = np.int64(0), np.int64(0), np.int64(0)
    for row in range(state[NEXT_ROW], state[ROWS_COUNT]):
        starts[row] = at - out
        if skipped != 0 and load_uint8(skipped + row) != 0:
            continue
        needed = state[SLACK] + state[PREFIX_BYTES]
        if at + state[PREFIX_BYTES] > last_start:
            state[NEXT_ROW] = row
            state[NEEDED] = needed
            return np.int64(NEED_ROOM)
        if state[PREFIX_BYTES] > 0:
            copy_bytes(at, state[PREFIX], state[PREFIX_BYTES])
            at += state[PREFIX_BYTES]
        store_uint8(at, 123)
        at += 1
        frame = frames
        mode, node, end = np.int64(IN_STRUCT), root + NODE_BYTES, field(root, AFTER)
        # In a list or a map: the next element. In a struct: the row of all fields.
        index = np.int64(row)
        is_first = True
        while True:
            # Find the next value, and its position in its column.
            if mode == IN_STRUCT:
                if node != end:
                    child = node
                    position = index + field(child, FIRST)
                    node = field(child, AFTER)
                    validity = field(child, VALIDITY)
                    kind = field(child, KIND)
                    is_null = kind == 0 or (validity != 0 and not is_bit_set(validity, position))
                    if is_null and omits_nulls:
                        continue
                    if at > last_start:
                        state[NEXT_ROW] = row
                        state[NEEDED] = at - out - starts[row] + state[SLACK]
                        return np.int64(NEED_ROOM)
                    skip = np.int64(1) if is_first else np.int64(0)
                    at = _copy_name(at, field(child, NAME) + skip, field(child, NAME_BYTES) - skip)
                    is_first = False
                    if is_null:
                        store_uint32(at, _NULL)
                        at += 4
                        continue
                else:
                    store_uint8(at, 125)
                    at += 1
                    if frame == frames:
                        break
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    is_first = False
                    continue
            else:
                if index == end and mode != AT_VALUE:
                    store_uint8(at, 93 if mode == IN_LIST else 125)
                    at += 1
                    frame -= FRAME_BYTES
                    mode, node, end, index = load_frame(frame)
                    is_first = False
                    continue
                if at > last_start:
                    state[NEXT_ROW] = row
                    state[NEEDED] = at - out - starts[row] + state[SLACK]
                    return np.int64(NEED_ROOM)
                child = node
                position = index + field(child, FIRST)
                validity = field(child, VALIDITY)
                kind = field(child, KIND)
                if mode != AT_VALUE:
                    if not is_first:
                        store_uint8(at, 44)
                        at += 1
                    is_first = False
                if mode == AT_KEY:
                    # A key that is no string needs quotes; those of NaN and infinity replace them.
                    if kind != STRING:
                        store_uint8(at, 34)
                        at += 1
                else:
                    if mode == AT_VALUE:
                        mode = np.int64(AT_KEY)
                        node -= NODE_BYTES
                    index += 1
                    if kind == 0 or (validity != 0 and not is_bit_set(validity, position)):
                        store_uint32(at, _NULL)
                        at += 4
                        continue
            # For the value of a map, mode and node are already those of the next key.
            is_key = mode == AT_KEY and child == node
            data = field(child, DATA)
            if INT8 <= kind <= INT64:
                at = put_integer(at, load_integer(kind, data, position))
            elif STRING <= kind <= BINARY:
                width = field(child, OFFSET_BYTES)
                offsets = field(child, OFFSETS)
                start = load_offset(offsets, width, position)
                count = load_offset(offsets, width, position + 1) - start
                if at + MAX_ESCAPED_BYTES * count > last_start:
                    # A long string needs room for its own escapes only, not six times its bytes.
                    most = MAX_ESCAPED_BYTES * count
                    if kind == BINARY or count > _MAX_UNCOUNTED_BYTES:
                        most = max_escaped_bytes(data + start, count, kind)
                    if at + most > last_start:
                        state[NEXT_ROW] = row
                        state[NEEDED] = at - out - starts[row] + state[SLACK] + most
                        return np.int64(NEED_ROOM)
                if kind == STRING:
                    at = put_string(at, data + start, count)
                else:
                    at = put_base64(at, data + start, count)
            elif kind == DOUBLE:
                bits = np.uint64(load_uint64(data + 8 * position))
                if is_key and (bits >> np.uint64(52)) & np.uint64(0x7FF) == np.uint64(0x7FF):
                    at = put_json_double(at - 1, bits) - 1
                else:
                    at = put_json_double(at, bits)
            elif kind == FLOAT:
                bits = np.uint64(load_uint32(data + 4 * position))
                if is_key and (bits >> np.uint64(23)) & np.uint64(0xFF) == np.uint64(0xFF):
                    at = put_json_float(at - 1, bits) - 1
                else:
                    at = put_json_float(at, bits)
            elif kind == BOOLEAN:
                is_true = is_bit_set(data, position)
                at = put_literal(at, _TRUE, 4) if is_true else put_literal(at, _FALSE, 5)
            elif kind == DECIMAL:
                at = put_decimal(at, data + 16 * position, field(child, PARAMETER))
            elif kind == VARIANT:
                found = put_variant(at, state_address, child, position, frame)
                if found == NO_ROOM:
                    state[NEXT_ROW] = row
                    state[NEEDED] += at - out - starts[row] + state[SLACK]
                    return np.int64(NEED_ROOM)
                if found < 0:
                    _set_fault(state_address, row, child, -found)
                    at = out + starts[row]
                    break
                at = found
            elif kind >= STRUCT:
                save_frame(frame, mode, node, end, index)
                frame += FRAME_BYTES
                node = child + NODE_BYTES
                is_first = True
                if kind == STRUCT:
                    mode = np.int64(IN_STRUCT)
                    end = field(child, AFTER)
                    index = position
                else:
                    width = field(child, OFFSET_BYTES)
                    index = load_offset(field(child, OFFSETS), width, position)
                    end = load_offset(field(child, OFFSETS), width, position + 1)
                    mode = np.int64(IN_LIST if kind == LIST else AT_KEY)
                store_uint8(at, 91 if kind == LIST else 123)
                at += 1
                continue
            elif kind == DATE:
                store_uint8(at, 34)
                days = np.int64(load_int32(data + 4 * position))
                pattern = field(child, PARAMETER)
                if pattern != 0:
                    at = put_by_pattern(at + 1, pattern, days, np.int64(0), np.int64(0))
                else:
                    at = put_date(at + 1, days)
                store_uint8(at, 34)
                at += 1
            elif TIMESTAMP <= kind <= TIMESTAMP_NTZ:
                micros = np.int64(load_int64(data + 8 * position))
                pattern = field(child, PARAMETER)
                store_uint8(at, 34)
                if kind == TIMESTAMP:
                    seconds = time_in_zones_table(micros // _MICROS)
                    if not zone_start <= seconds < zone_stop:
                        found = find_zone(zones, zones_count, seconds)
                        zone_start, zone_offset = zones[found, 0], zones[found, 1]
                        zone_stop = zones[found + 1, 0]
                offset_seconds = zone_offset if kind == TIMESTAMP else np.int64(0)
                if pattern != 0:
                    days = micros // _MICROS_PER_DAY
                    micros_of_day = micros - days * _MICROS_PER_DAY
                    at = put_by_pattern(at + 1, pattern, days, micros_of_day, offset_seconds)
                else:
                    at = put_local_time(at + 1, micros, offset_seconds)
                    if kind == TIMESTAMP:
                        at = put_zone_offset(at, offset_seconds)
                store_uint8(at, 34)
                at += 1
            elif kind == TIME:
                store_uint8(at, 34)
                nanos = np.int64(load_int64(data + 8 * position))
                if not 0 <= nanos < _NANOS_PER_DAY:
                    _set_fault(state_address, row, child, np.int64(NO_TIME))
                    at = out + starts[row]
                    break
                at = put_time(at + 1, nanos)
                store_uint8(at, 34)
                at += 1
            elif kind == INTERVAL:
                micros = np.int64(load_int64(data + 8 * position))
                at = put_interval(at, micros, field(child, PARAMETER))
            elif kind == MONTHS:
                months = np.int64(load_int32(data + 4 * position))
                at = put_months(at, months, field(child, PARAMETER))
            if is_key:
                # The next node describes the value of this key.
                if kind != STRING:
                    store_uint8(at, 34)
                    at += 1
                store_uint8(at, 58)
                at += 1
                mode = np.int64(AT_VALUE)
                node += NODE_BYTES
    starts[state[ROWS_COUNT]] = at - out
    state[NEXT_ROW] = state[ROWS_COUNT]
    return np.int64(ALL_WRITTEN)
