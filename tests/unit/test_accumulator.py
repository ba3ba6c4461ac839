"""The producer's memory and its queues: pages, what is ready and drained, pauses of brokers and of
the limit, where rows without a key go, and how far a batch is filled and lingers.
"""

import random
import threading
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import TransactionError, error_named
from spark_kafka_sink.base.model import ColumnPositions, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import ThrottleTimes
from spark_kafka_sink.producer import partitioner
from spark_kafka_sink.producer.accumulator import BufferPool, NodeLatency
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.open_batches import CompressionRatio
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.quotas import RateLimit, ThrottleTracker
from spark_kafka_sink.producer.sequences import NoSequences, ProducerState
from spark_kafka_sink.record.compression import Compressor
from tests.golden.producing import ScriptedBroker, Topic
from tests.patience import AN_HOUR_MS, PATIENCE_S
from tests.unit.batches import (
    ALL,
    NODES,
    PAGE_SIZE,
    PAGES,
    T0,
    T1,
    T2,
    make_accumulator,
    make_batch,
    make_cluster,
)

CLUSTER = make_cluster({"t": [(1, 0), (2, 0), (1, 0)]})
UNNUMBERED = NoSequences()


@pytest.fixture
def accumulator():
    return make_accumulator()


@pytest.fixture
def state():
    state = ProducerState()
    state.set_producer(ProducerIdAndEpoch(42, 0))
    return state


def enqueue(accumulator, *batches):
    for batch in batches:
        accumulator.enqueue(batch)


def fill(accumulator, topic_partition, count):
    batches = [make_batch(topic_partition) for _ in range(count)]
    enqueue(accumulator, *batches)
    return batches


def drain(accumulator, *partitions, by=UNNUMBERED, at_most=ALL):
    return accumulator.drain(partitions, at_most, 0, by)


def failed(accumulator, batch, now_ms=0):
    """The batch's attempt failed, as the sender says it."""
    batch.note_failure(NODES[1], error_named("REQUEST_TIMED_OUT"), None)
    accumulator.reenqueue(batch, now_ms)


def failed_once(accumulator, topic_partition, now_ms=0):
    """A batch of which one attempt failed."""
    [batch] = fill(accumulator, topic_partition, 1)
    accumulator.ready(CLUSTER, 0)
    drain(accumulator, topic_partition)
    failed(accumulator, batch, now_ms)
    return batch


# --- ready ----------------------------------------------------------------------------------------


def test_ready_partitions_by_leader(accumulator):
    assert accumulator.ready(CLUSTER, 0).by_node == {}
    new = TopicPartition("new", 0)
    enqueue(accumulator, *(make_batch(p) for p in (T0, T1, T2, T0, new)))
    ready = accumulator.ready(CLUSTER, 0)
    assert ready.by_node == {NODES[1]: [T0, T2], NODES[2]: [T1]}
    assert (ready.next_check_ms, ready.unknown_leader_topics) == (None, {"new"})
    ready = accumulator.ready(make_cluster({"t": [(1, 0), (-1, 3)]}), 0)
    assert (ready.by_node, ready.unknown_leader_topics) == ({NODES[1]: [T0]}, {"t", "new"})
    accumulator.mute(T0)
    assert accumulator.ready(CLUSTER, 0).by_node == {NODES[1]: [T2], NODES[2]: [T1]}
    accumulator.unmute(T0)
    accumulator.unmute(new)
    assert T0 in accumulator.ready(CLUSTER, 0).by_node[NODES[1]]
    drain(accumulator, T0, T1, T2)
    drain(accumulator, T0)
    assert accumulator.ready(CLUSTER, 0).by_node == {}


def test_a_failed_batch_backs_off_and_longer_each_time(accumulator):
    [batch] = fill(accumulator, T0, 1)
    for pause_ms in (100, 200, 400):
        accumulator.ready(CLUSTER, 0)
        assert drain(accumulator, T0) == [batch]
        failed(accumulator, batch, now_ms=1_000)
        ready = accumulator.ready(CLUSTER, 1_000)
        assert (ready.by_node, ready.next_check_ms) == ({}, pause_ms)
        assert accumulator.ready(CLUSTER, 1_000 + pause_ms - 1).next_check_ms == 1
        assert accumulator.ready(CLUSTER, 1_000 + pause_ms).by_node == {NODES[1]: [T0]}


