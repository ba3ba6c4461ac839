"""The append kernel: rows of an Arrow batch straight into the open batch of their partition.

One pass in row order: no sort, no gather into temporaries. Memory is pages of one arena; the pages
of a batch form a chain through ``next_page``. A record that does not fit into the rest of a page
goes on in the next one, so every page but the last is full and records of any size are alike.

Source: ``RecordAccumulator.append`` and ``MemoryRecordsBuilder``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.encoding import (
    bytes_length,
    content_size,
    put_record,
    record_columns,
    varint_size,
)
from spark_kafka_sink.record.kernels.jit import (
    INT32_ARRAY,
    INT64,
    INT64_ARRAY,
    INT64_TABLE,
    copy_bytes,
    inlined,
    kernel,
    load_int64,
)

RECORD_BATCH_OVERHEAD = 61
"""Bytes of a v2 batch header; every batch keeps them free at its start."""

NO_PAGE = -1

# What append_records() stopped for.
APPENDED_ALL = 0
BATCH_FULL = 1
NEED_PAGES = 2

# Columns of the open batches' table, int64[slots, OPEN_BATCH_FIELDS]: one row per partition.
RECORDS_COUNT = 0  # 0: the partition has no open batch
BATCH_BYTES = 1  # header and records so far, uncompressed
LIMIT_BYTES = 2  # a further record must not lead beyond it
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
CREATED_AT_MS = 5
FIRST_PAGE = 6
LAST_PAGE = 7
FILL = 8  # bytes used in the last page
OPEN_BATCH_FIELDS = 9


@inlined
def _take_page(next_page: Any, reserve: Any, reserve_count: Any) -> int:
    reserve_count[0] -= 1
    page = np.int64(reserve[reserve_count[0]])
    next_page[page] = NO_PAGE
    return page


@inlined
def _open_batch(batches: Any, slot: Any, page: Any, timestamp: Any, now_ms: Any) -> None:
    batches[slot, FIRST_PAGE] = page
    batches[slot, LAST_PAGE] = page
    batches[slot, FILL] = RECORD_BATCH_OVERHEAD
    batches[slot, BATCH_BYTES] = RECORD_BATCH_OVERHEAD
    batches[slot, BASE_TIMESTAMP] = timestamp
    batches[slot, MAX_TIMESTAMP] = timestamp
    batches[slot, CREATED_AT_MS] = now_ms


@inlined
def _spread(
    source: Any,
    size: Any,
    page: Any,
    fill: Any,
    arena_address: Any,
    page_size: Any,
    next_page: Any,
    reserve: Any,
    reserve_count: Any,
) -> Any:
    """Copy a record into the rest of ``page`` and the pages after it: (last page, its fill)."""
    done = np.int64(0)
    while done < size:
        if fill == page_size:
            following = _take_page(next_page, reserve, reserve_count)
            next_page[page] = following
            page = following
            fill = np.int64(0)
        count = min(size - done, page_size - fill)
        copy_bytes(arena_address + page * page_size + fill, source + done, count)
        fill += count
        done += count
    return page, fill


@kernel(
    INT64,
    INT64,
    INT32_ARRAY,
    INT32_ARRAY,
    INT64_ARRAY,
    INT64,
    INT64,
    INT64,
    INT64_TABLE,
    INT64,
    INT64,
    INT32_ARRAY,
    INT32_ARRAY,
    INT64_ARRAY,
    INT64,
)
def append_records(
    first_row: int,
    stop_row: int,
    slots: Any,
    sticky_slots: Any,
    fields: Any,
    timestamps_address: int,
    timestamp_ms: int,
    now_ms: int,
    batches: Any,
    arena_address: int,
    page_size: int,
    next_page: Any,
    reserve: Any,
    reserve_count: Any,
    spill_address: int,
) -> Any:
    """Append rows ``first_row … stop_row-1`` to the open batches of their slots.

    slots: int32[n], the partition's row in ``batches``; ``-1 - t`` stands for the sticky
        partition of topic ``t``, ``sticky_slots[t]`` (int32[topics])
    fields: int64[], those of RecordColumns. Tuples in tuples would cost 4 µs with each call
    timestamps_address: of int64[n] ms, or 0: then every record gets ``timestamp_ms``
    batches: int64[slots, OPEN_BATCH_FIELDS], changed in place
    arena_address: of uint8[pages * page_size]; next_page: int32[pages]
    reserve: int32[], a stack of free pages; reserve_count: int64[1]
    spill_address: of a buffer for the largest record

    Returns (next row, status, slot, pages needed): APPENDED_ALL; or BATCH_FULL, the batch of
    ``slot`` has no room for the next row; or NEED_PAGES, the reserve is too small for it.
    """
    columns = record_columns(fields)
    for row in range(first_row, stop_row):
        slot = np.int64(slots[row])
        if slot < 0:
            slot = np.int64(sticky_slots[-1 - slot])
        timestamp = np.int64(timestamp_ms)
        if timestamps_address != 0:
            timestamp = load_int64(timestamps_address + 8 * row)
        offset_delta = batches[slot, RECORDS_COUNT]
        is_new = offset_delta == 0
        timestamp_delta = np.int64(0) if is_new else timestamp - batches[slot, BASE_TIMESTAMP]
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        body_size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
        body_size += content_size(columns, row, key_length, value_length)
        size = varint_size(body_size) + body_size

        if is_new:
            needed = (RECORD_BATCH_OVERHEAD + size + page_size - 1) // page_size
        elif batches[slot, BATCH_BYTES] + size > batches[slot, LIMIT_BYTES]:
            return row, BATCH_FULL, slot, np.int64(0)
        else:
            needed = (batches[slot, FILL] + size - 1) // page_size
        if needed > reserve_count[0]:
            return row, NEED_PAGES, slot, needed

        if is_new:
            page = _take_page(next_page, reserve, reserve_count)
            _open_batch(batches, slot, page, timestamp, now_ms)
        fill = batches[slot, FILL]
        address = arena_address + batches[slot, LAST_PAGE] * page_size + fill
        is_across_pages = fill + size > page_size
        put_record(
            spill_address if is_across_pages else address,
            body_size,
            timestamp_delta,
            offset_delta,
            columns,
            row,
            key_length,
            value_length,
        )
        if is_across_pages:
            page, fill = _spread(
                spill_address,
                size,
                batches[slot, LAST_PAGE],
                fill,
                arena_address,
                page_size,
                next_page,
                reserve,
                reserve_count,
            )
            batches[slot, LAST_PAGE] = page
            batches[slot, FILL] = fill
        else:
            batches[slot, FILL] = fill + size
        batches[slot, BATCH_BYTES] += size
        batches[slot, RECORDS_COUNT] = offset_delta + 1
        batches[slot, MAX_TIMESTAMP] = max(batches[slot, MAX_TIMESTAMP], timestamp)
    return np.int64(stop_row), APPENDED_ALL, np.int64(-1), np.int64(0)


@kernel(INT64, INT64, INT32_ARRAY, INT64, INT64, INT64, INT64)
def copy_chain(
    arena_address: int,
    page_size: int,
    next_page: Any,
    first_page: int,
    start: int,
    count: int,
    out_address: int,
) -> None:
    """Copy bytes ``start … start+count-1`` of a chain of pages to ``out_address``."""
    page = np.int64(first_page)
    while start >= page_size:
        page = np.int64(next_page[page])
        start -= page_size
    while count > 0:
        part = min(count, page_size - start)
        copy_bytes(out_address, arena_address + page * page_size + start, part)
        out_address += part
        count -= part
        start = np.int64(0)
        if count > 0:
            page = np.int64(next_page[page])
