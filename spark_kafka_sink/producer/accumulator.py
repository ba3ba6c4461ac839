"""Queues of finished batches, one per partition, and the buffer pool with their bytes.

The task thread enqueues batches. The sender thread asks which batches are ready, drains them, and
completes or re-enqueues them. One monitor guards the queues and the buffer pool. Only the sender
thread mutes partitions.

``appender.py`` has the other half of Java's accumulator: ``linger.ms``, and the task thread's wait
for pages of the buffer pool. ``open_batches.py`` has batches that are not finished.

Source: ``RecordAccumulator``, ``RecordAccumulator.NodeLatencyStats``, ``BufferPool``; KIP-794.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import field

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.model import Node, TopicPartition, dataclass
from spark_kafka_sink.network.client import MOST_POSTPONED_MS
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import SequenceTracker

NO_PAGE = -1
# The sorted part of the stack: the pages of Kafka's default buffer.memory. The bound keeps the sort
# cheap if buffer.memory is larger.
_ORDERED_PAGES = 1024


class BufferPool:
    """``buffer.memory``: pages of ``page_size`` bytes in one arena of ``memory_bytes``.

    Freed pages go on top of a stack. The pages touched last are reused first, because the processor
    caches them and the operating system has mapped them. The top of the stack is handed out by
    address, so that pages of a batch are often adjacent. Adjacent pages are one buffer for CRC and
    socket. The pool allocates nothing but pages, so memory neither fragments nor exceeds the arena.

    Not thread-safe: the accumulator's monitor guards it.
    """

    def __init__(self, memory_bytes: int, page_size: int) -> None:
        self.page_size = page_size
        self.pages_count = memory_bytes // page_size
        self._arena = np.empty(self.pages_count * page_size, np.uint8)
        self.arena_address: int = self._arena.ctypes.data
        self._view = self._arena.data
        # The successor of each page in its batch; the append kernel writes it.
        self.next_page: npt.NDArray[np.int32] = np.full(self.pages_count, NO_PAGE, np.int32)
        # The lowest pages are taken first, so that a small job touches little memory.
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
        """Take ``count`` pages, the lowest one last. The caller has checked ``free_count``."""
        top = self._free[-max(count, _ORDERED_PAGES) :]
        top.sort(reverse=True)
        rest, taken = top[: len(top) - count], top[len(top) - count :]
        self._free[-len(top) :] = rest
        return taken

    def deallocate(self, pages: Sequence[int]) -> None:
        """Put pages back. Their content is lost."""
        self._free.extend(pages)

    def view(self, page: int, count: int) -> memoryview:
        """Return a writable view of ``count`` bytes from the start of ``page`` on."""
        start = page * self.page_size
        return self._view[start : start + count]

    def views(self, pages: Sequence[int], size_bytes: int) -> list[memoryview]:
        """Return views of the first ``size_bytes`` of a chain; adjacent pages share a view."""
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
        """Return the pages of a batch, from ``first_page`` on."""
        pages = []
        page = first_page
        while page != NO_PAGE:
            pages.append(page)
            page = int(self.next_page[page])
        return pages


_NO_TIMEOUT = 0


class NodeLatency:
    """Records for each node since when it has not accepted ready batches.

    Used for ``partitioner.availability.timeout.ms`` (KIP-794). A node for which nothing waits any
    more is not slow. In the Java producer it stays slow, because only another batch for it would
    show that it is not, and a slow node gets none.
    """

    def __init__(self, availability_timeout_ms: int) -> None:
        self._timeout_ms = availability_timeout_ms
        self._waiting_since_ms: dict[int, int] = {}
        self.slow_nodes: frozenset[int] = frozenset()
        """Nodes that have kept ready batches waiting for longer than the timeout."""

    def note(self, node_id: int, could_send: bool, now_ms: int) -> None:
        """Record whether a node with a ready batch can accept it now."""
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

    @property
    def has_waited(self) -> bool:
        """Return True if a node has kept batches waiting."""
        return bool(self._waiting_since_ms)

    def keep(self, node_ids: Set[int]) -> None:
        """Forget all other nodes, because no batch waits for them."""
        self.slow_nodes = self.slow_nodes & node_ids
        self._waiting_since_ms = {
            n: ms for n, ms in self._waiting_since_ms.items() if n in node_ids
        }


_ABSENT = object()
# More pages than any pool has.
_NOT_AWAITED = 2**63


@dataclass(slots=True)
class ReadyPartitions:
    """Partitions with a batch that may be sent now.

    by_node: these partitions, by leader
    next_check_ms: after how many ms the first batch in backoff may be ready; None without one
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
        availability_timeout_ms: int = _NO_TIMEOUT,
    ) -> None:
        """``wakeup_sender`` ends the sender thread's network poll.

        availability_timeout_ms: ``partitioner.availability.timeout.ms``; 0 for none
        """
        self.monitor = monitor
        self.pool = pool
        self.wakeup_sender = wakeup_sender
        self._retry_backoff = retry_backoff
        # Only partitions with queued batches, in the order in which they are served.
        self._queues: OrderedDict[TopicPartition, deque[ProducerBatch]] = OrderedDict()
        self._muted: set[TopicPartition] = set()
        self._cluster: ClusterSnapshot | None = None
        self._leaders: dict[TopicPartition, tuple[Node, int]] = {}
        # Batches queued or in flight, in the order in which they were finished.
        self._incomplete: dict[ProducerBatch, object] = {}
        self._failure: Exception | None = None
        # Number of free pages that the task thread waits for.
        self._awaited_pages = _NOT_AWAITED
        self._paused_until_ms = self._held_until_ms = 0
        self._node_latency = NodeLatency(availability_timeout_ms)
        self._busy_nodes: frozenset[int] = frozenset()

    @property
    def failure(self) -> Exception | None:
        """Return why the producer has failed; None if it has not."""
        return self._failure

    def raise_if_failed(self) -> None:
        """Raise the failure of the producer, if it has failed."""
        if self._failure is not None:
            raise self._failure

    def begin_task(self) -> None:
        """Forget which nodes were slow for the task before. The caller holds the monitor."""
        self._node_latency.keep(frozenset())

    # --- task thread ---------------------------------------------------------------------------

    def enqueue(self, batch: ProducerBatch) -> None:
        """Enqueue a finished batch."""
        with self.monitor:
            if self._failure is not None:
                return  # the next append raises the failure
            self._incomplete[batch] = None
            batch.is_queued, batch.queued_at_ms = True, batch.created_at_ms
            self._queue(batch.topic_partition).append(batch)

    def enqueue_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Enqueue the parts of a batch larger than a request, and free the batch's memory."""
        with self.monitor:
            for part in parts:
                self.enqueue(part)
            self.pool.deallocate(batch.pages)
            batch.pages = []

    @contextmanager
    def awaiting_pages(self, pages: int) -> Iterator[None]:
        """Announce a wait for ``pages`` free pages. The caller holds the monitor."""
        self._awaited_pages = pages
        try:
            yield
        finally:
            self._awaited_pages = _NOT_AWAITED

    def lower_awaited_pages(self, pages: int) -> None:
        """Lower the number of pages of ``awaiting_pages``. The caller holds the monitor."""
        self._awaited_pages = pages

    def timeout_start_ms(self, began_ms: int) -> int:
        """Return when the timeout of a wait starts that began at ``began_ms``.

        The rate limit does not count, nor do pauses by brokers, up to ``MOST_POSTPONED_MS``.
        """
        paused_until_ms = min(self._paused_until_ms, began_ms + MOST_POSTPONED_MS)
        return max(began_ms, paused_until_ms, self._held_until_ms)

    def wakeup_sender_for(self, leader: Node | None) -> None:
        """Wake the sender for a new batch, unless its leader accepts no request now.

        The network or a timer wakes the sender anyway when such a leader accepts requests again.
        """
        if leader is None or leader.node_id not in self._busy_nodes:
            self.wakeup_sender()

    @property
    def slow_nodes(self) -> frozenset[int]:
        """Return the nodes that keep batches waiting for longer than the availability timeout."""
        return self._node_latency.slow_nodes

    @property
    def incomplete_count(self) -> int:
        """Return the number of batches queued or in flight."""
        return len(self._incomplete)

    def queue_sizes(self, topic: str) -> dict[int, int]:
        """Return the number of queued batches per partition, without partitions that have none."""
        with self.monitor:
            return {p.partition: len(q) for p, q in self._queues.items() if p.topic == topic}

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Return the unacknowledged bytes, for error messages. The caller holds the monitor."""
        sizes: dict[TopicPartition, int] = {}
        for batch in self._incomplete:
            held = len(batch.pages) * self.pool.page_size
            sizes[batch.topic_partition] = sizes.get(batch.topic_partition, 0) + held
        return sizes

    # --- sender thread -------------------------------------------------------------------------

    def set_busy_nodes(self, node_ids: Iterable[int]) -> None:
        """Record the nodes that accept no request now: new batches for them wake no one."""
        self._busy_nodes = frozenset(node_ids)

    def set_paused_until(self, until_ms: int, held_until_ms: int) -> None:
        """Record the end of the pauses by brokers, and of a wait for the rate limit."""
        self._paused_until_ms, self._held_until_ms = until_ms, held_until_ms

    def update_node_latency(self, node_id: int, could_send: bool, now_ms: int) -> None:
        """Record whether a node with a ready batch can accept it now."""
        self._node_latency.note(node_id, could_send, now_ms)

    def queued_partitions(self) -> list[TopicPartition]:
        """Return the partitions with queued batches."""
        with self.monitor:
            return list(self._queues)

    def has_queued(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if at least one of ``partitions`` has queued batches."""
        with self.monitor:
            return any(partition in self._queues for partition in partitions)

    @property
    def queued_bytes(self) -> int:
        """Return the bytes of all queued batches."""
        with self.monitor:
            return sum(batch.size_bytes for queue in self._queues.values() for batch in queue)

    def ready(self, cluster: ClusterSnapshot, now_ms: int) -> ReadyPartitions:
        """Return the partitions with a batch that may be sent, by leader."""
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
            if self._node_latency.has_waited:
                known_leaders = (leaders.get(topic_partition) for topic_partition in self._queues)
                self._node_latency.keep({known[0].node_id for known in known_leaders if known})
        return ready

    def _leaders_in(self, cluster: ClusterSnapshot) -> dict[TopicPartition, tuple[Node, int]]:
        """Return the cache of leaders and their epochs; every round needs all leaders."""
        if cluster is not self._cluster:
            self._cluster, self._leaders = cluster, {}
        return self._leaders

    def heads(self, partitions: Iterable[TopicPartition]) -> list[ProducerBatch]:
        """Return the head of each partition's queue; only the sender thread changes heads."""
        with self.monitor:
            return [self._queues[p][0] for p in partitions if p in self._queues]

    def drain(
        self,
        partitions: Iterable[TopicPartition],
        max_size_bytes: int,
        now_ms: int,
        tracker: SequenceTracker,
    ) -> list[ProducerBatch]:
        """Drain one batch per partition at most, up to ``max_size_bytes`` (or one larger batch).

        ``tracker`` assigns their sequences, and holds back batches that must wait. Drained
        partitions are served last the next time.
        """
        drained: list[ProducerBatch] = []
        size_bytes = 0
        with self.monitor:
            for topic_partition in partitions:
                queue = self._queues.get(topic_partition)
                if queue is None or tracker.must_wait(queue[0]):
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
                tracker.assign_sequence(batch)
        for batch in drained:
            if not batch.is_closed:
                batch.close()
        return drained

    def reenqueue(
        self, batch: ProducerBatch, now_ms: int, backoff: ExponentialBackoff | None = None
    ) -> None:
        """Re-enqueue a batch after a failed attempt, in sequence order, with a backoff.

        ``backoff`` replaces ``retry.backoff.ms``.
        """
        backoff = self._retry_backoff if backoff is None else backoff
        batch.reenqueued(now_ms, backoff.backoff_ms(batch.attempts - 1))
        self.reenqueue_now(batch, now_ms)

    def reenqueue_now(self, batch: ProducerBatch, now_ms: int) -> None:
        """Re-enqueue a batch in sequence order, without a backoff."""
        with self.monitor:
            queue = self._queue(batch.topic_partition)
            batch.is_queued, batch.queued_at_ms = True, now_ms
            queue.insert(self._position(queue, batch), batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], now_ms: int) -> None:
        """Replace a batch in the queue by its parts, if any, and free its memory.

        The parts' sequences decide their position, because the queue and the parts may have been
        renumbered since the batch was answered.
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
            self.pool.deallocate(batch.pages)
            batch.pages = []
            self.monitor.notify_all()

    def complete(self, batch: ProducerBatch) -> None:
        """Remove an acknowledged batch and free its memory; notify waiting threads if needed."""
        with self.monitor:
            if self._incomplete.pop(batch, _ABSENT) is _ABSENT:
                return  # the producer has failed in the meantime
            self.pool.deallocate(batch.pages)
            batch.pages = []
            if not self._incomplete or self.pool.free_count >= self._awaited_pages:
                self.monitor.notify_all()

    def oldest_incomplete(self) -> ProducerBatch | None:
        """Return the incomplete batch that was finished first; None without one."""
        with self.monitor:
            return next(iter(self._incomplete), None)

    def incomplete(self) -> Iterator[ProducerBatch]:
        """Return the batches queued or in flight, oldest first. The caller holds the monitor."""
        return iter(self._incomplete)

    def mute(self, topic_partition: TopicPartition) -> None:
        """Mute a partition until ``unmute``, which keeps its order without idempotence."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    def fail(self, failure: Exception) -> None:
        """Fail the producer: drop all batches, notify waiting threads. The first failure counts.

        Memory is not freed, because a socket may still refer to it and the producer ends here.
        """
        with self.monitor:
            if self._failure is None:
                self._failure = failure
            self._queues.clear()
            self._incomplete.clear()
            self.monitor.notify_all()

    # --- internals -----------------------------------------------------------------------------

    def _queue(self, topic_partition: TopicPartition) -> deque[ProducerBatch]:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
        return queue

    def _position(self, queue: deque[ProducerBatch], batch: ProducerBatch) -> int:
        """Return the position of a batch that was drained before: in front, in sequence order."""
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
    """Return ``incomplete`` with ``parts`` in place of ``split``, because the parts are as old.

    Copies the whole dictionary: splits are rare, and every round looks up batches by age.
    """
    batches: list[ProducerBatch] = []
    for batch in incomplete:
        batches += parts if batch is split else [batch]
    return dict.fromkeys(batches)
