"""Transactions of a simulated cluster: the coordinators of all its brokers, and what tests ask."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from tests import twin
from tests.simulation.broker import LeaderView
from tests.simulation.coordinator import TransactionCoordinator
from tests.simulation.transaction_log import (
    ONGOING,
    TRANSACTION_STATE_TOPIC,
    TransactionLog,
    TransactionMetadata,
)

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import SimCluster

_SCAN_MS = 10_000

KAFKA_4_3 = {
    1: (4, 18),
    2: (1, 11),
    10: (0, 6),
    19: (2, 7),
    24: (0, 5),
    26: (0, 5),
    32: (1, 4),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
}
"""API key -> versions that transactions and reading need, on brokers of today."""
KAFKA_3_9 = {
    0: (0, 11),
    1: (0, 17),
    2: (0, 9),
    10: (0, 6),
    19: (0, 7),
    22: (0, 5),
    24: (0, 5),
    26: (0, 4),
    32: (0, 4),
    61: (0, 0),
    65: (0, 0),
    66: (0, 1),
}
KAFKA_2_1 = {
    0: (0, 7),
    1: (0, 10),
    2: (0, 4),
    3: (0, 7),
    10: (0, 2),
    18: (0, 2),
    19: (0, 3),
    22: (0, 1),
    24: (0, 1),
    26: (0, 1),
    32: (0, 2),
}


class Transactions:
    """Switched on by :meth:`SimCluster.enable_transactions`.

    ``verifies_partitions``: leaders ask the coordinator before a transaction's first batch; brokers
    before 3.6 do not.
    """

    def __init__(self, cluster: SimCluster, transaction_version: int, partitions: int) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.rng = random.Random(cluster.rng.random())
        self.transaction_version = transaction_version
        self.verifies_partitions = True
        self.max_timeout_ms = 900_000
        # Of ids that nobody has used yet.
        self.first_epoch = 0
        self.aborts_raise_twice = False
        # (id, producer id, epoch) of transactions that took too long.
        self.timed_out: set[tuple[str, int, int]] = set()
        self.load_delay_ms = (0, 50)
        self.marker_delay_ms = (0, 10)
        self.hop_delay_ms = (0, 2)
        # How long a coordinator waits for a partition leader that hangs with a marker.
        self.marker_timeout_ms = 20
        # Until when one is known to wait.
        self.markers_held_until_ms = 0
        # How long a partition leader waits for the coordinator.
        self.partition_patience_ms = 1000
        self.log = TransactionLog(cluster.brokers, partitions, cluster.scheduler, self.rng)
        self.coordinators = {
            node_id: TransactionCoordinator(broker, self)
            for node_id, broker in cluster.brokers.items()
        }
        for broker in cluster.brokers.values():
            self._scan_later(broker, self.rng.randint(0, _SCAN_MS))

    def new_producer_id(self) -> int:
        self.cluster.next_producer_id += 1
        return self.cluster.next_producer_id

    def timestamp_ms(self) -> int:
        """The brokers' wall clock, which does not jump."""
        return 1_700_000_000_000 + self.scheduler.clock.ms

    def _scan_later(self, broker: SimBroker, delay_ms: int) -> None:
        def scan() -> None:
            if broker.is_up and not broker.is_paused:
                self.coordinators[broker.node_id].abort_timed_out()
            self._scan_later(broker, _SCAN_MS)

        self.scheduler.after(delay_ms, scan)

    # --- leadership ----------------------------------------------------------------------------

    def views(self) -> dict[tuple[str, int], LeaderView]:
        """Leaders of the transaction log, for the brokers to learn of."""
        return {
            (TRANSACTION_STATE_TOPIC, index): LeaderView(p.leader_id, p.leader_epoch)
            for index, p in enumerate(self.log.partitions)
        }

    def move_coordinator(self, transactional_id: str, to: int) -> None:
        """Another broker leads the id's partition of the transaction log."""
        self.log.partitions[self.log.partition_for(transactional_id)].elect(to)
        self.cluster.publish()

    def coordinator_id(self, transactional_id: str) -> int:
        """Node id of the id's coordinator, NO_LEADER while there is none."""
        return self.log.partitions[self.log.partition_for(transactional_id)].leader_id

    # --- what partition leaders ask ------------------------------------------------------------

    def ask_for_partition(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        key: TopicPartition,
        is_implicit: bool,
        answered: Callable[[str], None],
    ) -> None:
        """Whether the transaction has the partition; ``is_implicit``: add it where it has not."""
        is_done = False

        def answer_once(error: str) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._hop(lambda: answered(error))

        def ask() -> None:
            broker = self.cluster.brokers.get(self.coordinator_id(transactional_id))
            if broker is None or not broker.is_up or broker.is_paused:
                return  # nobody answers: see below
            coordinator = self.coordinators[broker.node_id]
            if is_implicit:
                partitions = frozenset((key,))
                coordinator.add_partitions(
                    transactional_id, producer, partitions, answer_once, is_implicit=True
                )
            else:
                answer_once(coordinator.verify_partition(transactional_id, producer, key))

        def give_up() -> None:
            answer_once("COORDINATOR_NOT_AVAILABLE")

        self._hop(ask)
        self.scheduler.after(self.partition_patience_ms, give_up)

    def _hop(self, action: Callable[[], None]) -> None:
        """From one broker to another."""
        self.scheduler.after(self.rng.randint(*self.hop_delay_ms), action)

    # --- what tests ask ------------------------------------------------------------------------

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """What is durable of a transactional id."""
        return self.log.get(transactional_id)

    def open_ids(self) -> list[str]:
        """Transactional ids whose transaction is not complete."""
        return sorted(
            m.transactional_id for m in self.log.all() if m.state == ONGOING or m.is_prepared
        )

    def open_in_logs(self) -> dict[TopicPartition, dict[int, int]]:
        """Partition -> producer id -> first offset of its open transaction."""
        return {
            TopicPartition(name, index): dict(partition.log.open_transactions)
            for name, topic in self.cluster.topics.items()
            for index, partition in enumerate(topic.partitions)
            if partition.log.open_transactions
        }

    def committed(self, topic: str) -> dict[int, list[twin.Record]]:
        """What a reader of committed records sees of each partition."""
        partitions = self.cluster.topics[topic].partitions
        return {i: p.log.committed(p.high_watermark) for i, p in enumerate(partitions)}

    def expire(self, transactional_id: str) -> None:
        """The id was not used for ``transactional.id.expiration.ms``: all memory of it is gone."""
        partition = self.log.partitions[self.log.partition_for(transactional_id)]
        partition.durable.pop(transactional_id, None)
        for coordinator in self.coordinators.values():
            coordinator.forget(transactional_id)
