"""Partitioners, with the real producer on the simulated cluster."""

from __future__ import annotations

import zlib
from collections import Counter

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_kafka_sink.base import entry_points
from spark_kafka_sink.base.model import ColumnPositions
from tests.simulation.harness import keyed, partition_of
from tests.simulation.harness import simulate as simulate_seed


def simulate(partitions=5, **options):
    return simulate_seed(1, partitions, **options)


# --- the users' own, named below by entry points ----------------------------------------------


def by_length(keys, values, partitions_count):
    """Partition by the length of the value; rows without value are left to their key."""
    lengths = pc.binary_length(values)
    return pc.cast(
        pc.subtract(lengths, pc.multiply(pc.divide(lengths, partitions_count), partitions_count)),
        pa.int32(),
    )


def out_of_range(keys, values, partitions_count):
    return pa.array([partitions_count] * len(values), pa.int32())


def wrong_type(keys, values, partitions_count):
    return [0] * len(values)


def broken(keys, values, partitions_count):
    raise LookupError("the user's own mistake")


# --- partitioners -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("murmur3", lambda key: mmh3.hash(key, signed=False) % 5),
        ("crc32", lambda key: zlib.crc32(key) % 5),
    ],
)
def test_hashes_of_other_clients(name, expected):
    simulation = simulate(partitioner=name)
    simulation.write_rows(keyed(300))
    for partition, records in simulation.cluster.records("t").items():
        assert {expected(record.key) for record in records} == {partition}


def test_round_robin_takes_every_row_to_the_next_partition():
    simulation = simulate(partitioner="round-robin")
    for start in range(0, 100, 10):
        simulation.append(keyed(100)[start : start + 10])
    simulation.flush()
    assert [len(values) for values in simulation.values().values()] == [20] * 5


def test_the_users_own_partitioner_sees_each_topic_for_itself():
    simulation = simulate(partitioner=f"{__name__}:by_length")
    simulation.cluster.create_topic("u", 2)
    topics = pa.array([*["t", "u"] * 10, "t"])
    values = pa.array([*(b"x" * n for n in range(20)), None], pa.binary())
    batch = pa.record_batch([topics, values], names=["topic", "value"])
    simulation.producer.append(batch, ColumnPositions(value=1, topic=0))
    simulation.flush()
    for topic, count in (("t", 5), ("u", 2)):
        for partition, read in simulation.values(topic).items():
            assert all(len(value) % count == partition for value in read if value is not None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out_of_range", "it returned partition 5; there are 5"),
        ("wrong_type", "it returned list, not an int32 Arrow array"),
        ("broken", "the user's own mistake"),
    ],
)
def test_a_partitioner_that_fails(name, message):
    simulation = simulate(partitioner=f"{__name__}:{name}")
    with pytest.raises(entry_points.HookError, match=message) as caught:
        simulation.append(keyed(3))
    assert f"partitioner '{__name__}:{name}' failed" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_adaptive_partitioning_prefers_partitions_whose_brokers_keep_up():
    simulation = simulate(partitions=3, batch_size="2000", buffer_memory="8388608")
    simulation.write_rows(keyed(10))
    simulation.cluster.brokers[2].is_paused = True  # leads partition 1
    before = Counter({p: len(v) for p, v in simulation.values().items()})
    for _ in range(60):
        simulation.append([(None, b"x" * 100)] * 100)
        simulation.run_for(20)
    simulation.cluster.brokers[2].resume()
    simulation.flush()
    after = Counter({p: len(v) for p, v in simulation.values().items()})
    grown = {partition: after[partition] - before[partition] for partition in range(3)}
    assert sum(grown.values()) == 6000
    assert grown[1] < 0.7 * min(grown[0], grown[2])


def without_keys(simulation):
    """Write rows without keys; return how many more rows each partition has."""
    before = {partition: len(values) for partition, values in simulation.values().items()}
    simulation.write_rows([(None, b"x" * 100)] * 300)
    return {p: len(v) - before.get(p, 0) for p, v in simulation.values().items()}


def test_rows_without_key_stay_in_the_rack_and_follow_its_leaders():
    simulation = simulate(
        partitions=3, partitioner_rack_aware="true", client_rack="b", batch_size="500"
    )

    def grown_after(leader_id, racks="abc"):
        """With this leader of partition 1; what the first batch of the last partition holds is left out."""
        simulation.cluster.racks = dict(enumerate(racks, 1))
        simulation.cluster.move_leader("t", 1, leader_id)
        simulation.run_for(1_000)
        simulation.refresh_metadata()
        simulation.run_for(1_000)
        without_keys(simulation)
        return without_keys(simulation)

    simulation.cluster.racks = {1: "a", 2: "b", 3: "c"}
    assert without_keys(simulation) == {0: 0, 1: 300, 2: 0}  # broker 2 leads partition 1
    metrics = simulation.producer.metrics
    assert metrics.same_rack_bytes == metrics.compressed_bytes > 0
    assert all(grown_after(3).values())  # no leader is in the rack
    assert grown_after(2) == {0: 0, 1: 300, 2: 0}
    assert grown_after(2, "bac") == {0: 300, 1: 0, 2: 0}


def test_the_rack_moves_no_row_with_a_key_or_a_partition():
    simulation = simulate(partitions=3, partitioner_rack_aware="true", client_rack="b")
    simulation.cluster.racks = {1: "a", 2: "b", 3: "c"}
    simulation.write_rows(keyed(300))
    for partition, records in simulation.cluster.records("t").items():
        assert {partition_of(record.key, 3) for record in records} == {partition}
    simulation.write_everywhere(b"mine")
    assert all(b"mine" in values for values in simulation.values().values())
    metrics = simulation.producer.metrics
    assert 0 < metrics.same_rack_bytes < metrics.compressed_bytes


@pytest.mark.parametrize(
    "options", [{"client_rack": "b"}, {"partitioner_rack_aware": "true"}], ids=["off", "no rack"]
)
def test_without_the_option_or_a_rack_all_partitions_have_rows(options):
    simulation = simulate(partitions=3, batch_size="500", **options)
    simulation.cluster.racks = {1: "a", 2: "b", 3: "c"}
    assert all(without_keys(simulation).values())
