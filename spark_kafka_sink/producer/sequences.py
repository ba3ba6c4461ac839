"""Sequences: producer id and epoch, next sequence per partition, and in-flight batches.

The broker accepts a batch only if its sequence follows the last one of the same producer id and
epoch. It answers a duplicate batch with the first offset of the original. So the sequence of a
batch is fixed at its first drain, and at most five batches per partition are in flight. While one
batch is retried, the others wait for it. If the broker has lost the producer's state, the epoch is
bumped, and the in-flight batches are renumbered from 0.

The epoch is bumped only if no in-flight batch of the partition may be in the log. After a restart a
broker remembers one batch of each producer, the last. If the answers to several batches were lost,
the retry of the first is out of order, although it is in the log. With new sequences all batches
would be written twice. A later batch that the broker recognises proves nothing either: a leader
without state of the producer accepts any sequence, also that of a later batch whose predecessors it
has rejected. Only a reader of the log could know, so the task fails.

A batch that fails for good ends the producer, and with it this state. If a broker rejects records
of a batch, and the task tolerates that, the batch has used no sequence. The broker then rejects the
in-flight batches behind it as out of order. After all their responses, these batches are renumbered
and sent again. They are not renumbered earlier, because the broker could accept a late batch whose
old sequence happens to be the expected one.

:class:`TransactionState` is the state of one transaction. Its producer id and epoch are fixed.
``transaction_manager.py`` requests producer ids.

Source: ``TransactionManager.adjustSequencesDueToFailedBatch``, which does not wait;
``TransactionManager.canRetry``, which bumps the epoch although batches may be in the log;
``TransactionManager``, ``TxnPartitionMap``, ``TxnPartitionEntry``; of brokers
``ProducerStateManager``, ``ProducerAppendInfo``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol
from uuid import UUID

from spark_kafka_sink.base.errors import KafkaErrorCode
from spark_kafka_sink.base.model import (
    NO_OFFSET,
    NO_PRODUCER,
    NO_SEQUENCE,
    ZERO_UUID,
    PreparedTransaction,
    ProducerIdAndEpoch,
    TopicPartition,
    dataclass,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch, increment_sequence, is_before
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION

_MAX_EPOCH = 2**15 - 1
# The broker recognises a duplicate among the last five batches of a producer and partition.
_MAX_IN_FLIGHT_PER_PARTITION = 5


class SequenceTracker(Protocol):
    """Assigns sequences to batches, and decides which batches may be sent or retried."""

    @property
    def transaction(self) -> PreparedTransaction | None:
        """Return the transaction that all batches belong to; None without one."""
        ...

    def in_flight(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Return the incomplete batches of a partition that have sequences."""
        ...

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch``, the head of its queue, may not be sent yet."""
        ...

    def missing(self, topic_partition: TopicPartition) -> str | None:
        """Return what a coordinator has not granted, and batches of this partition wait for."""
        ...

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Set producer id, epoch and sequence of a batch at its first drain."""
        ...

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record an acknowledged batch. ``base_offset`` is -1 if the broker has forgotten it."""
        ...

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which have its sequences."""
        ...

    def can_remove_records(self, batch: ProducerBatch) -> bool:
        """Return True if certainly neither ``batch`` nor a batch behind it has been appended."""
        ...

    def remove_records(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch by parts that lack the rejected records."""
        ...

    def is_behind_rejected(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Return True if the broker rejected ``batch`` only because of an earlier batch."""
        ...

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """Return True if sending ``batch`` again may succeed."""
        ...

    def bump_epoch_if_needed(self) -> None:
        """Bump the epoch if a partition needs it."""
        ...


class NoSequences:
    """Numbering without idempotence: batches have no sequences, and none waits for another."""

    transaction: PreparedTransaction | None = None

    def in_flight(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Return nothing: in-flight batches are not recorded."""
        return ()

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Return False: the accumulator mutes partitions whose order must be kept."""
        return False

    def missing(self, topic_partition: TopicPartition) -> str | None:
        """Return None: no coordinator is asked for anything."""
        return None

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign nothing: the batch's header names no sequence."""

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Do nothing: in-flight batches are not recorded."""

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Do nothing: in-flight batches are not recorded."""

    def can_remove_records(self, batch: ProducerBatch) -> bool:
        """Return True: without idempotence any retry may duplicate records."""
        return True

    def remove_records(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Do nothing: in-flight batches are not recorded."""

    def is_behind_rejected(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Return False: the broker checks no order."""
        return False

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """Return True if the error is retriable."""
        return error.retriable

    def bump_epoch_if_needed(self) -> None:
        """Do nothing: without a producer id there is no epoch."""


@dataclass(slots=True)
class _PartitionSequences:
    """Sequences of one partition.

    in_flight: drained and incomplete batches, in sequence order
    gap: the first sequence that the broker will not receive, because its record was rejected.
        In-flight batches from this sequence on must be renumbered
    acked_out_of_order: batches acknowledged by another leader before the first batch in flight.
        They count among the five batches that a broker remembers
    """

    topic_id: UUID = ZERO_UUID
    producer: ProducerIdAndEpoch = NO_PRODUCER
    next_sequence: int = 0
    last_acked_sequence: int = NO_SEQUENCE
    last_acked_offset: int = NO_OFFSET
    gap: int = NO_SEQUENCE
    acked_out_of_order: int = 0
    in_flight: list[ProducerBatch] = field(default_factory=list)

    def is_topic_recreated(self, batch: ProducerBatch) -> bool:
        """Return True if the batch's topic was created after these sequences were assigned."""
        is_known = ZERO_UUID not in (self.topic_id, batch.topic_id)
        return is_known and self.topic_id != batch.topic_id and not self.in_flight

    def update_last_acked(self, sequence: int) -> None:
        """Record an acknowledged sequence; in any order of responses, it never goes back."""
        if self.last_acked_sequence == NO_SEQUENCE or is_before(self.last_acked_sequence, sequence):
            self.last_acked_sequence = sequence

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        position = self.in_flight.index(batch)
        self.in_flight[position : position + 1] = parts

    def is_behind_gap(self, batch: ProducerBatch) -> bool:
        return self.gap != NO_SEQUENCE and not is_before(batch.base_sequence, self.gap)

    def record_gap(self, sequence: int) -> None:
        """Record a gap; the first of several gaps is kept."""
        if self.gap == NO_SEQUENCE or is_before(sequence, self.gap):
            self.gap = sequence

    def close_gap(self) -> None:
        """Renumber the batches behind a gap once no batch of the partition awaits a response."""
        if self.gap == NO_SEQUENCE or any(batch.is_sent for batch in self.in_flight):
            return
        sequence = self.gap
        for batch in self.in_flight:
            if self.is_behind_gap(batch):
                batch.set_producer_state(batch.producer, sequence, batch.transactional_id)
                sequence = increment_sequence(sequence, batch.records_count)
        self.next_sequence = sequence
        self.gap = NO_SEQUENCE


class ProducerState:
    """Sequences of all partitions. Used by the sender thread only."""

    transaction: PreparedTransaction | None = None
    """The transaction that all batches belong to; None without one."""

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self._partitions: dict[TopicPartition, _PartitionSequences] = {}
        self._partitions_to_renumber: set[TopicPartition] = set()

    @property
    def has_producer_id(self) -> bool:
        return self.producer.is_valid

    def in_flight(self, topic_partition: TopicPartition) -> list[ProducerBatch]:
        """Return the drained and incomplete batches of a partition."""
        return self._sequences(topic_partition).in_flight

    # --- draining ------------------------------------------------------------------------------

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch``, the head of its queue, may not be sent yet."""
        if not self.has_producer_id:
            return True
        sequences = self._sequences(batch.topic_partition)
        if sequences.gap != NO_SEQUENCE:
            return True
        if not batch.has_sequence:
            # A new epoch starts at sequence 0, after all batches of the old epoch are complete.
            if sequences.in_flight and sequences.producer != self.producer:
                return True
            # A broker without state of a producer accepts any sequence. If the first batch failed
            # and the second succeeded, their order would be lost.
            if sequences.in_flight and sequences.last_acked_sequence == NO_SEQUENCE:
                return True
            # If a response is lost, the broker must still remember the batch's sequence at the
            # retry.
            remembered = len(sequences.in_flight) + sequences.acked_out_of_order
            return bool(sequences.in_flight) and remembered >= _MAX_IN_FLIGHT_PER_PARTITION
        # A retry is sent only if no earlier batch is incomplete.
        return sequences.in_flight[0] is not batch

    def missing(self, topic_partition: TopicPartition) -> str | None:
        """Return that there is no producer id; None with one."""
        return None if self.has_producer_id else "no producer id"

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Set producer id, epoch and sequence of a batch at its first drain."""
        batch.is_sent = True
        if batch.has_sequence:
            return
        sequences = self._sequences(batch.topic_partition)
        if sequences.is_topic_recreated(batch):
            # The new topic has no state of this producer: it would accept the second batch first.
            sequences = self._partitions[batch.topic_partition] = _PartitionSequences()
        sequences.topic_id = batch.topic_id
        if sequences.producer != self.producer:
            sequences.producer = self.producer
            sequences.next_sequence = 0
            sequences.last_acked_sequence = NO_SEQUENCE
        transactional_id = None if self.transaction is None else self.transaction.transactional_id
        if not sequences.in_flight:
            sequences.acked_out_of_order = 0
        batch.set_producer_state(self.producer, sequences.next_sequence, transactional_id)
        sequences.next_sequence = increment_sequence(sequences.next_sequence, batch.records_count)
        sequences.in_flight.append(batch)

    # --- responses -----------------------------------------------------------------------------

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record an acknowledged batch. ``base_offset`` is -1 if the broker has forgotten it."""
        sequences = self._sequences(batch.topic_partition)
        sequences.update_last_acked(batch.last_sequence)
        if base_offset != NO_OFFSET:
            last_offset = base_offset + batch.records_count - 1
            sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        if sequences.in_flight[0] is not batch:
            sequences.acked_out_of_order += 1
        sequences.in_flight.remove(batch)
        sequences.close_gap()

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which have its sequences."""
        sequences = self._sequences(batch.topic_partition)
        sequences.replace(batch, parts)
        sequences.close_gap()

    def can_remove_records(self, batch: ProducerBatch) -> bool:
        """Return True if certainly neither ``batch`` nor a batch behind it has been appended."""
        in_flight = self._sequences(batch.topic_partition).in_flight
        return not any(b.may_be_appended for b in in_flight[in_flight.index(batch) :])

    def remove_records(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch by parts that lack the rejected records."""
        sequences = self._sequences(batch.topic_partition)
        sequences.replace(batch, parts)
        kept = sum(part.records_count for part in parts)
        sequences.record_gap(increment_sequence(batch.base_sequence, kept))
        sequences.close_gap()

    def is_behind_rejected(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Return True if the broker rejected ``batch`` only because of an earlier batch."""
        sequences = self._sequences(batch.topic_partition)
        is_out_of_order = error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        if not is_out_of_order or not sequences.is_behind_gap(batch):
            return False
        batch.is_sent = False
        sequences.close_gap()
        return True

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """Return True if sending ``batch`` again may succeed; request an epoch bump if needed."""
        batch.is_sent = False
        sequences = self._sequences(batch.topic_partition)
        if batch.may_be_appended and sequences.is_behind_gap(batch):
            return False  # an attempt that arrives late must keep its sequence
        is_worth_it = self._can_retry(batch, error, log_start_offset)
        sequences.close_gap()
        return is_worth_it

    def _can_retry(
        self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int
    ) -> bool:
        if error.name == "UNKNOWN_PRODUCER_ID":
            # Without the log start offset the broker has not read its log to the end yet.
            if log_start_offset == NO_OFFSET:
                return True
            is_overtaken = self.is_later_batch_acked(batch)
            return not is_overtaken and self._request_epoch_bump(batch.topic_partition)
        if error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            # Expected after an earlier batch failed; if this batch is the next in line, a gap.
            if self.is_next_sequence(batch):
                return self._request_epoch_bump(batch.topic_partition)
            return not self.is_later_batch_acked(batch)
        return error.retriable

    def _request_epoch_bump(self, topic_partition: TopicPartition) -> bool:
        """Request an epoch bump; return False if renumbering could duplicate records.

        While responses are outstanding, they may still say that a batch is in the log. Until then
        the rejected batch is retried as it is.
        """
        in_flight = self._sequences(topic_partition).in_flight
        if any(batch.may_be_appended for batch in in_flight):
            return False
        if not any(batch.is_sent for batch in in_flight):
            self._partitions_to_renumber.add(topic_partition)
        return True

    def is_next_sequence(self, batch: ProducerBatch) -> bool:
        last_acked = self._sequences(batch.topic_partition).last_acked_sequence
        return batch.base_sequence == increment_sequence(last_acked, 1)

    def is_later_batch_acked(self, batch: ProducerBatch) -> bool:
        """Return True if a later batch is acknowledged: no broker accepts ``batch`` any more.

        With a new sequence, the batch could be duplicated and would be out of order. The Java
        producer retries it until it expires.
        """
        last_acked = self._sequences(batch.topic_partition).last_acked_sequence
        return last_acked != NO_SEQUENCE and not is_before(last_acked, batch.base_sequence)

    # --- epochs --------------------------------------------------------------------------------

    def bump_epoch_if_needed(self) -> None:
        """Bump the epoch if a partition needs it; after epoch 2^15 - 1, drop the producer id."""
        if not self._partitions_to_renumber or not self.has_producer_id:
            return
        producer_id, epoch = self.producer
        if epoch == _MAX_EPOCH:
            self.producer = NO_PRODUCER
            return
        self.set_producer(ProducerIdAndEpoch(producer_id, epoch + 1))

    def set_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Use this producer id and epoch from now on, also for batches that must be renumbered."""
        self.producer = producer
        for topic_partition in self._partitions_to_renumber:
            self._renumber(self._sequences(topic_partition))
        self._partitions_to_renumber.clear()

    def _renumber(self, sequences: _PartitionSequences) -> None:
        sequence = 0
        for batch in sequences.in_flight:
            batch.set_producer_state(self.producer, sequence)
            sequence = increment_sequence(sequence, batch.records_count)
        sequences.producer = self.producer
        sequences.next_sequence = sequence
        sequences.last_acked_sequence = NO_SEQUENCE

    def _sequences(self, topic_partition: TopicPartition) -> _PartitionSequences:
        sequences = self._partitions.get(topic_partition)
        if sequences is None:
            sequences = self._partitions[topic_partition] = _PartitionSequences()
        return sequences


class TransactionState(ProducerState):
    """Sequences and partitions of the transaction of ``transactional_id``.

    Its producer id and epoch are fixed, because an epoch bump would fence the transaction that is
    being written. Lost sequences therefore end a transaction, whereas an idempotent producer bumps
    the epoch. If transaction.version is below 2, a partition's batches wait until the coordinator
    has added the partition.

    partitions: partitions that the coordinator has added; empty if produce requests add partitions
    """

    def __init__(self, transactional_id: str) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.partitions: set[TopicPartition] = set()
        self._is_acknowledged = False

    def begin(self, producer: ProducerIdAndEpoch, transaction_version: int) -> None:
        """Set the producer id, the epoch and the transaction.version from the coordinator."""
        self.set_producer(producer)
        self.transaction = PreparedTransaction(
            self.transactional_id, *producer, transaction_version
        )

    @property
    def has_begun(self) -> bool:
        """Return True if the coordinator certainly has a transaction to end."""
        return bool(self.partitions) or self._is_acknowledged

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record an acknowledged batch. ``base_offset`` is -1 if the broker has forgotten it."""
        super().handle_completed_batch(batch, base_offset)
        self._is_acknowledged = True

    @property
    def adds_partitions(self) -> bool:
        """Return True if AddPartitionsToTxn must precede the first write to a partition."""
        transaction = self.transaction
        return (
            transaction is not None
            and transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION
        )

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Return True also until the coordinator has added the batch's partition."""
        if self.adds_partitions and batch.topic_partition not in self.partitions:
            return True
        return super().must_wait(batch)

    def missing(self, topic_partition: TopicPartition) -> str | None:
        """Return also that the coordinator has not added the partition."""
        if self.adds_partitions and topic_partition not in self.partitions:
            return "not in the transaction yet"
        return super().missing(topic_partition)

    def _can_retry(
        self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int
    ) -> bool:
        """Return True if sending the same bytes again may succeed."""
        if error.name == "UNKNOWN_PRODUCER_ID":
            # Without the log start offset the broker has not read its log to the end yet.
            return log_start_offset == NO_OFFSET
        if error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            # Expected after an earlier batch failed; if this batch is the next in line, a gap.
            return not self.is_next_sequence(batch) and not self.is_later_batch_acked(batch)
        return error.retriable
