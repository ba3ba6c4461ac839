"""The kernels that find partitions, sizes and digests of rows, and that split batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.record.compiled.calls import (
    add_rows_digest,
    address_of,
    fill_content_sizes,
    fill_slots,
    find_largest_record,
    int64s,
    take_records_at,
)
from spark_kafka_sink.record.views import BytesView, IntegersView, RecordColumns

BODY_OVERHEAD = 3
"""Attributes, timestamp delta and offset delta of a batch's first record."""


Int32Array = npt.NDArray[np.int32]

ALL_ASSIGNED = -1
_NO_ADDRESS = 0

# How a key decides. Without a hash, rows with a key stick like rows without.
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
    key: else a non-null key decides by ``key_hash``; CRC32 takes an empty key for none
    A row that nothing decides on gets ``-1 - topic``: its topic's sticky partition.

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
"""Length, attributes, timestamp delta and offset delta at their widest."""


def largest_record(rows_count: int, columns: RecordColumns) -> tuple[int, int]:
    """(upper bound of the size in bytes without batch header, row) of the largest record."""
    fields, size = int64s(columns.fields()), np.empty(1, np.int64)
    row = find_largest_record(rows_count, address_of(fields), address_of(size))
    return int(size[0]), row


def content_sizes(columns: RecordColumns, out_sizes: npt.NDArray[np.int64]) -> None:
    """Fill ``out_sizes`` (int64[n]) with the bytes of key, value and headers of each row.

    Lengths are included. A record has at most MAX_RECORD_OVERHEAD bytes more.
    """
    fields = int64s(columns.fields())
    fill_content_sizes(len(out_sizes), address_of(fields), address_of(out_sizes))


_RESULTS = 5


def take_records(
    address: int, records_count: int, base_timestamp: int, limit_bytes: int, out_address: int
) -> list[int]:
    """Copy records from ``address`` until ``limit_bytes`` are written, one at least.

    base_timestamp: of the batch that the records come from
    out_address: of a buffer for ``limit_bytes``, or for the first record if that is larger. The
        first record does not grow, as both its deltas become 0. Later ones may: a timestamp delta
        counts from the first record taken, and may take nine bytes more than before.

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
    """The sum of the hashes of rows ``0 … rows_count-1``, and their bytes.

    topic: BytesView, absent if an option names the topic; partition: IntegersView of int32, the
        explicit one; timestamp: IntegersView of int64 µs since 1970

    Returns (uint64, int64 bytes of keys, values, headers' keys and values, and topics).
    """
    fields = int64s([*columns.fields(), *topic, *partition, *timestamp])
    contents = np.empty(1, np.uint64)
    data_bytes = add_rows_digest(rows_count, address_of(fields), address_of(contents))
    return int(contents[0]), data_bytes
