"""What simulated brokers keep of transactions: the topic ``__transaction_state``, and who leads it.

A write is durable a little before it is answered: a coordinator that dies in between has done what
its client gets no answer to. Source: ``TransactionStateManager``, ``TransactionMetadata``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from tests.simulation.partition import NO_LEADER
from tests.simulation.time import Scheduler

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker

TRANSACTION_STATE_TOPIC = "__transaction_state"

EMPTY = "Empty"
ONGOING = "Ongoing"
PREPARE_COMMIT = "PrepareCommit"
PREPARE_ABORT = "PrepareAbort"
COMPLETE_COMMIT = "CompleteCommit"
COMPLETE_ABORT = "CompleteAbort"
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)

_LAST_EPOCH = 2**15 - 1
_REPLICA_POLL_MS = 20


def is_exhausted(epoch: int) -> bool:
    """The last epoch is never a client's: there must be one more to fence it with."""
    return epoch >= _LAST_EPOCH - 1


@dataclass(frozen=True)
class TransactionMetadata:
    """One transactional id. ``start_ms``: wall clock.

    ``last_producer_epoch``: what the epoch was before its owner raised it, -1 if somebody else did.
    ``next_producer_id``: the one after completion, when epochs ran out with the transaction's end.
    ``bumps_epoch``: the transaction was ended as with transaction.version 2.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = -1
    last_producer_id: int = -1
    last_producer_epoch: int = -1
    next_producer_id: int = -1
    state: str = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    bumps_epoch: bool = False

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        return self.state in (PREPARE_COMMIT, PREPARE_ABORT)


@dataclass
class StatePartition:
    """One partition of the topic; every broker is a replica in sync."""

    leader_id: int
    leader_epoch: int = 0
    durable: dict[str, TransactionMetadata] = field(default_factory=dict)

    def elect(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch += 1


class TransactionLog:
    """The partitions, and how long a write to one of them takes."""

    def __init__(
        self,
        brokers: dict[int, SimBroker],
        partitions: int,
        scheduler: Scheduler,
        rng: random.Random,
    ) -> None:
        ids = list(brokers)
        self._brokers = brokers
        self._scheduler = scheduler
        self._rng = rng
        self.partitions = [StatePartition(ids[i % len(ids)]) for i in range(partitions)]
        self.write_delay_ms = (0, 3)
        # A replica in sync hangs: nothing becomes durable until the controller gives it up.
        self.awaits_replica = False

    def partition_for(self, transactional_id: str) -> int:
        """Source: ``TransactionStateManager.partitionFor``, which is Java's ``String.hashCode``."""
        code = 0
        for character in transactional_id:
            code = (31 * code + ord(character)) & 0xFFFFFFFF
        signed = code - (1 << 32) if code >= 1 << 31 else code
        return abs(signed) % len(self.partitions)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """What is durable, whoever leads."""
        partition = self.partitions[self.partition_for(transactional_id)]
        return partition.durable.get(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        return [m for partition in self.partitions for m in partition.durable.values()]

    def write(
        self,
        broker: SimBroker,
        index: int,
        leader_epoch: int,
        metadata: TransactionMetadata,
        answer: Callable[[str], None],
    ) -> None:
        """Make ``metadata`` durable; ``broker`` hears of it, unless it dies meanwhile."""
        partition = self.partitions[index]

        def is_leader() -> bool:
            leader = (partition.leader_id, partition.leader_epoch)
            return broker.is_up and leader == (broker.node_id, leader_epoch)

        def become_durable() -> None:
            if self.awaits_replica:
                self._scheduler.after(_REPLICA_POLL_MS, become_durable)
            elif is_leader():
                partition.durable[metadata.transactional_id] = metadata
                self._scheduler.after(self._rng.randint(*self.write_delay_ms), tell)
            elif broker.is_up:
                answer("NOT_COORDINATOR")

        def tell() -> None:
            if broker.is_up:
                answer("NONE" if is_leader() else "NOT_COORDINATOR")

        self._scheduler.after(self._rng.randint(*self.write_delay_ms), become_durable)

    # --- who leads -----------------------------------------------------------------------------

    def lose(self, node_id: int) -> None:
        """The broker is gone: others lead from now on, as far as there are any."""
        for partition in self.partitions:
            if partition.leader_id == node_id:
                partition.elect(NO_LEADER)
        self.elect_where_missing()

    def elect_where_missing(self) -> None:
        alive = [b.node_id for b in self._brokers.values() if b.is_up and not b.is_paused]
        for index, partition in enumerate(self.partitions):
            if partition.leader_id == NO_LEADER and alive:
                partition.elect(alive[index % len(alive)])

    def restart(self, node_id: int) -> None:
        """The broker is back before anybody was elected in its place: it loads all anew."""
        for partition in self.partitions:
            if partition.leader_id == node_id:
                partition.elect(node_id)
        self.elect_where_missing()
