"""Queues of finished batches: what is ready, and in which order it is drained."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import NoSequences, ProducerState, SequenceTracker
from spark_kafka_sink.record.record_batch import is_crc_valid
from tests.unit.batches import NODES, T0, T1, T2, make_batch, make_cluster

CLUSTER = make_cluster({"t": [(1, 0), (2, 0), (1, 0)]})
ALL = 10**9
UNNUMBERED = NoSequences()
PAGES, PAGE_SIZE = 8, 4096


class NoJitter:
    def random(self) -> float:
        return 0.5


@pytest.fixture
def accumulator() -> RecordAccumulator:
    pool = BufferPool(PAGES * PAGE_SIZE, PAGE_SIZE)
    return RecordAccumulator(
        ThreadMonitor(), pool, ExponentialBackoff(100, 1_000, NoJitter()), lambda: None
    )


@pytest.fixture
def state() -> ProducerState:
    state = ProducerState()
    state.set_producer(ProducerIdAndEpoch(42, 0))
    return state


def enqueue(accumulator: RecordAccumulator, *batches: ProducerBatch) -> None:
    for batch in batches:
        accumulator.enqueue(batch)


def fill(
    accumulator: RecordAccumulator, topic_partition: TopicPartition, count: int
) -> list[ProducerBatch]:
    batches = [make_batch(topic_partition) for _ in range(count)]
    enqueue(accumulator, *batches)
    return batches


def drain(
    accumulator: RecordAccumulator, *partitions: TopicPartition, by: SequenceTracker = UNNUMBERED
) -> list[ProducerBatch]:
    return accumulator.drain(partitions, ALL, 0, by)


def failed(accumulator: RecordAccumulator, batch: ProducerBatch, now_ms: int = 0) -> None:
    """The batch's attempt failed, as the sender says it."""
    batch.note_failure(NODES[1], error_named("REQUEST_TIMED_OUT"), None)
    accumulator.reenqueue(batch, now_ms)


# --- ready ----------------------------------------------------------------------------------------


def test_ready_partitions_by_leader(accumulator: RecordAccumulator) -> None:
    enqueue(accumulator, *(make_batch(p) for p in (T0, T1, T2, T0)))
    ready = accumulator.ready(CLUSTER, 0)
    assert ready.by_node == {NODES[1]: [T0, T2], NODES[2]: [T1]}
    assert ready.next_check_ms is None
    assert ready.unknown_leader_topics == set()


def test_nothing_queued_nothing_ready(accumulator: RecordAccumulator) -> None:
    assert accumulator.ready(CLUSTER, 0).by_node == {}
    enqueue(accumulator, make_batch(T0))
    drain(accumulator, T0)
    assert accumulator.ready(CLUSTER, 0).by_node == {}


def test_partitions_without_leader(accumulator: RecordAccumulator) -> None:
    cluster = make_cluster({"t": [(1, 0), (-1, 3)]})
    enqueue(accumulator, make_batch(T0), make_batch(T1), make_batch(TopicPartition("new", 0)))
    ready = accumulator.ready(cluster, 0)
    assert ready.by_node == {NODES[1]: [T0]}
    assert ready.unknown_leader_topics == {"t", "new"}


def test_a_muted_partition_is_not_ready(accumulator: RecordAccumulator) -> None:
    enqueue(accumulator, make_batch(T0), make_batch(T1))
    accumulator.mute(T0)
    assert accumulator.ready(CLUSTER, 0).by_node == {NODES[2]: [T1]}
    accumulator.unmute(T0)
    accumulator.unmute(T2)
    assert T0 in accumulator.ready(CLUSTER, 0).by_node[NODES[1]]


def test_a_failed_batch_backs_off_and_longer_each_time(accumulator: RecordAccumulator) -> None:
    [batch] = fill(accumulator, T0, 1)
    for pause_ms in (100, 200, 400):
        accumulator.ready(CLUSTER, 0)
        assert drain(accumulator, T0) == [batch]
        failed(accumulator, batch, now_ms=1_000)
        ready = accumulator.ready(CLUSTER, 1_000)
        assert (ready.by_node, ready.next_check_ms) == ({}, pause_ms)
        assert accumulator.ready(CLUSTER, 1_000 + pause_ms - 1).next_check_ms == 1
        assert accumulator.ready(CLUSTER, 1_000 + pause_ms).by_node == {NODES[1]: [T0]}


