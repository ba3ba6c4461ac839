"""The task thread's half of the producer: append rows, finish batches, wait for memory.

A batch is finished when the next row does not fit, when memory runs out, or at the end of the task.
A batch is also finished when it has been open for a second, or when the input has paused for
``linger.ms``. The sender thread finishes batches in such pauses, between two appends, because the
task thread then waits for Spark: ``finish_expired_linger``.

``_await_pages`` waits for ``buffer.memory``, at most ``max.block.ms``. ``MetadataWaiter`` in
``producer.py`` does the same for metadata.

:class:`RowChecks` rejects rows that are too large or lack a key, before the first row is appended.

Source: ``KafkaProducer.doSend``, ``RecordAccumulator.append``,
``KafkaProducer.ensureValidRecordSize``, ``LogValidator``; KIP-480.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    RecordError,
    RecordTooLargeError,
    broker_code,
    error_named,
)
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import UNKNOWN_LIMITS, TopicLimits
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.monitor import Turns
from spark_kafka_sink.producer.open_batches import BatchFinisher, BatchFinishers
from spark_kafka_sink.producer.partitioner import (
    NO_SLOT,
    RandomSource,
    SlotAssigner,
    SlotTable,
    TopicSlots,
)
from spark_kafka_sink.producer.producer_batch import BatchWithoutRecords, ProducerBatch
from spark_kafka_sink.record.columns import (
    ArrowBatch,
    ArrowRecords,
    key_value_headers,
    with_valid_header_keys,
)
from spark_kafka_sink.record.compiled.calls import (
    APPENDED_ALL,
    BATCH_FULL,
    BODY_OVERHEAD,
    MAX_RECORD_OVERHEAD,
    BytesView,
    content_sizes,
    largest_record,
)
from spark_kafka_sink.record.dead_letters import (
    NULL_KEY,
    TOO_LARGE,
    RowFaults,
    decision_log_topic,
    illegal_topic,
    is_legal,
    is_null,
)
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD

_MAX_OPEN_MS = 1000
_RESERVE_PAGES = 32
_MAX_SLICE_MS = 5
_MAX_GATHER_MS = 50


class Appender:
    """Appends Arrow batches. The task thread calls all methods not marked for the sender thread."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        finishers: BatchFinishers,
        clock: Clock,
        rng: RandomSource,
        metrics: ProducerMetrics,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._monitor = accumulator.monitor
        self._pool = accumulator.pool
        self._open_batches, self._task_finisher, self._sender_finisher = finishers
        self._clock = clock
        self._metrics = metrics
        self._batch_size = max(config.batch_size, 1)
        self._max_open_ms = max(config.linger_ms, _MAX_OPEN_MS)
        self._assigner = SlotAssigner(config, accumulator)
        self._topics = SlotTable(self._open_batches, self._batch_size, rng, self._finish_all)
        self._turns = Turns(self._monitor)
        self._last_append_ms = 0
        # Until then no open batch has been open for too long.
        self._none_old_until_ms = 0

    def begin_task(self) -> None:
        """Forget what the task before has learned of partitions, and caps that are too old."""
        self._topics.begin_task(self._clock.now_ms() - self._config.metadata_max_age_ms)

    # --- appending -----------------------------------------------------------------------------

    def append(
        self, records: ArrowRecords, cluster: ClusterSnapshot, timestamp_ms: int, most_bytes: int
    ) -> None:
        """Append all rows. Rows with errors are rejected before the first row is appended.

        most_bytes: upper bound of a record's size, as ``RowChecks.check`` returned it

        Raises TopicError for a partition that does not exist, BufferExhaustedError if brokers do
        not keep up, and the failure of the sender.
        """
        self._metrics.record_size_max = max(self._metrics.record_size_max, most_bytes)
        self._open_batches.ensure_spill(most_bytes)
        started_ms = self._clock.now_ms()
        with self._turn():
            topics = [self._topics.get(name, cluster) for name in records.topics]
            slots = self._assigner.assign(records, topics, cluster)
            for topic in topics:
                self._assigner.choose_sticky(topic, cluster)
            try:
                self._append_rows(records, slots, topics, cluster, timestamp_ms)
            finally:
                self._open_batches.end()
            self._finish_old(started_ms)

    def find_invalid_partitions(self, records: ArrowRecords, cluster: ClusterSnapshot) -> RowFaults:
        """Return rows whose partition does not exist, or that the user's partitioner rejects."""
        with self._turn():
            topics = [self._topics.get(name, cluster) for name in records.topics]
            return self._assigner.find_invalid_partitions(records, topics)

    def _finish_old(self, started_ms: int) -> None:
        """Finish batches that have been open for too long, for no longer than the append took.

        The rest is finished after later appends, or by the sender thread in the next pause.
        """
        now_ms = self._clock.now_ms()
        if now_ms < self._none_old_until_ms:
            return
        until_ms = now_ms + max(now_ms - started_ms, _MAX_SLICE_MS)
        for slot in self._open_batches.slots_older_than(now_ms - self._max_open_ms):
            self._finish(slot, self._task_finisher)
            if self._clock.now_ms() >= until_ms:
                return
        # Later batches are younger than the oldest one that is open now.
        self._none_old_until_ms = self._open_batches.oldest_ms(now_ms) + self._max_open_ms

    def finish_open(self) -> None:
        """Finish every open batch, and return reserved pages to the pool."""
        with self._turn():
            self._finish_all(self._open_batches.open_slots())
            with self._monitor:
                self._open_batches.release_reserve()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the task thread's turn, so that the sender thread does not use the open batches."""
        try:
            with self._turns.task_turn():
                try:
                    yield
                finally:
                    self._last_append_ms = self._clock.now_ms()
        finally:
            self._accumulator.wakeup_sender()

    def finish_expired_linger(self, now_ms: int) -> int | None:
        """Finish open batches if the input has paused for ``linger.ms``. For the sender thread.

        Finishes one batch per turn, for a few milliseconds only, so that neither the task thread
        nor the network waits longer. Returns after how many ms to call again. Returns None if no
        batch is open, or if the task thread works and wakes the sender afterwards.
        """
        if self._turns.is_task_at_work:
            return None
        until_ms = self._clock.now_ms() + _MAX_SLICE_MS
        while True:
            with self._turns.sender_turn() as is_begun:
                if not is_begun:
                    return None
                slot = self._open_batches.first_open_slot()
                if slot is None:
                    return None
                wait_ms = self._last_append_ms + self._config.linger_ms - now_ms
                if wait_ms > 0:
                    return wait_ms
                self._finish(slot, self._sender_finisher)
            if self._clock.now_ms() >= until_ms:
                return 0

    def _append_rows(
        self,
        records: ArrowRecords,
        slots: npt.NDArray[np.int32],
        topics: list[TopicSlots],
        cluster: ClusterSnapshot,
        timestamp_ms: int,
    ) -> None:
        sticky_slots = np.array([topic.sticky_slot for topic in topics], np.int32)
        self._open_batches.begin(records, slots, sticky_slots)
        row = 0
        while True:
            now_ms = self._clock.now_ms()
            started_ns = self._clock.perf_ns()
            stop = self._open_batches.append(row, timestamp_ms, now_ms)
            self._metrics.encode_ns += self._clock.perf_ns() - started_ns
            row = stop.row
            if stop.status == APPENDED_ALL:
                return
            if stop.status == BATCH_FULL:
                self._finish_full(stop.slot, cluster)
            else:
                self._reserve_pages(stop.pages_needed)
            for index, topic in enumerate(topics):
                if topic.sticky_slot == NO_SLOT:
                    self._assigner.choose_sticky(topic, cluster)
                    sticky_slots[index] = topic.sticky_slot

    # --- finishing -------------------------------------------------------------------------------

    def _finish_full(self, slot: int, cluster: ClusterSnapshot) -> None:
        topic = self._topics.topic_of(slot)
        batch = self._finish(slot, self._task_finisher)
        if batch.codec_id:
            topic.compression.observe(batch.uncompressed_bytes, batch.size_bytes)
        self._topics.update_limit(topic)
        leader = cluster.leader(batch.topic_partition)
        self._accumulator.wakeup_sender_for(leader)

    def _finish(self, slot: int, finisher: BatchFinisher) -> ProducerBatch:
        """Finish the slot's batch and enqueue it; split it if it is larger than a request."""
        batch = finisher.finish(self._open_batches.detach(slot))
        topic = self._topics.topic_of(slot)
        if topic.sticky_slot == slot:
            topic.sticky_slot = NO_SLOT
        max_bytes = self._config.max_request_size
        if batch.size_bytes > max_bytes and batch.records_count > 1:
            topic.compression.estimate = 1.0
            self._accumulator.enqueue_parts(batch, finisher.split_to_fit(batch, max_bytes))
        else:
            self._accumulator.enqueue(batch)
        return batch

    def split_too_large(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch that the broker found too large. For the sender thread.

        Later batches of the topic are smaller.
        """
        topic = self._topics.known(batch.topic_partition.topic)
        topic.compression.estimate = 1.0
        half = batch.uncompressed_bytes // 2
        topic.cap_bytes = half if topic.cap_bytes is None else min(half, topic.cap_bytes)
        topic.capped_at_ms = self._clock.now_ms()
        return self._sender_finisher.halve(batch)

    def halve(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Halve a batch if its broker does not name rejected records. For the sender thread."""
        return self._sender_finisher.halve(batch)

    def without_records(self, batch: ProducerBatch, rows: Collection[int]) -> BatchWithoutRecords:
        """Return a batch without the records that its broker rejects. For the sender thread."""
        return self._sender_finisher.without_records(batch, rows)

    def _finish_all(self, slots: list[int]) -> None:
        for slot in slots:
            self._finish(slot, self._task_finisher)

    # --- memory --------------------------------------------------------------------------------

    def _reserve_pages(self, needed: int) -> None:
        """Reserve at least ``needed`` pages; finish batches and wait if necessary."""
        missing = needed - self._open_batches.reserve_count
        with self._monitor:
            if self._pool.free_count >= missing:
                self._fill_reserve(missing)
                return
        self._finish_all(
            self._open_batches.largest_slots(max(missing, self._pool.pages_count // 4))
        )
        self._accumulator.wakeup_sender()
        started_ns = self._clock.perf_ns()
        self._await_pages(missing)
        self._metrics.buffer_wait_ns += self._clock.perf_ns() - started_ns

    def _await_pages(self, missing: int) -> None:
        """Wait for ``missing`` pages, and for a short time for more.

        A page at a time would make this thread run and stop again with every response.
        """
        began_ms = self._clock.now_ms()
        gather_until_ms = began_ms + min(_MAX_GATHER_MS, self._config.max_block_ms)
        held, pages_count = self._open_batches.reserve_count, self._pool.pages_count
        wanted = max(missing, min(pages_count // 4, pages_count - held))
        with self._monitor, self._accumulator.awaiting_pages(wanted):
            while self._pool.free_count < wanted:
                self._accumulator.raise_if_failed()
                now_ms = self._clock.now_ms()
                gather_ms = gather_until_ms - now_ms
                if gather_ms <= 0:
                    wanted = missing
                    self._accumulator.lower_awaited_pages(wanted)
                    if self._pool.free_count >= missing:
                        break
                started_ms = self._accumulator.timeout_start_ms(began_ms)
                left_ms = started_ms + self._config.max_block_ms - now_ms
                if left_ms <= 0:
                    raise self._buffer_exhausted(missing)
                self._monitor.wait(gather_ms if gather_ms > 0 else left_ms)
            self._fill_reserve(missing)

    def _fill_reserve(self, missing: int) -> None:
        """Reserve a few more pages than needed, so that the next rows find pages in the reserve."""
        self._open_batches.fill_reserve(min(self._pool.free_count, max(missing, _RESERVE_PAGES)))
        self._metrics.buffer_used_max_bytes = max(
            self._metrics.buffer_used_max_bytes, self._pool.used_bytes
        )

    def _buffer_exhausted(self, missing: int) -> BufferExhaustedError:
        held = self._accumulator.bytes_by_partition()
        top = sorted(held.items(), key=lambda item: -item[1])[:5]
        partitions = ", ".join(f"{partition}: {size} bytes" for partition, size in top)
        return BufferExhaustedError(
            f"Failed to allocate {missing * self._pool.page_size} bytes within kafka.max.block.ms "
            f"= {self._config.max_block_ms}: kafka.buffer.memory holds {self._pool.used_bytes} of "
            f"{self._pool.memory_bytes} bytes, waiting for acknowledgements of {len(held)} "
            f"partition(s) ({partitions}). The brokers do not keep up: check them, or raise "
            "kafka.max.block.ms or kafka.buffer.memory",
            code="DELIVERY-002",
        )


# --- Checks of rows -------------------------------------------------------------------------------


_VARINT_BITS = 7


class RowChecks:
    """Rejects rows that this producer cannot write although their columns are valid.

    Such a row is too large, or lacks a key. ``max.request.size`` and ``buffer.memory`` limit the
    uncompressed record, as in the Java producer. The topic's ``max.message.bytes`` limits a
    compressed batch with this record alone. This class checks it only without a codec. To learn the
    compressed size would cost as much as sending the record, so the broker decides.

    Used by the task thread.
    """

    def __init__(self, config: ProducerConfig, memory_bytes: int) -> None:
        self._limits = {
            "max.request.size": config.max_request_size,
            "buffer.memory": memory_bytes,
        }
        self._is_compressed = config.compression_type != "none"
        self._decision_log = config.decision_log
        self._legal_topics: set[str] = set()

    def check_topics(self, topics: list[str], checks_names: bool) -> None:
        """Raise RecordError for the decision log's topic, and for illegal topic names.

        checks_names: if False, brokers judge the names
        """
        if self._decision_log in topics:
            raise RecordError(decision_log_topic(self._decision_log), code="TXN-003")
        for topic in topics if checks_names else ():
            if topic not in self._legal_topics:
                if not is_legal(topic):
                    raise RecordError(illegal_topic(topic), code=_ILLEGAL_TOPIC)
                self._legal_topics.add(topic)

    def check(self, records: ArrowRecords, limits: TopicLimits = UNKNOWN_LIMITS) -> int:
        """Raise RecordError if a row may be too large, or lacks a required key.

        Returns an upper bound of the records' sizes in bytes, without the batch header.
        """
        size, row = largest_record(records.rows_count, records.columns)
        bytes_of_batch = size + RECORD_BATCH_OVERHEAD
        for option, limit in self._limits.items():
            if bytes_of_batch > limit:
                where = f"(row {row} of {records.rows_count} that are appended together)"
                text = _too_large(bytes_of_batch, option, limit, where)
                raise RecordTooLargeError(text, code="ROW-001")
        most = self._max_single_record_bytes(limits)
        if most is not None and bytes_of_batch > most:
            text = _too_large_for_topic(bytes_of_batch, most)
            raise RecordTooLargeError(text, code="ROW-001")
        if limits.needs_key and _has_nulls(records.columns.key):
            raise RecordError(_NO_KEY, code="ROW-002")
        most_bytes: int = size
        return most_bytes

    def find(
        self, arrow_batch: ArrowBatch, positions: ColumnPositions, limits: TopicLimits
    ) -> RowFaults:
        """Return the rows that are too large or lack a required key, and why."""
        faults = RowFaults(arrow_batch.num_rows)
        valid = with_valid_header_keys(arrow_batch, positions)
        columns = key_value_headers(valid, positions)
        sizes = np.empty(arrow_batch.num_rows, np.int64)
        content_sizes(columns, sizes)
        upper = sizes + MAX_RECORD_OVERHEAD + RECORD_BATCH_OVERHEAD
        for option, most in self._limits.items():
            faults.add(upper > most, TOO_LARGE, partial(_too_large_at, upper, option, most))
        limit = self._max_single_record_bytes(limits)
        if limit is not None:
            alone = single_record_sizes(sizes)
            faults.add(
                alone > limit, TOO_LARGE, lambda row: _too_large_for_topic(int(alone[row]), limit)
            )
        if limits.needs_key:
            faults.add(_null_keys(arrow_batch, positions), NULL_KEY, lambda row: _NO_KEY)
        return faults

    def _max_single_record_bytes(self, limits: TopicLimits) -> int | None:
        """Return the size limit of a batch with one record; None if compression hides its size."""
        return None if self._is_compressed else limits.max_message_bytes


def largest_when_compressed(size: Any) -> Any:
    """Return an upper bound of the compressed size of ``size`` bytes that no codec can shrink.

    The bound covers the codecs' frames, and for lz4 one byte in 255.
    """
    return size + size // 64 + 64


def single_record_sizes(contents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bytes of an uncompressed batch with each record alone.

    contents: bytes of key, value and headers, per record
    """
    bodies = contents + BODY_OVERHEAD
    lengths = np.ones_like(bodies)
    rest = (bodies << 1) >> _VARINT_BITS
    while rest.any():
        lengths += rest > 0
        rest >>= _VARINT_BITS
    return RECORD_BATCH_OVERHEAD + lengths + bodies


_ILLEGAL_TOPIC = broker_code(error_named("INVALID_TOPIC_EXCEPTION"))
_NO_KEY = "The key is null, and the topic is compacted: each of its records needs a key"


def _has_nulls(key: BytesView) -> bool:
    is_absent = key.offset_bytes == 0
    return is_absent or key.validity_address != 0


def _null_keys(arrow_batch: ArrowBatch, positions: ColumnPositions) -> npt.NDArray[np.bool_]:
    if positions.key is None:
        return np.ones(arrow_batch.num_rows, np.bool_)
    column = arrow_batch.column(positions.key)
    return is_null(column) if column.null_count else np.zeros(len(column), np.bool_)


def _too_large(size: int, option: str, limit: int, where: str = "") -> str:
    return (
        f"The message is {size} bytes when serialized which is larger than {limit}, which is the "
        f"value of the {option} configuration{' ' * bool(where)}{where}. Raise kafka.{option}, and "
        "the topic's max.message.bytes if need be, or send smaller values"
    )


def _too_large_at(sizes: npt.NDArray[np.int64], option: str, limit: int, row: int) -> str:
    return _too_large(int(sizes[row]), option, limit)


def _too_large_for_topic(size: int, limit: int) -> str:
    return (
        f"The message is {size} bytes in a batch of its own, which is larger than {limit}, the "
        "topic's max.message.bytes. Raise that, or send smaller values"
    )
