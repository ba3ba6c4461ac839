"""Append, size, hash, place and split records with checked kernels, in memory without slack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import ArrowRecords, arrow_records
from spark_kafka_sink.record.compiled import calls
from spark_kafka_sink.record.compiled.calls import ABSENT_INTEGERS
from tests.kernels.checked import Regions, checked_kernels
from tests.kernels.checked_formats import add_column
from tests.kernels.random_layouts import RandomLayouts

_TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
_PARTS = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
_HEADER = pa.field("element", _PARTS, False)
_BASE_MS = 1_700_000_000_000


def records_of(random: RandomLayouts) -> ArrowRecords | None:
    """Return one batch with values, perhaps keys and headers; None if the batch is empty."""
    fields = [pa.field("value", _TEXTS[random.below(4)])]
    if random.chance(0.7):
        fields.append(pa.field("key", _TEXTS[random.below(4)]))
    if random.chance():
        fields.append(pa.field("headers", [pa.list_, pa.large_list][random.below(2)](_HEADER)))
    batch = random.batch(pa.schema(fields))
    names = batch.schema.names
    found = {name: names.index(name) for name in names}
    positions = ColumnPositions(topic_option="t", **found)
    return arrow_records(batch, positions, _BASE_MS) if batch.num_rows else None


def check_records(random: RandomLayouts) -> int:
    """Run each kernel of records at least once. Return the count of calls."""
    records = records_of(random)
    if records is None:
        return 0
    calls = _Calls(random, records)
    calls.size()
    calls.digest()
    calls.place()
    calls.append_and_split()
    return calls.count


class _Calls:
    def __init__(self, random: RandomLayouts, records: ArrowRecords) -> None:
        self._random = random
        self._records = records
        self._kernels = checked_kernels()
        self.count = 0

    def _call(self, name: str, *arguments: Any, also: Any = ()) -> int:
        """Call a kernel. An array is passed as its address; a list of one array may be written."""
        self.count += 1
        regions, numbers = Regions(), []
        for column in self._records.owner.columns:
            add_column(regions, column)
        for argument in [*arguments, *also]:
            is_written = isinstance(argument, list)
            array = argument[0] if is_written else argument
            if isinstance(array, np.ndarray):
                regions.add_array(array, is_written)
                numbers.append(array.ctypes.data)
            else:
                numbers.append(int(array))
        return self._kernels[name](*numbers[: len(arguments)])

    def size(self) -> None:
        """Fill the sizes of all records, and the size of the largest record."""
        rows, fields = self._records.rows_count, self._records.fields
        self.largest = np.zeros(1, np.int64)
        self._call("find_largest_record", rows, fields, [self.largest])
        self._call("fill_content_sizes", rows, fields, [np.zeros(rows, np.int64)])

    def digest(self) -> None:
        """Hash all records."""
        views = [*(0,) * 5, *ABSENT_INTEGERS, *ABSENT_INTEGERS]
        fields = np.concatenate([self._records.fields, np.array(views, np.int64)])
        sums = np.zeros(1, np.uint64)
        self._call("sum_row_hashes", self._records.rows_count, fields, [sums])

    def place(self) -> None:
        """Choose partitions of several topics by a random hash of the key."""
        random, rows = self._random, self._records.rows_count
        topics = 1 + random.below(3)
        counts = np.array([1 + random.below(50) for _ in range(topics)], np.int32)
        first = np.cumsum(counts, dtype=np.int32) - counts
        indices = np.array([random.below(topics) for _ in range(rows)], np.int32)
        computed = np.array([random.below(3) - 1 for _ in range(rows)], np.int32)
        fields = np.array([*self._records.columns.key, *ABSENT_INTEGERS], np.int64)
        self._call(
            "fill_slots",
            *(rows, indices if topics > 1 else 0, topics, first, counts),
            *(computed if random.chance() else 0, fields, random.below(4)),
            [np.zeros(rows, np.int32)],
        )

    def append_and_split(self) -> None:
        """Append to batches of small pages, and take records from one or two batches."""
        random, rows = self._random, self._records.rows_count
        page_size, pages = 62 + random.below(300), 1 + random.below(60)
        state = np.zeros(calls.STATE_FIELDS, np.int64)
        slots = np.array([-1 - random.below(2) for _ in range(rows)], np.int32)
        sticky = np.array([1, 0], np.int32)
        table = np.zeros((2, calls.OPEN_BATCH_FIELDS), np.int64)
        table[:, calls.LIMIT_BYTES] = 100 + random.below(3000)
        arena, spill = np.zeros(pages * page_size, np.uint8), np.zeros(self.largest[0], np.uint8)
        next_page, reserve = np.full(pages, -1, np.int32), np.arange(pages, dtype=np.int32)
        given = {
            calls.STICKY_SLOTS: sticky.ctypes.data,
            calls.STICKY_COUNT: 2,
            calls.BATCHES: table.ctypes.data,
            calls.SLOTS_COUNT: 2,
            calls.ARENA: arena.ctypes.data,
            calls.PAGE_SIZE: page_size,
            calls.PAGES_COUNT: pages,
            calls.NEXT_PAGE: next_page.ctypes.data,
            calls.RESERVE: reserve.ctypes.data,
            calls.RESERVE_COUNT: pages,
            calls.SPILL: spill.ctypes.data,
        }
        for number, value in given.items():
            state[number] = value
        times = np.array([_BASE_MS + random.below(10**6) for _ in range(rows)], np.int64)
        also = (sticky, [table], [arena], [next_page], [reserve], [spill])
        self._call(
            "append_records",
            *(0, rows, slots, self._records.fields, times, 0, 5, [state]),
            also=also,
        )
        overhead = calls.RECORD_BATCH_OVERHEAD
        for batch in table:
            if not batch[calls.RECORDS_COUNT]:
                continue
            copied = np.zeros(batch[calls.BATCH_BYTES] - overhead, np.uint8)
            first, count = batch[calls.FIRST_PAGE], len(copied)
            self._call("copy_chain", [state], first, overhead, count, [copied], also=also)
            limit = 1 + random.below(2 * count)
            room = np.zeros(max(limit, int(self.largest[0])), np.uint8)
            results = np.zeros(5, np.int64)
            left = batch[calls.RECORDS_COUNT]
            base = batch[calls.BASE_TIMESTAMP]
            self._call("take_records_at", copied, left, base, limit, [room], [results])
