"""Helpers that go by the table of nodes: see ``record/compiled/nodes``."""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    FRAME_END,
    FRAME_INDEX,
    FRAME_MODE,
    FRAME_NODE,
    INT16,
    INT32,
    INT64,
)
from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.memory import (
    load_int8,
    load_int16,
    load_int32,
    load_int64,
    load_uint8,
    store_uint64,
)


@inlined
def field(node: int, number: int) -> Any:
    """A field of the node at an address, as int64. Of a frame, too."""
    return np.int64(load_int64(node + 8 * number))


@inlined
def put_frame(frame: int, mode: int, node: int, end: int, index: int) -> None:
    """Keep where the writing of something is, while what is in it is written."""
    store_uint64(frame + 8 * FRAME_MODE, mode)
    store_uint64(frame + 8 * FRAME_NODE, node)
    store_uint64(frame + 8 * FRAME_END, end)
    store_uint64(frame + 8 * FRAME_INDEX, index)


@inlined
def frame_at(frame: int) -> tuple[Any, Any, Any, Any]:
    """What ``put_frame`` has kept: mode, node, end and index."""
    mode, node = field(frame, FRAME_MODE), field(frame, FRAME_NODE)
    return mode, node, field(frame, FRAME_END), field(frame, FRAME_INDEX)


@inlined
def is_set(bitmap: int, index: int) -> bool:
    """A bit of a bitmap at an address."""
    return (np.int64(load_uint8(bitmap + (index >> 3))) >> (index & 7)) & 1 != 0


@inlined
def integer_at(kind: int, data: int, index: int) -> Any:
    """A value of INT8 to INT64 as int64."""
    if kind == INT32:
        return np.int64(load_int32(data + 4 * index))
    if kind == INT64:
        return np.int64(load_int64(data + 8 * index))
    if kind == INT16:
        return np.int64(load_int16(data + 2 * index))
    return np.int64(load_int8(data + index))


@called
def symbol_of(symbols: int, source: int, count: int) -> int:
    """Number of the symbol that a string of ``count`` bytes is, -1 if it is none.

    symbols: address of int64[]: their count, then address and length of each
    """
    for number in range(load_int64(symbols)):
        entry = symbols + 8 + 16 * number
        if load_int64(entry + 8) == count:
            address = load_int64(entry)
            position = np.int64(0)
            while position < count and load_uint8(address + position) == load_uint8(
                source + position
            ):
                position += 1
            if position == count:
                return np.int64(number)
    return np.int64(-1)
