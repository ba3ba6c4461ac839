"""The commit protocol, step by step: what it decides, finishes, refuses and repairs."""

from __future__ import annotations

import contextlib
from functools import partial
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, error_named
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import LogPartition
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    FencedError,
    OutcomeError,
    Phase,
    PrefixInUseError,
    TaskTransaction,
    TransactionError,
    TransactionLostError,
    Unit,
    Write,
    is_task_id,
)
from tests.simulation.harness import assert_has
from tests.simulation.operating import (
    DRIVER_POINTS,
    LOG_TOPIC,
    OPTIONS,
    PATIENCE_MS,
    TIMEOUT_MS,
    Lives,
    at,
    dies_at,
    driver,
    unit,
)

# --- what is decided is visible, once -----------------------------------------------------------


def test_batches_become_visible_one_after_another(lives):
    lives.batches(5)
    assert lives.visible() == sorted(b"%d-%d" % (b, t) for b in range(5) for t in range(2))
    decision = lives.record()
    assert (decision.phase, decision.unit, decision.records) == (Phase.DONE, unit(4), 2)
    assert lives.open_ids() == []


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_crash_at_any_point_and_a_replay_by_another_driver(lives, point):
    lives.batch(0, driver(1))
    # The claim is only written by a driver that is new.
    lives.killed(point, 1, driver(2) if point == "plan.claimed" else driver(1))
    lives.batch(1, driver(3))
    lives.batch(2, driver(3))
    lives.check_settled(*(b"%d-%d" % (b, t) for b in range(3) for t in range(2)))


def test_a_micro_batch_without_rows_that_has_some_after_all(lives):
    lives.protocol.commit(lives.protocol.plan(driver(1), None), unit(0), [])
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


# --- aborting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", ["commit.deciding", "commit.decided", "commit.ending", "commit.ended"]
)
def test_abort_in_the_middle_of_a_decision_settles_it_and_later_touches_nothing(lives, point):
    """Spark calls abort after a commit that failed."""
    lives.killed(point, 0, driver(1))
    lives.protocol.abort(driver(1))
    assert point != "commit.deciding" or lives.open_ids() == []
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_abort_while_the_claim_is_without_its_marker(lives):
    """EndTxn is answered before: the record of the owner before is still the last one to be seen."""
    lives.batch(0, driver(1))
    lives.world.run_for(500)
    lives.world.transactions.marker_delay_ms = (2000, 2000)
    lives.begun(driver(2), b"left open")
    assert lives.protocol.abort(driver(2)).owner == driver(2)
    lives.world.run_for(2000)
    assert lives.open_ids() == []


# --- cleaning up after a query that was stopped before its commit, or whose driver has ended ------


def cleaned_up(lives, plan):
    """What another process ends after the plan's driver; each call has a process of its own."""
    return lives.protocol_of("p").clean_up_after(plan.driver, plan.token)


