"""A finished batch: its bytes, the state of its delivery, and how to split it.

Two modules use :class:`BatchSplitter`. ``rejections.py`` splits a batch after MESSAGE_TOO_LARGE,
``appender.py`` a batch that is larger than ``max.request.size``.

Source: ``ProducerBatch``, ``ProducerBatch.split``, ``RecordAccumulator.splitAndReenqueue``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

import numpy as np

from spark_kafka_sink.base.errors import KafkaErrorCode, error_named
from spark_kafka_sink.base.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    ZERO_UUID,
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
    dataclass,
)
from spark_kafka_sink.record.compiled.calls import take_records
from spark_kafka_sink.record.compression import Compressor, decompress
from spark_kafka_sink.record.record_batch import (
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    read_header,
    read_record,
    record_bounds,
    write_header,
)

_SEQUENCE_SPACE = 2**31
# Errors of a leader that has appended nothing. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
# and KAFKA_STORAGE_ERROR are excluded. With acks=all, a replica also returns them if it has
# appended and then lost the leadership while it waited for other replicas. FENCED_LEADER_EPOCH is
# excluded because brokers never answer a produce request with it: the request names no epoch.
# Source: ``ReplicaManager``, ``DelayedProduce``, ``Partition.checkEnoughReplicasReachOffset``,
# ``ProducerAppendInfo``.
_BEFORE_APPEND = frozenset(
    error_named(name)
    for name in (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "MESSAGE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "CONCURRENT_TRANSACTIONS",
        "THROTTLING_QUOTA_EXCEEDED",
    )
)


def increment_sequence(sequence: int, by: int) -> int:
    """Return ``sequence + by``, which wraps from 2^31 - 1 to 0. Source: ``DefaultRecordBatch``."""
    return (sequence + by) % _SEQUENCE_SPACE


def is_before(sequence: int, other: int) -> bool:
    """Return True if ``sequence`` comes before ``other``, across the wrap."""
    return 0 < (other - sequence) % _SEQUENCE_SPACE < _SEQUENCE_SPACE // 2


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Encoded, compressed records of one partition.

    buffers: the batch's bytes; the first buffer begins with room for the header
    pages: pages of the buffer pool, freed when the batch is complete
    size_bytes: size of all buffers
    uncompressed_bytes: header and records before compression
    created_at_ms: when the batch was finished; delivery.timeout.ms counts from here
    opened_at_ms: when its first record was appended
    is_sent: sent and not answered yet; only an idempotent producer sets it
    may_be_appended: an earlier attempt failed with an error that does not exclude an append
    is_probe: first part of a batch that may be appended as a whole. Brokers accept the part only if
        the whole batch is not appended
    is_queued: waits to be drained, since queued_at_ms
    sent_to: node of the last attempt
    record_retries: records that were queued again after a send, summed over the attempts
    topic_id: id of the topic when the batch was last ready to be drained; all zeros if unknown
    """

    topic_partition: TopicPartition
    buffers: list[memoryview]
    pages: list[int]
    size_bytes: int
    uncompressed_bytes: int
    records_count: int
    codec_id: int
    base_timestamp: int
    max_timestamp: int
    created_at_ms: int
    opened_at_ms: int

    producer: ProducerIdAndEpoch = NO_PRODUCER
    transactional_id: str | None = None
    base_sequence: int = NO_SEQUENCE
    is_closed: bool = False
    is_sent: bool = False
    may_be_appended: bool = False
    is_probe: bool = False
    attempts: int = 0
    drained_at_ms: int = 0
    retry_at_ms: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: UUID = ZERO_UUID
    failed_leader_epoch: int = NO_LEADER_EPOCH
    last_error: KafkaErrorCode | None = None
    last_error_detail: str | None = None
    last_node: Node | None = None
    is_queued: bool = False
    queued_at_ms: int = 0
    sent_to: Node | None = None
    record_retries: int = 0

    @property
    def has_sequence(self) -> bool:
        """Return True if an idempotent producer has drained the batch before."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record."""
        return increment_sequence(self.base_sequence, self.records_count - 1)

    @property
    def records_bytes(self) -> int:
        """Return the bytes of the records before compression, without the header."""
        return self.uncompressed_bytes - RECORD_BATCH_OVERHEAD

    @property
    def has_new_leader(self) -> bool:
        """Return True if the leader has changed since the last failed attempt (KIP-951)."""
        return self.leader_epoch > self.failed_leader_epoch

    def precedes(self, other: ProducerBatch) -> bool:
        """Return True if this batch's sequence comes before ``other``'s, across the wrap."""
        return self.has_sequence and is_before(self.base_sequence, other.base_sequence)

    def set_producer_state(
        self,
        producer: ProducerIdAndEpoch,
        base_sequence: int,
        transactional_id: str | None = None,
    ) -> None:
        """Set the batch's producer id, epoch and sequence. The next drain writes the header.

        ``transactional_id``: id of the batch's transaction; None without one.
        """
        self.producer = producer
        self.transactional_id = transactional_id
        self.base_sequence = base_sequence
        self.is_closed = False

    def close(self) -> None:
        """Write the header with its CRC.

        Only once: a retry sends the same bytes, so that the broker recognises a duplicate.
        """
        transactional = 0 if self.transactional_id is None else TRANSACTIONAL_FLAG
        header = BatchHeader(
            attributes=self.codec_id | transactional,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer=self.producer,
            base_sequence=self.base_sequence,
            records_count=self.records_count,
        )
        write_header(header, self.buffers, self.size_bytes)
        self.is_closed = True

    def note_failure(self, node: Node | None, error: KafkaErrorCode, detail: str | None) -> None:
        """Count a failed attempt, and record its error."""
        self.attempts += 1
        self.may_be_appended = self.may_be_appended or error not in _BEFORE_APPEND
        self.last_node = node
        self.last_error = error
        self.last_error_detail = detail

    def reenqueued(self, now_ms: int, backoff_ms: int) -> None:
        """Set when to retry. A new leader of the partition ends the backoff early."""
        self.failed_leader_epoch = self.leader_epoch
        self.retry_at_ms = now_ms + backoff_ms


