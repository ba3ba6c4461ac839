"""Numbers and times as Protobuf has them, written before an address, and what types and enums can
hold. Helpers of a kernel.

Source: "Encoding" of Protobuf's documentation.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    OF_DURATIONS,
    OF_TIMESTAMPS,
    SIGNED_32,
    UNSIGNED_32,
)
from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.memory import leading_zeros, load_int64, store_uint8

_MICROS = 1_000_000
_FIRST_TIMESTAMP = -62_135_596_800 * _MICROS
_AFTER_TIMESTAMPS = 253_402_300_800 * _MICROS
_AFTER_DURATIONS = 315_576_000_001 * _MICROS
_SECONDS_TAG = 0x08
_NANOS_TAG = 0x10


@inlined
def before_varint(at: int, value: int) -> int:
    """Write the 64 bits of ``value`` as a varint that ends at ``at``; returns where it begins."""
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
def before_seconds(at: int, micros: int, is_signed: bool) -> int:
    """Write what is in google.protobuf.Timestamp, or, if signed, in Duration."""
    seconds = micros // _MICROS
    nanos = (micros - seconds * _MICROS) * 1000
    if is_signed and seconds < 0 and nanos > 0:
        seconds += 1
        nanos -= 1000 * _MICROS
    if nanos != 0:
        at = before_varint(at, nanos) - 1
        store_uint8(at, _NANOS_TAG)
    if seconds != 0:
        at = before_varint(at, seconds) - 1
        store_uint8(at, _SECONDS_TAG)
    return at


@called
def is_in_range(value: int, limit: int) -> bool:
    """Is it within one of the ranges?"""
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
def is_known(numbers: int, value: int) -> bool:
    """Is it one of the numbers of an enum?"""
    for position in range(load_int64(numbers)):
        if load_int64(numbers + 8 + 8 * position) == value:
            return True
    return False
