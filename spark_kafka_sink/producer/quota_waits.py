"""How long batches have waited for a quota or a limit: time that is not waited in vain.

Brokers ask for pauses when a quota is used up; ``max.bytes.per.second.per.task`` holds batches on
this side. What is queued waits for the leader of its partition or for the limit, what is in flight
for the broker that it was sent to. Kept by partition, so that a leader that moves, or is away,
changes nothing of what was.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.network.client import BrokerPauses
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.producer_batch import ProducerBatch


class QuotaWaits:
    """Used by the sender thread.

    pauses: what brokers have asked for
    cluster: the leaders at the start
    """

    def __init__(self, pauses: BrokerPauses, cluster: ClusterSnapshot) -> None:
        self._pauses = pauses
        self._cluster = cluster
        # What is known of former leaders, and since when the present ones are leaders.
        self._noted: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._led_since_ms: dict[TopicPartition, int] = {}
        # When batches in the queue of a partition were held by the limit: from, until.
        self._limited: dict[TopicPartition, list[tuple[int, int]]] = {}

    def note_limited(
        self, partitions: Iterable[TopicPartition], from_ms: int, until_ms: int
    ) -> None:
        """The limit has held what is queued for ``partitions`` between the two instants."""
        for topic_partition in partitions:
            intervals = self._limited.setdefault(topic_partition, [])
            if intervals and intervals[-1][1] == from_ms:
                intervals[-1] = intervals[-1][0], until_ms
            else:
                intervals.append((from_ms, until_ms))

    def note_leaders(
        self, cluster: ClusterSnapshot, accumulator: RecordAccumulator, now_ms: int
    ) -> None:
        """From now on, leaders are those of ``cluster``. accumulator: what waits for them"""
        before, self._cluster = self._cluster, cluster
        if cluster is before or not self._pauses.has_any:
            return
        with accumulator.monitor:
            partitions = {batch.topic_partition for batch in accumulator.incomplete()}
        for topic_partition in partitions:
            leader = before.leader(topic_partition)
            if leader != cluster.leader(topic_partition):
                since_ms = self._led_since_ms.get(topic_partition, 0)
                self._note(topic_partition, leader, since_ms, now_ms)
                self._led_since_ms[topic_partition] = now_ms

    def note_answered(self, batches: Iterable[ProducerBatch], node: Node, now_ms: int) -> None:
        """They have waited for ``node`` since they were sent, and what is behind them as well."""
        if self._pauses.has_any:
            for batch in batches:
                if self._cluster.leader(batch.topic_partition) != node:
                    self._note(batch.topic_partition, node, batch.drained_at_ms, now_ms)

    def paused_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        """How much of the life of ``batch`` it has waited for a broker's pause, or the limit."""
        topic_partition = batch.topic_partition
        led_since_ms = self._led_since_ms.get(topic_partition, 0)
        pauses = [
            *self._noted.get(topic_partition, ()),
            *self._between(self._cluster.leader(topic_partition), led_since_ms, now_ms),
        ]
        queued_until_ms = now_ms
        if not batch.is_queued:
            queued_until_ms = batch.drained_at_ms
            pauses += self._between(batch.sent_to, batch.drained_at_ms, now_ms)
        pauses += [
            (from_ms, min(until_ms, queued_until_ms))
            for from_ms, until_ms in self._limited.get(topic_partition, ())
        ]
        return _covered_ms(pauses, batch.created_at_ms)

    def forget_before(self, at_ms: int) -> None:
        """Nobody will ask about the time before ``at_ms`` any more."""
        self._pauses.forget_before(at_ms)
        if self._led_since_ms or self._noted or self._limited:
            self._led_since_ms = {p: ms for p, ms in self._led_since_ms.items() if ms > at_ms}
            self._noted = _after(self._noted, at_ms)
            self._limited = _after(self._limited, at_ms)

    def _note(
        self, topic_partition: TopicPartition, node: Node | None, since_ms: int, now_ms: int
    ) -> None:
        pauses = self._between(node, since_ms, now_ms)
        if pauses:
            self._noted.setdefault(topic_partition, []).extend(pauses)

    def _between(self, node: Node | None, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        return [] if node is None else self._pauses.between(node.node_id, since_ms, now_ms)


def _after(
    noted: dict[TopicPartition, list[tuple[int, int]]], at_ms: int
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Without the intervals that end by then, and the partitions that have no others."""
    return {
        topic_partition: left
        for topic_partition, intervals in noted.items()
        if (left := [interval for interval in intervals if interval[1] > at_ms])
    }


def _covered_ms(intervals: Iterable[tuple[int, int]], since_ms: int) -> int:
    """How much of the time from ``since_ms`` on is in any of them: they may overlap."""
    covered_ms = 0
    for from_ms, until_ms in sorted(intervals):
        covered_ms += max(until_ms - max(from_ms, since_ms), 0)
        since_ms = max(since_ms, until_ms)
    return covered_ms
