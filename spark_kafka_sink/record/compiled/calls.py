"""Call kernels, and define what they share with their callers: views of columns, tables, states.

A kernel is a function of int64 that returns an int64: numbers and addresses of memory. Module
``library`` has its machine code. Its source in ``record/kernels`` is Python that the build of the
package compiles; no process that writes records imports the source.

A view of an Arrow column is a tuple of addresses and integers, not of reference-counted objects.
Addresses point into Arrow's own buffers; the creator of a view keeps the Arrow batch alive while
the view is used. Address 0 means absent.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.record.compiled.library import address_in_library


class Kernel:
    """A kernel, called with int64 numbers and loaded at the first call at the latest.

    parameters_count: number of its int64 parameters
    """

    def __init__(self, name: str, parameters_count: int) -> None:
        self.name = name
        self.parameters_count = parameters_count
        self._machine_code: Callable[..., int] | None = None

    def __call__(self, *numbers: int) -> int:
        return (self._machine_code or self.machine_code())(*numbers)

    def machine_code(self) -> Callable[..., int]:
        """Return the compiled function itself, for frequent calls. It releases the GIL.

        Raises ConfigError if the package has no kernels for this platform.
        """
        if self._machine_code is None:
            pointer = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * self.parameters_count)
            self._machine_code = pointer(address_in_library(self.name))
        return self._machine_code


append_records = Kernel("append_records", 8)
copy_chain = Kernel("copy_chain", 5)
murmur3_hash = Kernel("murmur3_hash", 2)
fill_slots = Kernel("fill_slots", 9)
find_largest_record = Kernel("find_largest_record", 3)
fill_content_sizes = Kernel("fill_content_sizes", 3)
take_records_at = Kernel("take_records_at", 6)
sum_row_hashes = Kernel("sum_row_hashes", 3)
write_json = Kernel("write_json", 1)
write_avro = Kernel("write_avro", 1)
write_protobuf = Kernel("write_protobuf", 1)

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *(append_records, copy_chain, murmur3_hash, fill_slots, take_records_at),
        *(find_largest_record, fill_content_sizes, sum_row_hashes),
        *(write_json, write_avro, write_protobuf),
    )
}
"""All kernels by name. The build compares names and counts with the sources."""


def load_kernels() -> None:
    """Load every kernel. Raises ConfigError without a library for this platform."""
    for kernel in KERNELS.values():
        kernel.machine_code()


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element; the caller must keep the array while it is used."""
    return array.ctypes.data


def int64s(numbers: list[int]) -> npt.NDArray[np.int64]:
    """Return an array of numbers for a kernel."""
    return np.array(numbers, np.int64)


class BytesView(NamedTuple):
    """A (large_)binary or (large_)string column.

    offset_bytes: 4 or 8, the width of an offset; 0 for an absent column, whose rows are all null
    offsets_address: of offsets[n+1], beginning with row 0
    validity_address: of the bitmap, 0 without nulls; validity_offset: bit of row 0
    """

    offset_bytes: int
    offsets_address: int
    data_address: int
    validity_address: int
    validity_offset: int


class HeadersView(NamedTuple):
    """A (large_)list<struct<key, value>> column: offsets as in BytesView, into keys and values."""

    offset_bytes: int
    offsets_address: int
    validity_address: int
    validity_offset: int
    keys: BytesView
    values: BytesView


class IntegersView(NamedTuple):
    """An int32 column; ``values_address`` is 0 for an absent column."""

    values_address: int
    validity_address: int
    validity_offset: int


class RecordColumns(NamedTuple):
    """Key, value and headers of records."""

    key: BytesView
    value: BytesView
    headers: HeadersView

    def fields(self) -> list[int]:
        """Return all integers in one list, which is cheaper to pass than nested tuples."""
        offset_bytes, offsets, validity, validity_offset, keys, values = self.headers
        headers = (offset_bytes, offsets, validity, validity_offset)
        return [*self.key, *self.value, *headers, *keys, *values]


ABSENT_BYTES = BytesView(0, 0, 0, 0, 0)
ABSENT_HEADERS = HeadersView(0, 0, 0, 0, ABSENT_BYTES, ABSENT_BYTES)
ABSENT_INTEGERS = IntegersView(0, 0, 0)


RECORD_BATCH_OVERHEAD = 61
"""Bytes of a v2 batch header, reserved at the start of every batch."""

NO_PAGE = -1

# Results of append_records().
APPENDED_ALL = 0
BATCH_FULL = 1
NEED_PAGES = 2

# Columns of the open batches' table, int64[slots, OPEN_BATCH_FIELDS]: one row per partition.
RECORDS_COUNT = 0  # 0: the partition has no open batch
BATCH_BYTES = 1  # header and records so far, uncompressed
LIMIT_BYTES = 2  # another record must not exceed it
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
CREATED_AT_MS = 5
FIRST_PAGE = 6
LAST_PAGE = 7
FILL = 8  # bytes used in the last page
OPEN_BATCH_FIELDS = 9

