"""Finished batches per partition, between the task thread and the sender thread, and their memory.

The task thread enqueues and waits; the sender asks what is ready, drains it, and completes, puts
back or expires it. Both change queues under one monitor; what is muted is the sender's alone. The
monitor guards the buffer pool, too.

Source: ``RecordAccumulator``, ``RecordAccumulator.NodeLatencyStats``, ``BufferPool``; KIP-794.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import BatchNumbering

NO_PAGE = -1
# The part of the stack that is kept in order: Kafka's default buffer.memory. Bounded, so that pages
# out of a larger one do not cost more.
_ORDERED_PAGES = 1024


class BufferPool:
    """``buffer.memory``: pages of ``page_size`` bytes out of one arena of ``memory_bytes``.

    Pages are given back on top of a stack, so that the ones touched last, which are in the
    processor's cache and mapped by the operating system, are used first. Its top is handed out in
    order of address: the pages of a batch are neighbours more often than not, which makes them one
    buffer for CRC and socket. A page is all there is: no allocation of another size, no
    fragmentation, and no memory beyond the arena.

    Not synchronised: the accumulator's monitor guards it.
    """

    def __init__(self, memory_bytes: int, page_size: int) -> None:
        self.page_size = page_size
        self.pages_count = memory_bytes // page_size
        self._arena = np.empty(self.pages_count * page_size, np.uint8)
        self.arena_address: int = self._arena.ctypes.data
        self._view = self._arena.data
        # The chain of each batch's pages; the kernel fills it in.
        self.next_page: npt.NDArray[np.int32] = np.full(self.pages_count, NO_PAGE, np.int32)
        # The lowest pages come first, so that a small job touches little memory.
        self._free: list[int] = list(range(self.pages_count - 1, -1, -1))

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def memory_bytes(self) -> int:
        return self.pages_count * self.page_size

    @property
    def used_bytes(self) -> int:
        return (self.pages_count - len(self._free)) * self.page_size

    def take(self, count: int) -> list[int]:
        """``count`` pages, the lowest one last; the caller has checked ``free_count``."""
        top = self._free[-max(count, _ORDERED_PAGES) :]
        top.sort(reverse=True)
        rest, taken = top[: len(top) - count], top[len(top) - count :]
        self._free[-len(top) :] = rest
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Take pages back. Their content is gone."""
        self._free.extend(pages)

    def view(self, page: int, count: int) -> memoryview:
        """The first ``count`` bytes of ``page`` and, beyond it, of its neighbours; writable."""
        start = page * self.page_size
        return self._view[start : start + count]

    def views(self, pages: Sequence[int], size_bytes: int) -> list[memoryview]:
        """The first ``size_bytes`` of a chain of pages; neighbours in memory are one view."""
        views = []
        first, following = pages[0], pages[0] + 1
        for page in pages[1:]:
            if page != following:
                count = (following - first) * self.page_size
                views.append(self.view(first, count))
                size_bytes -= count
                first = page
            following = page + 1
        views.append(self.view(first, size_bytes))
        return views

    def chain(self, first_page: int) -> list[int]:
        """The pages of a batch, from ``first_page`` on."""
        pages = []
        page = first_page
        while page != NO_PAGE:
            pages.append(page)
            page = int(self.next_page[page])
        return pages


_NO_TIMEOUT = 0


class NodeLatency:
    """For each node: since when batches are ready for it that it could not take.

    For ``partitioner.availability.timeout.ms`` (KIP-794).
    """

    def __init__(self, availability_timeout_ms: int) -> None:
        self._timeout_ms = availability_timeout_ms
        self._waiting_since_ms: dict[int, int] = {}
        self.slow_nodes: frozenset[int] = frozenset()
        """Nodes that have kept batches waiting for longer than the timeout."""

    def note(self, node_id: int, could_send: bool, now_ms: int) -> None:
        """A batch is ready for the node, which could take it now or could not."""
        if self._timeout_ms == _NO_TIMEOUT:
            return
        if could_send:
            self._waiting_since_ms.pop(node_id, None)
            is_slow = False
        else:
            since_ms = self._waiting_since_ms.setdefault(node_id, now_ms)
            is_slow = now_ms - since_ms > self._timeout_ms
        if is_slow != (node_id in self.slow_nodes):
            self.slow_nodes = self.slow_nodes ^ {node_id}


_ABSENT = object()
# More than there can be.
_NOT_AWAITED = 2**63


@dataclass(slots=True)
class ReadyPartitions:
    """What could be sent now.

    by_node: partitions with a batch to send, under their leader
    next_check_ms: after how long a batch that backs off may be ready; None: none does
    unknown_leader_topics: topics of batches whose partition has no known leader
    """

    by_node: dict[Node, list[TopicPartition]] = field(default_factory=dict)
    next_check_ms: int | None = None
    unknown_leader_topics: set[str] = field(default_factory=set)


