"""Open batches, one per partition, in a table that kernels write, and their compression.

The task thread owns the table. While no append runs, the sender thread may detach batches whose
linger time is over, one per turn (``Turns``). ``appender.py`` decides when a batch is finished. A
:class:`BatchFinisher` then compresses the batch, and keeps only the memory that the batch needs.
:class:`CompressionRatio` estimates how many uncompressed bytes fill ``batch.size``.

Source: ``RecordAccumulator.append``, ``MemoryRecordsBuilder``, ``CompressionRatioEstimator``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.producer.producer_batch import (
    BatchSplitter,
    BatchWithoutRecords,
    ProducerBatch,
)
from spark_kafka_sink.record.columns import ArrowRecords
from spark_kafka_sink.record.compiled import calls as table
from spark_kafka_sink.record.compiled.calls import address_of, append_records, copy_chain
from spark_kafka_sink.record.compression import Compressor, create_compressor
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD

_NO_ADDRESS = 0


class DetachedBatch(NamedTuple):
    """An open batch that was detached from the table and is not compressed yet."""

    slot: int
    topic_partition: TopicPartition
    first_page: int
    size_bytes: int
    records_count: int
    base_timestamp: int
    max_timestamp: int
    opened_at_ms: int


class AppendStop(NamedTuple):
    """The append kernel's result: next row, status, slot, and pages needed."""

    row: int
    status: int
    slot: int
    pages_needed: int


class _Rows(NamedTuple):
    """Rows of the current append. ``owners`` keep the memory behind the addresses alive."""

    rows_count: int
    slots_address: int
    fields_address: int
    timestamps_address: int
    owners: tuple[object, ...]


