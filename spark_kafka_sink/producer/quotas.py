"""Rate limit of a task, and waits for limits that do not count for ``delivery.timeout.ms``.

:class:`RateLimit` holds batches back for ``max.bytes.per.second.per.task``.
:class:`ThrottleTracker` adds up how long a batch has waited for this limit, and for pauses that
brokers request because a quota is used up (KIP-219).
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.network.client import MOST_POSTPONED_MS, ThrottleTimes
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.producer_batch import ProducerBatch

MAX_BYTES = "max.bytes.per.second.per.task"
_MS_PER_S = 1000


class RateLimit:
    """Limits the bytes of record batches that a producer sends per second.

    The limit is a token bucket: a batch is sent if the bucket holds as many bytes as the batch. The
    bucket starts empty and holds at most one second's bytes. A larger batch is sent when the bucket
    is full, and leaves the bucket in debt. A batch that must wait holds back everything after it,
    so that small batches do not overtake it for ever.

    The bucket belongs to the producer, which tasks of one worker share one after another. So many
    short tasks send no more than a long one.

    Used by the sender thread; ``begin_task`` and ``begin_transaction`` between two tasks.

    bytes_per_second: compressed bytes of record batches; each attempt counts
    now_ms: when the bucket begins to fill
    held: batches of the current round that wait for the limit, in the order in which they are sent
    """

    def __init__(self, bytes_per_second: int, now_ms: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._filled_at_ms = now_ms
        # In thousandths of a byte, so that no fraction is lost at one refill per millisecond.
        self._tokens = 0
        self._transaction_timeout_ms: int | None = None
        self._sent_since_ms: int | None = None
        self.held: list[ProducerBatch] = []
        self._held_since_ms = now_ms

    def begin_task(self) -> None:
        """Forget the transaction of the previous task; the bucket keeps its level."""
        self._transaction_timeout_ms = self._sent_since_ms = None

    def begin_transaction(self, timeout_ms: int) -> None:
        """Record that the coordinator aborts the task's transaction after ``timeout_ms``."""
        self._transaction_timeout_ms = timeout_ms

    def begin_round(self, now_ms: int) -> tuple[set[TopicPartition], int]:
        """Fill the bucket. Return the partitions held in the previous round, and since when."""
        most = self._bytes_per_second * _MS_PER_S
        earned = (now_ms - self._filled_at_ms) * self._bytes_per_second
        self._tokens, self._filled_at_ms = min(self._tokens + earned, most), now_ms
        held, since_ms = {batch.topic_partition for batch in self.held}, self._held_since_ms
        self.held, self._held_since_ms = [], now_ms
        return held, since_ms

    def admit(self, heads: Iterable[ProducerBatch]) -> list[TopicPartition]:
        """Return the partitions whose batch may be sent now; the other batches are held."""
        tokens, admitted = self._tokens, []
        for batch in heads:
            if self.held or tokens < self._needed(batch):
                self.held.append(batch)
            else:
                tokens -= batch.size_bytes * _MS_PER_S
                admitted.append(batch.topic_partition)
        return admitted

    def spend(self, batches: Iterable[ProducerBatch], now_ms: int) -> None:
        """Take the bytes of batches that are sent now out of the bucket."""
        for batch in batches:
            self._tokens -= batch.size_bytes * _MS_PER_S
            if self._sent_since_ms is None:
                self._sent_since_ms = now_ms

    @property
    def wait_ms(self) -> int:
        """Return after how many ms the first held batch may be sent; a batch must be held."""
        missing = self._needed(self.held[0]) - self._tokens
        return -(-missing // self._bytes_per_second)

    def check_transaction(self, queued_bytes: int, now_ms: int) -> None:
        """Raise TransactionError if the transaction times out before all queued batches are sent.

        A batch must be held. The estimate assumes that the last batch is as large as the first held
        one, and is paid for afterwards.
        """
        timeout_ms, wait_ms = self._transaction_timeout_ms, self.wait_ms
        if timeout_ms is None:
            return
        since_ms = now_ms + wait_ms if self._sent_since_ms is None else self._sent_since_ms
        others_bytes = queued_bytes - self.held[0].size_bytes
        needed_ms = wait_ms + others_bytes * _MS_PER_S // self._bytes_per_second
        if now_ms + needed_ms > since_ms + timeout_ms:
            raise TransactionError(
                f"{queued_bytes} bytes of this task are still to be sent, which takes "
                f"{needed_ms // _MS_PER_S} s for {MAX_BYTES} = {self._bytes_per_second}; by then "
                "the coordinator has aborted its transaction: kafka.transaction.timeout.ms = "
                f"{timeout_ms}. Raise either, or write less in a micro-batch or job",
                code="DELIVERY-003",
            )

    def _needed(self, batch: ProducerBatch) -> int:
        return min(batch.size_bytes, self._bytes_per_second) * _MS_PER_S


class ThrottleTracker:
    """Records how long batches have waited for a quota or a limit, which does not count as late.

    A queued batch waits for its partition's leader or for the limit. A batch in flight waits for
    the broker that it was sent to. Waits are recorded per partition, so that a moved or unavailable
    leader does not change the past. Used by the sender thread.

    pauses: the pauses that brokers requested
    cluster: the leaders at the start
    """

    def __init__(self, pauses: ThrottleTimes, cluster: ClusterSnapshot) -> None:
        self._pauses = pauses
        self._cluster = cluster
        # Pauses of former leaders, and since when the current leaders lead.
        self._past_pauses: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._led_since_ms: dict[TopicPartition, int] = {}
        # Intervals in which the limit held queued batches of a partition: from, until.
        self._limited: dict[TopicPartition, list[tuple[int, int]]] = {}

    def record_limited(
        self, partitions: Iterable[TopicPartition], from_ms: int, until_ms: int
    ) -> None:
        """Record that the limit held the queued batches of ``partitions`` in this interval."""
        for topic_partition in partitions:
            intervals = self._limited.setdefault(topic_partition, [])
            if intervals and intervals[-1][1] == from_ms:
                intervals[-1] = intervals[-1][0], until_ms
            else:
                intervals.append((from_ms, until_ms))

    def update_leaders(
        self, cluster: ClusterSnapshot, accumulator: RecordAccumulator, now_ms: int
    ) -> None:
        """Use the leaders of ``cluster`` from now on.

        accumulator: holds the batches that wait for the leaders
        """
        before, self._cluster = self._cluster, cluster
        if cluster is before or not self._pauses.has_any:
            return
        with accumulator.monitor:
            partitions = {batch.topic_partition for batch in accumulator.incomplete()}
        for topic_partition in partitions:
            leader = before.leader(topic_partition)
            if leader != cluster.leader(topic_partition):
                since_ms = self._led_since_ms.get(topic_partition, 0)
                self._record_pauses(topic_partition, leader, since_ms, now_ms)
                self._led_since_ms[topic_partition] = now_ms

    def record_response(self, batches: Iterable[ProducerBatch], node: Node, now_ms: int) -> None:
        """Record that batches, and those behind them, waited for ``node`` since they were sent."""
        if self._pauses.has_any:
            for batch in batches:
                if self._cluster.leader(batch.topic_partition) != node:
                    self._record_pauses(batch.topic_partition, node, batch.drained_at_ms, now_ms)

    def postponed_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        """Return the part of a batch's age that does not count for ``delivery.timeout.ms``.

        It has waited for a broker's pause or the limit. Of the pauses, at most
        ``MOST_POSTPONED_MS`` count.
        """
        pauses = self._pauses_of(batch, now_ms)
        excess_ms = max(_covered_ms(pauses, batch.created_at_ms) - MOST_POSTPONED_MS, 0)
        intervals = pauses + self._limits_of(batch, now_ms)
        return _covered_ms(intervals, batch.created_at_ms) - excess_ms

    def paused_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        """Return how many ms ``batch`` has waited for pauses of brokers."""
        return _covered_ms(self._pauses_of(batch, now_ms), batch.created_at_ms)

    def limited_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        """Return how many ms the limit has held ``batch``."""
        return _covered_ms(self._limits_of(batch, now_ms), batch.created_at_ms)

    def forget_before(self, at_ms: int) -> None:
        """Drop waits that ended before ``at_ms``, because no batch is that old."""
        self._pauses.forget_before(at_ms)
        if self._led_since_ms or self._past_pauses or self._limited:
            self._led_since_ms = {p: ms for p, ms in self._led_since_ms.items() if ms > at_ms}
            self._past_pauses = _after(self._past_pauses, at_ms)
            self._limited = _after(self._limited, at_ms)

    def _pauses_of(self, batch: ProducerBatch, now_ms: int) -> list[tuple[int, int]]:
        topic_partition = batch.topic_partition
        led_since_ms = self._led_since_ms.get(topic_partition, 0)
        pauses = [
            *self._past_pauses.get(topic_partition, ()),
            *self._between(self._cluster.leader(topic_partition), led_since_ms, now_ms),
        ]
        if not batch.is_queued:
            pauses += self._between(batch.sent_to, batch.drained_at_ms, now_ms)
        return pauses

    def _limits_of(self, batch: ProducerBatch, now_ms: int) -> list[tuple[int, int]]:
        queued_until_ms = now_ms if batch.is_queued else batch.drained_at_ms
        intervals = self._limited.get(batch.topic_partition, ())
        return [(from_ms, min(until_ms, queued_until_ms)) for from_ms, until_ms in intervals]

    def _record_pauses(
        self, topic_partition: TopicPartition, node: Node | None, since_ms: int, now_ms: int
    ) -> None:
        pauses = self._between(node, since_ms, now_ms)
        if pauses:
            self._past_pauses.setdefault(topic_partition, []).extend(pauses)

    def _between(self, node: Node | None, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        return [] if node is None else self._pauses.between(node.node_id, since_ms, now_ms)


def _after(
    noted: dict[TopicPartition, list[tuple[int, int]]], at_ms: int
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return ``noted`` without intervals that end by ``at_ms``, and without empty partitions."""
    return {
        topic_partition: left
        for topic_partition, intervals in noted.items()
        if (left := [interval for interval in intervals if interval[1] > at_ms])
    }


def _covered_ms(intervals: Iterable[tuple[int, int]], since_ms: int) -> int:
    """Return how many ms from ``since_ms`` on the intervals cover; they may overlap."""
    covered_ms = 0
    for from_ms, until_ms in sorted(intervals):
        covered_ms += max(until_ms - max(from_ms, since_ms), 0)
        since_ms = max(since_ms, until_ms)
    return covered_ms
