"""The commit protocol, step by step: what it decides, finishes, refuses and repairs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import crash_points, session
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.model import (
    FencedError,
    OutcomeError,
    Phase,
    PrefixInUseError,
    TransactionError,
    TransactionLostError,
    Unit,
)
from tests.simulation.operating import (
    LOG_TOPIC,
    PATIENCE_MS,
    TIMEOUT_MS,
    CrashError,
    Lives,
    at,
    crash_at,
    driver,
    unit,
)

DRIVER_POINTS = [p for p in crash_points.POINTS if p.startswith(("plan.", "commit."))]


# --- what is decided is visible, once -----------------------------------------------------------


def test_batches_become_visible_one_after_another(lives: Lives) -> None:
    for number in range(5):
        lives.batch(number, driver(1))
    assert lives.visible() == sorted(b"%d-%d" % (b, t) for b in range(5) for t in range(2))
    decision = lives.protocol.log.read(lives.world.clock.ms + PATIENCE_MS)
    assert decision is not None
    assert (decision.phase, decision.unit, decision.records) == (Phase.DONE, unit(4), 2)
    assert lives.open_ids() == []


def test_transactional_ids_stay_few(lives: Lives) -> None:
    for number in range(20):
        lives.batch(number, driver(1), tasks=3)
    assert len(lives.world.list()) == 4  # three slots and the driver's


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_crash_at_any_point_and_a_replay_by_another_driver(lives: Lives, point: str) -> None:
    lives.batch(0, driver(1))
    crash_at(point)
    # The claim is only written by a driver that is new.
    crashed = driver(2) if point == "plan.claimed" else driver(1)
    with pytest.raises(CrashError):
        lives.batch(1, crashed)
    lives.batch(1, driver(3))
    lives.batch(2, driver(3))
    assert lives.visible() == sorted(b"%d-%d" % (b, t) for b in range(3) for t in range(2))
    assert lives.open_ids() == []


def test_nothing_written_needs_no_decision(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    lives.protocol.commit(plan, unit(0), [])
    lives.batch(1, driver(1))
    assert lives.visible() == [b"1-0", b"1-1"]


# --- aborting -----------------------------------------------------------------------------------


def test_abort_ends_what_is_open(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    lives.write(plan, 0, b"half")
    assert len(lives.open_ids()) == 1
    lives.protocol.abort(driver(1))
    assert lives.open_ids() == []
    assert lives.visible() == []


@pytest.mark.parametrize("point", ["commit.decided", "commit.ending", "commit.ended"])
def test_abort_after_a_decision_touches_nothing(lives: Lives, point: str) -> None:
    """Spark calls abort after a commit that failed."""
    crash_at(point)
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    lives.protocol.abort(driver(1))
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_abort_while_the_claim_is_without_its_marker(lives: Lives) -> None:
    """EndTxn is answered before: the record of the owner before is still the last one to be seen."""
    lives.batch(0, driver(1))
    lives.world.run_for(500)
    lives.world.transactions.marker_delay_ms = (2000, 2000)
    plan = lives.protocol.plan(driver(2), None)
    lives.write(plan, 0, b"left open")
    found = lives.protocol.abort(driver(2))
    assert found is not None
    assert found.owner == driver(2)
    lives.world.run_for(2000)
    assert lives.open_ids() == []


def test_abort_in_the_middle_of_a_decision_settles_it(lives: Lives) -> None:
    crash_at("commit.deciding")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    lives.protocol.abort(driver(1))
    assert lives.open_ids() == []
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_abort_of_a_driver_that_was_taken_over_touches_nothing(lives: Lives) -> None:
    lives.protocol.plan(driver(1), None)
    plan = lives.protocol.plan(driver(2), None)
    written = [lives.write(plan, 0, b"new")]
    lives.protocol.abort(driver(1))
    lives.protocol.commit(plan, unit(0), written)
    assert lives.visible() == [b"new"]


# --- who may ------------------------------------------------------------------------------------


def test_an_older_driver_cannot_decide_and_cannot_come_back(lives: Lives) -> None:
    old = lives.protocol.plan(driver(1), None)
    written = [lives.write(old, 0, b"old")]
    lives.protocol.plan(driver(2), None)
    with pytest.raises((FencedError, TransactionLostError)):
        lives.protocol.commit(old, unit(0), written)
    with pytest.raises(FencedError, match="superseded by driver driver-2"):
        lives.protocol.plan(driver(1), None)
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_the_data_source_and_the_functions_of_one_application_do_not_take_turns(
    lives: Lives,
) -> None:
    """They are two drivers. A job of the first is refused also when that of the second is done:
    nobody can tell it from a driver that had hung, and is awake again.
    """
    data_source, functions = driver(1, None), driver(2, None)
    lives.batch(0, data_source, job="a")
    lives.batch(1, functions, job="b")
    with pytest.raises(FencedError, match=r"the data source is a driver, .* prefix of its own"):
        lives.batch(2, data_source, job="c")
    lives.batch(3, functions, job="d")
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1", b"3-0", b"3-1"]


def test_a_driver_fenced_between_check_and_decision_writes_nothing(lives: Lives) -> None:
    old = lives.protocol.plan(driver(1), None)
    written = [lives.write(old, 0, b"old")]

    def take_over(point: str) -> None:
        if point == "commit.checked":
            crash_points.set_hook(None)
            lives.protocol.plan(driver(2), None)

    crash_points.set_hook(take_over)
    with pytest.raises(
        FencedError, match=r"another driver has taken over transactional.id.prefix"
    ) as fenced:
        lives.protocol.commit(old, unit(0), written)
    taken_over_by = "driver driver-2 of query 'rows' on host, checkpoint /ck, since 2023-11-14T"
    assert f"The decision log names {taken_over_by}" in str(fenced.value)
    assert lives.visible() == []
    assert lives.open_ids() == []


@pytest.mark.parametrize("point", ["commit.done", "plan.resolved", "abort.settled"])
def test_a_driver_that_wakes_up_late_sweeps_nothing_that_a_newer_one_has_decided(
    lives: Lives, point: str
) -> None:
    lives.batch(0, driver(1))

    def overtake(reached: str) -> None:
        if reached != point:
            return
        crash_at("commit.decided")
        with pytest.raises(CrashError):
            lives.batch(2, driver(2))

    crash_points.set_hook(overtake)
    if point == "commit.done":
        lives.batch(1, driver(1))  # it is done; what it could not sweep is another's
    else:
        with pytest.raises(FencedError, match=r"names driver driver-2 .* since 2023-11-14T"):
            lives.protocol.abort(driver(1)) if point == "abort.settled" else lives.batch(
                1, driver(1)
            )
    assert len(lives.open_ids()) == 2
    lives.batch(2, driver(3))
    expected = {b"0-0", b"0-1", b"2-0", b"2-1"}
    assert set(lives.visible()) - {b"1-0", b"1-1"} == expected
    assert len(lives.visible()) == 6 if point == "commit.done" else 4
    assert lives.open_ids() == []


def test_another_query_is_refused_and_named(lives: Lives) -> None:
    lives.batch(0, driver(1, "/ck/one"))
    with pytest.raises(PrefixInUseError, match="checkpoint /ck/one"):
        lives.protocol.plan(driver(2, "/ck/two"), None)
    lives.batch(1, driver(1, "/ck/one"))  # it was not even fenced
    # Its checkpoint was emptied: the location is the same, the query is not.
    plan = lives.protocol.plan(driver(3, "/ck/one"), None)
    written = [lives.write(plan, 0, b"other")]
    with pytest.raises(PrefixInUseError, match="query q-1"):
        lives.protocol.commit(plan, Unit("q-2", 0, None), written)
    with pytest.raises(PrefixInUseError, match="query q-1"):
        lives.protocol.plan(driver(4, None), "job")


def test_a_refused_job_changes_nothing(lives: Lives) -> None:
    """The query that it was refused for goes on: with its decision, and with its transactions."""
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"first")]
    for number, checkpoint in ((8, None), (9, "/other")):  # it is claimed, and nothing decided yet
        with pytest.raises(PrefixInUseError, match="driver driver-1"):
            lives.protocol.plan(driver(number, checkpoint), "job" if number == 8 else None)
    lives.protocol.commit(plan, unit(0), written)
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"second")]
    with pytest.raises(PrefixInUseError, match="query q-1"):
        lives.protocol.plan(driver(8, None), "job")
    lives.protocol.commit(plan, unit(1), written)
    lives.batch(2, driver(1))
    assert lives.visible() == [b"2-0", b"2-1", b"first", b"second"]


@pytest.mark.parametrize("has_committed", [True, False])
def test_who_may_be_another_query_changes_nothing(lives: Lives, has_committed: bool) -> None:
    """An earlier version did not write down a location that was a property of the session."""
    if has_committed:
        lives.batch(0, driver(1, None))
    plan = lives.protocol.plan(driver(1, None), None)
    written = [lives.write(plan, 0, b"first")]
    for other, job in ((driver(2, None), "job"), (driver(1, "/ck"), None), (driver(3), None)):
        with pytest.raises(PrefixInUseError, match="driver driver-1"):
            lives.protocol.plan(other, job)
    lives.protocol.commit(plan, unit(1 if has_committed else 0), written)
    assert b"first" in lives.visible()


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (Unit("q-2", 3, None), "belongs to query q-1"),
        (Unit("q-1", 1, None), "the checkpoint has gone back"),
    ],
)
@pytest.mark.parametrize("by", [1, 2])
def test_a_unit_that_may_not_follow_is_refused_before_anything_is_taken(
    lives: Lives, refused: Unit, error: str, by: int
) -> None:
    """Where it is known before the tasks, as with foreachBatch; the query goes on."""
    for number in range(3):
        lives.batch(number, driver(1))
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"3")]
    with pytest.raises(TransactionError, match=error):
        lives.protocol.plan(driver(by), None, None, refused)
    lives.protocol.commit(plan, unit(3), written)
    lives.batch(4, driver(1))
    assert lives.visible()[-3:] == [b"3", b"4-0", b"4-1"]


def test_a_query_whose_checkpoint_is_not_told_is_refused_before_anything_is_asked() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": "p",
    }
    with pytest.raises(ConfigError, match="needs the option checkpointLocation"):
        session.plan_unit(SinkOptions.parse(options), is_job=False)


def test_who_is_refused_after_all_claims_and_sweeps_nothing(lives: Lives) -> None:
    """A query claims the prefix just after a job has looked."""
    query, job = lives.protocol_of("p"), lives.protocol_of("p")
    check = job._check_before_fencing

    def check_and_hang(*arguments: Any) -> bool:
        found = check(*arguments)
        lives.write(query.plan(driver(1), None), 0, b"open")
        return found

    with (
        mock.patch.object(job, "_check_before_fencing", check_and_hang),
        pytest.raises(PrefixInUseError, match="driver driver-1"),
    ):
        job.plan(driver(2, None), "job")
    decision = lives.protocol.log.read(lives.world.clock.ms + PATIENCE_MS)
    assert decision is not None
    assert (decision.owner, decision.superseded) == (driver(1), ())
    assert len(lives.open_ids()) == 1
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_checkpoint_that_went_back_is_refused(lives: Lives) -> None:
    for number in range(3):
        lives.batch(number, driver(1))
    with pytest.raises(TransactionError, match="the checkpoint has gone back"):
        lives.batch(1, driver(1))
    assert len(lives.visible()) == 6


def test_prefixes_that_begin_alike_do_not_meet(lives: Lives) -> None:
    """Nor does one's open decision hide the other's from it."""
    other = lives.protocol_of("p.q")
    plan = other.plan(driver(9, "/other"), None)
    open_task = lives.write(plan, 3, b"other")
    crash_at("commit.deciding")
    with pytest.raises(CrashError):
        other.commit(plan, Unit("q-9", 0, None), [open_task])
    lives.batch(0, driver(1))
    lives.batch(0, driver(1))
    lives.batch(1, driver(2))
    assert open_task.transactional_id in lives.open_ids()
    assert [v for v in lives.visible() if v != b"other"] == [b"0-0", b"0-1", b"1-0", b"1-1"]


# --- transactions that the brokers have aborted -------------------------------------------------


def decided_and_lost(lives: Lives, commit_first: bool) -> None:
    """A decision for tasks 0 and 1, a crash, and an outage beyond the timeout."""
    crash_at("commit.ending" if commit_first else "commit.decided")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    lives.world.run_for(TIMEOUT_MS + 20_000)


def test_transactions_that_ran_out_before_the_decision(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"late")]
    lives.world.run_for(TIMEOUT_MS + 20_000)
    with pytest.raises(TransactionLostError, match=r"kafka.transaction.timeout.ms = 600000"):
        lives.protocol.commit(plan, unit(0), written)
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_transaction_whose_id_a_later_plan_has_taken(lives: Lives) -> None:
    """Both are open: what differs is whose it is."""
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"first")]
    again = [lives.write(lives.protocol.plan(driver(1), None), 0, b"second")]
    assert again[0].transactional_id == written[0].transactional_id
    with pytest.raises(TransactionLostError) as lost:
        lives.protocol.commit(plan, unit(0), written)
    assert f"{again[0].transactional_id} of task 0 is not open any more" in str(lost.value)
    by = f"producer id {again[0].producer_id}, epoch {again[0].producer_epoch}"
    assert f"a later one, also Ongoing ({by}), has taken its id" in str(lost.value)


@pytest.mark.parametrize("version", [2, 1, 0])
def test_a_driver_that_was_stopped_while_it_decided(version: int) -> None:
    """The brokers abort its own transaction: nobody else has taken over."""
    lives = Lives(version)
    config = ExactlyOnceConfig("p", 20_000, LOG_TOPIC, 3)
    lives.protocol = CommitProtocol(lives.client, config, lives.world.clock, PATIENCE_MS)
    lives.batch(0, driver(1))
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"1")]
    at("commit.deciding", lambda: lives.world.run_for(40_000))
    with pytest.raises(TransactionLostError) as lost:
        lives.protocol.commit(plan, unit(1), written)
    assert "have aborted the transaction of p.driver" in str(lost.value)
    assert "20000 ms" in str(lost.value)
    assert lives.visible() == [b"0-0", b"0-1"]
    lives.batch(1, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_transactions_that_are_about_to_run_out_are_not_decided(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"late")]
    lives.world.run_for(int(TIMEOUT_MS * 0.95))
    with pytest.raises(TransactionLostError, match="too late to commit"):
        lives.protocol.commit(plan, unit(0), written)


def test_all_lost_after_the_decision_is_written_afresh(lives: Lives) -> None:
    decided_and_lost(lives, commit_first=False)
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_part_lost_is_filled_in_by_the_same_rows(lives: Lives) -> None:
    decided_and_lost(lives, commit_first=True)
    assert len(lives.visible()) == 1
    lives.batch(0, driver(2))
    lives.batch(1, driver(2))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_part_lost_and_another_replay_is_an_error_that_names_both(
    lives: Lives, tasks: int
) -> None:
    decided_and_lost(lives, commit_first=True)
    with pytest.raises(OutcomeError, match="visible in part: 1 records are, 1 records of Spark"):
        lives.batch(0, driver(2), tasks=tasks)
    assert len(lives.visible()) == 1
    with pytest.raises(OutcomeError, match="visible in part"):
        lives.protocol.commit_without_tasks(Unit(None, 0, None), driver(2))
    lives.protocol.commit_without_tasks(Unit(None, 1, None), driver(2))


def test_an_outcome_that_nobody_can_know(lives: Lives) -> None:
    """Somebody else has initialized a decided transaction's id."""
    crash_at("commit.decided")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    for transactional_id in lives.open_ids():
        lives.world.init(transactional_id)
        lives.world.init(transactional_id)
    for number in (2, 3):
        with pytest.raises(OutcomeError, match="cannot be known"):
            lives.batch(0, driver(number))


# --- batch jobs ---------------------------------------------------------------------------------


def test_jobs_follow_each_other(lives: Lives) -> None:
    lives.batch(0, driver(1, None), job="a")
    lives.batch(1, driver(1, None), job="b")
    lives.batch(2, driver(2, None), job="c")
    assert len(lives.visible()) == 6


def test_a_job_whose_driver_died_after_the_decision_must_be_confirmed(lives: Lives) -> None:
    crash_at("commit.ending")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1, None), job="a")
    for number in (2, 3):
        with pytest.raises(OutcomeError, match="job a was decided.*2 records are visible"):
            lives.batch(1, driver(number, None), job="b")
    assert lives.visible() == [b"0-0", b"0-1"]
    assert lives.open_ids() == []


def test_a_job_that_failed_before_the_decision_leaves_nothing(lives: Lives) -> None:
    crash_at("commit.checked")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1, None), job="a")
    lives.batch(1, driver(2, None), job="b")
    assert lives.visible() == [b"1-0", b"1-1"]
    assert lives.open_ids() == []
