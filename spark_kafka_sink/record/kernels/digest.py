"""The digest kernel: a number for many rows in which their order and division do not show.

It is the sum, modulo 2**64, of a hash of each row. So it can be added up over Arrow batches and
tasks, and a row that is there twice counts twice. A row's hash covers what is written of it: key,
value, headers, topic, explicit partition, timestamp in ms. What is null or absent adds nothing;
everything else is hashed with its length and its kind, one after the other, so that neither a
boundary nor the column can be mistaken. Two different sets of rows have the same sum with a chance
of 1 in 2**64: enough against accidents, not against somebody who wants it.

Source: W. Yi's wyhash, final version 4, with its default secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.declared import called, inlined, kernel
from spark_kafka_sink.record.kernels.encoding import (
    BYTES_FIELDS,
    INTEGERS_FIELDS,
    NULL_LENGTH,
    RECORD_FIELDS,
    bytes_address,
    bytes_length,
    bytes_view,
    headers_count,
    integers_view,
    is_valid,
    load_offset,
    record_columns,
)
from spark_kafka_sink.record.kernels.memory import (
    load_int32,
    load_int64,
    load_uint8,
    load_uint32,
    load_uint64,
    multiply_wide,
    uint64_array,
)

_SECRET_0 = np.uint64(0x2D358DCCAA6C78A5)
_SECRET_1 = np.uint64(0x8BB84B93962EACC9)
_SECRET_2 = np.uint64(0x4B33A62ED433D4A3)
_SECRET_3 = np.uint64(0x4D5A2DA51DE1AA47)

# What a part of a row is. A row begins with _ROW.
_ROW = np.uint64(1)
_KEY = np.uint64(2)
_VALUE = np.uint64(3)
_HEADER_KEY = np.uint64(4)
_HEADER_VALUE = np.uint64(5)
_TOPIC = np.uint64(6)
_PARTITION = np.uint64(7)
_TIMESTAMP = np.uint64(8)

# Where the integers of each column begin.
_TOPIC_FIELDS = RECORD_FIELDS
_PARTITION_FIELDS = _TOPIC_FIELDS + BYTES_FIELDS
_TIMESTAMP_FIELDS = _PARTITION_FIELDS + INTEGERS_FIELDS

_US_PER_MS = 1000


@inlined
def _mix(left: Any, right: Any) -> Any:
    low, high = multiply_wide(left, right)
    return low ^ high


@inlined
def _load_4(address: int) -> Any:
    return np.uint64(load_uint32(address))


@called
def _wyhash(address: int, length: int, seed: Any) -> Any:
    """The hash of ``length`` bytes with ``seed``, a uint64, as uint64."""
    seed = seed ^ _mix(seed ^ _SECRET_0, _SECRET_1)
    first = np.uint64(0)
    second = np.uint64(0)
    if length > 16:
        rest = length
        if rest >= 48:
            seed_1 = seed
            seed_2 = seed
            while rest >= 48:
                seed = _mix(load_uint64(address) ^ _SECRET_1, load_uint64(address + 8) ^ seed)
                word = load_uint64(address + 16) ^ _SECRET_2
                seed_1 = _mix(word, load_uint64(address + 24) ^ seed_1)
                word = load_uint64(address + 32) ^ _SECRET_3
                seed_2 = _mix(word, load_uint64(address + 40) ^ seed_2)
                address += 48
                rest -= 48
            seed ^= seed_1 ^ seed_2
        while rest > 16:
            seed = _mix(load_uint64(address) ^ _SECRET_1, load_uint64(address + 8) ^ seed)
            address += 16
            rest -= 16
        # The last 16 bytes, some of which may have been read before.
        first = load_uint64(address + rest - 16)
        second = load_uint64(address + rest - 8)
    elif length >= 4:
        middle = (length >> 3) << 2
        end = address + length - 4
        first = (_load_4(address) << np.uint64(32)) | _load_4(address + middle)
        second = (_load_4(end) << np.uint64(32)) | _load_4(end - middle)
    elif length > 0:
        first = np.uint64(load_uint8(address)) << np.uint64(16)
        first |= np.uint64(load_uint8(address + (length >> 1))) << np.uint64(8)
        first |= np.uint64(load_uint8(address + length - 1))
    low, high = multiply_wide(first ^ _SECRET_1, second ^ seed)
    return _mix(low ^ _SECRET_0 ^ np.uint64(length), high ^ _SECRET_1)


@inlined
def _add_bytes(hashed: Any, kind: Any, column: Any, row: int) -> Any:
    """(the row's hash with a field of bytes, the field's length; 0 for null)."""
    length = bytes_length(column, row)
    if length == NULL_LENGTH:
        length = np.int64(0)
    else:
        hashed = _wyhash(bytes_address(column, row), length, hashed ^ kind)
    return hashed, length


@inlined
def _add_integer(hashed: Any, kind: Any, value: int) -> Any:
    return _mix(hashed ^ _SECRET_2 ^ kind, np.uint64(value) ^ _SECRET_3)


@inlined
def _is_there(column: Any, row: int) -> bool:
    is_absent = column.values_address == 0
    return not is_absent and is_valid(column.validity_address, column.validity_offset, row)


@kernel
def add_rows_digest(rows_count: int, fields_address: int, contents_address: int) -> int:
    """See ``digest_rows``: returns the bytes.

    fields_address: of int64[]: those of the columns, the topic, the partition and the timestamp
    contents_address: of uint64[1], the sum
    """
    columns = record_columns(fields_address)
    topic = bytes_view(fields_address + 8 * _TOPIC_FIELDS)
    partition = integers_view(fields_address + 8 * _PARTITION_FIELDS)
    timestamp = integers_view(fields_address + 8 * _TIMESTAMP_FIELDS)
    contents = np.uint64(0)
    data_bytes = np.int64(0)
    headers = columns.headers
    for row in range(rows_count):
        hashed, length = _add_bytes(_ROW, _KEY, columns.key, row)
        data_bytes += length
        hashed, length = _add_bytes(hashed, _VALUE, columns.value, row)
        data_bytes += length
        count = headers_count(headers, row)
        if count > 0:
            first = load_offset(headers.offsets_address, headers.offset_bytes, row)
            for header in range(first, first + count):
                hashed, length = _add_bytes(hashed, _HEADER_KEY, headers.keys, header)
                data_bytes += length
                hashed, length = _add_bytes(hashed, _HEADER_VALUE, headers.values, header)
                data_bytes += length
        hashed, length = _add_bytes(hashed, _TOPIC, topic, row)
        data_bytes += length
        if _is_there(partition, row):
            value = np.int64(load_int32(partition.values_address + 4 * row))
            hashed = _add_integer(hashed, _PARTITION, value)
        if _is_there(timestamp, row):
            value = load_int64(timestamp.values_address + 8 * row) // np.int64(_US_PER_MS)
            hashed = _add_integer(hashed, _TIMESTAMP, value)
        contents += hashed
    uint64_array(contents_address, 1)[0] = contents
    return data_bytes