class RecordAccumulator:
    """Queues of finished batches, in sequence order per partition."""

    def __init__(
        self,
        monitor: Monitor,
        pool: BufferPool,
        retry_backoff: ExponentialBackoff,
        wakeup_sender: Callable[[], None],
    ) -> None:
        """``wakeup_sender``: ends the sender thread's wait for the network."""
        self.monitor = monitor
        self.pool = pool
        self.wakeup_sender = wakeup_sender
        self._retry_backoff = retry_backoff
        # Only partitions that have something queued, in the order in which they are served.
        self._queues: OrderedDict[TopicPartition, deque[ProducerBatch]] = OrderedDict()
        self._muted: set[TopicPartition] = set()
        self._cluster: ClusterSnapshot | None = None
        self._leaders: dict[TopicPartition, tuple[Node, int]] = {}
        # Queued or in flight, in the order in which they were finished.
        self._incomplete: dict[ProducerBatch, object] = {}
        self.failure: Exception | None = None
        self.awaited_pages = _NOT_AWAITED
        """How many free pages somebody waits for."""
        self.paused_until_ms = 0
        """When the pauses that brokers have asked for are over: what waits for memory or
        acknowledgements does not wait in vain until then."""
        self.slow_nodes: frozenset[int] = frozenset()
        """Nodes that have kept batches waiting for ``partitioner.availability.timeout.ms``."""
        self.busy_nodes: frozenset[int] = frozenset()
        """Nodes that cannot be sent anything before the network or time wakes the sender anyway."""

    # --- task thread ---------------------------------------------------------------------------

    def enqueue(self, batch: ProducerBatch) -> None:
        """Hand a finished batch over."""
        with self.monitor:
            if self.failure is not None:
                return  # whoever appends will be told
            self._incomplete[batch] = None
            batch.is_queued, batch.queued_at_ms = True, batch.created_at_ms
            self._queue(batch.topic_partition).append(batch)

    def enqueue_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Hand over the parts of a batch that was too large to be sent; its memory is free."""
        with self.monitor:
            for part in parts:
                self.enqueue(part)
            self.pool.give_back(batch.pages)
            batch.pages = []

    @contextmanager
    def awaiting(self, pages: int) -> Iterator[None]:
        """While somebody waits for that many free pages; the monitor must be held."""
        self.awaited_pages = pages
        try:
            yield
        finally:
            self.awaited_pages = _NOT_AWAITED

    @property
    def incomplete_count(self) -> int:
        """Batches that are not acknowledged yet, queued or in flight."""
        return len(self._incomplete)

    def queue_sizes(self, topic: str) -> dict[int, int]:
        """How many batches wait to be drained, by partition; those without any are left out."""
        with self.monitor:
            return {p.partition: len(q) for p, q in self._queues.items() if p.topic == topic}

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Bytes that wait for an acknowledgement, for error messages. The monitor must be held."""
        sizes: dict[TopicPartition, int] = {}
        for batch in self._incomplete:
            held = len(batch.pages) * self.pool.page_size
            sizes[batch.topic_partition] = sizes.get(batch.topic_partition, 0) + held
        return sizes

    # --- sender thread -------------------------------------------------------------------------

    def queued_partitions(self) -> list[TopicPartition]:
        """Partitions with a batch that waits to be drained."""
        with self.monitor:
            return list(self._queues)

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches that wait to be drained."""
        with self.monitor:
            return sum(batch.size_bytes for queue in self._queues.values() for batch in queue)

    def ready(self, cluster: ClusterSnapshot, now_ms: int) -> ReadyPartitions:
        """Which partitions have a batch that may be sent, by leader."""
        ready = ReadyPartitions()
        by_node, muted = ready.by_node, self._muted
        leaders = self._leaders_in(cluster)
        with self.monitor:
            for topic_partition, queue in self._queues.items():
                known = leaders.get(topic_partition)
                if known is None:
                    leader, epoch = _leader_of(topic_partition, cluster)
                    if leader is None:
                        ready.unknown_leader_topics.add(topic_partition.topic)
                        continue
                    known = leaders[topic_partition] = leader, epoch
                if topic_partition in muted:
                    continue
                head = queue[0]
                leader, head.leader_epoch = known
                head.topic_id = cluster.topic_id(topic_partition.topic)
                wait_ms = head.retry_at_ms - now_ms
                if wait_ms > 0 and not head.has_new_leader:
                    if ready.next_check_ms is None or wait_ms < ready.next_check_ms:
                        ready.next_check_ms = wait_ms
                    continue
                partitions = by_node.get(leader)
                if partitions is None:
                    partitions = by_node[leader] = []
                partitions.append(topic_partition)
        return ready

    def _leaders_in(self, cluster: ClusterSnapshot) -> dict[TopicPartition, tuple[Node, int]]:
        """Leaders and their epochs as far as they were looked up: every round asks for all."""
        if cluster is not self._cluster:
            self._cluster, self._leaders = cluster, {}
        return self._leaders

    def heads(self, partitions: Iterable[TopicPartition]) -> list[ProducerBatch]:
        """The batches that ``drain`` would take first: only the sender thread changes which."""
        with self.monitor:
            return [self._queues[p][0] for p in partitions if p in self._queues]

    def drain(
        self,
        partitions: Iterable[TopicPartition],
        max_size_bytes: int,
        now_ms: int,
        numbering: BatchNumbering,
    ) -> list[ProducerBatch]:
        """At most one batch per partition, ``max_size_bytes`` together (or a single larger one).

        ``numbering`` fixes their sequence numbers, and keeps some back. Partitions that were served
        come last the next time.
        """
        drained: list[ProducerBatch] = []
        size_bytes = 0
        with self.monitor:
            for topic_partition in partitions:
                queue = self._queues.get(topic_partition)
                if queue is None or numbering.must_wait(queue[0]):
                    continue
                if drained and size_bytes + queue[0].size_bytes > max_size_bytes:
                    break
                batch = queue.popleft()
                if queue:
                    self._queues.move_to_end(topic_partition)
                else:
                    del self._queues[topic_partition]
                size_bytes += batch.size_bytes
                batch.is_queued, batch.drained_at_ms = False, now_ms
                drained.append(batch)
                numbering.assign_sequence(batch)
        for batch in drained:
            if not batch.is_sealed:
                batch.seal()
        return drained

    def reenqueue(
        self, batch: ProducerBatch, now_ms: int, backoff: ExponentialBackoff | None = None
    ) -> None:
        """Put a batch back after a failed attempt, where its sequence number belongs.

        ``backoff``: instead of ``retry.backoff.ms``.
        """
        backoff = self._retry_backoff if backoff is None else backoff
        batch.reenqueued(now_ms, backoff.backoff_ms(batch.attempts - 1))
        self.put_back(batch, now_ms)

    def put_back(self, batch: ProducerBatch, now_ms: int) -> None:
        """As ``reenqueue``, without a pause."""
        with self.monitor:
            queue = self._queue(batch.topic_partition)
            batch.is_queued, batch.queued_at_ms = True, now_ms
            queue.insert(self._position(queue, batch), batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], now_ms: int) -> None:
        """Queue the parts of a split batch, if there are any, in its place; its memory is free.

        The parts' numbers tell where that is: what is queued, and they, may have been numbered anew
        since the batch was answered.
        """
        with self.monitor:
            if batch not in self._incomplete:
                return  # the producer has failed in the meantime
            self._incomplete = _with_parts(self._incomplete, batch, parts)
            if parts:
                queue = self._queue(batch.topic_partition)
                position = self._position(queue, parts[0])
                for offset, part in enumerate(parts):
                    part.is_queued, part.queued_at_ms = True, now_ms
                    queue.insert(position + offset, part)
            self.pool.give_back(batch.pages)
            batch.pages = []
            self.monitor.notify_all()

    def complete(self, batch: ProducerBatch) -> None:
        """Acknowledged: its memory is free, and whoever waits for either is told."""
        with self.monitor:
            if self._incomplete.pop(batch, _ABSENT) is _ABSENT:
                return  # the producer has failed in the meantime
            self.pool.give_back(batch.pages)
            batch.pages = []
            if not self._incomplete or self.pool.free_count >= self.awaited_pages:
                self.monitor.notify_all()

    def oldest_incomplete(self) -> ProducerBatch | None:
        """The batch, queued or in flight, that was finished first."""
        with self.monitor:
            return next(iter(self._incomplete), None)

    def incomplete(self) -> Iterator[ProducerBatch]:
        """Batches, queued or in flight, oldest first. The monitor must be held."""
        return iter(self._incomplete)

    def mute(self, topic_partition: TopicPartition) -> None:
        """Send nothing more of a partition until ``unmute``: keeps order without idempotence."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    def fail(self, failure: Exception) -> None:
        """Give up: forget everything queued and tell whoever waits. Only the first failure counts.

        Memory is not given back: a socket may still refer to it, and the producer ends here.
        """
        with self.monitor:
            if self.failure is None:
                self.failure = failure
            self._queues.clear()
            self._incomplete.clear()
            self.monitor.notify_all()

    # --- inside --------------------------------------------------------------------------------

    def _queue(self, topic_partition: TopicPartition) -> deque[ProducerBatch]:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
        return queue

    def _position(self, queue: deque[ProducerBatch], batch: ProducerBatch) -> int:
        """Where a batch that was drained before belongs: in front, but in sequence order."""
        position = 0
        while position < len(queue) and queue[position].precedes(batch):
            position += 1
        return position


def _leader_of(
    topic_partition: TopicPartition, cluster: ClusterSnapshot
) -> tuple[Node | None, int]:
    return cluster.leader(topic_partition), cluster.leader_epoch(topic_partition)


def _with_parts(
    incomplete: Iterable[ProducerBatch], split: ProducerBatch, parts: list[ProducerBatch]
) -> dict[ProducerBatch, object]:
    """``incomplete`` with ``parts`` in the place of the batch that they are of: they are as old.

    All of it anew: batches are split rarely, and looked up by age in every round.
    """
    batches: list[ProducerBatch] = []
    for batch in incomplete:
        batches += parts if batch is split else [batch]
    return dict.fromkeys(batches)
