"""Which rows of the table of open batches belong to which topic, and what is known of each topic.

Source: ``RecordAccumulator.TopicInfo``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.model import ZERO_UUID
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.open_batches import CompressionRatio, OpenBatches
from spark_kafka_sink.producer.partitioner import RandomSource, StickyPartitioner

NO_SLOT = -1


class Availability(NamedTuple):
    """Partitions to choose from, as long as cluster and slow nodes stay the same."""

    cluster: ClusterSnapshot
    slow_nodes: frozenset[int]
    partitions: list[int]


class TopicSlots:
    """One topic's part of the table: slot of partition 0, number of partitions."""

    def __init__(
        self,
        name: str,
        first_slot: int,
        partitions_count: int,
        rng: RandomSource,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.first_slot = first_slot
        self.partitions_count = partitions_count
        self.sticky_slot = NO_SLOT
        self.partitioner = StickyPartitioner(rng)
        self._availability: Availability | None = None
        self.compression = CompressionRatio()
        # What the table of open batches has; None: what the slots began with.
        self.current_limit_bytes: int | None = None
        # Uncompressed bytes that the topic's brokers have shown to be too many for a batch.
        self.cap_bytes: int | None = None

    def is_current(self, cluster: ClusterSnapshot) -> bool:
        """Whether it is the cluster's topic of this name, with all of its partitions.

        A broker that lags may know fewer of the same topic. Where brokers have no topic ids, fewer
        partitions are another topic's, as for the Java producer.
        """
        topic_id, count = cluster.topic_id(self.name), cluster.partitions_count(self.name)
        if ZERO_UUID in (topic_id, self.topic_id):
            return count == self.partitions_count
        return topic_id == self.topic_id and count <= self.partitions_count

    @property
    def slots(self) -> range:
        """All slots of the topic."""
        return range(self.first_slot, self.first_slot + self.partitions_count)

    def available(self, cluster: ClusterSnapshot, slow_nodes: frozenset[int]) -> list[int]:
        """Partitions whose leader is known and keeps up. Asked for every batch, so remembered."""
        known = self._availability
        if known is None or known.cluster is not cluster or known.slow_nodes != slow_nodes:
            partitions = cluster.available_partitions(self.name, slow_nodes)
            known = self._availability = Availability(cluster, slow_nodes, partitions)
        return known.partitions

    def limit_bytes(self, batch_size: int) -> int:
        """Uncompressed bytes at which a batch is full."""
        limit_bytes = self.compression.uncompressed_limit(batch_size)
        return limit_bytes if self.cap_bytes is None else min(limit_bytes, self.cap_bytes)


class TopicRegistry:
    """All topics that rows were appended for. ``finish_slots`` finishes the batches of slots."""

    def __init__(
        self,
        open_batches: OpenBatches,
        batch_size: int,
        rng: RandomSource,
        finish_slots: Callable[[list[int]], None],
    ) -> None:
        self._open_batches = open_batches
        self._batch_size = batch_size
        self._rng = rng
        self._finish_slots = finish_slots
        self._topics: dict[str, TopicSlots] = {}
        self._topic_of_slot: list[TopicSlots] = []

    def topic_of(self, slot: int) -> TopicSlots:
        """The topic that ``slot`` belongs to."""
        return self._topic_of_slot[slot]

    def known(self, name: str) -> TopicSlots:
        """A topic that rows were appended for."""
        return self._topics[name]

    def get(self, name: str, cluster: ClusterSnapshot) -> TopicSlots:
        """The topic's slots; new ones for a new topic, another one, or more partitions."""
        topic = self._topics.get(name)
        topic_id, count = cluster.topic_id(name), cluster.partitions_count(name)
        if topic is not None and topic.is_current(cluster):
            return topic
        if topic is not None:
            # Rows appended so far must not be overtaken by rows in the new slots.
            own = topic.slots
            self._finish_slots([slot for slot in self._open_batches.open_slots() if slot in own])
        first_slot = self._open_batches.add_slots(name, count, self._batch_size)
        topic = self._topics[name] = TopicSlots(name, first_slot, count, self._rng, topic_id)
        self._topic_of_slot.extend([topic] * count)
        return topic
