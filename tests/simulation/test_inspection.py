"""What operators are shown: prefixes, parts of a unit, and who holds back readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.transactions.inspection import Inspection
from spark_kafka_sink.transactions.model import Phase
from tests.simulation.operating import (
    LOG_TOPIC,
    PATIENCE_MS,
    WORKER,
    A,
    B,
    Operated,
    agree,
    decided,
    driver,
    unit,
)
from tests.simulation.partition import NO_LEADER


def inspection(operated: Operated) -> Inspection:
    return Inspection(operated.client, LOG_TOPIC, PATIENCE_MS)


def test_all_prefixes_and_what_belongs_to_none(operated):
    operated.batch(3, [A], driver(1), prefix="done")
    operated.batch(4, [A], driver(1), "commit.deciding", prefix="deciding")
    operated.batch(5, [A], driver(1), prefix="gone")
    operated.operations_of("gone").release(lambda what: None)
    app = operated.world.init("app.driver")
    if operated.world.transactions.transaction_version < 2:
        operated.world.add_partitions("app.driver", app, TopicPartition("t", 2))
    operated.world.produce("app.driver", app, TopicPartition("t", 2), [A])
    plan = operated.protocol_of("done").plan(driver(1), None)
    [orphan] = operated.written(replace(plan, prefix="orphan"), [B])
    found = {o.prefix: o for o in inspection(operated).overview(None)}
    assert found.keys() == {"deciding", "done", "orphan"}
    assert found["done"].decision.unit == unit(3)
    assert found["done"].transactions == ()
    # The decision is in the log, its transaction is not ended: it does not count yet.
    assert found["deciding"].decision.phase is Phase.DONE
    names = [t.transactional_id for t in found["deciding"].transactions]
    assert names == [f"deciding.{WORKER}.0", "deciding.driver"]
    assert found["deciding"].transactions[1].partitions == (TopicPartition(LOG_TOPIC, 0),)
    assert found["orphan"].decision is None
    assert [t.transactional_id for t in found["orphan"].transactions] == [orphan.transactional_id]


def test_a_decision_whose_transaction_was_aborted_does_not_count(operated):
    operated.batch(6, [A], driver(1))
    operated.batch(7, [A], driver(1), "commit.deciding")
    operated.world.init("p.driver")
    [found] = inspection(operated).overview(None)
    assert (found.decision.unit, found.decision.phase) == (unit(6), Phase.DONE)
    assert [t.transactional_id for t in found.transactions] == [f"p.{WORKER}.0"]


def test_a_record_that_nobody_can_read(operated):
    operated.write_raw(b"{}")
    [found] = inspection(operated).overview(None)
    assert (found.prefix, found.decision) == ("p", None)
    assert "not a decision" in found.problem


def test_parts_of_a_unit_and_their_present_state(operated):
    first, second = decided(operated)
    operated.lose(second)
    described = inspection(operated).describe("p", [])
    assert [(p.recorded, p.now) for p in described.parts] == [
        ("to be committed", "Ongoing"),
        ("to be committed", "CompleteAbort"),
    ]
    operated.operations.resolve(None, agree)
    described = inspection(operated).describe("p", ["t"])
    assert [(p.transaction, p.recorded, p.now) for p in described.parts] == [
        (first, "committed", "CompleteCommit"),
        (second, "lost", "CompleteAbort"),
    ]
    operated.world.init(first.transactional_id)
    described = inspection(operated).describe("p", [])
    assert described.parts[0].now == "id used again"
    operated.forget(first)
    assert inspection(operated).describe("p", []).parts[0].now == "forgotten"


def test_who_holds_back_readers(operated):
    first, second = operated.written(operated.protocol.plan(driver(1), None), [A, B])
    operated.forget(second)  # its records stay open: a hanging transaction
    positions = {p.topic_partition: p for p in inspection(operated).describe("p", ["t"]).positions}
    assert [positions[TopicPartition("t", n)].readers_lag for n in range(3)] == [1, 1, 0]
    [held] = positions[TopicPartition("t", 0)].producers
    assert (held.producer_id, held.first_offset) == (first.producer_id, 0)
    assert held.transactional_id == first.transactional_id
    [hanging] = positions[TopicPartition("t", 1)].producers
    assert (hanging.producer_id, hanging.transactional_id) == (second.producer_id, None)
    assert positions[TopicPartition("t", 2)].producers == ()
    assert {p.problem for p in positions.values()} == {""}


def test_partitions_that_cannot_be_asked(operated):
    partition = operated.world.cluster.partition(TopicPartition("t", 1))
    operated.world.cluster.stop(partition.leader_id)
    partition.elect(NO_LEADER)
    operated.world.cluster.publish(now=True)
    described = inspection(operated).describe("p", ["t"])
    problems = {p.topic_partition.partition: p.problem for p in described.positions}
    assert problems[1].startswith("LEADER_NOT_AVAILABLE")
    assert "" in problems.values()
    with pytest.raises(TopicError, match="'u' does not exist"):
        inspection(operated).describe("p", ["u"])


def test_without_a_decision_log():
    operated = Operated()
    nowhere = Inspection(operated.client, "nowhere", PATIENCE_MS)
    before_ms = operated.world.clock.ms
    with pytest.raises(TopicError, match=r"no decision log 'nowhere'.*transaction\.log\.topic"):
        nowhere.overview(None)
    assert operated.world.clock.ms - before_ms < 1000
