"""One Kafka record as bytes: sizes first, then the writing itself. Inlined into the kernels.

Layout (all lengths are zigzag varints, -1 is null)::

    record   length, attributes int8, timestamp_delta, offset_delta,
             key_length, key, value_length, value, headers_count, header*
    header   key_length, key, value_length, value

A bytes column is a BytesView, a headers column a HeadersView (``record.compiled.calls``): tuples of
addresses and integers. Everything here is int64; addresses are not checked.

Source: Kafka's ``DefaultRecord``; Arrow's columnar format for the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.calls import (
    BytesView,
    HeadersView,
    IntegersView,
    RecordColumns,
)
from spark_kafka_sink.record.kernels.declared import inlined
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    int64_array,
    load_int32,
    load_int64,
    load_uint8,
    store_uint8,
)

NULL_LENGTH = -1
BYTES_FIELDS = 5
_VALUE = BYTES_FIELDS
_HEADERS = 2 * BYTES_FIELDS
_HEADER_FIELDS = 4
_HEADER_KEYS = _HEADERS + _HEADER_FIELDS
_HEADER_VALUES = _HEADER_KEYS + BYTES_FIELDS
INTEGERS_FIELDS = 3
RECORD_FIELDS = _HEADER_VALUES + BYTES_FIELDS
RECORD_ATTRIBUTES = 0
_INT32_BYTES = 4


@inlined
def bytes_view(address: int) -> Any:
    """The BytesView whose integers are at ``address``."""
    fields = int64_array(address, BYTES_FIELDS)
    return BytesView(fields[0], fields[1], fields[2], fields[3], fields[4])


@inlined
def integers_view(address: int) -> Any:
    """The IntegersView whose integers are at ``address``."""
    fields = int64_array(address, INTEGERS_FIELDS)
    return IntegersView(fields[0], fields[1], fields[2])


@inlined
def record_columns(address: int) -> Any:
    """The RecordColumns whose ``fields()`` are at ``address``, as int64[]."""
    fields = int64_array(address + 8 * _HEADERS, _HEADER_FIELDS)
    headers = HeadersView(
        fields[0],
        fields[1],
        fields[2],
        fields[3],
        bytes_view(address + 8 * _HEADER_KEYS),
        bytes_view(address + 8 * _HEADER_VALUES),
    )
    return RecordColumns(bytes_view(address), bytes_view(address + 8 * _VALUE), headers)


@inlined
def is_valid(validity_address: int, validity_offset: int, row: int) -> bool:
    """Arrow's validity bit of ``row``. Without a bitmap (address 0) nothing is null."""
    if validity_address == 0:
        return True
    bit = validity_offset + row
    return (np.int64(load_uint8(validity_address + (bit >> 3))) >> (bit & 7)) & 1 != 0


@inlined
def load_offset(address: int, offset_bytes: int, row: int) -> int:
    """Entry ``row`` of an offsets buffer of 4- or 8-byte integers."""
    if offset_bytes == _INT32_BYTES:
        return np.int64(load_int32(address + 4 * row))
    return load_int64(address + 8 * row)


@inlined
def bytes_length(column: Any, row: int) -> int:
    """Bytes of ``row``, or NULL_LENGTH: for a null, and for every row of an absent column."""
    if column.offset_bytes == 0:
        return np.int64(NULL_LENGTH)
    if not is_valid(column.validity_address, column.validity_offset, row):
        return np.int64(NULL_LENGTH)
    start = load_offset(column.offsets_address, column.offset_bytes, row)
    return load_offset(column.offsets_address, column.offset_bytes, row + 1) - start


@inlined
def bytes_address(column: Any, row: int) -> int:
    """Address of the first byte of ``row``."""
    return column.data_address + load_offset(column.offsets_address, column.offset_bytes, row)


@inlined
def headers_count(headers: Any, row: int) -> int:
    """Number of headers of ``row``; 0 for null and for an absent column."""
    if headers.offset_bytes == 0:
        return np.int64(0)
    if not is_valid(headers.validity_address, headers.validity_offset, row):
        return np.int64(0)
    start = load_offset(headers.offsets_address, headers.offset_bytes, row)
    return load_offset(headers.offsets_address, headers.offset_bytes, row + 1) - start


@inlined
def zigzag(value: int) -> Any:
    """Signed to unsigned so that small magnitudes stay small: 0, -1, 1, -2 → 0, 1, 2, 3."""
    return np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@inlined
def varint_size(value: int) -> int:
    """Bytes of ``value`` as a zigzag varint: 1 to 10."""
    rest = zigzag(value)
    size = np.int64(1)
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def put_varint(address: int, value: int) -> int:
    """Write ``value`` as a zigzag varint; returns the address after it."""
    rest = zigzag(value)
    while rest >= np.uint64(128):
        store_uint8(address, np.int64((rest & np.uint64(127)) | np.uint64(128)))
        rest >>= np.uint64(7)
        address += 1
    store_uint8(address, np.int64(rest))
    return address + 1


@inlined
def bytes_size(length: int) -> int:
    """Bytes on the wire of a length-prefixed field of ``length`` bytes or NULL_LENGTH."""
    return varint_size(length) + max(length, np.int64(0))


@inlined
def put_bytes(address: int, column: Any, row: int, length: int) -> int:
    """Write a length-prefixed field; returns the address after it."""
    address = put_varint(address, length)
    if length > 0:
        copy_bytes(address, bytes_address(column, row), length)
        address += length
    return address


@inlined
def headers_size(headers: Any, row: int) -> int:
    """Bytes of the headers of ``row``, their count included."""
    count = headers_count(headers, row)
    size = varint_size(count)
    if count > 0:
        first = load_offset(headers.offsets_address, headers.offset_bytes, row)
        for header in range(first, first + count):
            size += bytes_size(bytes_length(headers.keys, header))
            size += bytes_size(bytes_length(headers.values, header))
    return size


@inlined
def put_headers(address: int, headers: Any, row: int) -> int:
    """Write the headers of ``row``; returns the address after them."""
    count = headers_count(headers, row)
    address = put_varint(address, count)
    if count > 0:
        first = load_offset(headers.offsets_address, headers.offset_bytes, row)
        for header in range(first, first + count):
            length = bytes_length(headers.keys, header)
            address = put_bytes(address, headers.keys, header, length)
            length = bytes_length(headers.values, header)
            address = put_bytes(address, headers.values, header, length)
    return address


@inlined
def content_size(columns: Any, row: int, key_length: int, value_length: int) -> int:
    """Bytes of key, value and headers of ``row``: what does not depend on its place in a batch."""
    return bytes_size(key_length) + bytes_size(value_length) + headers_size(columns.headers, row)


@inlined
def put_record(
    address: int,
    body_size: int,
    timestamp_delta: int,
    offset_delta: int,
    columns: Any,
    row: int,
    key_length: int,
    value_length: int,
) -> int:
    """Write a whole record; returns the address after it."""
    address = put_varint(address, body_size)
    store_uint8(address, np.int64(RECORD_ATTRIBUTES))
    address = put_varint(address + 1, timestamp_delta)
    address = put_varint(address, offset_delta)
    address = put_bytes(address, columns.key, row, key_length)
    address = put_bytes(address, columns.value, row, value_length)
    return put_headers(address, columns.headers, row)
