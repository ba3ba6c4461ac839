"""Sequences of the batches of one transaction.

Its identity is fixed: a new epoch would fence the very transaction that is being written. So what
an idempotent producer heals with one, lost sequences, ends a transaction. Where transaction.version
is below 2, a partition's batches wait until the coordinator has noted the partition.

Source: ``TransactionManager``, ``TxnPartitionMap``; KIP-98, KIP-890.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import KafkaErrorCode
from spark_kafka_sink.base.model import (
    NO_OFFSET,
    PreparedTransaction,
    ProducerIdAndEpoch,
    TopicPartition,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION


class TransactionState(ProducerState):
    """Sequences and partitions of the transaction of ``transactional_id``.

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