class BatchWithoutRecords(NamedTuple):
    """Parts of a batch without some of its records; no part if no record is left.

    removed: the removed records in order; ``offset`` is the position in the batch
    """

    parts: list[ProducerBatch]
    removed: list[Record]


class BatchSplitter:
    """Splits batches. Used by one thread at a time, like its compressor.

    A batch is split if its broker answered MESSAGE_TOO_LARGE. It is also split if it is larger than
    ``max.request.size``, because the codec did worse than estimated. A batch with records that a
    broker rejects is replaced by one without these records.

    The parts live outside the buffer pool, as in the Java client. Splits are rare, and must not
    wait for the memory that they free.
    """

    def __init__(self, compressor: Compressor | None) -> None:
        self._compressor = compressor

    def split_to_fit(self, batch: ProducerBatch, max_bytes: int) -> list[ProducerBatch]:
        """Return parts of at most ``max_bytes`` each, compressed, if their records allow."""
        if batch.size_bytes <= max_bytes or batch.records_count == 1:
            return [batch]
        share = min(0.9 * max_bytes / batch.size_bytes, 0.5)
        parts = self.split(batch, int(batch.records_bytes * share))
        return [fitting for part in parts for fitting in self.split_to_fit(part, max_bytes)]

    def split(self, batch: ProducerBatch, target_bytes: int) -> list[ProducerBatch]:
        """Return parts of at most ``target_bytes`` uncompressed, with one record at least.

        The parts take over the batch's sequences, if it has any. They start without attempts, but
        inherit ``may_be_appended`` and the delivery timeout. The batch keeps its memory.
        """
        return self._parts(batch, _records_of(batch), batch.records_count, target_bytes)

    def without_records(self, batch: ProducerBatch, rows: Collection[int]) -> BatchWithoutRecords:
        """Return ``batch``, which was sent, without the records at positions ``rows``, ascending.

        Reads record by record in Python, because brokers rarely reject records.
        """
        data = _records_of(batch)
        bounds = record_bounds(data, batch.records_count)
        header = read_header(batch.buffers[0])
        removed = [read_record(header, data, bounds[row]) for row in rows]
        starts = [0, *(bounds[row + 1] for row in rows)]
        ends = [*(bounds[row] for row in rows), len(data)]
        kept = b"".join(data[start:end] for start, end in zip(starts, ends))
        count = batch.records_count - len(rows)
        return BatchWithoutRecords(self._parts(batch, kept, count, len(kept)), removed)

    def _parts(
        self, batch: ProducerBatch, data: bytes, count: int, target_bytes: int
    ) -> list[ProducerBatch]:
        """Return parts for ``data``, which holds ``count`` of the batch's encoded records."""
        if not count:
            return []
        records = np.frombuffer(data, np.uint8)
        # take_records writes at most target_bytes, or one record, which does not grow.
        out = np.empty(max(target_bytes, len(records)), np.uint8)
        address, sequence = records.ctypes.data, batch.base_sequence
        parts: list[ProducerBatch] = []
        left = count
        while left:
            taken, read, written, base_timestamp, max_timestamp = take_records(
                address, left, batch.base_timestamp, target_bytes, out.ctypes.data
            )
            assert written <= len(out), f"{written} bytes for {len(out)}: take_records' bound"
            part = self._part(batch, out[:written].data, taken, base_timestamp, max_timestamp)
            if sequence != NO_SEQUENCE:
                part.set_producer_state(batch.producer, sequence, batch.transactional_id)
                sequence = increment_sequence(sequence, taken)
            part.is_probe = batch.may_be_appended and not parts
            parts.append(part)
            address += read
            left -= taken
        return parts

    def _part(
        self,
        batch: ProducerBatch,
        records: memoryview,
        records_count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> ProducerBatch:
        payload = records if self._compressor is None else self._compressor.compress(records)
        data = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + bytes(payload))
        return ProducerBatch(
            topic_partition=batch.topic_partition,
            buffers=[data],
            pages=[],
            size_bytes=len(data),
            uncompressed_bytes=RECORD_BATCH_OVERHEAD + len(records),
            records_count=records_count,
            codec_id=batch.codec_id,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            created_at_ms=batch.created_at_ms,
            opened_at_ms=batch.opened_at_ms,
            may_be_appended=batch.may_be_appended,
        )


def _records_of(batch: ProducerBatch) -> bytes:
    """Return the batch's records, uncompressed and contiguous."""
    data = b"".join(batch.buffers)[RECORD_BATCH_OVERHEAD:]
    return decompress(batch.codec_id, data, batch.records_bytes)
