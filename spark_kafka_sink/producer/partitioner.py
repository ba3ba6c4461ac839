"""Assigns rows to partitions, and thereby to slots in the table of open batches.

A row goes to the partition of its partition column. If it has none, ``kafka.partitioner`` decides:
``default`` (murmur2 of the key, sticky without key), ``round-robin``, ``murmur3``, ``crc32``, or
the user's own ``package.module:callable``.

Sticky rows stay with one partition until its batch is finished, so that batches get full. Then
``SlotAssigner.choose_sticky`` chooses the next partition. Partitions take turns in shuffled rounds,
which is more even than the Java producer's independent draws. If queues differ in length, the
brokers of longer queues are slower. The next partition is then drawn with a preference for short
queues, as in the Java producer (:class:`StickyPartitioner`).

:class:`SlotTable` has the slots of all topics.

With ``kafka.partitioner.rack.aware``, sticky rows go to partitions whose leader is in the rack of
the task while there is such a leader. The rack never moves a row with a key or a partition.

Source: ``BuiltInPartitioner``, ``RoundRobinPartitioner``, ``KafkaProducer.partition``,
``RecordAccumulator.TopicInfo``; KIP-480, KIP-794, KIP-1123.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

# At run time mmh3 only verifies the kernel's hash, with kafka.partitioner=murmur3.
import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base import entry_points
from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.base.model import ZERO_UUID, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.open_batches import CompressionRatio, OpenBatches
from spark_kafka_sink.record.columns import ArrowRecords
from spark_kafka_sink.record.compiled.calls import (
    ABSENT_INTEGERS,
    ALL_ASSIGNED,
    CRC32,
    MURMUR2,
    MURMUR3,
    NO_KEY_HASH,
    IntegersView,
    Topics,
    assign_slots,
    murmur3_hash,
)
from spark_kafka_sink.record.dead_letters import BAD_PARTITION, PARTITIONER, RowFaults

Int32Array = npt.NDArray[np.int32]

_KEY_HASHES = {"murmur3": MURMUR3, "crc32": CRC32}
_ROUND_ROBIN = "round-robin"
_USE_KEY = -1


class RandomSource(Protocol):
    """The methods of ``random.Random`` that partitioners use."""

    def shuffle(self, x: list[int]) -> None:
        """Shuffle in place."""
        ...

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...


def key_hash(config: ProducerConfig) -> int:
    """Return the partition kernel's constant for the hash of the key."""
    if config.partitioner_ignore_keys or config.partitioner == _ROUND_ROBIN:
        return NO_KEY_HASH
    return _KEY_HASHES.get(config.partitioner, MURMUR2)


