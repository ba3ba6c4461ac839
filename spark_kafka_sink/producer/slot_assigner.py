"""Finds each row's slot: explicit partition, computed partition, key, or the sticky one.

Source: ``KafkaProducer.partition``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.columns.faults import BAD_PARTITION, PARTITIONER, RowFaults
from spark_kafka_sink.columns.record_columns import ArrowRecords
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.partitioner import computed_partitions, key_hash
from spark_kafka_sink.producer.topic_slots import NO_SLOT, TopicSlots
from spark_kafka_sink.record.compiled.records import ALL_ASSIGNED, Topics, assign_slots

_LEFT_TO_KEY = -1
Int32Array = npt.NDArray[np.int32]


class SlotAssigner:
    """Assigns the rows of Arrow batches. Used by the task thread."""

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._key_hash = key_hash(config)
        self._computed = computed_partitions(config)

    def assign(
        self, records: ArrowRecords, topics: Sequence[TopicSlots], cluster: ClusterSnapshot
    ) -> Int32Array:
        """The slot of each row; ``-1 - t`` for the sticky partition of ``topics[t]``.

        Raises TopicError for a partition that does not exist, HookError for a user's partitioner
        that fails.
        """
        slots = np.empty(records.rows_count, np.int32)
        indices = records.topic_indices
        computed = self._compute(records, topics, cluster)
        row = assign_slots(
            Topics(
                indices,
                np.array([topic.first_slot for topic in topics], np.int32),
                np.array([topic.partitions_count for topic in topics], np.int32),
            ),
            records.partition,
            computed,
            records.columns.key,
            self._key_hash,
            slots,
        )
        if row != ALL_ASSIGNED:
            topic = topics[0 if indices is None else int(indices[row])]
            raise TopicError(
                f"{_misplaced(records.partition_at(row), topic)}. "
                "Correct the partition column, or leave it null to let the key decide"
            )
        return slots

    def find_misplaced(self, records: ArrowRecords, topics: Sequence[TopicSlots]) -> RowFaults:
        """All rows that ``assign`` would raise for, in the numbering of ``records``."""
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
                lambda row: _misplaced(
                    chosen[row], topics[0 if indices is None else int(indices[row])]
                ),
            )
        if self._computed is not None and records.positions.takes_partitioner:
            for index, topic in enumerate(topics):
                rows = faults.good
                if indices is not None:
                    rows = rows[indices[rows] == index]
                refused = self._computed.refused(records, rows, topic.partitions_count)
                is_refused = np.zeros(records.rows_count, np.bool_)
                is_refused[[*refused]] = True
                faults.add(is_refused, PARTITIONER, refused.__getitem__)
        return faults

    def _compute(
        self, records: ArrowRecords, topics: Sequence[TopicSlots], cluster: ClusterSnapshot
    ) -> Int32Array | None:
        """What a partitioner that looks at whole columns says, topic by topic."""
        if self._computed is None or not records.positions.takes_partitioner:
            return None
        indices, slow_nodes = records.topic_indices, self._accumulator.slow_nodes
        if indices is None:
            available = topics[0].available(cluster, slow_nodes)
            count = topics[0].partitions_count
            return self._computed.compute(topics[0].name, records, None, available, count)
        partitions = np.full(records.rows_count, _LEFT_TO_KEY, np.int32)
        for index, topic in enumerate(topics):
            rows = np.flatnonzero(indices == index).astype(np.int32)
            available = topic.available(cluster, slow_nodes)
            count = topic.partitions_count
            computed = self._computed.compute(topic.name, records, rows, available, count)
            if computed is not None:
                partitions[rows] = computed
        return partitions

    def choose_sticky(self, topic: TopicSlots, cluster: ClusterSnapshot) -> None:
        """Give a topic that has no sticky partition one."""
        if topic.sticky_slot != NO_SLOT:
            return
        available = topic.available(cluster, self._accumulator.slow_nodes)
        queued = {}
        if self._is_adaptive and len(available) > 1:
            queued = self._accumulator.queue_sizes(topic.name)
            if len(available) < topic.partitions_count:
                # The queue of a slow node grows, and says nothing about the others.
                queued = {index: queued[index] for index in available if index in queued}
        partition = topic.partitioner.next_partition(available, queued)
        topic.sticky_slot = topic.first_slot + partition


def _misplaced(partition: int, topic: TopicSlots) -> str:
    return (
        f"Invalid partition {partition} for topic '{topic.name}', which "
        f"has {topic.partitions_count} partition(s): 0 to {topic.partitions_count - 1}"
    )
