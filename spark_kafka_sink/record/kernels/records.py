"""Encode Kafka records: size them, append them to open batches, split batches.

Layout (all lengths are zigzag varints, -1 is null)::

    record   length, attributes int8, timestamp_delta, offset_delta,
             key_length, key, value_length, value, headers_count, header*
    header   key_length, key, value_length, value

A bytes column is a BytesView, a headers column a HeadersView (``record.compiled.calls``): tuples of
addresses and integers. All numbers here are int64; addresses are not checked.

The sizing kernels compute the upper bound of the largest record of an Arrow batch, and the size of
each record. With these sizes the sink rejects the same records as the Java producer.

The append kernel writes rows of an Arrow batch straight into the open batch of their partition, in
one pass in row order. It neither sorts rows nor gathers them in temporary buffers. Memory is pages
of one arena; the pages of a batch form a chain through ``next_page``. A record that does not fit
into the rest of a page continues in the next page. So every page of a batch but the last is full,
and the kernel writes records of every size in the same way.

The split kernel encodes some records of a batch as a new batch. Keys, values and headers are copied
unchanged. Length, timestamp delta and offset delta change, because the deltas count from the first
record of the batch.

Source: Kafka's ``DefaultRecord`` and its ``recordSizeUpperBound``,
``AbstractRecords.estimateSizeInBytesUpperBound``, ``RecordAccumulator.append``,
``MemoryRecordsBuilder``, ``ProducerBatch.split``; Arrow's columnar format for the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.calls import (
    _RESULTS,
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
    MAX_RECORD_OVERHEAD,
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
    BytesView,
    HeadersView,
    IntegersView,
    RecordColumns,
)
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    inlined,
    int32_array,
    int64_array,
    int64_table,
    kernel,
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
    """Return the BytesView whose integers are at ``address``."""
    fields = int64_array(address, BYTES_FIELDS)
    return BytesView(fields[0], fields[1], fields[2], fields[3], fields[4])


@inlined
def integers_view(address: int) -> Any:
    """Return the IntegersView whose integers are at ``address``."""
    fields = int64_array(address, INTEGERS_FIELDS)
    return IntegersView(fields[0], fields[1], fields[2])


@inlined
def record_columns(address: int) -> Any:
    """Return the RecordColumns whose ``fields()`` are at ``address``, as int64[]."""
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
    """Return Arrow's validity bit of ``row``. Without a bitmap (address 0) no row is null."""
    if validity_address == 0:
        return True
    bit = validity_offset + row
    return (np.int64(load_uint8(validity_address + (bit >> 3))) >> (bit & 7)) & 1 != 0


@inlined
def load_offset(address: int, offset_bytes: int, row: int) -> int:
    """Return entry ``row`` of an offsets buffer of 4- or 8-byte integers."""
    if offset_bytes == _INT32_BYTES:
        return np.int64(load_int32(address + 4 * row))
    return load_int64(address + 8 * row)


@inlined
def bytes_length(column: Any, row: int) -> int:
    """Return the bytes of ``row``, or NULL_LENGTH for a null or an absent column."""
    if column.offset_bytes == 0:
        return np.int64(NULL_LENGTH)
    if not is_valid(column.validity_address, column.validity_offset, row):
        return np.int64(NULL_LENGTH)
    start = load_offset(column.offsets_address, column.offset_bytes, row)
    return load_offset(column.offsets_address, column.offset_bytes, row + 1) - start


@inlined
def bytes_address(column: Any, row: int) -> int:
    """Return the address of the first byte of ``row``."""
    return column.data_address + load_offset(column.offsets_address, column.offset_bytes, row)


@inlined
def headers_count(headers: Any, row: int) -> int:
    """Return the number of headers of ``row``: 0 for a null or an absent column."""
    if headers.offset_bytes == 0:
        return np.int64(0)
    if not is_valid(headers.validity_address, headers.validity_offset, row):
        return np.int64(0)
    start = load_offset(headers.offsets_address, headers.offset_bytes, row)
    return load_offset(headers.offsets_address, headers.offset_bytes, row + 1) - start


@inlined
def zigzag(value: int) -> Any:
    """Map signed to unsigned so that small magnitudes stay small: 0, -1, 1, -2 → 0, 1, 2, 3."""
    return np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@inlined
def varint_size(value: int) -> int:
    """Return the bytes of ``value`` as a zigzag varint: 1 to 10."""
    rest = zigzag(value)
    size = np.int64(1)
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def put_varint(address: int, value: int) -> int:
    """Write ``value`` as a zigzag varint; return the address after it."""
    rest = zigzag(value)
    while rest >= np.uint64(128):
        store_uint8(address, np.int64((rest & np.uint64(127)) | np.uint64(128)))
        rest >>= np.uint64(7)
        address += 1
    store_uint8(address, np.int64(rest))
    return address + 1


@inlined
def bytes_size(length: int) -> int:
    """Return the bytes of a length-prefixed field with ``length`` bytes or NULL_LENGTH."""
    return varint_size(length) + max(length, np.int64(0))