def test_the_next_check_is_the_earliest(accumulator):
    for topic_partition, now_ms in ((T0, 50), (T1, 10), (T2, 70)):
        failed_once(accumulator, topic_partition, now_ms)
    assert accumulator.ready(CLUSTER, 100).next_check_ms == 10


def test_a_new_leader_ends_the_pause(accumulator):
    failed_once(accumulator, T0)
    assert accumulator.ready(CLUSTER, 1).by_node == {}
    moved = make_cluster({"t": [(2, 1)]})
    assert accumulator.ready(moved, 1).by_node == {NODES[2]: [T0]}


# --- drain ----------------------------------------------------------------------------------------


def test_one_batch_per_partition_in_order(accumulator):
    first, second = fill(accumulator, T0, 2)
    [other] = fill(accumulator, T1, 1)
    assert accumulator.queue_sizes("t") == {0: 2, 1: 1}
    assert accumulator.drain([T0, T1, T2], ALL, 77, UNNUMBERED) == [first, other]
    assert first.drained_at_ms == 77
    assert (first.is_closed, first.has_sequence) == (True, False)
    assert drain(accumulator, T0, T1) == [second]
    assert drain(accumulator, T0, T1) == []
    assert accumulator.queue_sizes("t") == {}
    assert accumulator.incomplete_count == 3


def test_a_request_is_limited_in_size(accumulator):
    batches = [make_batch(p, size_bytes=100) for p in (T0, T1, T2)]
    enqueue(accumulator, *batches)
    assert drain(accumulator, T0, T1, T2, at_most=200) == batches[:2]
    assert drain(accumulator, T0, T1, T2, at_most=99) == batches[2:]
    # One that is larger than a request goes alone.
    large, small = make_batch(T0, size_bytes=500), make_batch(T1)
    enqueue(accumulator, large, small)
    assert drain(accumulator, T0, T1, at_most=200) == [large]
    assert drain(accumulator, T0, T1, at_most=200) == [small]


def test_no_partition_starves(accumulator):
    cluster = make_cluster({"t": [(1, 0)] * 3})
    for topic_partition in (T0, T1, T2):
        fill(accumulator, topic_partition, 20)
    served = Counter()
    for _ in range(12):
        partitions = accumulator.ready(cluster, 0).by_node[NODES[1]]
        served.update(b.topic_partition for b in drain(accumulator, *partitions, at_most=200))
    assert served == {T0: 8, T1: 8, T2: 8}


# --- order of retries -----------------------------------------------------------------------------


def in_flight_batches(accumulator, state, count):
    """Batches of T0 in flight, after a first that is acknowledged."""
    [first] = fill(accumulator, T0, 1)
    drain(accumulator, T0, by=state)
    state.handle_completed_batch(first, 0)
    accumulator.complete(first)
    batches = fill(accumulator, T0, count)
    for batch in batches:
        assert drain(accumulator, T0, by=state) == [batch]
    return batches


def acknowledged_in_turn(accumulator, state, count):
    sent = []
    for _ in range(count):
        [batch] = drain(accumulator, T0, by=state)
        sent.append(batch)
        state.handle_completed_batch(batch, 0)
    return sent


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_retries_go_back_in_sequence_order(accumulator, state, order):
    batches = in_flight_batches(accumulator, state, 3)
    [new] = fill(accumulator, T0, 1)
    for index in order:
        failed(accumulator, batches[index])
    assert acknowledged_in_turn(accumulator, state, 4) == [*batches, new]


def test_a_retry_without_idempotence_goes_first(accumulator):
    first, second = fill(accumulator, T0, 2)
    accumulator.ready(CLUSTER, 0)
    drain(accumulator, T0)
    failed(accumulator, first)
    assert accumulator.ready(CLUSTER, 99).by_node == {}
    assert drain(accumulator, T0) + drain(accumulator, T0) == [first, second]