class StickyPartitioner:
    """Sequence of sticky partitions of one topic."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._round: list[int] = []

    def next_partition(self, available: Sequence[int], queued: Mapping[int, int]) -> int:
        """Return the partition to stick to from now on.

        available: partitions to choose from
        queued: number of queued batches per partition, without partitions that have none; empty if
            queues do not count
        """
        if queued and (len(queued) < len(available) or len(set(queued.values())) > 1):
            return self._draw(available, queued)
        while True:
            if not self._round:
                self._round = list(available)
                self._rng.shuffle(self._round)
            partition = self._round.pop()
            if partition in available:
                return partition

    def _draw(self, available: Sequence[int], queued: Mapping[int, int]) -> int:
        """Draw a partition at random; shorter queues have a higher probability."""
        # By rejection sampling, because there may be thousands of partitions, of which few have a
        # queue.
        longest, draw = max(queued.values()) + 1, self._rng.random
        while True:
            partition = available[int(draw() * len(available))]
            if draw() * longest >= queued.get(partition, 0):
                return partition


class ColumnPartitioner(Protocol):
    """A partitioner that reads whole columns instead of single keys."""

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """Return a partition for each of ``rows`` (None: all); -1 leaves the row to its key."""
        ...

    def find_rejected(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """Return the ``rows`` for which ``compute`` raises, and why."""
        ...


def computed_partitions(config: ProducerConfig) -> ColumnPartitioner | None:
    """Return the partitioner that ``kafka.partitioner`` names; None if it only hashes keys."""
    if config.partitioner == "murmur3":
        _check_murmur3()
    if config.partitioner == _ROUND_ROBIN:
        return RoundRobinPartitioner()
    if ":" in config.partitioner:
        return UserPartitioner(config.partitioner)
    return None


class RoundRobinPartitioner:
    """Assigns each row to the next partition that has a leader, whatever its key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """Return partitions in turn. Rows with an explicit partition take a turn, too.

        Skipping these rows would gain nothing.
        """
        count = records.rows_count if rows is None else len(rows)
        first = self._next.get(topic, 0)
        self._next[topic] = (first + count) % len(available)
        turns = (first + np.arange(count)) % len(available)
        return np.asarray(available, np.int32)[turns]

    def find_rejected(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """Return no row: round-robin does not read rows."""
        return {}


class UserPartitioner:
    """The user's callable: Arrow keys, Arrow values and the partition count give int32s."""

    def __init__(self, entry_point: str) -> None:
        self._hook = entry_points.Hook(
            f"partitioner '{entry_point}'", entry_points.load(entry_point, "partitioner")
        )

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """Return the callable's partitions; -1 for a null.

        Raises HookError for a result that is not an int32 array of partitions or nulls, and passes
        on the callable's RefusedRowsError.
        """

        def check(result: Any) -> Int32Array:
            partitions, is_outside = _checked(result, count, partitions_count)
            if is_outside.any():
                raise ValueError(_outside(partitions[is_outside][0], partitions_count))
            return partitions

        keys, values = _keys_and_values(records, rows)
        count = len(values)
        computed: Int32Array = entry_points.run(self._hook, check, keys, values, partitions_count)
        return computed

    def find_rejected(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """Return the rows that the callable rejects, or sends to a partition that does not exist.

        Raises HookError for any other failure of the callable.
        """

        def check(result: Any) -> tuple[Int32Array, npt.NDArray[np.bool_]]:
            return _checked(result, len(rows), partitions_count)

        found: dict[int, str] = {}
        while len(rows):
            keys, values = _keys_and_values(records, rows)
            try:
                partitions, is_outside = entry_points.run(
                    self._hook, check, keys, values, partitions_count
                )
            except entry_points.RefusedRowsError as error:
                reasons = entry_points.refused_rows(self._hook, error, len(rows))
                found.update({int(rows[row]): reason for row, reason in reasons.items()})
                rows = np.delete(rows, [*reasons])
                continue
            for row in np.flatnonzero(is_outside).tolist():
                found[int(rows[row])] = _outside(partitions[row], partitions_count)
            break
        return found


def _keys_and_values(records: ArrowRecords, rows: npt.NDArray[Any] | None) -> tuple[Any, Any]:
    batch = records.owner if rows is None else records.owner.take(pa.array(rows))
    values = batch.column(records.positions.value)
    key = records.positions.key
    return pa.nulls(len(values), pa.binary()) if key is None else batch.column(key), values


def _outside(partition: int, partitions_count: int) -> str:
    return f"it returned partition {partition}; there are {partitions_count}"


def _checked(
    result: Any, rows_count: int, partitions_count: int
) -> tuple[Int32Array, npt.NDArray[np.bool_]]:
    """Return (a partition or -1 for each row, True where the topic lacks that partition)."""
    if not isinstance(result, (pa.Array, pa.ChunkedArray)) or result.type != pa.int32():
        kind = getattr(result, "type", type(result).__name__)
        raise TypeError(f"it returned {kind}, not an int32 Arrow array")
    if len(result) != rows_count:
        raise ValueError(f"it returned {len(result)} partitions for {rows_count} rows")
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    filled: Int32Array = result.fill_null(_USE_KEY).to_numpy(zero_copy_only=False)
    partitions = np.ascontiguousarray(filled, np.int32)
    is_outside = (partitions < 0) | (partitions >= partitions_count)
    if result.null_count:
        is_outside &= result.is_valid().to_numpy(zero_copy_only=False)
    return partitions, is_outside


def _check_murmur3() -> None:
    """Compare the kernel with mmh3, the reference, so that keys go where other clients send them.

    Raises RuntimeError if they differ, because nothing may be written then.
    """
    for key in (b"", b"a", b"ab", b"abc", b"abcd", b"\x80\xff\x00 longer than a word"):
        data = np.frombuffer(key or b"\0", np.uint8)
        ours = murmur3_hash(data.ctypes.data, len(key))
        theirs = mmh3.hash(key, signed=False)
        if ours != theirs:
            raise RuntimeError(
                f"murmur3 of {key!r} is {ours} here and {theirs} in mmh3: keys would go to other "
                "partitions than before. This is a defect of the sink: please report it, and use "
                "another kafka.partitioner meanwhile"
            )


# --- Slots of topics ------------------------------------------------------------------------------


NO_SLOT = -1


class Availability(NamedTuple):
    """Partitions to choose from, valid for one cluster snapshot and set of slow nodes."""

    cluster: ClusterSnapshot
    slow_nodes: frozenset[int]
    partitions: list[int]


class TopicSlots:
    """One topic's part of the table: slot of partition 0, number of partitions.

    Rows that name no partition go to the first ``planned_count`` ones.
    """

    def __init__(
        self, name: str, first_slot: int, cluster: ClusterSnapshot, rng: RandomSource
    ) -> None:
        self.name = name
        self.topic_id = cluster.topic_id(name)
        self.first_slot = first_slot
        self.partitions_count = cluster.partitions_count(name)
        self.planned_count = cluster.planned_count(name)
        self.sticky_slot = NO_SLOT
        self.partitioner = StickyPartitioner(rng)
        # By preferred rack, because partitioners that read columns prefer none.
        self._availability: dict[str, Availability] = {}
        self.compression = CompressionRatio()
        # The limit in the table of open batches; None for the limit at creation.
        self.current_limit_bytes: int | None = None
        # Upper limit of uncompressed bytes in a batch, after the topic's brokers rejected larger
        # batches, and when. It ends, because the topic's max.message.bytes may be raised.
        self.cap_bytes: int | None = None
        self.capped_at_ms = 0

    def is_same(self, cluster: ClusterSnapshot) -> bool:
        """Return True if another task, with its plan, finds exactly this topic in the cluster."""
        return (
            self.topic_id == cluster.topic_id(self.name)
            and self.partitions_count == cluster.partitions_count(self.name)
            and self.planned_count == cluster.planned_count(self.name)
        )

    def is_current(self, cluster: ClusterSnapshot) -> bool:
        """Return True if this is the cluster's topic of this name, with all of its partitions.

        A lagging broker may know fewer partitions of the same topic. If brokers have no topic ids,
        fewer partitions mean another topic, as in the Java producer.
        """
        topic_id, count = cluster.topic_id(self.name), cluster.partitions_count(self.name)
        if ZERO_UUID in (topic_id, self.topic_id):
            return count == self.partitions_count
        return topic_id == self.topic_id and count <= self.partitions_count

    @property
    def slots(self) -> range:
        """Return all slots of the topic."""
        return range(self.first_slot, self.first_slot + self.partitions_count)

    def available(
        self, cluster: ClusterSnapshot, slow_nodes: frozenset[int], rack: str = ""
    ) -> list[int]:
        """Return the partitions with a known leader that is not slow. Cached for every batch.

        rack: prefer leaders in this rack; empty for no preference
        """
        known = self._availability.get(rack)
        if known is None or known.cluster is not cluster or known.slow_nodes != slow_nodes:
            partitions = cluster.available_partitions(self.name, slow_nodes, rack)
            known = self._availability[rack] = Availability(cluster, slow_nodes, partitions)
        return known.partitions

    def limit_bytes(self, batch_size: int) -> int:
        """Return the uncompressed bytes at which a batch is full."""
        limit_bytes = self.compression.uncompressed_limit(batch_size)
        return limit_bytes if self.cap_bytes is None else min(limit_bytes, self.cap_bytes)


class SlotTable:
    """All topics with appended rows. ``finish_slots`` finishes the batches of slots."""

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
        # Topics of earlier tasks, which this task has not used yet.
        self._earlier: dict[str, TopicSlots] = {}
        self._topic_of_slot: list[TopicSlots] = []

    def begin_task(self, caps_since_ms: int) -> None:
        """Let each topic begin with the partitions that the task finds, without older caps.

        No batch is open.
        """
        self._earlier.update(self._topics)
        self._topics = {}
        for topic in self._earlier.values():
            topic.sticky_slot = NO_SLOT  # its leader may have changed
            if topic.cap_bytes is not None and topic.capped_at_ms <= caps_since_ms:
                topic.cap_bytes = None
                self.update_limit(topic)

    def update_limit(self, topic: TopicSlots) -> None:
        """Let the topic's next batches be as large as its cap and compression allow."""
        limit_bytes = topic.limit_bytes(self._batch_size)
        if limit_bytes != topic.current_limit_bytes:
            topic.current_limit_bytes = limit_bytes
            self._open_batches.set_limit(topic.first_slot, topic.partitions_count, limit_bytes)

    def topic_of(self, slot: int) -> TopicSlots:
        """Return the topic of ``slot``."""
        return self._topic_of_slot[slot]

    def known(self, name: str) -> TopicSlots:
        """Return a topic that rows were appended for."""
        return self._topics[name]

    def get(self, name: str, cluster: ClusterSnapshot) -> TopicSlots:
        """Return the topic's slots; add slots for a new or recreated topic or more partitions."""
        topic = self._topics.get(name)
        if topic is not None and topic.is_current(cluster):
            return topic
        if topic is not None:
            # Rows in the new slots must not overtake rows appended earlier.
            own = topic.slots
            self._finish_slots([slot for slot in self._open_batches.open_slots() if slot in own])
        else:
            topic = self._earlier.pop(name, None)
            if topic is not None and topic.is_same(cluster):
                self._topics[name] = topic
                return topic
        count = cluster.partitions_count(name)
        first_slot = self._open_batches.add_slots(name, count, self._batch_size)
        topic = self._topics[name] = TopicSlots(name, first_slot, cluster, self._rng)
        self._topic_of_slot.extend([topic] * count)
        return topic


class SlotAssigner:
    """Assigns slots to the rows of Arrow batches. Used by the task thread."""

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._rack = config.client_rack if config.partitioner_rack_aware else ""
        self._key_hash = key_hash(config)
        self._computed = computed_partitions(config)

    def assign(
        self, records: ArrowRecords, topics: Sequence[TopicSlots], cluster: ClusterSnapshot
    ) -> Int32Array:
        """Return the slot of each row; ``-1 - t`` for the sticky partition of ``topics[t]``.

        Raises TopicError for a partition that does not exist, and HookError if the user's
        partitioner fails.
        """
        computed = self._compute(records, topics, cluster)
        counts = [topic.partitions_count for topic in topics]
        planned = [topic.planned_count for topic in topics]
        column = records.positions.partition
        if column is None or planned == counts:
            slots, row = self._fill(records, topics, planned, records.partition, computed)
        else:
            # Partitions were added after the plan: only rows that name one may go there.
            slots, row = self._fill(records, topics, counts, records.partition, None)
            unnamed, _ = self._fill(records, topics, planned, ABSENT_INTEGERS, computed)
            is_null = records.owner.column(column).is_null().to_numpy(zero_copy_only=False)
            slots[is_null] = unnamed[is_null]
        if row != ALL_ASSIGNED:
            indices = records.topic_indices
            topic = topics[0 if indices is None else int(indices[row])]
            raise TopicError(
                f"{_invalid_partition(records.partition_at(row), topic)}. "
                "Correct the partition column, or leave it null to let the key decide",
                code="ROW-003",
            )
        return slots

    def _fill(
        self,
        records: ArrowRecords,
        topics: Sequence[TopicSlots],
        counts: Sequence[int],
        partition: IntegersView,
        computed: Int32Array | None,
    ) -> tuple[Int32Array, int]:
        """Return the slots among ``counts`` partitions of the topics, and the first bad row."""
        slots = np.empty(records.rows_count, np.int32)
        first_slots = np.array([topic.first_slot for topic in topics], np.int32)
        table = Topics(records.topic_indices, first_slots, np.array(counts, np.int32))
        key = records.columns.key
        return slots, assign_slots(table, partition, computed, key, self._key_hash, slots)

    def find_invalid_partitions(
        self, records: ArrowRecords, topics: Sequence[TopicSlots]
    ) -> RowFaults:
        """Return all rows for which ``assign`` would raise, by their numbers in ``records``."""
        faults = RowFaults(records.rows_count)
        indices = records.topic_indices
        if records.positions.partition is not None:
            column = records.owner.column(records.positions.partition)
            chosen = column.fill_null(0).to_numpy(zero_copy_only=False)
            counts = np.array([topic.partitions_count for topic in topics], np.int32)
            is_outside = (chosen < 0) | (
                chosen >= (counts[0] if indices is None else counts[indices])
            )
            faults.add(
                is_outside,
                BAD_PARTITION,
                lambda row: _invalid_partition(
                    chosen[row], topics[0 if indices is None else int(indices[row])]
                ),
            )
        if self._computed is not None and records.positions.takes_partitioner:
            for index, topic in enumerate(topics):
                rows = faults.good
                if indices is not None:
                    rows = rows[indices[rows] == index]
                refused = self._computed.find_rejected(records, rows, topic.planned_count)
                is_rejected = np.zeros(records.rows_count, np.bool_)
                is_rejected[[*refused]] = True
                faults.add(is_rejected, PARTITIONER, refused.__getitem__)
        return faults

    def _compute(
        self, records: ArrowRecords, topics: Sequence[TopicSlots], cluster: ClusterSnapshot
    ) -> Int32Array | None:
        """Return the partitions from a partitioner that reads columns, if there is one."""
        if self._computed is None or not records.positions.takes_partitioner:
            return None
        indices, slow_nodes = records.topic_indices, self._accumulator.slow_nodes
        if indices is None:
            available = topics[0].available(cluster, slow_nodes)
            count = topics[0].planned_count
            return self._computed.compute(topics[0].name, records, None, available, count)
        partitions = np.full(records.rows_count, _USE_KEY, np.int32)
        for index, topic in enumerate(topics):
            rows = np.flatnonzero(indices == index).astype(np.int32)
            available = topic.available(cluster, slow_nodes)
            count = topic.planned_count
            computed = self._computed.compute(topic.name, records, rows, available, count)
            if computed is not None:
                partitions[rows] = computed
        return partitions

    def choose_sticky(self, topic: TopicSlots, cluster: ClusterSnapshot) -> None:
        """Choose a sticky partition for a topic that has none."""
        if topic.sticky_slot != NO_SLOT:
            return
        slow_nodes = self._accumulator.slow_nodes
        available = topic.available(cluster, slow_nodes, self._rack)
        queued = {}
        # Slow nodes are available only if all nodes are slow. Then queues do not count.
        leader = cluster.leader(TopicPartition(topic.name, available[0]))
        are_slow = leader is not None and leader.node_id in slow_nodes
        if self._is_adaptive and len(available) > 1 and not are_slow:
            queued = self._accumulator.queue_sizes(topic.name)
            if len(available) < topic.partitions_count:
                # The queue of a slow node grows, and is no measure for the other nodes. Neither is
                # a queue in another rack.
                queued = {index: queued[index] for index in available if index in queued}
        partition = topic.partitioner.next_partition(available, queued)
        topic.sticky_slot = topic.first_slot + partition


def _invalid_partition(partition: int, topic: TopicSlots) -> str:
    return (
        f"Invalid partition {partition} for topic '{topic.name}', which "
        f"has {topic.partitions_count} partition(s): 0 to {topic.partitions_count - 1}"
    )
