"""The sticky partition: short queues are preferred, and slow nodes are left out of it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.partitioner import NO_SLOT, SlotAssigner, TopicSlots
from tests.unit.batches import T0, T1, T2, make_batch, make_cluster

CLUSTER = make_cluster({"t": [(1, 0), (2, 0), (3, 0)]})
CHOICES = 3000
_AVAILABILITY_TIMEOUT_MS = 100


@pytest.fixture
def accumulator() -> RecordAccumulator:
    backoff = ExponentialBackoff(100, 1_000, random.Random(1))
    return RecordAccumulator(
        ThreadMonitor(),
        BufferPool(1 << 16, 4096),
        backoff,
        lambda: None,
        _AVAILABILITY_TIMEOUT_MS,
    )


def chosen(accumulator: RecordAccumulator) -> dict[int, float]:
    """How often each partition is chosen, of one."""
    assigner = SlotAssigner(ProducerConfig.parse({"bootstrap.servers": "h:1"}), accumulator)
    topic = TopicSlots("t", 0, 3, random.Random(7))
    counts: Counter[int] = Counter()
    for _ in range(CHOICES):
        topic.sticky_slot = NO_SLOT
        assigner.choose_sticky(topic, CLUSTER)
        counts[topic.sticky_slot] += 1
    return {slot: count / CHOICES for slot, count in counts.items()}


def fill(accumulator: RecordAccumulator, **sizes: int) -> None:
    for name, count in sizes.items():
        for _ in range(count):
            accumulator.enqueue(make_batch({"t0": T0, "t1": T1, "t2": T2}[name]))


@pytest.mark.parametrize("queued", [0, 4])
def test_equal_queues_are_taken_in_turn(accumulator, queued):
    fill(accumulator, t0=queued, t1=queued, t2=queued)
    assert set(chosen(accumulator).values()) == {1 / 3}


def test_a_queue_counts_by_how_much_shorter_it_is_than_the_longest(accumulator):
    fill(accumulator, t0=3, t1=1)  # weights 1, 3 and 4
    assert chosen(accumulator) == pytest.approx({0: 1 / 8, 1: 3 / 8, 2: 4 / 8}, abs=0.03)


def test_the_queue_of_a_slow_node_does_not_count(accumulator):
    fill(accumulator, t0=3, t1=50)
    accumulator.update_node_latency(2, could_send=False, now_ms=0)
    accumulator.update_node_latency(2, could_send=False, now_ms=_AVAILABILITY_TIMEOUT_MS + 1)
    assert chosen(accumulator) == pytest.approx({0: 1 / 5, 2: 4 / 5}, abs=0.03)


def test_what_is_remembered_ends_with_the_snapshot_and_with_slow_nodes():
    topic = TopicSlots("t", 0, 3, random.Random(7))
    nobody: frozenset[int] = frozenset()
    assert topic.available(CLUSTER, nobody) == [0, 1, 2]
    assert topic.available(CLUSTER, frozenset({2})) == [0, 2]
    assert topic.available(make_cluster({"t": [(9, 0), (2, 0), (3, 0)]}), nobody) == [1, 2]
    assert topic.available(CLUSTER, nobody) == [0, 1, 2]