def test_parts_of_a_split_batch_keep_its_place_in_time(accumulator):
    """The oldest batch decides when delivery.timeout.ms is over, and parts are no younger."""
    first, split, last = fill(accumulator, T0, 3)
    parts = [make_batch(T0, 2), make_batch(T0, 2)]
    accumulator.replace(split, parts, 0)
    for batch in (first, *parts, last):
        assert accumulator.oldest_incomplete() is batch
        accumulator.complete(batch)
    assert accumulator.oldest_incomplete() is None


def test_parts_of_a_batch_that_was_not_sent_yet(accumulator):
    batch = make_batch(T0, 4, pages=accumulator.pool.take(3))
    parts = [make_batch(T0, 2), make_batch(T0, 2)]
    accumulator.enqueue_parts(batch, parts)
    assert (accumulator.pool.free_count, batch.pages) == (PAGES, [])
    assert drain(accumulator, T0) + drain(accumulator, T0) == parts


# --- age, end, back-pressure ----------------------------------------------------------------------


def test_after_a_failure_nothing_is_sent_or_taken(accumulator):
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


def test_a_complete_batch_gives_its_memory_back_once(accumulator):
    batch = make_batch(T0, pages=accumulator.pool.take(3))
    enqueue(accumulator, batch)
    assert accumulator.bytes_by_partition() == {T0: 3 * PAGE_SIZE}
    drain(accumulator, T0)
    assert accumulator.pool.free_count == PAGES - 3
    for _ in range(2):
        accumulator.complete(batch)
        assert accumulator.pool.free_count == PAGES
    assert accumulator.incomplete_count == 0


def test_a_waiting_task_is_notified_of_as_much_memory_as_it_waits_for_and_of_the_end(accumulator):
    batches = [make_batch(T0, pages=accumulator.pool.take(1)) for _ in range(PAGES)]
    enqueue(accumulator, *batches)
    notified = []
    accumulator.monitor.notify_all = lambda: notified.append(accumulator.pool.free_count)
    with accumulator.monitor, accumulator.awaiting_pages(3):
        for batch in batches[:4]:
            accumulator.complete(batch)
    for batch in batches[4:]:
        accumulator.complete(batch)
    assert notified == [3, 4, PAGES]
    [whole] = fill(accumulator, T0, 1)
    accumulator.replace(whole, [make_batch(T0)], 0)
    accumulator.fail(RuntimeError("broken"))
    assert len(notified) == 5


# --- pages of the arena ---------------------------------------------------------------------------

PAGE = 64


def test_pages_are_handed_out_once_until_they_are_given_back():
    pool, rng = BufferPool(3_000 * PAGE, PAGE), random.Random(1)
    held = []
    for _ in range(2_000):
        if held and rng.random() < 0.5:
            pool.deallocate(held.pop(rng.randrange(len(held))))
        else:
            held.append(pool.take(min(rng.randrange(40), pool.free_count)))
        taken = [page for pages in held for page in pages]
        assert len(set(taken)) == len(taken)
        assert pool.free_count == pool.pages_count - len(taken)


def test_what_comes_back_in_disorder_is_handed_out_in_order():
    pool = BufferPool(100 * PAGE, PAGE)
    pages = pool.take(100)
    random.Random(2).shuffle(pages)
    pool.deallocate(pages)
    # A stack: the last one is used first.
    assert pool.take(8) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_of_a_large_arena_the_pages_used_last_come_first():
    pool = BufferPool(10_000 * PAGE, PAGE)
    low, high = pool.take(5_000), pool.take(2_000)
    pool.deallocate(low)
    pool.deallocate(high)
    assert set(pool.take(32)) <= set(high)


@pytest.mark.parametrize(
    ("pages", "size_bytes", "expected"),
    [
        ([3], 10, [(3, 10)]),
        ([3, 4, 5], 2 * PAGE + 1, [(3, 2 * PAGE + 1)]),
        ([5, 4, 3], 3 * PAGE, [(5, PAGE), (4, PAGE), (3, PAGE)]),
        ([1, 2, 9, 10, 4], 4 * PAGE + 7, [(1, 2 * PAGE), (9, 2 * PAGE), (4, 7)]),
    ],
)
def test_views_join_neighbours(pages, size_bytes, expected):
    pool = BufferPool(16 * PAGE, PAGE)
    memory = pool.view(0, 16 * PAGE)
    memory[:] = bytes(index % 251 for index in range(16 * PAGE))
    views = pool.views(pages, size_bytes)
    assert [len(view) for view in views] == [count for _, count in expected]
    for view, (page, count) in zip(views, expected):
        assert view == memory[page * PAGE : page * PAGE + count]


