"""Cluster metadata: leaders, epochs, topic ids, problems."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest

from spark_kafka_sink.base.model import ZERO_UUID, Node, TopicPartition
from spark_kafka_sink.producer.metadata import (
    ClusterSnapshot,
    PartitionMetadata,
    TopicMetadata,
)
from tests.unit.cluster_answers import (
    LEADER_NOT_AVAILABLE,
    MIB,
    T0,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC,
    answer,
    make_metadata,
    topic,
)

# --- snapshots ------------------------------------------------------------------------------------


def test_leaders() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 3), (2, 4), (7, 1), (-1, 5))), 0)
    cluster = metadata.snapshot
    assert cluster.cluster_id == "c"
    assert cluster.leader(T0) == Node(1, "host1", 9092, "rack")
    assert cluster.leader(TopicPartition("t", 1)) == cluster.nodes[2]
    assert cluster.leader_epoch(TopicPartition("t", 1)) == 4
    assert cluster.partitions_count("t") == 4
    # A leader whose address is not known, none at all, and what does not exist.
    for unknown in (("t", 2), ("t", 3), ("t", 4), ("other", 0)):
        assert cluster.leader(TopicPartition(*unknown)) is None
    assert cluster.leader_epoch(TopicPartition("t", 4)) == -1
    assert cluster.leader_epoch(TopicPartition("other", 0)) == -1
    assert cluster.topic_id("other") == ZERO_UUID


def test_available_partitions_avoid_slow_and_lost_leaders_as_long_as_there_are_others() -> None:
    nodes = {1: Node(1, "a", 1), 2: Node(2, "b", 1)}
    leaders = [1, 2, 1, 9, -1]
    partitions = [PartitionMetadata(leader, 0) for leader in leaders]
    cluster = ClusterSnapshot(nodes, {"t": TopicMetadata(ZERO_UUID, partitions)})
    assert cluster.available_partitions("t") == [0, 1, 2]
    assert cluster.available_partitions("t", {1}) == [1]
    assert cluster.available_partitions("t", {1, 2}) == [0, 1, 2]
    assert cluster._replace(nodes={}).available_partitions("t") == [0, 1, 2, 3, 4]


def test_partitions_may_come_in_any_order() -> None:
    metadata = make_metadata()
    shuffled = topic((1, 10), (2, 11), (1, 12))
    shuffled.partitions.reverse()
    metadata.update(answer(shuffled), 0)
    assert [p.leader_epoch for p in metadata.snapshot.topics["t"].partitions] == [10, 11, 12]


def test_a_snapshot_is_never_changed() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 3))), 0)
    before = metadata.snapshot
    copy = ClusterSnapshot(dict(before.nodes), dict(before.topics), before.cluster_id)
    metadata.update_leader(T0, PartitionMetadata(2, 9), [Node(5, "new", 1)])
    metadata.update(answer(topic((2, 10), (1, 0)), brokers=(2,)), 1_000)
    assert before == copy
    assert metadata.snapshot.leader(T0) == Node(2, "host2", 9092, "rack")


@pytest.mark.parametrize("index", [4_000_000, -1])
def test_partition_numbers_that_cannot_be(index: int) -> None:
    """One wrong number must neither take memory in proportion nor end the sender thread."""
    metadata = make_metadata()
    wrong = topic((1, 0))
    wrong.partitions[0].partition_index = index
    tracemalloc.start()
    try:
        metadata.update(answer(wrong), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


# --- epochs ---------------------------------------------------------------------------------------


def test_an_older_epoch_does_not_replace_a_newer_one() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((2, 5), (1, 7))), 0)
    metadata.update(answer(topic((1, 4), (2, 8))), 0)
    cluster = metadata.snapshot
    assert (cluster.leader_epoch(T0), cluster.leader(T0)) == (5, cluster.nodes[2])
    assert cluster.leader_epoch(TopicPartition("t", 1)) == 8


def test_the_same_epoch_is_taken_over() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((2, 5))), 0)
    metadata.update(answer(topic((-1, 5))), 0)
    assert metadata.snapshot.leader(T0) is None


def test_epochs_of_old_brokers_are_not_relied_on() -> None:
    """Before 2.4 a broker could answer with an older epoch and the right leader (KAFKA-9212)."""
    metadata = make_metadata()
    metadata.update(answer(topic((2, 5))), 0)
    metadata.update(answer(topic((1, 4))), 0, has_epochs=False)
    assert metadata.snapshot.leader(T0) == metadata.snapshot.nodes[1]
    assert metadata.snapshot.leader_epoch(T0) == -1


def test_brokers_that_do_not_tell_epochs_are_believed() -> None:
    metadata = make_metadata()
    for leader in (1, 2, 1):
        metadata.update(answer(topic((leader, -1))), 0)
        assert metadata.snapshot.leader(T0) == metadata.snapshot.nodes[leader]


@pytest.mark.parametrize("gap", ["error", "absent"])
def test_epochs_are_remembered_over_an_answer_without_the_topic(gap: str) -> None:
    """Java keeps lastSeenLeaderEpochs apart from the snapshot: a broker that lags behind must not
    bring an old leader back, only because the answer before had an error for the topic.
    """
    metadata = make_metadata()
    metadata.update(answer(topic((2, 5))), 0)
    without = answer(topic(error_code=LEADER_NOT_AVAILABLE)) if gap == "error" else answer()
    metadata.update(without, 100)
    metadata.update(answer(topic((1, 4))), 200)
    assert metadata.snapshot.leader_epoch(T0) != 4


def test_a_new_partition_has_no_older_epoch() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((2, 5))), 0)
    metadata.update(answer(topic((2, 5), (1, 0))), 0)
    assert metadata.snapshot.partitions_count("t") == 2
    assert metadata.snapshot.leader_epoch(TopicPartition("t", 1)) == 0


# --- leaders that a produce response names --------------------------------------------------------


def test_the_epoch_of_an_added_partition_does_not_go_back_over_a_broker_that_lags() -> None:
    metadata = make_metadata()
    one = UUID(int=1)
    metadata.update(answer(topic((1, 3), (2, 5), topic_id=one)), 0)
    # This broker has not heard of the second partition, that one not of its new leader.
    metadata.update(answer(topic((1, 3), topic_id=one)), 1_000)
    assert metadata.snapshot.partitions_count("t") == 2
    metadata.update(answer(topic((1, 3), (3, 4), topic_id=one)), 2_000)
    assert metadata.snapshot.leader_epoch(TopicPartition("t", 1)) == 5


def test_without_topic_ids_fewer_partitions_are_believed() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 3), (2, 5))), 0)
    metadata.update(answer(topic((1, 3))), 1_000)
    assert metadata.snapshot.partitions_count("t") == 1


def test_a_newer_leader_is_taken_over_with_its_address() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 5), (1, 5))), 0)
    version = metadata.version
    metadata.update_leader(T0, PartitionMetadata(3, 6), [Node(3, "host3", 1)])
    assert metadata.version == version + 1
    assert metadata.snapshot.leader(T0) == Node(3, "host3", 1)
    assert metadata.snapshot.leader(TopicPartition("t", 1)) == metadata.snapshot.nodes[1]


@pytest.mark.parametrize(
    ("topic_partition", "leader"),
    [
        (T0, PartitionMetadata(2, 5)),
        (T0, PartitionMetadata(2, 4)),
        (T0, PartitionMetadata(9, 6)),
        (T0, PartitionMetadata(-1, -1)),
        (TopicPartition("t", 1), PartitionMetadata(2, 6)),
        (TopicPartition("other", 0), PartitionMetadata(2, 6)),
    ],
    ids=["same epoch", "older epoch", "no address", "none", "no such partition", "no such topic"],
)
def test_other_news_of_leaders_is_ignored(
    topic_partition: TopicPartition, leader: PartitionMetadata
) -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 5))), 0)
    before, version = metadata.snapshot, metadata.version
    metadata.update_leader(topic_partition, leader, [])
    assert metadata.snapshot is before
    assert metadata.version == version


# --- topic ids ------------------------------------------------------------------------------------


def test_a_recreated_topic_is_an_error_and_not_written_to() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 5), topic_id=UUID(int=1))), 0)
    assert metadata.snapshot.topic_id("t") == UUID(int=1)
    for _ in range(2):
        metadata.update(answer(topic((1, 0), topic_id=UUID(int=2))), 0)
        assert metadata.snapshot.leader(T0) is None
        problem = metadata.problems["t"]
        assert problem.is_fatal
        assert "was deleted and created again while the job ran" in problem.message
        assert str(UUID(int=1)) in problem.message
        assert str(UUID(int=2)) in problem.message


def test_a_recreated_topic_is_found_out_after_the_time_in_which_it_did_not_exist() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 5), topic_id=UUID(int=1))), 0)
    metadata.update(answer(topic(error_code=UNKNOWN_TOPIC)), 100)
    assert not metadata.problems["t"].is_fatal
    metadata.update(answer(topic((1, 0), topic_id=UUID(int=2))), 200)
    assert metadata.problems["t"].is_fatal


def test_brokers_without_topic_ids_say_nothing_about_recreation() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 5), topic_id=UUID(int=1))), 0)
    metadata.update(answer(topic((1, 5))), 100)
    assert metadata.problems == {}
    assert metadata.snapshot.leader(T0) is not None


def test_a_recreation_is_found_out_across_an_answer_without_ids() -> None:
    metadata = make_metadata()
    for topic_id in (UUID(int=1), ZERO_UUID, UUID(int=2)):
        metadata.update(answer(topic((1, 5), topic_id=topic_id)), 0)
    assert metadata.problems["t"].is_fatal


def test_a_first_answer_without_id_does_not_hide_a_later_recreation() -> None:
    """A cluster is upgraded: the first id that is one is the id to hold on to."""
    metadata = make_metadata()
    for topic_id in (ZERO_UUID, UUID(int=1), UUID(int=2)):
        metadata.update(answer(topic((1, 5), topic_id=topic_id)), 0)
    assert metadata.problems["t"].is_fatal


# --- problems -------------------------------------------------------------------------------------


def test_a_retriable_problem_goes_away_with_a_good_answer() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic(error_code=UNKNOWN_TOPIC)), 0)
    problem = metadata.problems["t"]
    assert not problem.is_fatal
    assert problem.message.startswith("topic 't': UNKNOWN_TOPIC_OR_PARTITION (3): check that")
    metadata.update(answer(topic((1, 0))), 100)
    assert metadata.problems == {}


def test_problems_that_were_read_do_not_change() -> None:
    """The task thread goes over them while the sender thread takes over the next answer."""
    metadata = make_metadata()
    metadata.update(answer(topic(error_code=UNKNOWN_TOPIC)), 0)
    snapshot, problems = metadata.snapshot, metadata.problems
    metadata.update(answer(topic((1, 0)), topic(name="u", error_code=UNKNOWN_TOPIC)), 100)
    assert problems.keys() == snapshot.problems.keys() == {"t"}
    assert metadata.problems.keys() == metadata.snapshot.problems.keys() == {"u"}


def test_a_fatal_problem() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic(error_code=TOPIC_AUTHORIZATION_FAILED)), 0)
    problem = metadata.problems["t"]
    assert problem.is_fatal
    assert "grant the principal WRITE on the topic" in problem.message
