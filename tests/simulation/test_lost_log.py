"""The decision log is deleted, or restored from a copy, or has never known the query."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import NO_PRODUCER, TopicPartition
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.record.record_writer import NewRecord, encode_batch
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.log_partition import LogPartition
from spark_kafka_sink.transactions.model import MissingRecordError, Unit
from spark_kafka_sink.transactions.operations import Operations
from tests.simulation.operating import (
    LOG_TOPIC,
    PATIENCE_MS,
    TIMEOUT_MS,
    CrashError,
    Lives,
    agree,
    crash_at,
    driver,
    unit,
)


def lose_the_log(lives: Lives) -> None:
    lives.world.run_for(500)
    lives.world.cluster.empty_topic(LOG_TOPIC)


def accepting(lives: Lives) -> CommitProtocol:
    config = ExactlyOnceConfig("p", TIMEOUT_MS, LOG_TOPIC, 3, accepts_missing_record=True)
    return CommitProtocol(lives.client, config, lives.world.clock, PATIENCE_MS)


@pytest.mark.parametrize("job", [None, "job"])
def test_a_log_that_was_lost_under_a_decision_is_noticed_before_anything_is_swept(
    lives: Lives, job: str | None
) -> None:
    lives.batch(0, driver(1), job=job and "first")
    crash_at("commit.ending")
    with pytest.raises(CrashError):
        lives.batch(1, driver(1), job=job)
    lose_the_log(lives)
    for number in (
        1,
        2,
        2,
    ):  # a driver that is refused leaves nothing that would let it pass the next time
        with pytest.raises(MissingRecordError, match=r"transaction\.log\.missing=accept"):
            lives.protocol.plan(driver(number), job)
    assert len(lives.open_ids()) == 1
    lives.protocol = accepting(lives)
    lives.batch(1, driver(2), job=job and "again")
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-0", b"1-1"]


def test_a_log_that_was_lost_after_the_brokers_have_forgotten_the_prefix(lives: Lives) -> None:
    lives.batch(0, driver(1))
    lives.batch(1, driver(1))
    lose_the_log(lives)
    lives.world.transactions.expire("p.driver")
    with pytest.raises(MissingRecordError, match="micro-batch 2 of query q-1 is not its query's"):
        lives.batch(2, driver(2))
    lives.protocol = accepting(lives)
    lives.batch(2, driver(3))
    lives.protocol = lives.protocol_of("p")
    lives.batch(3, driver(4))
    assert len(lives.visible()) == 8


def test_a_copy_of_the_log_is_not_the_log(lives: Lives) -> None:
    """A mirror writes the records outside of transactions, into another topic."""
    lives.batch(0, driver(1))
    lives.world.run_for(500)
    copied = lives.world.cluster.partition(TopicPartition(LOG_TOPIC, 0)).log.records()
    lives.world.cluster.empty_topic(LOG_TOPIC)
    log = LogPartition(lives.client.admin, TopicPartition(LOG_TOPIC, 0))
    records = [NewRecord(r.key, r.value) for r in copied if r.key]
    batch = encode_batch(records, 0, NO_PRODUCER, -1, is_transactional=False)
    log.append(None, batch, 12, lives.world.clock.ms + PATIENCE_MS)
    with pytest.raises(MissingRecordError, match="the brokers know that it was used"):
        lives.protocol.plan(driver(2), None)


FOREIGN_MARKS = (b"", b"\xff", b"null", b"1", b"[]", b"{}", b'{"log": 1}', b"[" * 100_000, None)


@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("value", FOREIGN_MARKS, ids=range(len(FOREIGN_MARKS)))
def test_a_foreign_record_in_place_of_the_mark(
    lives: Lives, value: bytes | None, has_mark: bool
) -> None:
    """Somebody else writes to the topic, under the key of the mark: it is as if it were not there."""
    if has_mark:
        crash_at("plan.fenced")
        with pytest.raises(CrashError):
            lives.batch(0, driver(1))
    log = LogPartition(lives.client.admin, TopicPartition(LOG_TOPIC, 0))
    batch = encode_batch([NewRecord(b"\xfep", value)], 0, NO_PRODUCER, -1, is_transactional=False)
    log.append(None, batch, 12, lives.world.clock.ms + PATIENCE_MS)
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_first_planning_that_was_cut_off_is_no_lost_log(lives: Lives) -> None:
    crash_at("plan.fenced")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


@pytest.mark.parametrize("late", range(1, 4))
def test_brokers_that_do_not_know_the_new_log_yet(lives: Lives, late: int) -> None:
    """The topic was just created, and one of the answers comes from a broker that lags behind."""
    answers = iter(["NONE"] * (late - 1) + ["UNKNOWN_TOPIC_OR_PARTITION"])
    lives.world.cluster.on_describe = lambda topic: (
        next(answers, "NONE") if topic == LOG_TOPIC else "NONE"
    )
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


@pytest.mark.parametrize("has_open", [True, False])
def test_a_prefix_of_a_lost_log_is_released(lives: Lives, has_open: bool) -> None:
    """No record is left to remove, and yet the next start must not be refused."""
    lives.batch(0, driver(1))
    if has_open:
        lives.write(lives.protocol.plan(driver(1), None), 0, b"left open")
    lose_the_log(lives)
    operations = Operations(lives.client, LOG_TOPIC, "p", lives.world.clock, PATIENCE_MS)
    result = operations.release(agree)
    assert (result.message, len(result.aborted)) == ("'p' is released", has_open)
    assert "nothing to release" in operations.release(agree).message
    lives.batch(1, driver(2))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


@pytest.mark.parametrize("has_tasks", [True, False])
def test_first_micro_batches_without_rows(lives: Lives, has_tasks: bool) -> None:
    for number in range(3):
        plan = lives.protocol.plan(driver(1), None)
        if has_tasks:
            lives.protocol.commit(plan, unit(number), [])
        else:
            lives.protocol.commit_without_tasks(Unit(None, number, None), driver(1))
    lives.batch(3, driver(1))
    assert lives.visible() == [b"3-0", b"3-1"]


def test_a_first_micro_batch_that_has_rows_after_all(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    lives.protocol.commit(plan, unit(0), [])
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_query_whose_first_micro_batches_were_not_given_to_the_sink(lives: Lives) -> None:
    """Nobody can tell that from a lost log; it is refused before the tasks, and once accepted."""
    for number in (1, 2):
        plan = lives.protocol.plan(driver(number), None)
        with pytest.raises(MissingRecordError, match="did not call the sink for the first micro"):
            lives.protocol.check_may_follow(plan, unit(3))
    lives.protocol = accepting(lives)
    plan = lives.protocol.plan(driver(3), None)
    lives.protocol.check_may_follow(plan, unit(3))
    lives.protocol.commit(plan, unit(3), [lives.write(plan, 0, b"3-0")])
    lives.protocol = lives.protocol_of("p")
    plan = lives.protocol.plan(driver(3), None)
    lives.protocol.check_may_follow(plan, unit(5))  # the fourth one is not given to it, too
    lives.protocol.commit(plan, unit(5), [lives.write(plan, 0, b"5-0")])
    assert lives.visible() == [b"3-0", b"5-0"]


def test_a_query_that_has_written_at_least_once_begins_later(lives: Lives) -> None:
    with pytest.raises(
        MissingRecordError, match=r"wrote at-least-once until now, or .*: start it once"
    ):
        lives.batch(7, driver(1))
    assert lives.open_ids() != []
    lives.protocol.abort(driver(1))
    assert lives.open_ids() == []
    lives.protocol = accepting(lives)
    lives.batch(7, driver(2))
    lives.protocol = lives.protocol_of("p")
    lives.batch(8, driver(2))
    assert lives.visible() == [b"7-0", b"7-1", b"8-0", b"8-1"]
