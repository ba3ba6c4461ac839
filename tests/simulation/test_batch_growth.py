"""Full batches that grow while they could only wait, and that no broker finds too large."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.limits import LimitAccess, LimitConfig
from spark_kafka_sink.producer.batch_growth import GrowingBatches, largest_uncompressed
from spark_kafka_sink.producer.row_checks import largest_when_compressed
from tests.simulation.harness import Simulation, simulate

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_BATCH_SIZE = 10_000
_VALUE_BYTES = 100
_LEADER_OF_0 = 1


def growing(grows_to: int | None = 1 << 20, partitions: int = 1, **options: str) -> Simulation:
    """Connected: the leader of partition 0 has the first record. Pauses of a test end no batch."""
    options = {
        "batch_size": str(_BATCH_SIZE),
        "buffer_memory": "2000000",
        "linger_ms": "1000",
        **options,
    }
    simulation = simulate(partitions=partitions, grows_to=grows_to, **options)
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    return simulation


def noise(count: int, value_bytes: int = _VALUE_BYTES) -> list[bytes]:
    """Values that no codec makes smaller."""
    rng = random.Random(1)
    return [rng.randbytes(value_bytes) for _ in range(count)]


def append_while_the_leader_hangs(
    simulation: Simulation, values: list[bytes], topic: str = "t", rows: int = 500
) -> None:
    """In Arrow batches of so many rows; afterwards the leader goes on."""
    leader = simulation.cluster.brokers[_LEADER_OF_0]
    leader.is_paused = True
    for start in range(0, len(values), rows):
        simulation.append_to(0, values[start : start + rows], topic)
        simulation.run_for(10)
    leader.resume()


def stay_off_partition_0(simulation: Simulation) -> None:
    """Rows without a key are for another partition, for which there are none."""
    topic = simulation.producer._appender._topics.known("t")
    topic.sticky_slot = topic.first_slot + 1


def sizes(simulation: Simulation, topic: str = "t") -> list[int]:
    """Of the batches of partition 0 in the log, as they were sent."""
    partition = simulation.cluster.topics[topic].partitions[0]
    return [batch.header.size_bytes for batch in partition.log.batches]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_grow_while_another_one_waits_and_arrive_in_order(codec):
    simulation = growing(compression_type=codec)
    values = noise(5000)
    append_while_the_leader_hangs(simulation, values)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    assert max(sizes(simulation)) > 5 * _BATCH_SIZE
    assert simulation.producer.metrics.batch_splits == 0
    pool = simulation.producer.pool
    assert pool.free_count == pool.pages_count


def test_batches_do_not_grow_where_nothing_is_known_of_the_topic():
    simulation = growing(grows_to=None)
    append_while_the_leader_hangs(simulation, noise(5000))
    simulation.producer.flush()
    assert max(sizes(simulation)) <= _BATCH_SIZE


def test_batches_of_another_topic_do_not_grow():
    simulation = growing()
    simulation.cluster.create_topic("other", 1)
    simulation.append_to(0, [b"first"], "other")
    simulation.producer.flush()
    append_while_the_leader_hangs(simulation, noise(5000), "other")
    simulation.producer.flush()
    assert max(sizes(simulation, "other")) <= _BATCH_SIZE


def test_batches_do_not_grow_while_the_leader_keeps_up():
    """Some get full, but there is none before them in the queue."""
    simulation = growing(partitions=2)
    stay_off_partition_0(simulation)
    for _ in range(20):
        simulation.append_to(0, noise(90))
        simulation.run_for(100)
    simulation.producer.flush()
    assert len(sizes(simulation)) < 22
    assert max(sizes(simulation)) <= _BATCH_SIZE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("accepted", [_BATCH_SIZE, 30_000, 123_456])
def test_no_batch_is_larger_than_the_topic_accepts(codec, accepted):
    simulation = growing(grows_to=accepted, compression_type=codec)
    simulation.cluster.topics["t"].max_message_bytes = accepted
    values = noise(5000)
    append_while_the_leader_hangs(simulation, values)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    assert simulation.producer.metrics.batch_splits == 0
    assert simulation.producer.metrics.retries == 0
    assert max(sizes(simulation)) > accepted - _BATCH_SIZE


def test_no_batch_is_larger_than_a_request_may_be():
    simulation = growing(max_request_size="50000")
    append_while_the_leader_hangs(simulation, noise(5000))
    simulation.producer.flush()
    assert _BATCH_SIZE < max(sizes(simulation)) <= 50_000
    assert simulation.producer.metrics.batch_splits == 0


def test_no_batch_takes_more_than_an_eighth_of_the_memory():
    simulation = growing(buffer_memory="400000")
    append_while_the_leader_hangs(simulation, noise(2000))
    simulation.producer.flush()
    assert _BATCH_SIZE < max(sizes(simulation)) <= 50_000


def test_no_batch_is_larger_than_a_mebibyte():
    """Of records before compression: so much memory a codec takes besides."""
    four_mebibytes = 4 << 20
    options = {
        "batch_size": "200000",
        "buffer_memory": str(8 * four_mebibytes),
        "max_request_size": str(four_mebibytes),
    }
    simulation = growing(four_mebibytes, **options)
    simulation.cluster.topics["t"].max_message_bytes = four_mebibytes
    append_while_the_leader_hangs(simulation, noise(400, value_bytes=9_000), rows=40)
    simulation.producer.flush()
    assert 1_000_000 < max(sizes(simulation)) <= 1 << 20


def test_what_has_grown_is_sent_as_soon_as_nothing_is_before_it_however_long_rows_may_linger():
    simulation = growing(linger_ms="20000", max_in_flight_requests_per_connection="2")
    values = noise(950)
    append_while_the_leader_hangs(simulation, values)
    simulation.run_for(2000)
    arrived = simulation.values()[0]
    assert len(arrived) > len(values) - _BATCH_SIZE / _VALUE_BYTES
    assert max(sizes(simulation)) > _BATCH_SIZE


def test_another_batch_may_linger_when_one_that_had_grown_was_sent():
    simulation = growing(partitions=2)
    append_while_the_leader_hangs(simulation, noise(950))
    simulation.producer.flush()
    simulation.append_to(1, [b"lingers"])
    simulation.run_for(500)
    assert simulation.values()[1] == []
    simulation.run_for(1000)
    assert simulation.values()[1] == [b"lingers"]


@pytest.mark.parametrize("batch_size", ["0", "1", "100"])
def test_small_batches_grow_by_more_than_a_record_at_a_time(batch_size):
    simulation = growing(batch_size=batch_size, max_in_flight_requests_per_connection="2")
    open_batches, calls = simulation.producer._appender._open_batches, []
    append = open_batches.append

    def counted(*arguments):
        calls.append(arguments)
        return append(*arguments)

    open_batches.append = counted
    values = noise(2000)
    append_while_the_leader_hangs(simulation, values, rows=20)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    assert max(sizes(simulation)) > 10 * _BATCH_SIZE
    assert len(calls) < len(values) / 2


def test_a_topic_that_accepts_less_than_the_driver_has_found_gets_batches_as_without_growth():
    simulation = growing()
    simulation.cluster.topics["t"].max_message_bytes = 2 * _BATCH_SIZE
    values = noise(4000)
    append_while_the_leader_hangs(simulation, values[:2000])
    simulation.producer.flush()
    splits = simulation.producer.metrics.batch_splits
    assert splits > 0
    append_while_the_leader_hangs(simulation, values[2000:])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    assert simulation.producer.metrics.batch_splits == splits


def test_a_record_larger_than_any_batch_may_grow_is_a_batch_of_its_own():
    simulation = growing(grows_to=30_000)
    large = bytes(200_000)
    values = [*noise(1000), large, *noise(1000)]
    append_while_the_leader_hangs(simulation, values)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]


def test_rows_without_key_go_to_a_leader_that_has_nothing_to_do():
    """A batch of a busy leader is finished then, and the next partition takes over."""
    simulation = growing(partitions=3)
    appender, accumulator = simulation.producer._appender, simulation.producer.accumulator
    cluster = simulation.producer._metadata.snapshot
    topic = appender._topics.known("t")
    topic.sticky_slot = topic.first_slot
    accumulator._queues[TopicPartition("t", 0)] = None  # type: ignore[assignment]
    for busy in ((), (_LEADER_OF_0,), (1, 2)):
        accumulator.busy_nodes = frozenset(busy)
        assert not appender._growing.grow(topic, topic.first_slot, cluster)
    accumulator.busy_nodes = frozenset((1, 2, 3))
    assert appender._growing.grow(topic, topic.first_slot, cluster)
    topic.sticky_slot = -1
    accumulator.busy_nodes = frozenset()
    assert appender._growing.grow(topic, topic.first_slot, cluster)


def test_a_batch_grows_by_what_fills_another_one_when_it_is_compressed():
    """From where it is, where the limits of all batches of its topic were set meanwhile."""
    simulation = growing(partitions=2, compression_type="lz4")
    stay_off_partition_0(simulation)
    appender = simulation.producer._appender
    topic, open_batches = appender._topics.known("t"), appender._open_batches
    cluster = simulation.producer._metadata.snapshot
    append_while_the_leader_hangs(simulation, noise(2000))
    slot = topic.first_slot
    _, size_bytes = open_batches.limit_and_size_bytes(slot)
    assert size_bytes > 5 * _BATCH_SIZE
    topic.compression.estimate = 0.25
    fills_a_batch = topic.limit_bytes(_BATCH_SIZE)
    assert fills_a_batch > 3 * _BATCH_SIZE
    open_batches.set_limit(slot, 2, fills_a_batch)
    assert appender._growing.grow(topic, slot, cluster)
    assert open_batches.limit_and_size_bytes(slot) == (size_bytes + fills_a_batch, size_bytes)
    assert appender._growing.grow(topic, slot, cluster)
    assert open_batches.limit_and_size_bytes(slot)[0] == size_bytes + 2 * fills_a_batch


def test_nothing_grows_under_a_limit_of_the_query():
    simulation = growing()
    appender = simulation.producer._appender
    limits = LimitConfig(bytes_per_second=1, records_per_second=None, pause_path=None)
    access = LimitAccess(limits, "query", "127.0.0.1", 1, Secret("token"))
    config = replace(simulation.producer._config, limits=access)
    growing_batches = GrowingBatches(config, appender._accumulator, appender._open_batches)
    topic = appender._topics.known("t")
    appender._accumulator._queues[TopicPartition("t", 0)] = None
    cluster = simulation.producer._metadata.snapshot
    assert not growing_batches.grow(topic, topic.first_slot, cluster)
    assert appender._growing.grow(topic, topic.first_slot, cluster)


@pytest.mark.parametrize("size", [65, 1000, 30_000, 1 << 20, 1_048_588])
def test_what_is_compressed_is_not_larger_than_was_reckoned_with(size):
    assert size - 2 <= largest_when_compressed(largest_uncompressed(size)) <= size
