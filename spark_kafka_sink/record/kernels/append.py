"""The append kernel: rows of an Arrow batch straight into the open batch of their partition.

One pass in row order: no sort, no gather into temporaries. Memory is pages of one arena; the pages
of a batch form a chain through ``next_page``. A record that does not fit into the rest of a page
goes on in the next one, so every page but the last is full and records of any size are alike.

Source: ``RecordAccumulator.append`` and ``MemoryRecordsBuilder``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.calls import (
    APPENDED_ALL,
    ARENA,
    BASE_TIMESTAMP,
    BATCH_BYTES,
    BATCH_FULL,
    BATCHES,
    CREATED_AT_MS,
    FILL,
    FIRST_PAGE,
    LAST_PAGE,
    LIMIT_BYTES,
    MAX_TIMESTAMP,
    NEED_PAGES,
    NEXT_PAGE,
    NEXT_ROW,
    NO_PAGE,
    OPEN_BATCH_FIELDS,
    PAGE_SIZE,
    PAGES_COUNT,
    PAGES_NEEDED,
    RECORD_BATCH_OVERHEAD,
    RECORDS_COUNT,
    RESERVE,
    RESERVE_COUNT,
    SLOTS_COUNT,
    SPILL,
    STATE_FIELDS,
    STICKY_COUNT,
    STICKY_SLOTS,
    STOP_SLOT,
)
from spark_kafka_sink.record.kernels.declared import inlined, kernel
from spark_kafka_sink.record.kernels.encoding import (
    bytes_length,
    content_size,
    put_record,
    record_columns,
    varint_size,
)
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    int32_array,
    int64_array,
    int64_table,
    load_int64,
)


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


@inlined
def _stopped(state: Any, row: Any, status: Any, slot: Any, pages_needed: Any) -> Any:
    state[NEXT_ROW] = row
    state[STOP_SLOT] = slot
    state[PAGES_NEEDED] = pages_needed
    return np.int64(status)


@kernel
def append_records(
    first_row: int,
    stop_row: int,
    slots_address: int,
    fields_address: int,
    timestamps_address: int,
    timestamp_ms: int,
    now_ms: int,
    state_address: int,
) -> int:
    """Append rows ``first_row … stop_row-1`` to the open batches of their slots.

    slots_address: of int32[stop_row], the partition's row in the table of open batches;
        ``-1 - t`` stands for the sticky partition of topic ``t``
    fields_address: of int64[], those of RecordColumns
    timestamps_address: of int64[stop_row] ms, or 0: then every record gets ``timestamp_ms``
    state_address: of int64[STATE_FIELDS]; the table, pages and reserve are changed in place

    Returns APPENDED_ALL; or BATCH_FULL, the batch of STOP_SLOT has no room for NEXT_ROW; or
    NEED_PAGES, the reserve has fewer than the PAGES_NEEDED for it.
    """
    state = int64_array(state_address, STATE_FIELDS)
    slots = int32_array(slots_address, stop_row)
    sticky_slots = int32_array(state[STICKY_SLOTS], state[STICKY_COUNT])
    batches = int64_table(state[BATCHES], state[SLOTS_COUNT], OPEN_BATCH_FIELDS)
    arena_address = state[ARENA]
    page_size = state[PAGE_SIZE]
    next_page = int32_array(state[NEXT_PAGE], state[PAGES_COUNT])
    reserve = int32_array(state[RESERVE], state[PAGES_COUNT])
    reserve_count = int64_array(state_address + 8 * RESERVE_COUNT, 1)
    spill_address = state[SPILL]
    columns = record_columns(fields_address)
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
            return _stopped(state, row, BATCH_FULL, slot, 0)
        else:
            needed = (batches[slot, FILL] + size - 1) // page_size
        if needed > reserve_count[0]:
            return _stopped(state, row, NEED_PAGES, slot, needed)

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
    return _stopped(state, stop_row, APPENDED_ALL, -1, 0)


@kernel
def copy_chain(
    state_address: int, first_page: int, start: int, count: int, out_address: int
) -> int:
    """Copy bytes ``start … start+count-1`` of a chain of pages to ``out_address``.

    state_address: as in ``append_records``. Returns the address after what was written.
    """
    state = int64_array(state_address, STATE_FIELDS)
    arena_address = state[ARENA]
    page_size = state[PAGE_SIZE]
    next_page = int32_array(state[NEXT_PAGE], state[PAGES_COUNT])
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
    return out_address
