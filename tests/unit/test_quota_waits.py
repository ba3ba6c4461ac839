"""For how long a batch has waited for pauses of brokers: of those that it waited for, while it did."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.network.client import ThrottleTimes
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.quotas import ThrottleTracker
from tests.unit.batches import NODES, T1, make_batch, make_cluster

LED_BY_1 = make_cluster({"t": [(1, 0)]})
LED_BY_2 = make_cluster({"t": [(2, 1)]})


@pytest.fixture
def accumulator() -> RecordAccumulator:
    backoff = ExponentialBackoff(100, 1_000, random.Random(1))
    return RecordAccumulator(ThreadMonitor(), BufferPool(1 << 16, 4096), backoff, lambda: None)


def queued(accumulator: RecordAccumulator) -> ProducerBatch:
    batch = make_batch()
    accumulator.enqueue(batch)
    return batch


def test_a_pause_that_was_over_before_its_broker_led_does_not_count(accumulator):
    pauses = ThrottleTimes()
    waits, batch = ThrottleTracker(pauses, LED_BY_1), queued(accumulator)
    pauses.note(2, 0, 1_000)
    pauses.note(2, 5_500, 5_700)
    waits.update_leaders(LED_BY_2, accumulator, 5_000)
    assert waits.paused_ms(batch, 6_000) == 200


def test_what_a_former_leader_has_paused_counts(accumulator):
    pauses = ThrottleTimes()
    waits, batch = ThrottleTracker(pauses, LED_BY_1), queued(accumulator)
    pauses.note(1, 1_000, 9_000)
    waits.update_leaders(LED_BY_2, accumulator, 5_000)
    assert waits.paused_ms(batch, 6_000) == 4_000
    # Of a leader that comes back, only what it pauses from then on.
    waits.update_leaders(LED_BY_1, accumulator, 8_000)
    assert waits.paused_ms(batch, 8_500) == 4_500


def test_what_is_in_flight_has_waited_for_its_broker_since_it_was_sent(accumulator):
    """Its broker, which is no leader any more, has paused before that, too."""
    pauses = ThrottleTimes()
    waits, batch = ThrottleTracker(pauses, LED_BY_2), queued(accumulator)
    batch.is_queued, batch.drained_at_ms, batch.sent_to = False, 5_000, NODES[1]
    pauses.note(1, 0, 1_000)
    pauses.note(1, 6_000, 7_000)
    assert waits.paused_ms(batch, 8_000) == 1_000
    waits.record_response([batch], NODES[1], 8_000)
    batch.is_queued = True
    assert waits.paused_ms(batch, 9_000) == 1_000


def test_what_is_forgotten_is_no_more_than_nobody_asks_about(accumulator):
    pauses = ThrottleTimes()
    waits, batch = ThrottleTracker(pauses, LED_BY_1), queued(accumulator)
    batch.created_at_ms = 2_000
    pauses.note(1, 0, 1_000)
    pauses.note(1, 3_000, 4_000)
    waits.update_leaders(LED_BY_2, accumulator, 5_000)
    waits.record_limited({T1}, 0, 1_000)
    waits.forget_before(2_000)
    assert waits.paused_ms(batch, 6_000) == 1_000
    assert pauses.between(1, 0, 9_000) == [(3_000, 4_000)]
    assert not waits._limited


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_shorter_pause_does_not_cut_off_a_longer_one(node_id: int) -> None:
    pauses = ThrottleTimes()
    pauses.note(1, 0, 10_000)
    pauses.note(node_id, 100, 500)
    assert pauses.latest_end_ms == 10_000
    assert pauses.between(1, 0, 20_000) == [(0, 10_000)]
