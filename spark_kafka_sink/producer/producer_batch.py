"""A finished batch on its way: what it holds, and what has happened to it so far.

Source: ``ProducerBatch``.
"""

from __future__ import annotations

from uuid import UUID

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
from spark_kafka_sink.record.record_batch import (
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    write_header,
)

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