def test_what_a_stopped_query_left_open_is_aborted(lives):
    lives.batch(0, driver(1))
    plan, written = lives.begun(driver(1), b"a", b"b")
    assert lives.protocol.is_unused(plan.token)
    found = cleaned_up(lives, plan)
    assert found.ended == tuple(t.transactional_id for t in written)
    lives.check_settled(b"0-0", b"0-1")
    late = lives.write(plan, 2, b"late")
    assert lives.protocol_of("p").clean_up_late(found.token) == (late.transactional_id,)
    lives.check_settled(b"0-0", b"0-1")
    lives.batch(1, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_a_task_that_is_late_finds_the_token_used_though_nothing_was_open(lives):
    plan, _ = lives.begun(driver(1))
    assert lives.protocol.is_unused(plan.token)
    found = cleaned_up(lives, plan)
    assert found.ended == ()
    assert not lives.protocol.is_unused(plan.token)
    later, written = lives.begun(driver(1), b"a")
    with pytest.raises(FencedError):
        lives.protocol_of("p").clean_up_late(found.token)
    lives.protocol.commit(later, unit(0), written)
    assert lives.visible() == [b"a"]


@pytest.mark.parametrize("point", [p for p in DRIVER_POINTS if p.startswith("commit.")])
def test_what_was_decided_becomes_visible_though_its_driver_has_ended(lives, point):
    plan, written = lives.begun(driver(1), b"a", b"b")
    dies_at(point, lambda: lives.protocol.commit(plan, unit(0), written))
    with contextlib.suppress(FencedError):  # it was done
        cleaned_up(lives, plan)
    is_decided = point not in ("commit.begin", "commit.checked", "commit.deciding")
    lives.check_settled(*([b"a", b"b"] if is_decided else []))
    again, written = lives.begun(driver(2), b"a", b"b")  # a replay
    lives.protocol.commit(again, unit(0), written)
    lives.check_settled(b"a", b"b")


@pytest.mark.parametrize("point", ["abort.begin", "abort.settled", "sweep.listed", "abort.swept"])
@pytest.mark.parametrize("is_plan_known", [True, False], ids=["job", "micro-batch"])
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_what_an_abort_has_left_open_that_was_killed(transaction_version, is_plan_known, point):
    """It has the driver's id, which a later plan would have taken in the same way."""
    lives = Lives(transaction_version)
    lives.batch(0, driver(1))
    plan, _ = lives.begun(driver(1), b"a", b"b")
    killed = lives.protocol_of("p")
    dies_at(point, lambda: killed.abort(plan.driver, plan.token if is_plan_known else None))
    found = cleaned_up(lives, plan)
    assert len(found.ended) == (0 if point == "abort.swept" else 2)
    lives.check_settled(b"0-0", b"0-1")
    lives.batch(1, driver(1))
    with pytest.raises(FencedError):
        cleaned_up(lives, plan)


def with_timeout(lives, timeout_ms):
    config = ExactlyOnceConfig("p", timeout_ms, LOG_TOPIC, 3)
    return CommitProtocol(lives.client, config, lives.world.clock, PATIENCE_MS)


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("later_ms", [59_999, 59_998, 30_000, 2])
def test_a_later_plan_with_another_timeout_is_no_abort(transaction_version, later_ms):
    lives = Lives(transaction_version)
    plan, _ = lives.begun(driver(1), b"stopped")
    with_timeout(lives, later_ms).plan(driver(1), None)
    for timeout_ms in (TIMEOUT_MS, 60_000, later_ms):
        with pytest.raises(FencedError):
            with_timeout(lives, timeout_ms).clean_up_after(plan.driver, plan.token)


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_killed_abort_with_another_timeout_is_one(transaction_version):
    lives = Lives(transaction_version)
    plan, _ = lives.begun(driver(1), b"a", b"b")
    dies_at("abort.settled", lambda: with_timeout(lives, 30_000).abort(plan.driver))
    assert len(cleaned_up(lives, plan).ended) == 2


@pytest.mark.parametrize("by", [1, 2])
def test_nothing_of_a_later_plan_is_ended(lives, by):
    plan, _ = lives.begun(driver(1), b"a")
    later, written = lives.begun(driver(by), b"b")
    assert not lives.protocol.is_unused(plan.token)
    if by == 1:
        with pytest.raises(FencedError):
            cleaned_up(lives, plan)
    else:
        assert cleaned_up(lives, plan) == ((), None)
    lives.protocol.commit(later, unit(0), written)
    assert lives.visible() == [b"b"]


@pytest.mark.parametrize("by", [1, 2])
@pytest.mark.parametrize("is_guard", [True, False], ids=["guard", "abort"])
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_plan_that_comes_while_an_earlier_one_is_ended_is_not_fenced(
    transaction_version, is_guard, by
):
    """The query starts again between the look at the record and the next step."""
    lives = Lives(transaction_version)
    lives.batch(0, driver(1))
    plan, _ = lives.begun(driver(1), b"stopped")
    later = []
    at("abort.begin", lambda: later.extend(lives.begun(driver(by), b"later")))
    other = lives.protocol_of("p")
    with pytest.raises(FencedError) if by == 1 else contextlib.nullcontext():
        if is_guard:
            assert other.clean_up_after(plan.driver, plan.token) == ((), None)
        else:
            assert other.abort(plan.driver, plan.token).owner == driver(by)
    lives.protocol.commit(later[0], unit(1), later[1])
    lives.check_settled(b"0-0", b"0-1", b"later")


def test_the_decision_of_a_later_plan_is_not_aborted_while_it_is_open(lives):
    """InitProducerId with the plan's epoch would abort it before it compares."""
    plan, _ = lives.begun(driver(1), b"stopped")
    later, written = lives.begun(driver(1), b"later")

    def clean_up():
        with pytest.raises(FencedError):
            cleaned_up(lives, plan)

    at("commit.deciding", clean_up)
    lives.protocol.commit(later, unit(0), written)
    lives.check_settled(b"later")


# --- how long a commit that cannot end takes ----------------------------------------------------

MOST_MS = 90_000
"""For commit and abort together: Spark shows why a micro-batch failed after both."""


def failed_commit(lives, begun):
    """The error of the commit, after which Spark calls abort."""
    plan, written = begun
    began_ms = lives.world.clock.ms
    with pytest.raises(KafkaSinkError) as failed:
        lives.protocol.commit(plan, unit(0), written)
    with pytest.raises(KafkaSinkError):
        lives.protocol.abort(driver(1))
    assert lives.world.clock.ms - began_ms < MOST_MS
    return failed.value


@pytest.mark.parametrize("point", ["commit.begin", "commit.checked", "commit.decided"])
def test_a_decision_log_that_is_deleted_under_a_running_query(lives, point):
    begun = lives.begun(driver(1), b"a")
    at(point, lambda: lives.world.cluster.topics.pop(LOG_TOPIC))
    error = failed_commit(lives, begun)
    assert error.code == "TXN-031"
    assert_has(str(error), f"no topic '{LOG_TOPIC}' for 10 s", "transaction.accept=missing-record")


def test_a_commit_without_brokers_names_its_limit(lives):
    begun = lives.begun(driver(1), b"a")
    lives.world.cluster.stop_all()
    assert f"The whole commit has kafka.max.block.ms = {PATIENCE_MS}" in str(
        failed_commit(lives, begun)
    )


# --- who may ------------------------------------------------------------------------------------


def test_an_older_driver_cannot_decide_and_cannot_come_back(lives):
    old, written = lives.begun(driver(1), b"old")
    lives.protocol.plan(driver(2), None)
    with pytest.raises((FencedError, TransactionLostError)):
        lives.protocol.commit(old, unit(0), written)
    with pytest.raises(FencedError, match="superseded by driver driver-2"):
        lives.protocol.plan(driver(1), None)
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_driver_fenced_between_check_and_decision_writes_nothing(lives):
    old, written = lives.begun(driver(1), b"old")
    at("commit.checked", lambda: lives.protocol.plan(driver(2), None))
    with pytest.raises(FencedError) as fenced:
        lives.protocol.commit(old, unit(0), written)
    names = "The decision log names driver driver-2 of query 'rows' on host, checkpoint /ck, since "
    assert_has(str(fenced.value), "another driver has taken over", names)
    lives.check_settled()


@pytest.mark.parametrize("point", ["commit.done", "plan.resolved", "abort.settled"])
def test_a_driver_that_wakes_up_late_sweeps_nothing_that_a_newer_one_has_decided(lives, point):
    lives.batch(0, driver(1))
    at(point, lambda: lives.killed("commit.decided", 2, driver(2)))
    if point == "commit.done":
        lives.batch(1, driver(1))  # it is done; what it could not sweep is another's
    else:
        late = partial(lives.batch, 1) if point == "plan.resolved" else lives.protocol.abort
        with pytest.raises(FencedError, match=r"names driver driver-2 .* since 2023-11-14T"):
            late(driver(1))
    assert len(lives.open_ids()) == 2
    lives.batch(2, driver(3))
    expected = {b"0-0", b"0-1", b"2-0", b"2-1"}
    assert set(lives.visible()) - {b"1-0", b"1-1"} == expected
    assert len(lives.visible()) == 6 if point == "commit.done" else 4
    assert lives.open_ids() == []


def test_a_refused_job_changes_nothing(lives):
    """The query that it was refused for goes on: with its decision, and with its transactions."""
    plan, written = lives.begun(driver(1), b"first")
    for number, checkpoint in ((8, None), (9, "/other")):  # it is claimed, and nothing decided yet
        with pytest.raises(PrefixInUseError, match="driver driver-1"):
            lives.protocol.plan(driver(number, checkpoint), "job" if number == 8 else None)
    lives.protocol.commit(plan, unit(0), written)
    plan, written = lives.begun(driver(1), b"second")
    with pytest.raises(PrefixInUseError, match="query q-1"):
        lives.protocol.plan(driver(8, None), "job")
    lives.protocol.commit(plan, unit(1), written)
    lives.batch(2, driver(1))
    assert lives.visible() == [b"2-0", b"2-1", b"first", b"second"]


@pytest.mark.parametrize("has_committed", [True, False])
def test_who_may_be_another_query_changes_nothing(lives, has_committed):
    """An earlier version did not write down a location that was a property of the session."""
    if has_committed:
        lives.batch(0, driver(1, None))
    plan, written = lives.begun(driver(1, None), b"first")
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
def test_a_unit_that_may_not_follow_is_refused_before_anything_is_taken(lives, refused, error, by):
    """Where it is known before the tasks, as with foreachBatch; the query goes on."""
    lives.batches(3)
    plan, written = lives.begun(driver(1), b"3")
    with pytest.raises(TransactionError, match=error):
        lives.protocol.plan(driver(by), None, None, refused)
    lives.protocol.commit(plan, unit(3), written)
    lives.batch(4, driver(1))
    assert lives.visible()[-3:] == [b"3", b"4-0", b"4-1"]


def test_a_query_whose_checkpoint_is_not_told_is_refused_before_anything_is_asked():
    with pytest.raises(ConfigError, match="needs the option checkpointLocation"):
        session.plan_unit(SinkOptions.parse(OPTIONS), is_job=False)


def test_who_is_refused_after_all_claims_and_sweeps_nothing(lives):
    """A query claims the prefix just after a job has looked."""
    query, job = lives.protocol_of("p"), lives.protocol_of("p")
    check = job._check_before_fencing

    def check_and_hang(*arguments):
        found = check(*arguments)
        lives.write(query.plan(driver(1), None), 0, b"open")
        return found

    with (
        mock.patch.object(job, "_check_before_fencing", check_and_hang),
        pytest.raises(PrefixInUseError, match="driver driver-1"),
    ):
        job.plan(driver(2, None), "job")
    decision = lives.record()
    assert (decision.owner, decision.superseded) == (driver(1), ())
    assert len(lives.open_ids()) == 1
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_driver_that_was_paused_before_its_first_plan_names_the_one_that_went_on(lives):
    """Spark tells planning no micro-batch; where it is known, nothing is taken, see above."""
    for number in range(3):
        lives.batch(number, driver(2))
    with pytest.raises(TransactionError, match="the checkpoint has gone back") as late:
        lives.batch(1, driver(1))
    text = str(late.value)
    assert_has(text, "committed by driver driver-2 of query 'rows'", "the checkpoint is intact")
    assert text.index("driver-2") < text.index("gone back")
    lives.batch(3, driver(3))
    assert len(lives.visible()) == 8


def test_prefixes_that_begin_alike_do_not_meet(lives):
    """Nor does one's open decision hide the other's from it."""
    other = lives.protocol_of("p.q")
    plan = other.plan(driver(9, "/other"), None)
    open_task = lives.write(plan, 3, b"other")
    lives.die_in_commit("commit.deciding", plan, Unit("q-9", 0, None), [open_task], other)
    lives.batch(0, driver(1))
    lives.batch(0, driver(1))
    lives.batch(1, driver(2))
    assert open_task.transactional_id in lives.open_ids()
    assert [v for v in lives.visible() if v != b"other"] == [b"0-0", b"0-1", b"1-0", b"1-1"]


# --- transactions that the brokers have aborted -------------------------------------------------


def decided_and_lost(lives, point):
    """A decision for tasks 0 and 1, a crash, and an outage beyond the timeout."""
    lives.killed(point, 0, driver(1))
    lives.world.run_for(TIMEOUT_MS + 20_000)


@pytest.mark.parametrize(
    ("after_ms", "skew_ms", "error"),
    [
        (TIMEOUT_MS + 20_000, 0, r"kafka.transaction.timeout.ms = 600000"),
        (int(TIMEOUT_MS * 0.95), 0, "too late to commit"),
        (int(TIMEOUT_MS * 0.95), 14 * 60_000, "too late to commit.* ahead of"),
    ],
)
def test_transactions_that_run_out_are_not_decided(lives, after_ms, skew_ms, error):
    plan, written = lives.begun(driver(1), b"late")
    lives.world.run_for(after_ms)
    lives.world.clock.skew_ms = skew_ms
    with pytest.raises(TransactionLostError, match=error):
        lives.protocol.commit(plan, unit(0), written)
    lives.world.clock.skew_ms = 0
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_transaction_whose_id_a_later_plan_has_taken(lives):
    """Both are open: what differs is whose it is."""
    plan, written = lives.begun(driver(1), b"first")
    again = lives.write(lives.protocol.plan(driver(1), None), 0, b"second")
    assert again.transactional_id == written[0].transactional_id
    with pytest.raises(TransactionLostError) as lost:
        lives.protocol.commit(plan, unit(0), written)
    taken = f"a later one, also Ongoing (producer id {again.producer_id}, epoch "
    assert_has(str(lost.value), "of task 0 is not open any more", taken, "has taken its id")


@pytest.mark.parametrize("version", [2, 1, 0])
def test_a_driver_that_was_stopped_while_it_decided(version):
    """The brokers abort its own transaction: nobody else has taken over."""
    lives = Lives(version)
    config = ExactlyOnceConfig("p", 20_000, LOG_TOPIC, 3)
    lives.protocol = CommitProtocol(lives.client, config, lives.world.clock, PATIENCE_MS)
    lives.batch(0, driver(1))
    plan, written = lives.begun(driver(1), b"1")
    at("commit.deciding", lambda: lives.world.run_for(40_000))
    with pytest.raises(TransactionLostError) as lost:
        lives.protocol.commit(plan, unit(1), written)
    assert_has(str(lost.value), "have aborted the transaction of p.driver", "20000 ms")
    assert lives.visible() == [b"0-0", b"0-1"]
    lives.batch(1, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_a_clock_that_is_ahead_commits_and_is_named_once(lives, caplog):
    """A transaction is not older than its plan."""
    lives.world.clock.skew_ms = 14 * 60_000
    for number in range(2):
        lives.batch(number, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]
    (told,) = [message for message in caplog.messages if "clock" in message]
    assert_has(told, "this machine is at least 13 min 5", "ahead of", "[PKS-TXN-041]")


def test_a_clock_that_is_behind_leaves_the_margin(lives):
    """The task that was open for longest shows how far; another one may have ended long before."""
    plan, written = lives.begun(driver(1), b"early", b"long")
    lives.world.run_for(int(TIMEOUT_MS * 0.95))
    lives.world.clock.skew_ms = -TIMEOUT_MS // 2
    names = [transaction.transactional_id for transaction in written]
    measured = dict(zip(names, (100, int(TIMEOUT_MS * 0.94))))
    with pytest.raises(TransactionLostError, match="too late to commit.* behind"):
        lives.protocol.commit(plan, unit(0), written, measured)


def test_a_first_row_that_comes_late_is_no_old_transaction(lives, caplog):
    plan = lives.protocol.plan(driver(1), None)
    lives.world.run_for(TIMEOUT_MS * 2)
    times = lives.protocol.commit(plan, unit(0), [lives.write(plan, 0, b"a")])
    assert times.oldest_transaction_ms < 5_000
    assert not [message for message in caplog.messages if "clock" in message]


@pytest.mark.parametrize("rows", [(b"a",), ()])
def test_a_drivers_id_that_has_expired_since_the_plan_is_named_at_once(lives, rows):
    plan, written = lives.begun(driver(1), *rows)
    assert "p.driver" in lives.world.transactions.expire_idle()
    began_ms = lives.world.clock.ms
    with pytest.raises(TransactionError, match=r"transactional\.id\.expiration\.ms") as refused:
        lives.protocol.commit(plan, unit(0), written)
    assert refused.value.code == "TXN-042"
    assert lives.world.clock.ms - began_ms < 1_000
    assert lives.visible() == []
    lives.protocol.abort(driver(1), plan.token)
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]


@pytest.mark.parametrize(("point", "left"), [("commit.decided", 0), ("commit.ending", 1)])
def test_what_is_lost_after_the_decision_is_written_by_the_same_rows(lives, point, left):
    decided_and_lost(lives, point)
    assert len(lives.visible()) == left
    lives.batch(0, driver(2))
    lives.batch(1, driver(2))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_part_lost_and_another_replay_is_an_error_that_names_both(lives, tasks):
    decided_and_lost(lives, "commit.ending")
    with pytest.raises(OutcomeError, match="visible in part: 1 records are, 1 records of Spark"):
        lives.batch(0, driver(2), tasks=tasks)
    assert len(lives.visible()) == 1
    with pytest.raises(OutcomeError, match="visible in part"):
        lives.protocol.commit_without_tasks(Unit(None, 0, None), driver(2))
    lives.protocol.commit_without_tasks(Unit(None, 1, None), driver(2))


@pytest.mark.parametrize("has_messages", [True, False])
def test_a_part_lost_of_a_named_write_is_not_filled_in_by_no_rows(lives, has_messages):
    """A DataFrame without a partition has no task that could tell the plan."""
    write, by = Write("etl", 5), driver(1, None)
    plan = lives.protocol.plan(by, "j1", write)
    lives.die_in_commit("commit.ending", plan, unit(0, "j1"), lives.written(plan, [b"a", b"b"]))
    lives.world.run_for(TIMEOUT_MS + 20_000)
    plan = lives.protocol.plan(by, "j2", write)
    commit = partial(lives.protocol.commit, plan, unit(0, "j2"), [])
    if not has_messages:
        commit = partial(lives.protocol.commit_without_tasks, unit(0, "j2"), by, write)
    with pytest.raises(OutcomeError, match="visible in part: 1 records are, 1 records of Spark"):
        commit()
    plan = lives.protocol.plan(by, "j3", write)
    lives.protocol.commit(plan, unit(0, "j3"), lives.written(plan, [b"a", b"b"]))
    assert lives.visible() == [b"a", b"b"]


def test_an_outcome_that_nobody_can_know(lives):
    """Somebody else has initialized a decided transaction's id."""
    lives.killed("commit.decided", 0, driver(1))
    for transactional_id in lives.open_ids():
        lives.world.init(transactional_id)
        lives.world.init(transactional_id)
    for number in (2, 3):
        with pytest.raises(OutcomeError, match="cannot be known"):
            lives.batch(0, driver(number))


# --- batch jobs ---------------------------------------------------------------------------------


def test_a_job_whose_driver_died_after_the_decision_must_be_confirmed(lives):
    lives.killed("commit.ending", 0, driver(1, None), job="a")
    for number in (2, 3):
        with pytest.raises(OutcomeError, match="job a was decided.*2 records are visible"):
            lives.batch(1, driver(number, None), job="b")
    lives.check_settled(b"0-0", b"0-1")


def test_jobs_follow_each_other_also_one_that_failed_before_its_decision(lives):
    lives.batch(0, driver(1, None), job="a")
    lives.killed("commit.checked", 1, driver(1, None), job="b")
    lives.batch(2, driver(2, None), job="c")
    lives.check_settled(b"0-0", b"0-1", b"2-0", b"2-1")


# --- how old transactions and decisions are -----------------------------------------------------


def test_ages_of_transactions_and_of_the_decision(lives):
    plan, written = lives.begun(driver(1), b"old")
    lives.world.run_for(200_000)
    written.append(lives.write(plan, 1, b"young"))
    at("commit.ending", lambda: lives.world.run_for(30_000))
    times = lives.protocol.commit(plan, unit(0), written)
    assert 200_000 <= times.oldest_transaction_ms < 230_000
    assert 30_000 <= times.decided_for_ms < 60_000


def test_how_long_a_dead_driver_has_left_a_decision(lives, caplog):
    lives.killed("commit.decided", 0, driver(1))
    lives.world.run_for(200_000)
    assert caplog.text == ""
    lives.protocol.plan(driver(2), None)
    told = f"{unit(0)} was decided 3 min 20 s ago under transactional.id.prefix 'p'"
    assert_has(caplog.text, told, "it is DONE now")


def test_the_line_of_a_micro_batch_has_them_unless_it_is_a_replay(lives, monkeypatch):
    monkeypatch.setattr(session, "_protocol", lambda options: lives.protocol)
    options = SinkOptions.parse(OPTIONS)
    ages = {"oldest_transaction_ms", "decided_for_ms"}
    for number, is_replay in enumerate((False, True), start=1):
        plan = lives.protocol.plan(driver(number), None)
        told = session.commit_unit(options, plan, unit(0), [lives.write(plan, 0, b"a")], {})
        assert told.keys() == {"transactions", "commit_ms", *(["replay"] if is_replay else ages)}


def test_the_rows_of_a_named_write_that_is_dropped_are_counted(lives, monkeypatch, caplog):
    monkeypatch.setattr(session, "_protocol", lambda options: lives.protocol)
    options, write = SinkOptions.parse(OPTIONS), Write("etl", 7)
    for number, dropped in ((1, None), (2, 30)):
        plan = lives.protocol.plan(driver(number), "job", write)
        written = [] if dropped else [lives.write(plan, 0, b"a")]
        job = Unit(None, None, "job")
        told = session.commit_unit(options, plan, job, written, {}, dropped or 0)
    words = "dropped: 30 rows of version 7 of write.id 'etl', which was written before"
    assert told["replay"] == words
    assert caplog.messages == [f"{words} [PKS-TXN-028]"]
    assert lives.visible() == [b"a"]


def test_what_is_refused_for_ever_stays_decided(lives):
    lives.killed("commit.decided", 0, driver(1))
    cluster = lives.world.cluster

    def refuse():
        cluster.on_end_txn = lambda name: "INVALID_TXN_STATE" if is_task_id("p", name) else "NONE"

    at("plan.claimed", refuse)
    with pytest.raises(TransactionError, match="refuse to end them. They are decided"):
        lives.batch(0, driver(2))
    cluster.on_end_txn = lambda name: "NONE"
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


# --- second checks, each with one case that needs it --------------------------------------------


def planning_meanwhile(lives, *written):
    """A process of the first driver that hangs after its look at the log: the second one plans."""
    late, look = lives.protocol_of("p"), lives.protocol._read_when_complete

    def look_and_hang(deadline_ms):
        found = look(deadline_ms)
        lives.begun(driver(2), *written)
        return found

    late._read_when_complete = look_and_hang
    return late


def test_who_has_no_task_takes_nothing_from_another_driver(lives):
    """Both are drivers of one query, and its first micro-batch has no rows."""
    lives.protocol.plan(driver(1), None)
    plan, written = lives.begun(driver(2), b"0")
    lives.protocol.commit_without_tasks(Unit(None, 0, None), driver(1))
    lives.protocol.commit(plan, unit(0), written)
    assert lives.visible() == [b"0"]


def test_who_has_no_task_writes_nothing_in_the_name_of_another_driver(lives):
    """That one has planned between the look at the log and the taking of the id."""
    lives.protocol.plan(driver(1), None)
    planning_meanwhile(lives).commit_without_tasks(Unit(None, 0, None), driver(1))
    assert (lives.record().owner, lives.record().unit) == (driver(2), NO_UNIT)


def test_abort_sweeps_nothing_of_a_driver_that_plans_just_then(lives):
    lives.protocol.plan(driver(1), None)
    assert planning_meanwhile(lives, b"open").abort(driver(1)).owner == driver(2)
    assert len(lives.open_ids()) == 1


# --- the decision log --------------------------------------------------------------------------


def test_a_large_decision_is_compressed(lives):
    """Thousands of tasks must fit into max.message.bytes of the log."""
    plan = lives.protocol.plan(driver(1), None)
    tasks = tuple(
        TaskTransaction(f"p.0123456789ab.{n}", 4_000 + n, 7, 2, n, 1, f"1-9-{n:016x}")
        for n in range(5_000)
    )
    decision = plan.decision.deciding(unit(0), tasks, (), None)
    lives.protocol.log.write(decision, plan.token, lives.deadline_ms)
    lives.world.run_for(500)
    assert lives.record() == decision
    log = lives.world.cluster.topics[LOG_TOPIC].partitions[0].log
    assert max(map(len, log.data)) < len(decision.to_json()) / 4 < 1_000_000 / 4


def test_a_record_that_the_leader_has_already_is_written(lives):
    """The answer to the first request was lost. Source: ``Sender.completeBatch``."""
    duplicate = error_named("DUPLICATE_SEQUENCE_NUMBER").code
    lives.protocol.log._check_appended(duplicate, "p.driver", 100)


@pytest.mark.parametrize("version", [0, 1])
def test_a_downgrade_between_plan_and_decision(version):
    """With the requests of transaction.version 2 the driver's own transaction would be stuck."""
    lives = Lives(2)
    plan, written = lives.begun(driver(1), b"0")
    lives.world.transactions.transaction_version = version
    lives.protocol.commit(plan, unit(0), written)
    assert lives.visible() == [b"0"]


def test_the_log_is_read_from_its_end(lives):
    """All prefixes share a partition, and each start reads it."""
    lives.batches(30)
    starts = []
    read = LogPartition.read

    def noted(self, start, end, deadline_ms):
        starts.append(end - start)
        return read(self, start, end, deadline_ms)

    with mock.patch.object(LogPartition, "read", noted):
        assert lives.record().unit == unit(29)
    assert starts == [50]
