"""Compare append_records and take_records with their twin: any columns and page size, guarded memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.producer import producer_batch
from spark_kafka_sink.producer.producer_batch import BatchSplitter, ProducerBatch
from spark_kafka_sink.record.columns import arrow_records
from spark_kafka_sink.record.compiled import calls as kernel
from spark_kafka_sink.record.compiled.calls import (
    address_of,
    append_records,
    copy_chain,
    largest_record,
    take_records,
)
from spark_kafka_sink.record.compression import create_compressor
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD
from tests import twin
from tests.unit.batches import T0

BINARY = pa.binary()
GUARD = 64
GUARD_BYTE = 0xA5
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Arena:
    """Pages between guard bytes, and the tables of the kernel."""

    def __init__(self, pages=64, page_size=128, slots=4, limit=1 << 30):
        self.page_size = page_size
        self.memory = np.full(pages * page_size + 2 * GUARD, GUARD_BYTE, np.uint8)
        self.spill = np.full(1 << 16, GUARD_BYTE, np.uint8)
        self.next_page = np.full(pages, kernel.NO_PAGE, np.int32)
        self.reserve = np.arange(pages, dtype=np.int32)
        self.state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.state[kernel.RESERVE_COUNT] = pages
        self.table = np.zeros((slots, kernel.OPEN_BATCH_FIELDS), np.int64)
        self.table[:, kernel.LIMIT_BYTES] = limit

    def append(self, records, slots, first_row=0, sticky=(), timestamp_ms=1000, now_ms=5):
        """Return (next row, status, slot, pages needed)."""
        timestamps, state = records.timestamps, self.state
        slots, sticky = np.array(slots, np.int32), np.array(sticky, np.int32)
        state[kernel.STICKY_SLOTS], state[kernel.STICKY_COUNT] = address_of(sticky), len(sticky)
        state[kernel.BATCHES], state[kernel.SLOTS_COUNT] = address_of(self.table), len(self.table)
        state[kernel.ARENA] = address_of(self.memory) + GUARD
        state[kernel.PAGE_SIZE] = self.page_size
        state[kernel.PAGES_COUNT] = len(self.next_page)
        state[kernel.NEXT_PAGE] = address_of(self.next_page)
        state[kernel.RESERVE] = address_of(self.reserve)
        state[kernel.SPILL] = address_of(self.spill)
        status = append_records(
            first_row,
            records.rows_count,
            address_of(slots),
            address_of(records.fields),
            0 if timestamps is None else address_of(timestamps),
            timestamp_ms,
            now_ms,
            address_of(state),
        )
        stop = state[[kernel.NEXT_ROW, kernel.STOP_SLOT, kernel.PAGES_NEEDED]].tolist()
        return stop[0], status, *stop[1:]

    def records_of(self, slot):
        """Return the slot's batch without the room for its header, read page by page."""
        out, page = b"", int(self.table[slot, kernel.FIRST_PAGE])
        while page != kernel.NO_PAGE:
            is_last = page == self.table[slot, kernel.LAST_PAGE]
            fill = int(self.table[slot, kernel.FILL]) if is_last else self.page_size
            start = GUARD + page * self.page_size
            out += self.memory[start : start + fill].tobytes()
            page = int(self.next_page[page])
        assert len(out) == self.table[slot, kernel.BATCH_BYTES]
        return out[kernel.RECORD_BATCH_OVERHEAD :]

    def check_guards(self):
        assert (self.memory[:GUARD] == GUARD_BYTE).all()
        assert (self.memory[-GUARD:] == GUARD_BYTE).all()


def make_batch(rows, key_type=BINARY, value_type=BINARY, headers=False):
    arrays = [pa.array([r[1] for r in rows], value_type), pa.array([r[0] for r in rows], key_type)]
    names = ["value", "key"]
    if headers:
        structs = [
            None if r[2] is None else [{"key": k, "value": v} for k, v in r[2]] for r in rows
        ]
        arrays.append(pa.array(structs, HEADERS_TYPE))
        names.append("headers")
    return pa.record_batch(arrays, names=names)


def plan_for(arrow_batch):
    names = arrow_batch.schema.names
    return ColumnPositions(
        value=names.index("value"),
        key=names.index("key") if "key" in names else None,
        headers=names.index("headers") if "headers" in names else None,
        timestamp=names.index("timestamp") if "timestamp" in names else None,
        topic_option="t",
    )


def expected_bytes(rows, timestamps=None):
    base = timestamps[0] if timestamps else 0
    return b"".join(
        twin.encode_record(
            (timestamps[i] - base) if timestamps else 0,
            i,
            row[0],
            row[1],
            row[2] if row[2:] else None,
        )
        for i, row in enumerate(rows)
    )


