"""How a coordinator tells the partitions of a transaction how it ended.

Source: ``TransactionMarkerChannelManager``: one marker per partition, asked for again for as long as
its leader is away; when all are replicated, the transaction is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_kafka_sink.base.model import TopicPartition
from tests.simulation.broker import LeaderView
from tests.simulation.transaction_log import PREPARE_COMMIT, TransactionMetadata

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.transactions import Transactions

_RETRY_MS = 20
_ANSWER_TIMEOUT_MS = 2000

Done = Callable[[int, int, TransactionMetadata], None]


class MarkerWriter:
    """The markers that one coordinator has to write."""

    def __init__(self, broker: SimBroker, transactions: Transactions, done: Done) -> None:
        self._broker = broker
        self._transactions = transactions
        self._done = done

    def begin(self, index: int, leader_epoch: int, prepared: TransactionMetadata) -> None:
        """Write all markers of a transaction, each after a delay; then call ``done``."""
        _Markers(
            self._broker, self._transactions, index, leader_epoch, prepared, self._done
        ).begin()


class _Markers:
    """The markers of one transaction."""

    def __init__(
        self,
        broker: SimBroker,
        transactions: Transactions,
        index: int,
        leader_epoch: int,
        prepared: TransactionMetadata,
        done: Done,
    ) -> None:
        self._broker = broker
        self._transactions = transactions
        self._index = index
        self._leader_epoch = leader_epoch
        self._prepared = prepared
        self._done = done
        self._missing = set(prepared.partitions)

    def begin(self) -> None:
        if not self._missing:
            self._after(0, self._finish)
        for partition in sorted(self._missing):
            delay_ms = self._transactions.rng.randint(*self._transactions.marker_delay_ms)
            self._after(delay_ms, lambda p=partition: self._write(p))

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Go on later, if this broker is the coordinator then; a broker that hangs does nothing."""

        def go_on() -> None:
            coordinator = self._transactions.coordinators[self._broker.node_id]
            if coordinator.is_coordinating(self._index, self._leader_epoch):
                if self._broker.is_paused:
                    self._after(_RETRY_MS, action)
                else:
                    action()

        self._transactions.scheduler.after(delay_ms, go_on)

    def _finish(self) -> None:
        self._done(self._index, self._leader_epoch, self._prepared)

    def _write(self, key: TopicPartition) -> None:
        if key not in self._missing:
            return
        cluster = self._transactions.cluster
        if key.topic not in cluster.topics:
            self._written(key)
            return
        partition = cluster.partition(key)
        leader = cluster.brokers.get(partition.leader_id)
        if leader is not None and leader.is_up and leader.is_paused:
            self._await_hung(key)
            return
        if leader is None or not leader.is_up:
            self._retry(key)
            return
        view = leader.view.get((key.topic, key.partition))
        knows_it = view == LeaderView(leader.node_id, partition.leader_epoch)
        if not knows_it or len(partition.isr) < partition.min_insync:
            self._retry(key)
            return
        offset = partition.log.append_marker(
            self._prepared.producer,
            self._prepared.state == PREPARE_COMMIT,
            self._leader_epoch,
            self._transactions.timestamp_ms(),
        )
        if offset is None:
            return  # another coordinator writes them
        cluster.replication.begin(leader, partition)
        cluster.replication.await_replicas(
            leader, key, offset + 1, _ANSWER_TIMEOUT_MS, lambda error: self._answered(key, error)
        )

    def _await_hung(self, key: TopicPartition) -> None:
        """The request was sent, and nobody answers: it is not asked again before it times out."""
        transactions = self._transactions
        timeout_ms = transactions.marker_timeout_ms
        transactions.markers_held_until_ms = transactions.scheduler.clock.ms + timeout_ms
        self._after(timeout_ms, lambda: self._write(key))

    def _answered(self, key: TopicPartition, error: str) -> None:
        delay_ms = self._transactions.rng.randint(*self._transactions.hop_delay_ms)
        if error == "NONE":
            self._after(delay_ms, lambda: self._written(key))
        else:
            self._retry(key)

    def _retry(self, key: TopicPartition) -> None:
        self._after(_RETRY_MS, lambda: self._write(key))

    def _written(self, key: TopicPartition) -> None:
        if key in self._missing:
            self._missing.discard(key)
            if not self._missing:
                self._finish()
