"""From an open batch to one that can be sent: compress its records, keep only the memory it needs.

One finisher per thread: it owns a compressor and a scratch buffer.

Source: ``MemoryRecordsBuilder.close``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.batch_splitter import BatchSplitter, Divided
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.producer.open_batches import DetachedBatch, OpenBatches
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.record.compression import Compressor, create_compressor
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD

_CODEC_NONE = 0


class BatchFinisher:
    """Turns detached batches into producer batches."""

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
        self._scratch: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def finish(self, detached: DetachedBatch) -> ProducerBatch:
        """The batch with its records compressed, if a codec is set; its header is not written."""
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
        """A batch that came out larger than ``max_bytes``, as parts that are not."""
        self._count_split()
        return self._splitter.split_to_fit(batch, max_bytes)

    def halve(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """A batch that its broker found too large, as two or three parts."""
        self._count_split()
        return self._splitter.split(batch, batch.records_bytes // 2)

    def leave_out(self, batch: ProducerBatch, rows: Collection[int]) -> Divided:
        """A batch without some of its records, by their numbers in it."""
        return self._splitter.leave_out(batch, rows)

    def _count_split(self) -> None:
        # Both threads may split at the same time.
        with self._monitor:
            self._metrics.batch_splits += 1

    def _compress(self, detached: DetachedBatch, compressor: Compressor) -> memoryview:
        count = detached.size_bytes - RECORD_BATCH_OVERHEAD
        if len(self._scratch) < count:
            self._scratch = np.empty(count, np.uint8)
        self._open_batches.copy_records(detached, self._scratch.ctypes.data)
        return memoryview(compressor.compress(self._scratch.data[:count]))

    def _store(
        self, pages: list[int], compressed: memoryview, size_bytes: int
    ) -> tuple[list[int], list[memoryview]]:
        """Put the compressed bytes over the records they came from; give back what is left."""
        kept_count = -(-size_bytes // self._pool.page_size)
        if kept_count > len(pages):
            # The codec made it larger, beyond the last page: its own buffer is sent as it is.
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
                self._pool.give_back(spare)
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


class Finishers(NamedTuple):
    """The table of open batches, and for each thread what finishes its batches."""

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
    ) -> Finishers:
        """An empty table, and a compressor of its own for each thread."""
        open_batches = OpenBatches(accumulator.pool)

        def create() -> BatchFinisher:
            compressor = create_compressor(config.compression_type, config.compression_level)
            return BatchFinisher(open_batches, accumulator.monitor, compressor, clock, metrics)

        return cls(open_batches, task=create(), sender=create())
