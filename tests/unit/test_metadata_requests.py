"""Cluster metadata: when to ask for it, and whom."""

from __future__ import annotations

from uuid import UUID

import pytest

from spark_kafka_sink.protocol.messages.topics import (
    MetadataResponse,
)
from tests.unit.cluster_answers import (
    LEADER_NOT_AVAILABLE,
    answer,
    make_metadata,
    topic,
)

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
    assert list(metadata.snapshot.topics) == ["u"]
    # A later task writes to what it is then.
    metadata.begin_task(11_000)
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


def test_a_task_that_has_paused_finds_out_that_its_topic_is_another_one() -> None:
    metadata = make_metadata(max_idle_ms=10_000, topics=("t",))
    metadata.update(answer(topic((1, 0), topic_id=UUID(int=1))), 5_000)
    metadata.update(answer(), 10_000)
    assert metadata.topics == []
    metadata.add_topic("t", 11_000)
    metadata.update(answer(topic((1, 0), topic_id=UUID(int=2))), 11_000)
    assert metadata.problems["t"].is_fatal


def test_an_idle_topic_is_asked_for_again_before_anything_is_written_to_it() -> None:
    """Nobody has asked for metadata meanwhile."""
    metadata = make_metadata(max_idle_ms=10_000, topics=("t",))
    metadata.update(answer(topic((1, 7), (1, 7), topic_id=UUID(int=1))), 0)
    metadata.begin_task(10_000)
    metadata.add_topic("t", 10_000)
    assert "t" not in metadata.snapshot.topics
    assert metadata.time_to_next_update_ms(10_000) == 0
    # Epochs of the former topic do not count for this one.
    metadata.update(answer(topic((2, 0), topic_id=UUID(int=2))), 10_001)
    assert metadata.snapshot.topics["t"].partitions == [(2, 0)]


def test_a_topic_that_is_waited_for_is_not_forgotten_before_its_first_answer() -> None:
    metadata = make_metadata(max_idle_ms=10_000, topics=("t",))
    metadata.update(answer(topic((1, 0))), 30_000)
    assert metadata.topics == ["t"]
    assert "t" in metadata.snapshot.topics


def test_an_answer_to_what_was_asked_before_a_topic_was_forgotten_is_not_for_it() -> None:
    """The topic was recreated on the way, and a task has begun to write to it."""
    metadata = make_metadata(max_idle_ms=10_000, topics=("t", "u"))
    both = [topic((1, 0), (1, 0), topic_id=UUID(int=1)), topic((1, 0), name="u")]
    metadata.update(answer(*both), 0)
    metadata.add_topic("u", 5_000)
    assert metadata.begin_update() == ["t", "u"]
    metadata.begin_task(10_000)
    metadata.add_topic("t", 10_000)
    metadata.update(answer(*both), 10_001)
    assert list(metadata.snapshot.topics) == ["u"]
    assert metadata.begin_update() == ["t", "u"]
    metadata.update(answer(topic((1, 0), topic_id=UUID(int=2)), both[1]), 10_200)
    assert metadata.snapshot.topic_id("t") == UUID(int=2)
    assert metadata.problems == {}
