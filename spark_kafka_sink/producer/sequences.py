"""Sequences: producer id and epoch, the next sequence of each partition, what is in flight.

The broker accepts a batch only if its sequence follows the last one of the same producer id and
epoch, and answers a repeated batch with its first offset. So: sequences are fixed when a batch is
first drained; up to five batches per partition are in flight; once one is being retried, the
others wait for it. Where the broker has lost the producer's state, the epoch is bumped and what is
in flight is numbered anew from 0.

A batch that fails for good ends the producer, and with it this state. One whose records the broker
refuses, where that is tolerated, has taken none of its numbers: the broker refuses what was sent
behind it as out of order. When all of that is answered, it is numbered anew and sent again. Not
before: a batch with old numbers that comes late could fit by chance.

A transaction has a state of its own, whose identity is fixed.

Source: ``TransactionManager.adjustSequencesDueToFailedBatch``, which does not wait;
``TransactionManager``, ``TxnPartitionMap``, ``TxnPartitionEntry``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol
from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import KafkaErrorCode
from spark_kafka_sink.base.model import (
    NO_OFFSET,
    NO_PRODUCER,
    NO_SEQUENCE,
    ZERO_UUID,
    PreparedTransaction,
    ProducerIdAndEpoch,
    TopicPartition,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch, increment_sequence, is_before
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION

_MAX_EPOCH = 2**15 - 1
# The broker recognises a repeated batch among the last five of a producer and partition.
_MAX_IN_FLIGHT_PER_PARTITION = 5


class BatchNumbering(Protocol):
    """Gives batches their numbers, and decides by them which may be sent, and which sent again."""

    @property
    def transaction(self) -> PreparedTransaction | None:
        """The transaction that all batches belong to, if to any."""
        ...

    def in_flight(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Batches of a partition that have numbers and are not complete."""
        ...

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, the first in its queue, may not be sent yet."""
        ...

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Fix the numbers of a batch that is drained for the first time."""
        ...

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The broker has the batch. ``base_offset`` is -1 when it no longer knows where."""
        ...

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a split batch where the batch was; they have its sequence numbers."""
        ...

    def may_divide(self, batch: ProducerBatch) -> bool:
        """Whether it is certain that nothing of ``batch`` is appended, nor of those behind it."""
        ...

    def divide(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """As ``replace``, by parts without the records that the broker refuses."""
        ...

    def is_behind_refused(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Whether the broker has refused ``batch`` only for another one before it."""
        ...

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """Whether sending ``batch`` again may help."""
        ...

    def bump_epoch_if_needed(self) -> None:
        """Start a new epoch if a partition needs it."""
        ...


class NoNumbering:
    """Without idempotence: batches have no numbers, none waits for another."""

    transaction: PreparedTransaction | None = None

    def in_flight(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Nothing is noted of them."""
        return ()

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Never: the accumulator mutes partitions where their order is to be kept."""
        return False

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """The batch's header says that it has none."""

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Nothing was noted of it."""

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Nothing was noted of it."""

    def may_divide(self, batch: ProducerBatch) -> bool:
        """Always: what is sent again may double records anyway."""
        return True

    def divide(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Nothing was noted of it."""

    def is_behind_refused(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Never: there is no order that the broker knows."""
        return False

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """As the error's row in the table says."""
        return error.retriable

    def bump_epoch_if_needed(self) -> None:
        """There are no epochs."""


@dataclass(slots=True)
class _PartitionSequences:
    """Numbering of one partition. ``in_flight``: drained and not complete, in sequence order.

    gap: the first number that the broker will not get, as its record was refused; what is in flight
    from there on is to be numbered anew
    acked_out_of_turn: batches behind the first in flight that were acknowledged before it, by
        another leader. They count among the five of which a broker remembers the numbers
    """

    topic_id: UUID = ZERO_UUID
    producer: ProducerIdAndEpoch = NO_PRODUCER
    next_sequence: int = 0
    last_acked_sequence: int = NO_SEQUENCE
    last_acked_offset: int = NO_OFFSET
    gap: int = NO_SEQUENCE
    acked_out_of_turn: int = 0
    in_flight: list[ProducerBatch] = field(default_factory=list)

    def is_of_another_topic(self, batch: ProducerBatch) -> bool:
        """Whether the batch's topic has been created since these numbers were given."""
        is_known = ZERO_UUID not in (self.topic_id, batch.topic_id)
        return is_known and self.topic_id != batch.topic_id and not self.in_flight

    def note_acknowledged(self, sequence: int) -> None:
        """Acknowledgements may come in any order: the last sequence never goes back."""
        if self.last_acked_sequence == NO_SEQUENCE or is_before(self.last_acked_sequence, sequence):
            self.last_acked_sequence = sequence

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        position = self.in_flight.index(batch)
        self.in_flight[position : position + 1] = parts

    def is_behind_gap(self, batch: ProducerBatch) -> bool:
        return self.gap != NO_SEQUENCE and not is_before(batch.base_sequence, self.gap)

    def note_gap(self, sequence: int) -> None:
        """Of several, the first one is kept."""
        if self.gap == NO_SEQUENCE or is_before(sequence, self.gap):
            self.gap = sequence

    def close_gap(self) -> None:
        """Number anew what comes after a gap, once nothing of it is under way."""
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
    """Sequences of all partitions. Used by the sender thread alone."""

    transaction: PreparedTransaction | None = None
    """The transaction that all batches belong to, if to any."""

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self._partitions: dict[TopicPartition, _PartitionSequences] = {}
        self._to_renumber: set[TopicPartition] = set()

    @property
    def has_producer_id(self) -> bool:
        return self.producer.is_valid

    def in_flight(self, topic_partition: TopicPartition) -> list[ProducerBatch]:
        """Batches of a partition that are drained and not complete."""
        return self._sequences(topic_partition).in_flight

    # --- draining ------------------------------------------------------------------------------

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, the first in its queue, may not be sent yet."""
        if not self.has_producer_id:
            return True
        sequences = self._sequences(batch.topic_partition)
        if sequences.gap != NO_SEQUENCE:
            return True
        if not batch.has_sequence:
            # A new epoch starts at 0: not before everything of the old one is complete.
            if sequences.in_flight and sequences.producer != self.producer:
                return True
            # A broker that knows nothing of a producer takes any sequence from it: if the first
            # batch failed and the second did not, their order would be lost.
            if sequences.in_flight and sequences.last_acked_sequence == NO_SEQUENCE:
                return True
            # Of one whose answer is lost, the broker must remember the numbers when it is asked.
            remembered = len(sequences.in_flight) + sequences.acked_out_of_turn
            return bool(sequences.in_flight) and remembered >= _MAX_IN_FLIGHT_PER_PARTITION
        # A retry goes out only when nothing before it is open.
        return sequences.in_flight[0] is not batch

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Fix the numbers of a batch that is drained for the first time."""
        batch.is_sent = True
        if batch.has_sequence:
            return
        sequences = self._sequences(batch.topic_partition)
        if sequences.is_of_another_topic(batch):
            # Its brokers know nothing of the producer: they would take the second batch first.
            sequences = self._partitions[batch.topic_partition] = _PartitionSequences()
        sequences.topic_id = batch.topic_id
        if sequences.producer != self.producer:
            sequences.producer = self.producer
            sequences.next_sequence = 0
            sequences.last_acked_sequence = NO_SEQUENCE
        transactional_id = None if self.transaction is None else self.transaction.transactional_id
        if not sequences.in_flight:
            sequences.acked_out_of_turn = 0
        batch.set_producer_state(self.producer, sequences.next_sequence, transactional_id)
        sequences.next_sequence = increment_sequence(sequences.next_sequence, batch.records_count)
        sequences.in_flight.append(batch)

    # --- answers -------------------------------------------------------------------------------

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The broker has the batch. ``base_offset`` is -1 when it no longer knows where."""
        sequences = self._sequences(batch.topic_partition)
        # Also for a batch that was renumbered while this answer was on its way: the next one is the
        # next in line then, and what the broker says of it decides whether there is a gap.
        if batch.producer == sequences.producer:
            sequences.note_acknowledged(batch.last_sequence)
        if base_offset != NO_OFFSET:
            last_offset = base_offset + batch.records_count - 1
            sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        if sequences.in_flight[0] is not batch:
            sequences.acked_out_of_turn += 1
        sequences.in_flight.remove(batch)
        sequences.close_gap()

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a split batch where the batch was; they have its sequence numbers."""
        sequences = self._sequences(batch.topic_partition)
        sequences.replace(batch, parts)
        sequences.close_gap()

    def may_divide(self, batch: ProducerBatch) -> bool:
        """Whether it is certain that nothing of ``batch`` is appended, nor of those behind it."""
        in_flight = self._sequences(batch.topic_partition).in_flight
        return not any(b.may_be_appended for b in in_flight[in_flight.index(batch) :])

    def divide(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """As ``replace``, by parts without the records that the broker refuses."""
        sequences = self._sequences(batch.topic_partition)
        sequences.replace(batch, parts)
        kept = sum(part.records_count for part in parts)
        sequences.note_gap(increment_sequence(batch.base_sequence, kept))
        sequences.close_gap()

    def is_behind_refused(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        """Whether the broker has refused ``batch`` only for another one before it."""
        sequences = self._sequences(batch.topic_partition)
        is_out_of_order = error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        if not is_out_of_order or not sequences.is_behind_gap(batch):
            return False
        batch.is_sent = False
        sequences.close_gap()
        return True

    def can_retry(self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int) -> bool:
        """Whether sending ``batch`` again may help; asks for a new epoch where that is needed."""
        batch.is_sent = False
        sequences = self._sequences(batch.topic_partition)
        if batch.may_be_appended and sequences.is_behind_gap(batch):
            return False  # what may still come late must keep its numbers
        is_worth_it = self._can_retry(batch, error, log_start_offset)
        sequences.close_gap()
        return is_worth_it

    def _can_retry(
        self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int
    ) -> bool:
        if error.name == "UNKNOWN_PRODUCER_ID":
            # Without the log start offset the broker has not read its log to the end yet.
            if log_start_offset != NO_OFFSET and not batch.is_renumbered:
                return self._renumber_later(batch.topic_partition)
            return True
        if error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            # Expected when an earlier batch failed first; a gap if this is the next in line.
            if self.is_next_in_line(batch) and not batch.is_renumbered:
                return self._renumber_later(batch.topic_partition)
            return not self.is_overtaken(batch)
        return error.retriable

    def _renumber_later(self, topic_partition: TopicPartition) -> bool:
        """Ask for a new epoch; False where that could double records.

        Parts of what may be appended as a whole keep their numbers. The Java producer numbers them
        anew, and writes such records twice.
        """
        if any(batch.is_probe for batch in self._sequences(topic_partition).in_flight):
            return False
        self._to_renumber.add(topic_partition)
        return True

    def is_next_in_line(self, batch: ProducerBatch) -> bool:
        last_acked = self._sequences(batch.topic_partition).last_acked_sequence
        return batch.base_sequence == increment_sequence(last_acked, 1)

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch is acknowledged: no broker takes ``batch`` with its numbers now.

        With others it could be doubled, and would be out of order. The Java producer sends it again
        until it expires.
        """
        sequences = self._sequences(batch.topic_partition)
        last_acked = sequences.last_acked_sequence
        is_current = batch.producer == sequences.producer and not batch.is_renumbered
        return (
            is_current
            and last_acked != NO_SEQUENCE
            and not is_before(last_acked, batch.base_sequence)
        )

    # --- epochs --------------------------------------------------------------------------------

    def bump_epoch_if_needed(self) -> None:
        """Start a new epoch if a partition needs it. Epochs run out after 2^15: then a new id."""
        if not self._to_renumber or not self.has_producer_id:
            return
        producer_id, epoch = self.producer
        if epoch == _MAX_EPOCH:
            self.producer = NO_PRODUCER
            return
        self.set_producer(ProducerIdAndEpoch(producer_id, epoch + 1))

    def set_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Use this identity from now on, also for what must be numbered anew."""
        self.producer = producer
        for topic_partition in self._to_renumber:
            self._renumber(self._sequences(topic_partition))
        self._to_renumber.clear()

    def _renumber(self, sequences: _PartitionSequences) -> None:
        sequence = 0
        for batch in sequences.in_flight:
            batch.set_producer_state(self.producer, sequence)
            batch.is_renumbered = True
            sequence = increment_sequence(sequence, batch.records_count)
        sequences.producer = self.producer
        sequences.gap = NO_SEQUENCE
        sequences.next_sequence = sequence
        sequences.last_acked_sequence = NO_SEQUENCE

    def _sequences(self, topic_partition: TopicPartition) -> _PartitionSequences:
        sequences = self._partitions.get(topic_partition)
        if sequences is None:
            sequences = self._partitions[topic_partition] = _PartitionSequences()
        return sequences


class TransactionState(ProducerState):
    """Sequences and partitions of the transaction of ``transactional_id``.

    Its identity is fixed: a new epoch would fence the very transaction that is being written. So
    what an idempotent producer heals with one, lost sequences, ends a transaction. Where
    transaction.version is below 2, a partition's batches wait until the coordinator has noted the
    partition.

    partitions: what the coordinator has noted; stays empty where produce requests add partitions
    """

    def __init__(self, transactional_id: str) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.partitions: set[TopicPartition] = set()
        self._is_acknowledged = False

    def begin(self, producer: ProducerIdAndEpoch, transaction_version: int) -> None:
        """The coordinator has given the id this identity, under this transaction.version."""
        self.set_producer(producer)
        self.transaction = PreparedTransaction(
            self.transactional_id, *producer, transaction_version
        )

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator knows for certain that there is something to be ended."""
        return bool(self.partitions) or self._is_acknowledged

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The broker has the batch. ``base_offset`` is -1 when it no longer knows where."""
        super().acknowledged(batch, base_offset)
        self._is_acknowledged = True

    @property
    def adds_partitions(self) -> bool:
        """Whether partitions must be added to the transaction before they are written to."""
        transaction = self.transaction
        return (
            transaction is not None
            and transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION
        )

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Also for as long as the coordinator has not noted the partition."""
        if self.adds_partitions and batch.topic_partition not in self.partitions:
            return True
        return super().must_wait(batch)

    def _can_retry(
        self, batch: ProducerBatch, error: KafkaErrorCode, log_start_offset: int
    ) -> bool:
        """Whether sending the same bytes again may help."""
        if error.name == "UNKNOWN_PRODUCER_ID":
            # Without the log start offset the broker has not read its log to the end yet.
            return log_start_offset == NO_OFFSET
        if error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            # Expected when an earlier batch failed first; for the next in line it is a gap.
            return not self.is_next_in_line(batch) and not self.is_overtaken(batch)
        return error.retriable