def test_the_next_check_is_the_earliest(accumulator: RecordAccumulator) -> None:
    for topic_partition, now_ms in ((T0, 50), (T1, 10), (T2, 70)):
        [batch] = fill(accumulator, topic_partition, 1)
        accumulator.ready(CLUSTER, 0)
        drain(accumulator, topic_partition)
        failed(accumulator, batch, now_ms)
    assert accumulator.ready(CLUSTER, 100).next_check_ms == 10


def test_a_new_leader_ends_the_pause(accumulator: RecordAccumulator) -> None:
    [batch] = fill(accumulator, T0, 1)
    accumulator.ready(CLUSTER, 0)
    drain(accumulator, T0)
    failed(accumulator, batch)
    assert accumulator.ready(CLUSTER, 1).by_node == {}
    moved = make_cluster({"t": [(2, 1)]})
    assert accumulator.ready(moved, 1).by_node == {NODES[2]: [T0]}


def test_a_pause_holds_back_what_is_behind(accumulator: RecordAccumulator) -> None:
    first, second = fill(accumulator, T0, 2)
    accumulator.ready(CLUSTER, 0)
    drain(accumulator, T0)
    failed(accumulator, first)
    assert accumulator.ready(CLUSTER, 99).by_node == {}
    assert drain(accumulator, T0) + drain(accumulator, T0) == [first, second]


# --- drain ----------------------------------------------------------------------------------------


def test_one_batch_per_partition_in_order(accumulator: RecordAccumulator) -> None:
    first, second = fill(accumulator, T0, 2)
    other = make_batch(T1)
    enqueue(accumulator, other)
    assert accumulator.queue_sizes("t") == {0: 2, 1: 1}
    assert accumulator.drain([T0, T1, T2], ALL, 77, UNNUMBERED) == [first, other]
    assert first.drained_at_ms == 77
    assert drain(accumulator, T0, T1) == [second]
    assert drain(accumulator, T0, T1) == []
    assert accumulator.queue_sizes("t") == {}
    assert accumulator.incomplete_count == 3


def test_a_request_is_limited_in_size(accumulator: RecordAccumulator) -> None:
    batches = [make_batch(p, size_bytes=100) for p in (T0, T1, T2)]
    enqueue(accumulator, *batches)
    assert accumulator.drain([T0, T1, T2], 200, 0, UNNUMBERED) == batches[:2]
    assert accumulator.drain([T0, T1, T2], 99, 0, UNNUMBERED) == batches[2:]


def test_a_batch_larger_than_a_request_goes_alone(accumulator: RecordAccumulator) -> None:
    large, small = make_batch(T0, size_bytes=500), make_batch(T1)
    enqueue(accumulator, large, small)
    assert accumulator.drain([T0, T1], 200, 0, UNNUMBERED) == [large]
    assert accumulator.drain([T0, T1], 200, 0, UNNUMBERED) == [small]


def test_no_partition_starves(accumulator: RecordAccumulator) -> None:
    """Requests hold two batches, three partitions always have some: all are served alike."""
    cluster = make_cluster({"t": [(1, 0)] * 3})
    for topic_partition in (T0, T1, T2):
        fill(accumulator, topic_partition, 20)
    served = dict.fromkeys((T0, T1, T2), 0)
    for _ in range(12):
        partitions = accumulator.ready(cluster, 0).by_node[NODES[1]]
        for batch in accumulator.drain(partitions, 200, 0, UNNUMBERED):
            served[batch.topic_partition] += 1
    assert served == {T0: 8, T1: 8, T2: 8}


def test_drained_batches_are_sealed_once(
    accumulator: RecordAccumulator, state: ProducerState
) -> None:
    [batch] = fill(accumulator, T0, 1)
    drain(accumulator, T0, by=state)
    sent = b"".join(batch.buffers)
    assert is_crc_valid(sent)
    failed(accumulator, batch)
    drain(accumulator, T0, by=state)
    assert b"".join(batch.buffers) == sent


def test_without_idempotence_batches_have_no_numbers(accumulator: RecordAccumulator) -> None:
    [batch] = fill(accumulator, T0, 1)
    drain(accumulator, T0)
    assert not batch.has_sequence
    assert batch.is_closed


# --- order of retries -----------------------------------------------------------------------------