fields = st.one_of(st.none(), st.binary(max_size=300))
headers = st.one_of(
    st.none(),
    st.lists(
        st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=9))), max_size=4
    ),
)
rows_strategy = st.lists(st.tuples(fields, fields, headers), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(rows_strategy, st.integers(64, 700), st.booleans(), st.booleans())
def test_bytes_are_the_twins_for_any_rows_and_page_size(rows, page_size, large, with_headers):
    if not with_headers:
        rows = [(key, value) for key, value, _ in rows]
    type_ = pa.large_binary() if large else pa.binary()
    batch = make_batch(rows, type_, type_, with_headers)
    records = arrow_records(batch, plan_for(batch), 0)
    arena = Arena(pages=1000, page_size=page_size)
    stop = arena.append(records, [2] * len(rows), timestamp_ms=77)
    assert stop[:2] == (len(rows), kernel.APPENDED_ALL)
    assert arena.records_of(2) == expected_bytes(rows)
    assert arena.table[2, kernel.BASE_TIMESTAMP] == 77
    arena.check_guards()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**42), min_size=1, max_size=20))
def test_timestamps_become_deltas_to_the_first_and_the_maximum_is_kept(timestamps):
    rows = [(None, b"v")] * len(timestamps)
    batch = make_batch(rows).append_column(
        "timestamp", pa.array([t * 1000 + 999 for t in timestamps], pa.timestamp("us", "UTC"))
    )
    arena = Arena(pages=200)
    arena.append(arrow_records(batch, plan_for(batch), 0), [1] * len(rows))
    assert arena.records_of(1) == expected_bytes(rows, timestamps)
    assert arena.table[1, kernel.MAX_TIMESTAMP] == max(timestamps)
    assert arena.table[1, kernel.BASE_TIMESTAMP] == timestamps[0]


def test_rows_go_to_their_slots_in_order():
    rows = [(str(i).encode(), b"x" * i) for i in range(40)]
    batch = make_batch(rows)
    slots = [i * i % 4 for i in range(40)]
    arena = Arena(pages=200)
    arena.append(arrow_records(batch, plan_for(batch), 0), slots)
    for slot in set(slots):
        mine = [row for row, s in zip(rows, slots) if s == slot]
        assert arena.records_of(slot) == expected_bytes(mine)
        assert arena.table[slot, kernel.RECORDS_COUNT] == len(mine)


def test_sticky_rows_go_to_the_sticky_slot_of_their_topic():
    batch = make_batch([(None, b"a"), (None, b"b"), (None, b"c")])
    arena = Arena()
    arena.append(arrow_records(batch, plan_for(batch), 0), [-1, -2, -1], sticky=[3, 0])
    assert arena.table[3, kernel.RECORDS_COUNT] == 2
    assert arena.table[0, kernel.RECORDS_COUNT] == 1


def test_it_stops_at_the_row_that_does_not_fit_and_goes_on_after_the_batch_is_taken():
    rows = [(None, bytes(50))] * 10
    batch = make_batch(rows)
    records = arrow_records(batch, plan_for(batch), 0)
    size = len(twin.encode_record(0, 0, None, bytes(50)))
    arena = Arena(limit=kernel.RECORD_BATCH_OVERHEAD + 4 * size)
    stop = arena.append(records, [1] * 10)
    assert stop == (4, kernel.BATCH_FULL, 1, 0)
    assert arena.records_of(1) == expected_bytes(rows[:4])
    arena.table[1, kernel.RECORDS_COUNT] = 0
    assert arena.append(records, [1] * 10, first_row=4)[:2] == (8, kernel.BATCH_FULL)
    assert arena.records_of(1) == expected_bytes(rows[:4])


def test_a_first_record_beyond_the_limit_makes_a_batch_of_its_own():
    batch = make_batch([(None, bytes(500)), (None, b"next")])
    arena = Arena(limit=100)
    stop = arena.append(arrow_records(batch, plan_for(batch), 0), [0, 0])
    assert stop == (1, kernel.BATCH_FULL, 0, 0)
    assert arena.table[0, kernel.RECORDS_COUNT] == 1