# The state between calls, int64[STATE_FIELDS]. Its owner keeps the memory at the addresses.
STICKY_SLOTS = 0  # address of int32[STICKY_COUNT]
STICKY_COUNT = 1
BATCHES = 2  # address of the open batches' table, int64[SLOTS_COUNT, OPEN_BATCH_FIELDS]
SLOTS_COUNT = 3
ARENA = 4  # address of uint8[PAGES_COUNT * PAGE_SIZE]
PAGE_SIZE = 5
PAGES_COUNT = 6
NEXT_PAGE = 7  # address of int32[PAGES_COUNT]
RESERVE = 8  # address of int32[PAGES_COUNT], a stack of free pages
RESERVE_COUNT = 9
SPILL = 10  # address of a buffer for the largest record
# Results of the call.
NEXT_ROW = 11
STOP_SLOT = 12
PAGES_NEEDED = 13
STATE_FIELDS = 14


BODY_OVERHEAD = 3
"""Attributes, timestamp delta and offset delta of a batch's first record."""


Int32Array = npt.NDArray[np.int32]

ALL_ASSIGNED = -1
_NO_ADDRESS = 0

# How a key chooses the partition. Without a hash, rows with a key use the sticky partition too.
NO_KEY_HASH = 0
MURMUR2 = 1
MURMUR3 = 2
CRC32 = 3


class Topics(NamedTuple):
    """The topics of an Arrow batch. Row ``r`` has topic ``indices[r]``, or 0 without indices.

    indices: int32[n] or None; first_slots, partitions_counts: int32[topics]
    """

    indices: Int32Array | None
    first_slots: Int32Array
    partitions_counts: Int32Array


def assign_slots(
    topics: Topics,
    partition: IntegersView,
    computed: Int32Array | None,
    key: BytesView,
    key_hash: int,
    out_slots: Int32Array,
) -> int:
    """Fill ``out_slots`` (int32[n]) with each row's slot: topic's first slot + partition.

    partition: the explicit partition; a valid entry decides
    computed: int32[n] or None; else an entry >= 0 decides
    key: else a non-null key decides by ``key_hash``; CRC32 treats an empty key as null
    Any other row gets ``-1 - topic``: its topic's sticky partition.

    Returns the first row whose explicit or computed partition does not exist, or ALL_ASSIGNED.
    """
    fields = int64s([*key, *partition])
    return fill_slots(
        len(out_slots),
        _NO_ADDRESS if topics.indices is None else address_of(topics.indices),
        len(topics.first_slots),
        address_of(topics.first_slots),
        address_of(topics.partitions_counts),
        _NO_ADDRESS if computed is None else address_of(computed),
        address_of(fields),
        key_hash,
        address_of(out_slots),
    )


MAX_RECORD_OVERHEAD = 21
"""Largest size of length, attributes, timestamp delta and offset delta together."""


def largest_record(rows_count: int, columns: RecordColumns) -> tuple[int, int]:
    """Return (upper bound of the bytes without batch header, row) of the largest record."""
    fields, size = int64s(columns.fields()), np.empty(1, np.int64)
    row = find_largest_record(rows_count, address_of(fields), address_of(size))
    return int(size[0]), row


def content_sizes(columns: RecordColumns, out_sizes: npt.NDArray[np.int64]) -> None:
    """Fill ``out_sizes`` (int64[n]) with the bytes of key, value and headers of each row.

    The sizes include length prefixes. A record has at most MAX_RECORD_OVERHEAD bytes more.
    """
    fields = int64s(columns.fields())
    fill_content_sizes(len(out_sizes), address_of(fields), address_of(out_sizes))


_RESULTS = 5


def take_records(
    address: int, records_count: int, base_timestamp: int, limit_bytes: int, out_address: int
) -> list[int]:
    """Copy records from ``address`` until ``limit_bytes`` are written, at least one record.

    base_timestamp: of the batch that the records come from
    out_address: of a buffer for ``limit_bytes``, or for the first record if it is larger. The first
        record does not grow because both its deltas become 0. Later records may grow by up to nine
        bytes, because the timestamp delta then counts from the first record taken.

    Returns (records taken, bytes read, bytes written, base timestamp, max timestamp).
    """
    results = np.empty(_RESULTS, np.int64)
    take_records_at(
        address, records_count, base_timestamp, limit_bytes, out_address, address_of(results)
    )
    numbers: list[int] = results.tolist()
    return numbers


def digest_rows(
    rows_count: int,
    columns: RecordColumns,
    topic: BytesView,
    partition: IntegersView,
    timestamp: IntegersView,
) -> tuple[int, int]:
    """Return the sum of the hashes of rows ``0 … rows_count-1``, and their bytes.

    topic: BytesView, absent if an option names the topic; partition: IntegersView of int32, the
        explicit one; timestamp: IntegersView of int64 µs since 1970

    Returns (uint64, int64 bytes of keys, values, headers' keys and values, and topics).
    """
    fields = int64s([*columns.fields(), *topic, *partition, *timestamp])
    digest = np.empty(1, np.uint64)
    data_bytes = sum_row_hashes(rows_count, address_of(fields), address_of(digest))
    return int(digest[0]), data_bytes
