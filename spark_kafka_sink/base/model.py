"""Names that every layer shares: topic-partitions, nodes, producer ids, and their ``dataclass``.

Topic-partitions, nodes and producer ids are immutable. ``dataclass`` works for all Pythons of the
sink: Python 3.9 does not support slots, so there a dataclass has a dictionary, which takes memory;
everything else is equal.

:class:`ColumnPositions` says which columns hold the parts of a Kafka record.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from spark_kafka_sink.base.text import redacted

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, slots: bool = False, **options: Any) -> Any:
        """Apply ``dataclasses.dataclass`` without ``slots``."""
        return dataclasses.dataclass(cls, **options)


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_NODE_ID = -1
NO_LEADER_EPOCH = -1
ZERO_UUID = UUID(int=0)
"""Kafka's "no topic id": brokers before 2.8 assign no ids to topics."""


class TopicPartition(NamedTuple):
    """One partition of a topic. Its text is Kafka's: ``flights-2``."""

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
        """``host:port``, an IPv6 host in brackets; escaped, because a broker may send any name."""
        return format_address(redacted(self.host), self.port)

    def __str__(self) -> str:
        return self.address if self.node_id < 0 else f"broker {self.node_id} ({self.address})"


# The highest epoch that brokers assign to a client. Source:
# ``TransactionMetadata.isEpochExhausted``.
_LAST_EPOCH = 2**15 - 2
# One epoch for each end of a transaction, of which a driver has several under one identity, and two
# for an abort by InitProducerId.
_EPOCHS_IN_USE = 20


class ProducerIdAndEpoch(NamedTuple):
    """The identity under which a broker deduplicates. Source: KIP-98, ``ProducerIdAndEpoch``."""

    producer_id: int
    producer_epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def is_epoch_nearly_exhausted(self) -> bool:
        """True if epochs could run out while this identity is in use.

        At the last epoch, brokers answer InitProducerId with another producer id. If a transaction
        is open at that epoch, some brokers can never end it (KAFKA-18660, -19367, -20090).
        """
        return self.producer_epoch > _LAST_EPOCH - _EPOCHS_IN_USE


class PreparedTransaction(NamedTuple):
    """A transaction that is written and flushed, but neither committed nor aborted.

    Any process with these fields can end it.

    transaction_version: finalized level of the feature transaction.version when it began. From 2
        on, EndTxn v5 or newer ends it, before that v4 at most (KIP-890)
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int


class UnusedProducerIdentity(NamedTuple):
    """The right to decide on a transaction: an identity under which no transaction has begun yet.

    To decide, a process begins a transaction under it. To revoke the right, a process gives
    ``transactional_id`` another identity.

    coordinator: of ``transactional_id`` when it got this identity; it may have moved since
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    coordinator: Node | None = None


class PlannedTopic(NamedTuple):
    """A topic as the driver found it. topic_id: all zeros if the brokers have no topic ids"""

    topic_id: UUID
    partitions_count: int


class TopicsPlan(NamedTuple):
    """The topics of one job or micro-batch, as the driver has planned them for its tasks.

    number: identifies the plan: what a producer learned under another number may be outdated
    topics: as the driver found them when it planned, without topics that it does not know
    """

    number: str
    topics: Mapping[str, PlannedTopic]


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unsigned_varint(value: int) -> bytes:
    """Return a number of at least 0 in groups of seven bits, the lowest group first."""
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def zigzag_varint(value: int) -> bytes:
    """Return a signed 64-bit number as an unsigned varint of 0, -1, 1, -2, …"""
    return unsigned_varint((value << 1) ^ (value >> 63))


def schema_id_header_name(part: str) -> str:
    """Return the name of the header with the schema id of a part, key or value.

    Source: Confluent's ``SchemaId``.
    """
    return f"__{part}_schema_id"


class ColumnPositions(NamedTuple):
    """Positions of the columns in every Arrow batch; None for a column that is absent.

    topic_option: the ``topic`` option, which overrides the topic column.
    takes_partitioner: whether a partitioner that reads columns is called for these rows.
    """

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    topic_option: str | None = None
    takes_partitioner: bool = True
