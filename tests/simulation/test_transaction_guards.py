"""Second checks, limits, and what is kept for the next time: each with one case that needs it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.transactions.decision_log import DecisionLog
from spark_kafka_sink.transactions.log_partition import LogPartition
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    FencedError,
    OutcomeError,
    Phase,
    TaskTransaction,
    TransactionLostError,
    Unit,
)
from tests.simulation.operating import (
    LOG_TOPIC,
    PATIENCE_MS,
    Lives,
    at,
    driver,
    unit,
)

LOG = TopicPartition(LOG_TOPIC, 0)


def record(lives: Lives) -> Decision:
    found = lives.protocol.log.read(lives.world.clock.ms + PATIENCE_MS)
    assert found is not None
    return found


# --- a micro-batch without a task --------------------------------------------------------------


def test_who_has_no_task_takes_nothing_from_another_driver(lives: Lives) -> None:
    """Both are drivers of one query, and its first micro-batch has no rows."""
    lives.protocol.plan(driver(1), None)
    plan = lives.protocol.plan(driver(2), None)
    written = [lives.write(plan, 0, b"0")]
    lives.protocol.commit_without_tasks(Unit(None, 0, None), driver(1))
    lives.protocol.commit(plan, unit(0), written)
    assert lives.visible() == [b"0"]


def test_who_has_no_task_writes_nothing_in_the_name_of_another_driver(lives: Lives) -> None:
    """That one has planned between the look at the log and the taking of the id."""
    lives.protocol.plan(driver(1), None)
    late, look = lives.protocol_of("p"), lives.protocol._read_when_complete

    def look_and_hang(deadline_ms: int) -> Any:
        found = look(deadline_ms)
        lives.protocol.plan(driver(2), None)
        return found

    with mock.patch.object(late, "_read_when_complete", look_and_hang):
        late.commit_without_tasks(Unit(None, 0, None), driver(1))
    assert (record(lives).owner, record(lives).unit) == (driver(2), NO_UNIT)


# --- aborting ----------------------------------------------------------------------------------


def test_abort_leaves_alone_what_the_same_driver_has_planned_since(lives: Lives) -> None:
    """As writes of one process under one prefix in two threads."""
    first = lives.protocol.plan(driver(1), None)
    second = lives.protocol.plan(driver(1), None)
    written = [lives.write(second, 0, b"0")]
    with pytest.raises(FencedError, match="a later write of this process"):
        lives.protocol.abort(driver(1), first.token)
    lives.protocol.commit(second, unit(0), written)
    assert lives.visible() == [b"0"]


def test_abort_after_a_commit_that_has_used_the_token(lives: Lives) -> None:
    """Its own records are no later plan: what failed attempts have left open is aborted."""
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"0")]
    lives.write(plan, 1, b"of a loser")
    name = written[0].transactional_id
    at("commit.decided", lambda: lives.world.init_once(name))
    with pytest.raises(TransactionLostError):
        lives.protocol.commit(plan, unit(0), written)
    found = lives.protocol.abort(driver(1), plan.token)
    assert found is not None
    assert found.phase is Phase.VOID
    assert lives.open_ids() == []


def test_abort_sweeps_nothing_of_a_driver_that_plans_just_then(lives: Lives) -> None:
    lives.protocol.plan(driver(1), None)
    late, look = lives.protocol_of("p"), lives.protocol._read_when_complete

    def look_and_hang(deadline_ms: int) -> Any:
        found = look(deadline_ms)
        lives.write(lives.protocol.plan(driver(2), None), 0, b"open")
        return found

    with mock.patch.object(late, "_read_when_complete", look_and_hang):
        found = late.abort(driver(1))
    assert found is not None
    assert found.owner == driver(2)
    assert len(lives.open_ids()) == 1


def test_a_dropped_replay_uses_its_token(lives: Lives) -> None:
    """Else an attempt that begins to write later does not see that nobody will look for it."""
    lives.batch(0, driver(1))
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, n, b"0-%d" % n) for n in range(2)]
    assert lives.protocol.commit(plan, unit(0), written) is None
    state = lives.client.describe_when_complete("p.driver", lives.world.clock.ms + PATIENCE_MS)
    assert state is not None
    held_by = (state.producer_id, state.producer_epoch)
    assert (held_by, state.transaction_state) != (plan.token.producer, "Empty")


# --- the decision log --------------------------------------------------------------------------


def test_a_large_decision_is_compressed(lives: Lives) -> None:
    """Thousands of tasks must fit into max.message.bytes of the log."""
    plan = lives.protocol.plan(driver(1), None)
    tasks = tuple(
        TaskTransaction(f"p.0123456789ab.{n}", 4_000 + n, 7, 2, n, 1, f"1-9-w1.{n:016x}")
        for n in range(5_000)
    )
    decision = plan.decision.deciding(unit(0), tasks, (), None)
    lives.protocol.log.write(decision, plan.token, lives.world.clock.ms + PATIENCE_MS)
    lives.world.run_for(500)
    assert record(lives) == decision
    log = lives.world.cluster.partition(LOG).log
    assert max(map(len, log.data)) < len(decision.to_json()) / 4 < 1_000_000 / 4


def test_a_record_that_the_leader_has_already_is_written(lives: Lives) -> None:
    """The answer to the first request was lost. Source: ``Sender.completeBatch``."""
    duplicate_sequence_number = 46
    lives.protocol.log._check_appended(duplicate_sequence_number, "p.driver", 100)


@pytest.mark.parametrize("version", [0, 1])
def test_a_downgrade_between_plan_and_decision(version: int) -> None:
    """With the requests of transaction.version 2 the driver's own transaction would be stuck."""
    lives = Lives(2)
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"0")]
    lives.world.transactions.transaction_version = version
    lives.protocol.commit(plan, unit(0), written)
    assert lives.visible() == [b"0"]


def test_the_log_is_read_from_its_end(lives: Lives) -> None:
    """All prefixes share a partition, and each start reads it."""
    for number in range(30):
        lives.batch(number, driver(1))
    starts: list[int] = []
    read = LogPartition.read

    def noted(self: LogPartition, start: int, end: int, deadline_ms: int) -> Any:
        starts.append(end - start)
        return read(self, start, end, deadline_ms)

    with mock.patch.object(LogPartition, "read", noted):
        assert record(lives).unit == unit(29)
    assert starts == [50]


def test_another_versions_rows_are_not_filled_in(lives: Lives) -> None:
    """Hashed in another way, they cannot be compared with what comes again."""
    old = TaskTransaction("p.0123456789ab.0", 7, 0, 2, 0, 1, "1-1-old")
    lost = old._replace(transactional_id="p.0123456789ab.1", partition_id=1)
    plan = lives.protocol.plan(driver(1), None)
    partial = plan.decision.deciding(unit(0), [lost], (old,), None)
    log, deadline_ms = lives.protocol.log, lives.world.clock.ms + PATIENCE_MS
    assert isinstance(log, DecisionLog)
    log.write(Decision(**{**vars(partial), "phase": Phase.PARTIAL}), plan.token, deadline_ms)
    plan = lives.protocol.plan(driver(1), None)
    again = [lives.write(plan, n, b"%d" % n)._replace(digest="1-1-old") for n in range(2)]
    with pytest.raises(OutcomeError, match="in a way that this one does not compare"):
        lives.protocol.commit(plan, unit(0), again)