# --- pauses: quotas of brokers, and the limit -----------------------------------------------------

LED_BY_1, LED_BY_2 = make_cluster({"t": [(1, 0)]}), make_cluster({"t": [(2, 1)]})


class Pauses:
    """A queued batch, and what its brokers have paused."""

    def __init__(self, cluster=LED_BY_1):
        self.times, self.accumulator, self.batch = ThrottleTimes(), make_accumulator(), make_batch()
        self.waits = ThrottleTracker(self.times, cluster)
        self.accumulator.enqueue(self.batch)

    def lead(self, cluster, now_ms):
        self.waits.update_leaders(cluster, self.accumulator, now_ms)

    def send(self, node_id, now_ms):
        self.batch.is_queued, self.batch.drained_at_ms = False, now_ms
        self.batch.sent_to = NODES[node_id]

    def until(self, now_ms):
        return self.waits.postponed_ms(self.batch, now_ms)


def test_a_pause_that_was_over_before_its_broker_led_does_not_count():
    pauses = Pauses()
    pauses.times.note(2, 0, 1_000)
    pauses.times.note(2, 5_500, 5_700)
    pauses.lead(LED_BY_2, 5_000)
    assert pauses.until(6_000) == 200


def test_what_a_former_leader_has_paused_counts():
    pauses = Pauses()
    pauses.times.note(1, 1_000, 9_000)
    pauses.lead(LED_BY_2, 5_000)
    assert pauses.until(6_000) == 4_000
    # Of a leader that comes back, only what it pauses from then on.
    pauses.lead(LED_BY_1, 8_000)
    assert pauses.until(8_500) == 4_500


def test_what_is_in_flight_has_waited_for_its_broker_since_it_was_sent():
    pauses = Pauses(LED_BY_2)
    pauses.send(1, 5_000)
    pauses.times.note(1, 0, 1_000)
    pauses.times.note(1, 6_000, 7_000)
    assert pauses.until(8_000) == 1_000
    pauses.waits.record_response([pauses.batch], NODES[1], 8_000)
    pauses.batch.is_queued = True
    assert pauses.until(9_000) == 1_000


def test_what_is_forgotten_is_no_more_than_nobody_asks_about():
    pauses = Pauses()
    pauses.batch.created_at_ms = 2_000
    pauses.times.note(1, 0, 1_000)
    pauses.times.note(1, 3_000, 4_000)
    pauses.lead(LED_BY_2, 5_000)
    pauses.waits.record_limited({T1}, 0, 1_000)
    pauses.waits.forget_before(2_000)
    assert pauses.until(6_000) == 1_000
    assert pauses.times.between(1, 0, 9_000) == [(3_000, 4_000)]
    assert not pauses.waits._limited
    assert pauses.waits._past_pauses
    pauses.waits.forget_before(6_000)
    assert not pauses.waits._past_pauses  # former leaders are forgotten
    assert not pauses.waits._led_since_ms


def test_two_pauses_at_the_same_time_count_once():
    pauses = Pauses()
    pauses.times.note(1, 2_000, 4_000)
    pauses.waits.record_limited([T0], 1_000, 3_000)
    assert pauses.until(5_000) == 3_000


A_DAY_MS = 24 * AN_HOUR_MS


@pytest.mark.parametrize("count", [1, 4])
def test_pauses_count_for_a_day_at_most_and_the_limit_beyond_that(count):
    pauses = Pauses()
    for number in range(count):
        pauses.times.note(1, 2 * number * A_DAY_MS, (2 * number + 1) * A_DAY_MS)
    assert pauses.until(2 * count * A_DAY_MS) == A_DAY_MS
    pauses.waits.record_limited([T0], A_DAY_MS, A_DAY_MS + 500)
    assert pauses.until(2 * count * A_DAY_MS) == A_DAY_MS + 500


