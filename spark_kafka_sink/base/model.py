"""Names that every layer shares: topic-partitions, nodes, producer ids, and their ``dataclass``.

Topic-partitions, nodes and producer ids are immutable. ``dataclass`` is there for all Pythons of
the sink, as 3.9 knows no slots: there a dataclass has a dictionary, which takes memory; everything
else is the same.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from spark_kafka_sink.base.text import shown

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, slots: bool = False, **options: Any) -> Any:
        """As ``dataclasses.dataclass``, without regard to ``slots``."""
        return dataclasses.dataclass(cls, **options)


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_NODE_ID = -1
NO_LEADER_EPOCH = -1
ZERO_UUID = UUID(int=0)
"""Kafka's "no topic id": brokers before 2.8 do not give topics an id."""


class TopicPartition(NamedTuple):
    """One partition of a topic. Prints as Kafka prints it: ``flights-2``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker, or a bootstrap address whose broker id is not known yet (negative id)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, an IPv6 host in brackets; brokers tell any text as their name."""
        return format_address(shown(self.host), self.port)

    def __str__(self) -> str:
        return self.address if self.node_id < 0 else f"broker {self.node_id} ({self.address})"


# Source: ``TransactionMetadata.isEpochExhausted``: the highest that brokers give to a client.
_LAST_EPOCH = 2**15 - 2
# One for each end of a transaction, of which a driver has several under one identity, and two for
# an abort by InitProducerId.
_EPOCHS_IN_USE = 20


class ProducerIdAndEpoch(NamedTuple):
    """Identity under which a broker deduplicates. Source: KIP-98, ``ProducerIdAndEpoch``."""

    producer_id: int
    producer_epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def is_near_the_end(self) -> bool:
        """Whether epochs could run out while this identity is in use. Brokers give another
        producer id in answer to an InitProducerId at the last epoch. With a transaction open at
        that epoch, some can never end it (KAFKA-18660, -19367, -20090).
        """
        return self.producer_epoch > _LAST_EPOCH - _EPOCHS_IN_USE


class PreparedTransaction(NamedTuple):
    """A transaction with everything written and nothing decided: whoever has this can end it.

    ``transaction_version``: finalized level of the feature transaction.version under which it was
    begun. From 2 on EndTxn v5 or newer ends it, before that v4 at most (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int


class UnusedToken(NamedTuple):
    """The right to decide on a transaction: an identity under which nothing has begun yet.

    Whoever decides begins a transaction under it; whoever takes the right away gives
    ``transactional_id`` another identity.

    coordinator: of ``transactional_id`` when it got this identity; it may have moved since
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    coordinator: Node | None = None


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def format_address(host: str, port: int) -> str:
    """``host:port`` with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