def test_it_asks_for_pages_before_it_writes_anything():
    batch = make_batch([(None, bytes(1000))])
    arena = Arena(pages=64, page_size=128)
    arena.state[kernel.RESERVE_COUNT] = 3
    before = arena.memory.copy()
    row, status, slot, needed = arena.append(arrow_records(batch, plan_for(batch), 0), [2])
    size = len(twin.encode_record(0, 0, None, bytes(1000)))
    assert (row, status, slot) == (0, kernel.NEED_PAGES, 2)
    assert needed == -(-(kernel.RECORD_BATCH_OVERHEAD + size) // 128)
    assert (arena.memory == before).all()
    arena.state[kernel.RESERVE_COUNT] = needed
    assert arena.append(arrow_records(batch, plan_for(batch), 0), [2])[1] == kernel.APPENDED_ALL
    assert arena.state[kernel.RESERVE_COUNT] == 0


@settings(max_examples=60, deadline=None)
@given(rows_strategy)
def test_the_size_bound_holds_and_names_the_largest_row(rows):
    batch = make_batch(rows, headers=True)
    records = arrow_records(batch, plan_for(batch), 0)
    bound, row = largest_record(records.rows_count, records.columns)
    sizes = [len(twin.encode_record(0, i, *r)) for i, r in enumerate(rows)]
    assert max(sizes) <= bound <= max(sizes) + 21
    assert sizes[row] >= max(sizes) - 1


def test_copy_chain_reads_any_part_of_a_batch():
    rows = [(None, bytes(range(100)))] * 7
    batch = make_batch(rows)
    arena = Arena(page_size=64)
    arena.append(arrow_records(batch, plan_for(batch), 0), [0] * 7)
    whole = arena.records_of(0)
    for start in (0, 1, 63, 64, 65, len(whole) - 1):
        for count in (1, 10, len(whole) - start):
            count = min(count, len(whole) - start)
            out = np.zeros(count + 1, np.uint8)
            copy_chain(
                address_of(arena.state),
                int(arena.table[0, kernel.FIRST_PAGE]),
                kernel.RECORD_BATCH_OVERHEAD + start,
                count,
                address_of(out),
            )
            assert out[:count].tobytes() == whole[start : start + count]
            assert out[count] == 0


FAR_MS = 1 << 45
GUARD_BYTES = 256


def records_at(*timestamps):
    """Return the smallest possible records, without key and value."""
    return b"".join(
        twin.encode_record(timestamp, offset, None, None)
        for offset, timestamp in enumerate(timestamps)
    )


def taken(records, count, limit_bytes):
    """Return (records taken, bytes written, bytes that were touched)."""
    data = np.frombuffer(records, np.uint8)
    out = np.full(len(records) + limit_bytes + GUARD_BYTES, GUARD_BYTE, np.uint8)
    count, _, written, _, _ = take_records(data.ctypes.data, count, 0, limit_bytes, out.ctypes.data)
    return count, written, int(np.flatnonzero(out != GUARD_BYTE)[-1]) + 1


@pytest.mark.parametrize("limit_bytes", [0, 1, 20, 33, 34, 50, 1000, 10_000])
def test_it_writes_no_more_than_the_limit_or_one_record(limit_bytes):
    # The first timestamp is far from the others, so the deltas of the others grow.
    records = records_at(FAR_MS, *[0] * 9)
    count, written, touched = taken(records, 10, limit_bytes)
    first_size = len(records_at(FAR_MS))
    assert written == touched <= max(limit_bytes, first_size)
    assert count == 10 or written <= limit_bytes or count == 1
    assert limit_bytes < 10_000 or (count == 10 and written > len(records)), "they may grow"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_of_few_tiny_records_stay_within_their_buffer(monkeypatch, count):
    """A batch header is longer than these records: half the batch exceeds all its records."""
    guarded = []

    def guarded_empty(size, dtype):
        guarded.append(np.full(size + GUARD_BYTES, GUARD_BYTE, dtype))
        return guarded[-1][:size]

    monkeypatch.setattr(producer_batch.np, "empty", guarded_empty)
    records = records_at(FAR_MS, *[0] * (count - 1))
    size_bytes = RECORD_BATCH_OVERHEAD + len(records)
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + records)
    batch = ProducerBatch(T0, [whole], [], size_bytes, size_bytes, count, 0, 0, FAR_MS, 0, 0)
    parts = BatchSplitter(None).split(batch, size_bytes // 2)
    monkeypatch.undo()
    assert all((memory[-GUARD_BYTES:] == GUARD_BYTE).all() for memory in guarded)
    timestamps = []
    for part in parts:
        part.close()
        timestamps += [r.timestamp for r in twin.decode_batch(b"".join(part.buffers)).records]
    assert timestamps == [FAR_MS, *[0] * (count - 1)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_tiny_records_that_a_codec_has_made_larger_are_split_to_fit(count):
    records = records_at(*[0] * count)
    compressor = create_compressor("gzip", None)
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + bytes(compressor.compress(records)))
    sizes = len(whole), RECORD_BATCH_OVERHEAD + len(records)
    batch = ProducerBatch(T0, [whole], [], *sizes, count, compressor.codec_id, 0, 0, 0, 0)
    parts = BatchSplitter(compressor).split_to_fit(batch, len(whole) - 1)
    assert len(parts) > 1
    assert sum(part.records_count for part in parts) == count


def batch_of(count, *, may_be_appended):
    records = records_at(*[0] * count)
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + records)
    batch = ProducerBatch(T0, [whole], [], len(whole), len(whole), count, 0, 0, 0, 0, 0)
    batch.may_be_appended = may_be_appended
    return batch


def test_a_record_that_does_not_fit_stays_a_batch_of_its_own():
    batch = batch_of(1, may_be_appended=False)
    assert BatchSplitter(None).split_to_fit(batch, batch.size_bytes - 1) == [batch]


@pytest.mark.parametrize("may_be_appended", [True, False])
def test_only_the_first_part_of_a_batch_that_may_be_appended_is_a_probe(may_be_appended):
    parts = BatchSplitter(None).split(batch_of(4, may_be_appended=may_be_appended), 1)
    assert [part.is_probe for part in parts] == [may_be_appended, False, False, False]
    assert {part.may_be_appended for part in parts} == {may_be_appended}
