"""Cluster metadata: leaders, epochs, topic ids, when to ask again, whom to ask."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.model import ZERO_UUID, Node, TopicPartition
from spark_kafka_sink.producer.metadata import (
    ClusterSnapshot,
    Metadata,
    MetadataSettings,
    PartitionMetadata,
    TopicMetadata,
)
from spark_kafka_sink.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED = 3, 5, 29
MIB = 1024 * 1024


class NoJitter:
    def random(self) -> float:
        return 0.5


def make_metadata(
    max_age_ms: int = 300_000,
    max_idle_ms: int = 300_000,
    may_rebootstrap: bool = True,
    rebootstrap_trigger_ms: int = 5_000,
    topics: tuple[str, ...] = ("t",),
) -> Metadata:
    settings = MetadataSettings(max_age_ms, max_idle_ms, may_rebootstrap, rebootstrap_trigger_ms)
    backoff = ExponentialBackoff(100, 1_000, NoJitter())
    metadata = Metadata([("b1", 9092), ("b2", 9092)], settings, backoff)
    for topic in topics:
        metadata.add_topic(topic, 0)
    return metadata


def topic(
    *leaders: tuple[int, int],
    name: str = "t",
    topic_id: UUID = ZERO_UUID,
    error_code: int = 0,
) -> MetadataResponseTopic:
    """A topic whose partitions have these (leader id, leader epoch)."""
    partitions = [
        MetadataResponsePartition(0, index, leader_id, leader_epoch)
        for index, (leader_id, leader_epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(error_code, name, topic_id, partitions=partitions)


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    nodes = [MetadataResponseBroker(b, f"host{b}", 9092, "rack") for b in brokers]
    return MetadataResponse(brokers=nodes, cluster_id="c", topics=list(topics))


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
    assert "grant the principal WRITE and DESCRIBE on the topic" in problem.message


# --- when to ask ----------------------------------------------------------------------------------


def test_asked_at_once_and_then_when_too_old() -> None:
    metadata = make_metadata(max_age_ms=10_000)
    assert metadata.time_to_next_update_ms(0) == 0
    metadata.update(answer(topic((1, 0))), 0)
    assert metadata.time_to_next_update_ms(0) == 10_000
    assert metadata.time_to_next_update_ms(9_999) == 1
    assert metadata.time_to_next_update_ms(10_000) == 0


def test_a_requested_update_waits_for_the_pause_after_the_last_answer() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 0))), 1_000)
    metadata.request_update()
    assert metadata.time_to_next_update_ms(1_000) == 100
    assert metadata.time_to_next_update_ms(1_100) == 0


def test_a_new_topic_does_not_wait() -> None:
    metadata = make_metadata()
    metadata.update(answer(topic((1, 0))), 1_000)
    metadata.add_topic("t", 1_000)
    assert metadata.time_to_next_update_ms(1_000) > 100
    metadata.add_topic("u", 1_000)
    assert metadata.topics == ["t", "u"]
    assert metadata.time_to_next_update_ms(1_000) == 0


def test_a_new_topic_waits_when_brokers_do_not_answer() -> None:
    metadata = make_metadata()
    metadata.failed_update(0)
    metadata.add_topic("u", 0)
    assert metadata.time_to_next_update_ms(0) == 100


def test_failed_attempts_back_off() -> None:
    metadata = make_metadata()
    pauses = []
    for _ in range(5):
        metadata.failed_update(0)
        pauses.append(metadata.time_to_next_update_ms(0))
    assert pauses == [100, 200, 400, 800, 1_000]
    metadata.update(answer(topic((1, 0))), 0)
    metadata.request_update()
    assert metadata.time_to_next_update_ms(0) == 100


@pytest.mark.parametrize(
    "incomplete",
    [
        answer(),
        answer(topic(error_code=LEADER_NOT_AVAILABLE)),
        answer(topic((1, 0), (-1, 3))),
    ],
    ids=["without the topic", "an error that will pass", "a partition without leader"],
)
def test_an_incomplete_answer_is_asked_for_again_with_back_off(
    incomplete: MetadataResponse,
) -> None:
    metadata = make_metadata()
    for expected in (100, 200, 400):
        metadata.update(incomplete, 0)
        assert metadata.time_to_next_update_ms(0) == expected


def test_topics_without_rows_are_forgotten_and_asked_for_no_more() -> None:
    metadata = make_metadata(max_idle_ms=10_000, topics=("t", "u"))
    metadata.add_topic("u", 5_000)
    both = answer(topic((1, 0), topic_id=UUID(int=1)), topic((1, 0), name="u"))
    metadata.update(both, 9_999)
    assert metadata.topics == ["t", "u"]
    metadata.update(both, 10_000)
    assert metadata.topics == ["u"]
    # Whoever writes to it again writes to what it is then.
    metadata.add_topic("t", 11_000)
    metadata.update(answer(topic((1, 0), topic_id=UUID(int=2)), topic((1, 0), name="u")), 11_000)
    assert metadata.problems == {}


# --- whom to ask ----------------------------------------------------------------------------------


def test_bootstrap_addresses_first_then_the_brokers() -> None:
    metadata = make_metadata()
    assert [(n.node_id, n.address) for n in metadata.candidate_nodes(0)] == [
        (-1, "b1:9092"),
        (-2, "b2:9092"),
    ]
    metadata.update(answer(topic((1, 0))), 0)
    assert [n.node_id for n in metadata.candidate_nodes(0)] == [1, 2]


def test_bootstrap_addresses_again_when_nobody_answers_for_long() -> None:
    metadata = make_metadata(rebootstrap_trigger_ms=5_000)
    metadata.update(answer(topic((1, 0))), 0)
    metadata.failed_update(1_000)
    metadata.failed_update(4_000)
    assert len(metadata.candidate_nodes(6_000)) == 2
    assert [n.node_id for n in metadata.candidate_nodes(6_001)] == [-1, -2, 1, 2]
    metadata.update(answer(topic((1, 0))), 6_002)
    assert [n.node_id for n in metadata.candidate_nodes(20_000)] == [1, 2]


def test_rebootstrap_on_demand_and_not_at_all() -> None:
    for may_rebootstrap, count in ((True, 4), (False, 2)):
        metadata = make_metadata(may_rebootstrap=may_rebootstrap)
        metadata.update(answer(topic((1, 0))), 0)
        metadata.rebootstrap()
        assert len(metadata.candidate_nodes(0)) == count