@inlined
def put_bytes(address: int, column: Any, row: int, length: int) -> int:
    """Write a length-prefixed field; return the address after it."""
    address = put_varint(address, length)
    if length > 0:
        copy_bytes(address, bytes_address(column, row), length)
        address += length
    return address


@inlined
def headers_size(headers: Any, row: int) -> int:
    """Return the bytes of the headers of ``row``, including their count."""
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
    """Write the headers of ``row``; return the address after them."""
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
    """Return the bytes of key, value and headers of ``row``.

    They do not depend on the record's place in a batch.
    """
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
    """Write a whole record; return the address after it."""
    address = put_varint(address, body_size)
    store_uint8(address, np.int64(RECORD_ATTRIBUTES))
    address = put_varint(address + 1, timestamp_delta)
    address = put_varint(address, offset_delta)
    address = put_bytes(address, columns.key, row, key_length)
    address = put_bytes(address, columns.value, row, value_length)
    return put_headers(address, columns.headers, row)


@kernel
def find_largest_record(rows_count: int, fields_address: int, size_address: int) -> int:
    """Return the row of the largest record; see ``largest_record``.

    size_address: of int64[1], which gets the upper bound of its bytes
    """
    columns = record_columns(fields_address)
    largest = np.int64(-1)
    largest_row = np.int64(-1)
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        size = MAX_RECORD_OVERHEAD + content_size(columns, row, key_length, value_length)
        if size > largest:
            largest = size
            largest_row = np.int64(row)
    int64_array(size_address, 1)[0] = largest
    return largest_row


@kernel
def fill_content_sizes(rows_count: int, fields_address: int, sizes_address: int) -> int:
    """Fill the sizes of ``content_sizes``; return the number of rows.

    sizes_address: of int64[rows_count]
    """
    columns = record_columns(fields_address)
    sizes = int64_array(sizes_address, rows_count)
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        sizes[row] = content_size(columns, row, key_length, value_length)
    return rows_count


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
def _copy_across_pages(
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
    """Copy a record into the rest of ``page`` and new pages; return (last page, its fill)."""
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
def _stop(state: Any, row: Any, status: Any, slot: Any, pages_needed: Any) -> Any:
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
    fields_address: of int64[], the fields of RecordColumns
    timestamps_address: of int64[stop_row] ms; if 0, every record gets ``timestamp_ms``
    state_address: of int64[STATE_FIELDS]; the table, pages and reserve are changed in place

    Returns APPENDED_ALL; BATCH_FULL if the batch of STOP_SLOT has no room for NEXT_ROW; or
    NEED_PAGES if the reserve has fewer than PAGES_NEEDED pages, which NEXT_ROW needs.
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
            return _stop(state, row, BATCH_FULL, slot, 0)
        else:
            needed = (batches[slot, FILL] + size - 1) // page_size
        if needed > reserve_count[0]:
            return _stop(state, row, NEED_PAGES, slot, needed)

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
            page, fill = _copy_across_pages(
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
    return _stop(state, stop_row, APPENDED_ALL, -1, 0)


@kernel
def copy_chain(
    state_address: int, first_page: int, start: int, count: int, out_address: int
) -> int:
    """Copy bytes ``start … start+count-1`` of a chain of pages to ``out_address``.

    state_address: as in ``append_records``. Returns the address after the last byte written.
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


@inlined
def _read_varint(address: int) -> Any:
    """Return (value of a zigzag varint, address after it)."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while True:
        byte = np.uint64(load_uint8(address))
        address += 1
        raw |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            break
        shift += np.uint64(7)
    value = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
    return value, address


@kernel
def take_records_at(
    address: int,
    records_count: int,
    base_timestamp: int,
    limit_bytes: int,
    out_address: int,
    results_address: int,
) -> int:
    """Take records; see ``take_records``. results_address: of int64[5], its results."""
    start = address
    out = out_address
    first_timestamp = np.int64(0)
    max_timestamp = np.int64(0)
    taken = np.int64(0)
    while taken < records_count:
        body_size, body = _read_varint(address)
        end = body + body_size
        timestamp_delta, rest = _read_varint(body + 1)
        _, rest = _read_varint(rest)
        timestamp = base_timestamp + timestamp_delta
        if taken == 0:
            first_timestamp = timestamp
            max_timestamp = timestamp
        new_delta = timestamp - first_timestamp
        payload = end - rest
        new_body_size = 1 + varint_size(new_delta) + varint_size(taken) + payload
        new_size = varint_size(new_body_size) + new_body_size
        if taken > 0 and out + new_size - out_address > limit_bytes:
            break
        out = put_varint(out, new_body_size)
        store_uint8(out, np.int64(RECORD_ATTRIBUTES))
        out = put_varint(out + 1, new_delta)
        out = put_varint(out, taken)
        copy_bytes(out, rest, payload)
        out += payload
        max_timestamp = max(max_timestamp, timestamp)
        taken += 1
        address = end
    results = int64_array(results_address, _RESULTS)
    results[0] = taken
    results[1] = address - start
    results[2] = out - out_address
    results[3] = first_timestamp
    results[4] = max_timestamp
    return taken