def test_memory_is_waited_for_a_day_of_pauses_at_most(accumulator):
    began_ms = 1_000
    for pause_ms, counted_ms in ((A_DAY_MS, A_DAY_MS), (9 * A_DAY_MS, A_DAY_MS)):
        accumulator.set_paused_until(began_ms + pause_ms, 0)
        assert accumulator.timeout_start_ms(began_ms) == began_ms + counted_ms


def test_the_limit_holds_nothing_that_is_sent():
    pauses = Pauses()
    pauses.send(1, 3_000)
    pauses.waits.record_limited([T0], 1_000, 9_000)
    assert pauses.until(9_000) == 2_000


def test_nothing_overtakes_what_the_limit_holds():
    limit = RateLimit(1_000, 0)
    limit.begin_round(500)
    assert limit.admit([make_batch(size_bytes=600), make_batch(size_bytes=100)]) == []
    assert len(limit.held) == 2


def test_a_transaction_lasts_from_its_first_batch():
    limit = RateLimit(1_000, 0)
    limit.begin_transaction(10_000)
    for now_ms in (0, 5_000):
        limit.begin_round(now_ms)
        limit.spend([make_batch(size_bytes=1_000)], now_ms)
    limit.admit([make_batch(size_bytes=100)])
    with pytest.raises(TransactionError, match="has aborted its transaction"):
        limit.check_transaction(6_000, 5_000)


# --- where rows without a key go: short queues, and not slow nodes --------------------------------

EACH_ITS_NODE = make_cluster({"t": [(1, 0), (2, 0), (3, 0)]})


def test_what_is_remembered_ends_with_the_snapshot_and_with_slow_nodes():
    topic = partitioner.TopicSlots("t", 0, EACH_ITS_NODE, random.Random(7))
    lost = make_cluster({"t": [(9, 0), (2, 0), (3, 0)]})
    for cluster, slow, expected in (
        (EACH_ITS_NODE, (), [0, 1, 2]),
        (EACH_ITS_NODE, {2}, [0, 2]),
        (lost, (), [1, 2]),
        (EACH_ITS_NODE, (), [0, 1, 2]),
    ):
        assert topic.available(cluster, frozenset(slow)) == expected


def test_without_ids_fewer_partitions_are_another_topics():
    slots = partitioner.TopicSlots("t", 0, EACH_ITS_NODE, random.Random(7))
    assert slots.is_current(make_cluster({"t": [(1, 0)] * 3}))
    assert not slots.is_current(make_cluster({"t": [(1, 0)] * 2}))


def test_a_sticky_round_goes_on_without_what_is_not_available_any_more():
    sticky = partitioner.StickyPartitioner(random.Random(1))
    first = sticky.next_partition([0, 1, 2], {})
    assert [sticky.next_partition([first], {}) for _ in range(3)] == [first] * 3


def test_equal_queues_of_all_partitions_are_no_reason_to_draw():
    """A round takes each partition once, as without queues."""
    sticky = partitioner.StickyPartitioner(random.Random(1))
    found = [sticky.next_partition(range(50), dict.fromkeys(range(50), 2)) for _ in range(50)]
    assert sorted(found) == list(range(50))


def test_a_round_robin_goes_on_over_arrow_batches():
    turns, row = partitioner.RoundRobinPartitioner(), SimpleNamespace(rows_count=1)
    found = [turns.compute("t", row, None, [0, 1, 2], 3)[0] for _ in range(4)]
    assert found == [0, 1, 2, 0]


def test_a_node_that_took_a_batch_is_slow_only_from_then_on():
    latency, without_timeout = NodeLatency(100), NodeLatency(0)
    for could_send, now_ms in ((False, 0), (True, 10), (False, 20), (False, 115)):
        latency.note(1, could_send, now_ms)
    assert latency.slow_nodes == frozenset()
    latency.note(1, False, 121)
    assert latency.slow_nodes == {1}
    for now_ms in (0, 1_000_000):
        without_timeout.note(1, False, now_ms)
    assert without_timeout.slow_nodes == frozenset()


# --- by how much uncompressed rows fill batch.size after compression ------------------------------

