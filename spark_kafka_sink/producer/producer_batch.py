"""A finished batch on its way: what it holds, what has happened to it, and how it is split.

Source: ``ProducerBatch``, ``ProducerBatch.split``, ``RecordAccumulator.splitAndReenqueue``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

import numpy as np

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import KafkaErrorCode, error_named
from spark_kafka_sink.base.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    ZERO_UUID,
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
)
from spark_kafka_sink.record.compiled.records import take_records
from spark_kafka_sink.record.compression import Compressor, decompress
from spark_kafka_sink.record.record_batch import (
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    write_header,
)
from spark_kafka_sink.record.record_reader import Record, read_record, record_bounds

_SEQUENCE_SPACE = 2**31
# Answers of a leader that has appended nothing. Not among them: NOT_LEADER_OR_FOLLOWER,
# UNKNOWN_TOPIC_OR_PARTITION and KAFKA_STORAGE_ERROR, which also come, with acks=all, of a replica
# that has appended and then leads no longer while it waits for the others; FENCED_LEADER_EPOCH,
# which no Kafka gives to a produce request, as that names no epoch. Source: ``ReplicaManager``,
# ``DelayedProduce``, ``Partition.checkEnoughReplicasReachOffset``, ``ProducerAppendInfo``.
_BEFORE_APPEND = frozenset(
    error_named(name)
    for name in (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "NOT_ENOUGH_REPLICAS",
        "CONCURRENT_TRANSACTIONS",
        "THROTTLING_QUOTA_EXCEEDED",
    )
)


def increment_sequence(sequence: int, by: int) -> int:
    """Sequence numbers wrap from 2^31 - 1 to 0. Source: ``DefaultRecordBatch``."""
    return (sequence + by) % _SEQUENCE_SPACE


def is_before(sequence: int, other: int) -> bool:
    """Whether ``sequence`` comes before ``other``, across the wrap."""
    return 0 < (other - sequence) % _SEQUENCE_SPACE < _SEQUENCE_SPACE // 2


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Encoded, compressed records of one partition.

    buffers: the batch's bytes; the first begins with room for the header
    pages: of the buffer pool, given back when the batch is complete
    size_bytes: of all buffers; uncompressed_bytes: header and records before compression
    created_at_ms: when the batch was finished; delivery.timeout.ms counts from here
    opened_at_ms: when its first record was appended
    is_renumbered: since it was last sent; an answer that comes now is about its old numbers
    is_sent: not answered yet; kept by an idempotent producer
    may_be_appended: an earlier attempt has failed in a way that does not tell
    is_probe: the first part of a batch that may be appended as a whole. Brokers accept it only if
        that batch is not; refused as out of order, it keeps its numbers
    is_queued: it waits to be drained, since queued_at_ms
    sent_to: where it was sent last
    record_retries: how often its records were queued again after they were sent
    topic_id: of its topic when it was last ready to be drained; all zeros when unknown
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
    is_sealed: bool = False
    is_renumbered: bool = False
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
        """Whether the batch was drained before, by an idempotent producer."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        return increment_sequence(self.base_sequence, self.records_count - 1)

    @property
    def records_bytes(self) -> int:
        """Records before compression, without the header."""
        return self.uncompressed_bytes - RECORD_BATCH_OVERHEAD

    @property
    def has_new_leader(self) -> bool:
        """Whether the partition's leader has changed since the last attempt failed (KIP-951)."""
        return self.leader_epoch > self.failed_leader_epoch

    def precedes(self, other: ProducerBatch) -> bool:
        """Whether this batch's sequence comes before ``other``'s, across the wrap."""
        return self.has_sequence and is_before(self.base_sequence, other.base_sequence)

    def set_producer_state(
        self,
        producer: ProducerIdAndEpoch,
        base_sequence: int,
        transactional_id: str | None = None,
    ) -> None:
        """Give the batch its numbers; the header is written at the next drain.

        ``transactional_id``: of the transaction to which the batch belongs, if to any.
        """
        self.producer = producer
        self.transactional_id = transactional_id
        self.base_sequence = base_sequence
        self.is_sealed = False

    def seal(self) -> None:
        """Write the header with its CRC, once: a retry sends the same bytes, so that the broker
        can recognise them.
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
        self.is_sealed = True
        self.is_renumbered = False

    def note_failure(self, node: Node | None, error: KafkaErrorCode, detail: str | None) -> None:
        """Count a failed attempt, and remember why it failed."""
        self.attempts += 1
        self.may_be_appended = self.may_be_appended or error not in _BEFORE_APPEND
        self.last_node = node
        self.last_error = error
        self.last_error_detail = detail

    def reenqueued(self, now_ms: int, backoff_ms: int) -> None:
        """Wait for the next attempt, unless the partition gets a new leader before."""
        self.failed_leader_epoch = self.leader_epoch
        self.retry_at_ms = now_ms + backoff_ms


class Divided(NamedTuple):
    """A batch without some of its records: parts of the rest, none if there is no rest.

    left_out: in their order; ``offset`` is the number in the batch
    """

    parts: list[ProducerBatch]
    left_out: list[Record]


class BatchSplitter:
    """Splits batches. Used by one thread at a time, like its compressor.

    A batch that is too large becomes several that are not: the broker answered MESSAGE_TOO_LARGE,
    or the codec did worse than estimated and the batch came out larger than ``max.request.size``.
    A batch with records that a broker refuses becomes one without these records.

    The parts live outside the buffer pool, as in the Java client: they are rare, and must not wait
    for the memory that they are to free.
    """

    def __init__(self, compressor: Compressor | None) -> None:
        self._compressor = compressor

    def split_to_fit(self, batch: ProducerBatch, max_bytes: int) -> list[ProducerBatch]:
        """Parts of at most ``max_bytes`` each as they are sent, if their records allow."""
        if batch.size_bytes <= max_bytes or batch.records_count == 1:
            return [batch]
        share = min(0.9 * max_bytes / batch.size_bytes, 0.5)
        parts = self.split(batch, int(batch.records_bytes * share))
        return [fitting for part in parts for fitting in self.split_to_fit(part, max_bytes)]

    def split(self, batch: ProducerBatch, target_bytes: int) -> list[ProducerBatch]:
        """Parts of at most ``target_bytes`` of records before compression, one record at least.

        Their sequence numbers, if the batch has any, take the place of the batch's own. The parts
        count as not tried yet, but may be appended where the batch may be; their delivery time goes
        on. The batch keeps its memory.
        """
        return self._parts(batch, _records_of(batch), batch.records_count, target_bytes)

    def leave_out(self, batch: ProducerBatch, rows: Collection[int]) -> Divided:
        """``batch``, which was sent, without ``rows``: numbers of its records, ascending.

        Record by record in Python: for batches of which a broker has refused some.
        """
        data = _records_of(batch)
        bounds = record_bounds(data, batch.records_count)
        header = read_header(batch.buffers[0])
        left_out = [read_record(header, data, bounds[row]) for row in rows]
        starts = [0, *(bounds[row + 1] for row in rows)]
        ends = [*(bounds[row] for row in rows), len(data)]
        kept = b"".join(data[start:end] for start, end in zip(starts, ends))
        count = batch.records_count - len(rows)
        return Divided(self._parts(batch, kept, count, len(kept)), left_out)

    def _parts(
        self, batch: ProducerBatch, data: bytes, count: int, target_bytes: int
    ) -> list[ProducerBatch]:
        """``data``: ``count`` of the batch's records, as they are in it."""
        if not count:
            return []
        records = np.frombuffer(data, np.uint8)
        # What take_records may write: target_bytes, or one record, which does not grow.
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
    """The batch's records, uncompressed and in one piece."""
    data = b"".join(batch.buffers)[RECORD_BATCH_OVERHEAD:]
    return decompress(batch.codec_id, data, batch.records_bytes)