def in_flight_batches(
    accumulator: RecordAccumulator, state: ProducerState, count: int
) -> list[ProducerBatch]:
    """Batches of T0 in flight, after a first that is acknowledged."""
    [first] = fill(accumulator, T0, 1)
    drain(accumulator, T0, by=state)
    state.handle_completed_batch(first, 0)
    accumulator.complete(first)
    batches = fill(accumulator, T0, count)
    for batch in batches:
        assert drain(accumulator, T0, by=state) == [batch]
    return batches


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_retries_go_back_in_sequence_order(
    accumulator: RecordAccumulator, state: ProducerState, order: tuple[int, ...]
) -> None:
    batches = in_flight_batches(accumulator, state, 3)
    [new] = fill(accumulator, T0, 1)
    for index in order:
        failed(accumulator, batches[index])
    again = []
    for _ in range(4):
        [batch] = drain(accumulator, T0, by=state)
        again.append(batch)
        state.handle_completed_batch(batch, 0)
    assert again == [*batches, new]


def test_a_retry_is_not_overtaken(accumulator: RecordAccumulator, state: ProducerState) -> None:
    first, second = in_flight_batches(accumulator, state, 2)
    failed(accumulator, second)
    assert drain(accumulator, T0, by=state) == []
    state.handle_completed_batch(first, 0)
    assert drain(accumulator, T0, by=state) == [second]


def test_a_retry_without_idempotence_goes_first(accumulator: RecordAccumulator) -> None:
    first, second = fill(accumulator, T0, 2)
    drain(accumulator, T0)
    failed(accumulator, first)
    assert drain(accumulator, T0) == [first]
    assert drain(accumulator, T0) == [second]


def test_parts_of_a_batch_that_was_too_large(
    accumulator: RecordAccumulator, state: ProducerState
) -> None:
    pages = accumulator.pool.take(2)
    batch = make_batch(T0, 4, pages=pages)
    enqueue(accumulator, batch)
    drain(accumulator, T0, by=state)
    [behind] = fill(accumulator, T0, 1)
    parts = [make_batch(T0, 2), make_batch(T0, 2)]
    for index, part in enumerate(parts):
        part.set_producer_state(batch.producer, 2 * index)
    state.replace(batch, parts)
    accumulator.replace(batch, parts, 0)
    assert accumulator.pool.free_count == PAGES
    assert accumulator.incomplete_count == 3
    sent = []
    for _ in range(3):
        [one] = drain(accumulator, T0, by=state)
        sent.append(one)
        state.handle_completed_batch(one, 0)
    assert sent == [*parts, behind]


def test_parts_of_a_split_batch_keep_its_place_in_time(accumulator: RecordAccumulator) -> None:
    """The oldest batch decides when delivery.timeout.ms is over, and parts are no younger."""
    first, split, last = fill(accumulator, T0, 3)
    parts = [make_batch(T0, 2), make_batch(T0, 2)]
    accumulator.replace(split, parts, 0)
    for batch in (first, *parts, last):
        assert accumulator.oldest_incomplete() is batch
        accumulator.complete(batch)
    assert accumulator.oldest_incomplete() is None


def test_parts_of_a_batch_that_was_not_sent_yet(accumulator: RecordAccumulator) -> None:
    batch = make_batch(T0, 4, pages=accumulator.pool.take(3))
    parts = [make_batch(T0, 2), make_batch(T0, 2)]
    accumulator.enqueue_parts(batch, parts)
    assert (accumulator.pool.free_count, batch.pages) == (PAGES, [])
    assert drain(accumulator, T0) + drain(accumulator, T0) == parts


# --- age, end -------------------------------------------------------------------------------------


def test_the_oldest_batch_is_the_one_closed_first(accumulator: RecordAccumulator) -> None:
    assert accumulator.oldest_incomplete() is None
    first, second = make_batch(T0), make_batch(T1)
    enqueue(accumulator, first, second)
    drain(accumulator, T0, T1)
    failed(accumulator, first)
    assert accumulator.oldest_incomplete() is first
    accumulator.complete(first)
    assert accumulator.oldest_incomplete() is second


def test_after_a_failure_nothing_is_sent_or_taken(accumulator: RecordAccumulator) -> None:
    in_flight, queued = fill(accumulator, T0, 2)
    in_flight.pages = accumulator.pool.take(1)
    drain(accumulator, T0)
    first = RuntimeError("first")
    accumulator.fail(first)
    accumulator.fail(RuntimeError("second"))
    assert accumulator.failure is first
    enqueue(accumulator, make_batch(T1))
    assert accumulator.ready(CLUSTER, 0).by_node == {}
    assert accumulator.incomplete_count == 0
    assert accumulator.oldest_incomplete() is None
    # A socket may still refer to its memory.
    accumulator.complete(in_flight)
    accumulator.replace(queued, [make_batch(T0)], 0)
    assert accumulator.pool.free_count == PAGES - 1
    assert drain(accumulator, T0, T1) == []