class OpenBatches:
    """Table of open batches. A slot is one topic-partition; a topic's slots are contiguous."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self._table: npt.NDArray[np.int64] = np.zeros((0, table.OPEN_BATCH_FIELDS), np.int64)
        self._slots: list[TopicPartition] = []
        self._reserve: npt.NDArray[np.int32] = np.zeros(pool.pages_count, np.int32)
        self._spill: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._rows: _Rows | None = None
        self._append_records = append_records.machine_code()
        state = np.zeros(table.STATE_FIELDS, np.int64)
        self._state_address = address_of(state)
        # A view of the same memory: it returns Python's integers, which NumPy builds more slowly.
        self._state = state.data
        self._state[table.ARENA] = pool.arena_address
        self._state[table.PAGE_SIZE] = pool.page_size
        self._state[table.PAGES_COUNT] = pool.pages_count
        self._state[table.NEXT_PAGE] = address_of(pool.next_page)
        self._state[table.RESERVE] = address_of(self._reserve)
        self.ensure_spill(pool.page_size)

    # --- slots ---------------------------------------------------------------------------------

    def add_slots(self, topic: str, partitions_count: int, limit_bytes: int) -> int:
        """Add slots for a topic's partitions; return the slot of partition 0."""
        first_slot = len(self._slots)
        rows = np.zeros((partitions_count, table.OPEN_BATCH_FIELDS), np.int64)
        rows[:, table.LIMIT_BYTES] = limit_bytes
        self._table = np.concatenate([self._table, rows])
        self._state[table.BATCHES] = address_of(self._table)
        self._state[table.SLOTS_COUNT] = len(self._table)
        self._slots.extend(TopicPartition(topic, index) for index in range(partitions_count))
        return first_slot

    def set_limit(self, first_slot: int, partitions_count: int, limit_bytes: int) -> None:
        """Limit a topic's batches to ``limit_bytes`` before compression."""
        self._table[first_slot : first_slot + partitions_count, table.LIMIT_BYTES] = limit_bytes

    def topic_partition(self, slot: int) -> TopicPartition:
        """Return the partition of ``slot``."""
        return self._slots[slot]

    # --- memory --------------------------------------------------------------------------------

    @property
    def reserve_count(self) -> int:
        count: int = self._state[table.RESERVE_COUNT]
        return count

    def fill_reserve(self, count: int) -> None:
        """Take ``count`` pages from the pool for the next appends."""
        held = self.reserve_count
        self._reserve[held : held + count] = self.pool.take(count)
        self._state[table.RESERVE_COUNT] = held + count

    def release_reserve(self) -> None:
        """Return the pages that no append has used to the pool."""
        self.pool.deallocate(self._reserve[: self.reserve_count].tolist())
        self._state[table.RESERVE_COUNT] = 0

    def ensure_spill(self, size_bytes: int) -> None:
        """Ensure a buffer for a record of ``size_bytes`` that crosses the end of a page."""
        if len(self._spill) < size_bytes:
            self._spill = np.empty(size_bytes, np.uint8)
            self._state[table.SPILL] = address_of(self._spill)

    # --- appending -----------------------------------------------------------------------------

    def begin(
        self,
        records: ArrowRecords,
        slots: npt.NDArray[np.int32],
        sticky_slots: npt.NDArray[np.int32],
    ) -> None:
        """Set the rows for the next calls of ``append``.

        slots: int32[n], as ``SlotAssigner.assign`` returns
        sticky_slots: int32[topics]; the caller may change its values between two appends
        """
        timestamps = records.timestamps
        self._rows = _Rows(
            records.rows_count,
            address_of(slots),
            address_of(records.fields),
            _NO_ADDRESS if timestamps is None else address_of(timestamps),
            (records, slots, sticky_slots),
        )
        self._state[table.STICKY_SLOTS] = address_of(sticky_slots)
        self._state[table.STICKY_COUNT] = len(sticky_slots)

    def append(self, first_row: int, timestamp_ms: int, now_ms: int) -> AppendStop:
        """Append rows from ``first_row`` until the end, a full batch, or an empty reserve."""
        rows, state = self._rows, self._state
        assert rows is not None
        status = self._append_records(
            first_row,
            rows.rows_count,
            rows.slots_address,
            rows.fields_address,
            rows.timestamps_address,
            timestamp_ms,
            now_ms,
            self._state_address,
        )
        row, slot, pages = state[table.NEXT_ROW], state[table.STOP_SLOT], state[table.PAGES_NEEDED]
        return AppendStop(row, status, slot, pages)

    def end(self) -> None:
        """Release the rows: all are appended, or the append has failed."""
        self._rows = None

    # --- detaching -----------------------------------------------------------------------------

    def detach(self, slot: int) -> DetachedBatch:
        """Detach the batch of ``slot``, and leave the slot empty."""
        row = self._table[slot].tolist()
        assert row[table.RECORDS_COUNT] > 0, f"{self._slots[slot]} has no open batch"
        self._table[slot, table.RECORDS_COUNT] = 0
        return DetachedBatch(
            slot,
            self._slots[slot],
            row[table.FIRST_PAGE],
            row[table.BATCH_BYTES],
            row[table.RECORDS_COUNT],
            row[table.BASE_TIMESTAMP],
            row[table.MAX_TIMESTAMP],
            row[table.CREATED_AT_MS],
        )

    def copy_records(self, batch: DetachedBatch, out_address: int) -> None:
        """Copy the records of ``batch``, without the room for the header, to ``out_address``."""
        copy_chain(
            self._state_address,
            batch.first_page,
            table.RECORD_BATCH_OVERHEAD,
            batch.size_bytes - table.RECORD_BATCH_OVERHEAD,
            out_address,
        )

    def first_open_slot(self) -> int | None:
        """Return the first slot with a batch; None without one."""
        is_open = self._table[:, table.RECORDS_COUNT] > 0
        return int(is_open.argmax()) if is_open.any() else None

    def open_slots(self) -> list[int]:
        """Return the slots with a batch."""
        found: list[int] = np.flatnonzero(self._table[:, table.RECORDS_COUNT]).tolist()
        return found

    def slots_older_than(self, created_before_ms: int) -> list[int]:
        """Return the slots of batches created at or before ``created_before_ms``, oldest first."""
        created_at_ms = self._table[:, table.CREATED_AT_MS]
        is_open = self._table[:, table.RECORDS_COUNT] > 0
        slots = np.flatnonzero(is_open & (created_at_ms <= created_before_ms))
        found: list[int] = slots[np.argsort(created_at_ms[slots], kind="stable")].tolist()
        return found

    def oldest_ms(self, default_ms: int) -> int:
        """Return when the oldest open batch was created; ``default_ms`` without open batches."""
        is_open = self._table[:, table.RECORDS_COUNT] > 0
        return int(self._table[is_open, table.CREATED_AT_MS].min(initial=default_ms))

    def largest_slots(self, pages_count: int) -> list[int]:
        """Return the slots of the largest batches that together hold ``pages_count`` pages."""
        open_slots = np.flatnonzero(self._table[:, table.RECORDS_COUNT])
        sizes = self._table[open_slots, table.BATCH_BYTES]
        order = np.argsort(-sizes, kind="stable")
        pages = np.cumsum(-(-sizes[order] // self.pool.page_size))
        count = int(np.searchsorted(pages, pages_count)) + 1
        found: list[int] = open_slots[order[:count]].tolist()
        return found

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes of every open batch, for error messages."""
        return {
            self._slots[slot]: int(self._table[slot, table.BATCH_BYTES])
            for slot in self.open_slots()
        }


_IMPROVING_SHARE = 0.25
_DETERIORATING_SHARE = 0.75
_SAFETY_FACTOR = 1.05
# Every consumer decompresses a whole batch, and this process buffers it uncompressed.
_MAX_EXPANSION = 8


class CompressionRatio:
    """Estimates the ratio of compressed to uncompressed size for one topic.

    ``batch.size`` limits the compressed size, but rows are appended uncompressed. With the
    estimate, full batches fill ``batch.size``. The estimate starts at 1 (no compression). It
    follows a worse ratio quickly and a better ratio slowly, so that batches are too small rather
    than too large.

    Source: ``CompressionRatioEstimator``. Java's estimate moves by fixed steps. This estimate moves
    by shares, because a task is short.
    """

    def __init__(self) -> None:
        self.estimate = 1.0

    def observe(self, uncompressed_bytes: int, compressed_bytes: int) -> None:
        """Update the estimate with a full batch."""
        ratio = compressed_bytes / uncompressed_bytes
        share = _IMPROVING_SHARE if ratio < self.estimate else _DETERIORATING_SHARE
        self.estimate += (ratio - self.estimate) * share

    def uncompressed_limit(self, batch_size: int) -> int:
        """Return the uncompressed bytes that should fill ``batch_size`` after compression."""
        expansion = 1 / max(self.estimate * _SAFETY_FACTOR, 1 / _MAX_EXPANSION)
        return int(batch_size * max(expansion, 1.0))


_CODEC_NONE = 0


class BatchFinisher:
    """Turns detached batches into producer batches.

    Each thread has its own finisher, because a finisher owns a compressor and a scratch buffer.
    """

    def __init__(
        self,
        open_batches: OpenBatches,
        monitor: Monitor,
        compressor: Compressor | None,
        clock: Clock,
        metrics: ProducerMetrics,
    ) -> None:
        self._open_batches = open_batches
        self._pool = open_batches.pool
        self._monitor = monitor
        self._compressor = compressor
        self._splitter = BatchSplitter(compressor)
        self._clock = clock
        self._metrics = metrics
        self._set_scratch(np.empty(0, np.uint8))

    def finish(self, detached: DetachedBatch) -> ProducerBatch:
        """Return the batch, compressed if a codec is set; its header is not written yet."""
        pages = self._pool.chain(detached.first_page)
        if self._compressor is None:
            buffers = self._pool.views(pages, detached.size_bytes)
            return self._batch(detached, pages, buffers, detached.size_bytes, _CODEC_NONE)
        started_ns = self._clock.perf_ns()
        compressed = self._compress(detached, self._compressor)
        size_bytes = RECORD_BATCH_OVERHEAD + len(compressed)
        kept, buffers = self._store(pages, compressed, size_bytes)
        batch = self._batch(detached, kept, buffers, size_bytes, self._compressor.codec_id)
        self._metrics.compress_ns += self._clock.perf_ns() - started_ns
        return batch

    def split_to_fit(self, batch: ProducerBatch, max_bytes: int) -> list[ProducerBatch]:
        """Split a batch into parts of at most ``max_bytes``."""
        self._count_split()
        return self._splitter.split_to_fit(batch, max_bytes)

    def halve(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch that its broker rejected into two or three parts."""
        self._count_split()
        return self._splitter.split(batch, batch.records_bytes // 2)

    def without_records(self, batch: ProducerBatch, rows: Collection[int]) -> BatchWithoutRecords:
        """Return the batch without the records at the positions ``rows``."""
        return self._splitter.without_records(batch, rows)

    def _count_split(self) -> None:
        # Both threads may split at the same time.
        with self._monitor:
            self._metrics.batch_splits += 1

    def _compress(self, detached: DetachedBatch, compressor: Compressor) -> memoryview:
        count = detached.size_bytes - RECORD_BATCH_OVERHEAD
        if len(self._scratch) < count:
            self._set_scratch(np.empty(count, np.uint8))
        self._open_batches.copy_records(detached, self._scratch_address)
        return memoryview(compressor.compress(self._scratch[:count]))

    def _set_scratch(self, memory: npt.NDArray[np.uint8]) -> None:
        # Kept, because ctypes needs more time for an address than the copy of a small batch.
        self._scratch, self._scratch_address = memory.data, address_of(memory)

    def _store(
        self, pages: list[int], compressed: memoryview, size_bytes: int
    ) -> tuple[list[int], list[memoryview]]:
        """Write the compressed bytes over the uncompressed records; put spare pages back."""
        kept_count = -(-size_bytes // self._pool.page_size)
        if kept_count > len(pages):
            # Compressed data larger than all pages is sent from the codec's own buffer.
            return pages, [self._pool.view(pages[0], RECORD_BATCH_OVERHEAD), compressed]
        kept, spare = pages[:kept_count], pages[kept_count:]
        buffers = self._pool.views(kept, size_bytes)
        taken, start = 0, RECORD_BATCH_OVERHEAD
        for view in buffers:
            count = len(view) - start
            view[start:] = compressed[taken : taken + count]
            taken, start = taken + count, 0
        if spare:
            with self._monitor:
                self._pool.deallocate(spare)
        return kept, buffers

    def _batch(
        self,
        detached: DetachedBatch,
        pages: list[int],
        buffers: list[memoryview],
        size_bytes: int,
        codec_id: int,
    ) -> ProducerBatch:
        metrics = self._metrics
        metrics.batches += 1
        metrics.records += detached.records_count
        metrics.uncompressed_bytes += detached.size_bytes
        metrics.compressed_bytes += size_bytes
        metrics.batch_size_max = max(metrics.batch_size_max, size_bytes)
        metrics.compression_rate_sum += size_bytes / detached.size_bytes
        return ProducerBatch(
            topic_partition=detached.topic_partition,
            buffers=buffers,
            pages=pages,
            size_bytes=size_bytes,
            uncompressed_bytes=detached.size_bytes,
            records_count=detached.records_count,
            codec_id=codec_id,
            base_timestamp=detached.base_timestamp,
            max_timestamp=detached.max_timestamp,
            created_at_ms=self._clock.now_ms(),
            opened_at_ms=detached.opened_at_ms,
        )


class BatchFinishers(NamedTuple):
    """The table of open batches, and one finisher per thread."""

    open_batches: OpenBatches
    task: BatchFinisher
    sender: BatchFinisher

    @classmethod
    def of(
        cls,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        clock: Clock,
        metrics: ProducerMetrics,
    ) -> BatchFinishers:
        """Create an empty table, and for each thread a finisher with its own compressor."""
        open_batches = OpenBatches(accumulator.pool)

        def create() -> BatchFinisher:
            compressor = create_compressor(config.compression_type, config.compression_level)
            return BatchFinisher(open_batches, accumulator.monitor, compressor, clock, metrics)

        return cls(open_batches, task=create(), sender=create())
