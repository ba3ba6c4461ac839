"""Batches that are full and go on growing, because all that they could do is wait.

A batch beyond ``batch.size`` saves nobody anything while brokers keep up: it would be sent later.
Where its partition has another one in the queue already, it is not sent any sooner for being
finished, and a larger one costs sender and brokers less. So it grows, by ``batch.size`` at a time,
1 KiB at least, until the queue is empty or the limit is reached: what ``max.request.size`` and the
topic's ``max.message.bytes`` and ``segment.bytes`` allow, of records before compression, so that no
broker refuses it whatever it makes of it.

Not for a topic of which that is not known, nor under a limit of the query, where a batch is what is
sent at a time.
"""

from __future__ import annotations

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.open_batches import OpenBatches
from spark_kafka_sink.producer.topic_slots import TopicSlots

_NEVER = 0
# Larger ones gain nothing, and a codec needs as much memory besides buffer.memory.
_MOST_BYTES = 1 << 20
# That buffer.memory is to hold.
_LEAST_BATCHES = 8
# With a small batch.size each row, or each byte of it, would take a step of its own.
_LEAST_STEP_BYTES = 1 << 10


class GrowingBatches:
    """Which slots have a batch beyond their topic's limit. For whoever has the turn at them."""

    def __init__(
        self, config: ProducerConfig, accumulator: RecordAccumulator, open_batches: OpenBatches
    ) -> None:
        self._accumulator = accumulator
        self._open_batches = open_batches
        self._batch_size = config.batch_size
        growth = None if config.limits is not None else config.batch_growth
        self._topic = None if growth is None else growth.topic
        self._most_bytes = _NEVER
        if growth is not None:
            memory_bytes = accumulator.pool.memory_bytes // _LEAST_BATCHES
            accepted = min(growth.accepted_bytes, config.max_request_size)
            self._most_bytes = min(largest_uncompressed(accepted), memory_bytes, _MOST_BYTES)
        self._slots: dict[int, TopicSlots] = {}

    def grow(self, topic: TopicSlots, slot: int, cluster: ClusterSnapshot) -> bool:
        """Give the batch of ``slot``, which is full, more room; False if it is to be finished."""
        if topic.name != self._topic or not self._would_wait(slot):
            return False
        # The limit of all its topic's batches may have been set anew meanwhile.
        limit_bytes, size_bytes = self._open_batches.limit_and_size_bytes(slot)
        reached_bytes = max(limit_bytes, size_bytes)
        if reached_bytes >= self._most_bytes:
            return False
        if topic.sticky_slot == slot and not self._accumulator.busy_nodes >= topic.leaders(cluster):
            return False  # rows without key go to a broker that has nothing to do
        step_bytes = max(topic.limit_bytes(self._batch_size), _LEAST_STEP_BYTES)
        larger_bytes = min(reached_bytes + step_bytes, self._most_bytes)
        self._open_batches.set_limit(slot, 1, larger_bytes)
        self._slots[slot] = topic
        return True

    def finished(self, slot: int) -> None:
        """Its batch was taken out: the next one begins with the topic's limit."""
        topic = self._slots.pop(slot, None)
        if topic is not None:
            self._open_batches.set_limit(slot, 1, topic.limit_bytes(self._batch_size))

    def first_due(self) -> int | None:
        """A slot whose batch would not wait any more."""
        return next((slot for slot in self._slots if not self._would_wait(slot)), None)

    def stop(self) -> None:
        """The brokers accept less than the driver has found out: nothing grows any more."""
        self._most_bytes = _NEVER

    def _would_wait(self, slot: int) -> bool:
        return self._accumulator.is_queued(self._open_batches.topic_partition(slot))


def largest_uncompressed(size: int) -> int:
    """Bytes of which no codec makes more than ``size``, as ``largest_when_compressed`` has it;
    negative if there are none.
    """
    return (size - 64) * 64 // 65