BATCH_SIZE = 131_072


def observed(*ratios):
    compression = CompressionRatio()
    for ratio in ratios:
        compression.observe(100_000, int(100_000 * ratio))
    return compression


def test_a_better_ratio_is_followed_slowly_and_a_worse_one_quickly():
    assert observed().estimate == 1
    assert observed(0.2).estimate == pytest.approx(1 - 0.8 * 0.25)
    worse = observed(*[0.2] * 50, 0.8)
    assert worse.estimate == pytest.approx(0.2 + 0.6 * 0.75, abs=1e-3)


@pytest.mark.parametrize("ratio", [0.14, 0.5, 0.9])
def test_settles_where_batches_just_fit(ratio):
    compression = observed(*[ratio] * 60)
    assert compression.estimate == pytest.approx(ratio, rel=1e-3)
    compressed = compression.uncompressed_limit(BATCH_SIZE) * ratio
    # A safety factor of 5 %: too small rather than too large.
    assert 0.93 * BATCH_SIZE < compressed <= 0.96 * BATCH_SIZE


@pytest.mark.parametrize(
    ("ratios", "limit"),
    [([], BATCH_SIZE), ([0.001] * 100, 8 * BATCH_SIZE), ([1.3] * 20, BATCH_SIZE)],
    ids=["without compression", "eight times at most", "a record that does not compress"],
)
def test_limits_of_what_a_batch_holds(ratios, limit):
    """batch.size is the least: batches that grow are no reason to send less."""
    assert observed(*ratios).uncompressed_limit(BATCH_SIZE) == limit
    assert observed(*ratios).uncompressed_limit(0) == 0


# --- lingering batches: the sender thread finishes them one at a time, without the monitor --------

PARTITIONS = 5


class SlowCompressor:
    """Takes as long as the test says. ``begun``: how many batches it was given."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.count = 0

    def compress(self, data):
        self.count += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        return bytes(data)

    def __call__(self):
        return Compressor("none", 0, self.compress)


class Lingering:
    """A producer with a lingering batch for each partition, which a thread begins to finish."""

    def __init__(self):
        values = {"bootstrap.servers": "scripted:9092", "linger.ms": "0"}
        broker = ScriptedBroker({"t": Topic(PARTITIONS)}, ProducerIdAndEpoch(7, 0), {}, True)
        self.monitor = ThreadMonitor()
        clock = SystemClock()
        config = ProducerConfig.parse(values)
        self.producer = KafkaProducer(config, broker, clock, random.Random(1), self.monitor)
        self.producer.begin_task(["t"])
        for _ in range(20):  # until it knows the topic
            self.producer.sender.run_once(clock.now_ms())
        self.compressor = SlowCompressor()
        appender = self.producer._appender
        appender._sender_finisher._compressor = self.compressor()
        self.append()
        self._sender = threading.Thread(
            target=appender.finish_expired_linger, args=(clock.now_ms() + 1000,), daemon=True
        )
        self._sender.start()
        assert self.compressor.begun.acquire(timeout=PATIENCE_S)

    def append(self):
        """A row for each partition."""
        rows = {"value": [b"v"] * PARTITIONS, "partition": pa.array(range(PARTITIONS), pa.int32())}
        positions = ColumnPositions(value=0, partition=1, topic_option="t")
        self.producer.append(pa.record_batch(rows), positions)

    def end(self):
        for _ in range(2 * PARTITIONS):
            self.compressor.may_end.release()
        self._sender.join(PATIENCE_S)
        assert not self._sender.is_alive()


def test_an_append_waits_for_one_lingering_batch_at_most():
    """Whose compression does not hold the monitor."""
    lingering = Lingering()
    task = threading.Thread(target=lingering.append, daemon=True)
    task.start()
    turns = lingering.producer._appender._turns
    while not turns.is_task_waiting:  # it waits for the batch that is being compressed
        assert task.is_alive()
    lingering.compressor.may_end.release()
    task.join(PATIENCE_S)
    assert not task.is_alive()
    assert lingering.compressor.count == 1
    assert lingering.producer.accumulator.incomplete_count == 1
    lingering.end()
