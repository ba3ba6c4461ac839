"""Operators' repairs: what they do, what they refuse, and what they do not touch."""

from __future__ import annotations

import pytest

from spark_kafka_sink.transactions.model import FencedError, OutcomeError, Phase, PrefixInUseError
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.operating import (
    WORKER,
    A,
    B,
    Operated,
    agree,
    decided,
    driver,
    unit,
)


def never(what: str) -> None:
    raise AssertionError(f"nothing to confirm: {what}")


def in_part(operated: Operated, job: str | None = None) -> None:
    """Decided, and the brokers have aborted the second task's transaction since."""
    _, second = decided(operated, job)
    operated.lose(second)
    result = operated.operations.resolve(None, agree)
    assert result.needs_choice
    assert result.decision is not None
    assert result.decision.phase is Phase.PARTIAL


def unknown(operated: Operated) -> None:
    """Decided, the second task's transaction committed, and its coordinator has forgotten it."""
    _, second = decided(operated)
    operated.end(second)
    operated.forget(second)
    result = operated.operations.resolve(None, agree)
    assert result.needs_choice
    assert result.decision is not None
    assert result.decision.phase is Phase.UNKNOWN


OPERATIONS = {
    "resolve": lambda operated, confirm: operated.operations.resolve(None, confirm),
    "abort": lambda operated, confirm: operated.operations.abort(None, confirm),
    "release": lambda operated, confirm: operated.operations.release(confirm),
}


def phase(operated: Operated) -> Phase | None:
    record = operated.record()
    return None if record is None else record.phase


# --- resolve ------------------------------------------------------------------------------------


def test_a_decided_batch_is_finished_and_its_replay_dropped(operated):
    decided(operated)
    assert operated.visible() == []
    result = operated.operations.resolve(None, agree)
    assert (result.needs_choice, result.aborted) == (False, ())
    assert operated.visible() == [A, B]
    record = operated.record()
    assert record == result.decision
    assert (record.phase, record.unit, record.owner.checkpoint) == (Phase.DONE, unit(7), "/ck")
    assert record.owner.driver_id.startswith("operator-")
    operated.batch(7, [A, B], driver(2))
    assert operated.visible() == [A, B]
    assert operated.open_ids() == []


def test_a_decision_whose_marker_is_not_written_yet_is_seen(operated):
    """EndTxn is answered before: an operator may look right after the driver's death."""
    operated.batch(6, [b"before"], driver(1))
    operated.world.transactions.marker_delay_ms = (2000, 2000)
    decided(operated)
    result = operated.operations.resolve(None, agree)
    assert (result.decision.phase, result.decision.unit) == (Phase.DONE, unit(7))
    assert result.message.startswith("finished")


def test_who_works_under_the_prefix_is_stopped_and_may_begin_again(operated):
    plan = operated.protocol.plan(driver(1), None)
    transactions = operated.written(plan, [A, B])
    operated.commit(operated.protocol, plan, unit(7), transactions, "commit.decided")
    operated.operations.resolve(None, agree)
    with pytest.raises(FencedError):
        operated.protocol.commit(plan, unit(8), operated.written(plan, [b"z"]))
    assert operated.protocol.abort(driver(1)) == operated.record()
    with pytest.raises(PrefixInUseError):
        operated.protocol.plan(driver(2, "/other"), None)
    operated.batch(7, [A, B], driver(1))
    operated.batch(8, [b"c"], driver(1))
    assert operated.visible() == [A, B, b"c"]


def test_what_was_left_open_besides_is_aborted(operated):
    plan = operated.protocol.plan(driver(1), None)
    listed = operated.written(plan, [A])
    [loser] = operated.written(plan, [b"loser"])
    operated.commit(operated.protocol, plan, unit(7), listed, "commit.decided")
    result = operated.operations.resolve(None, agree)
    assert result.aborted == (loser.transactional_id,)
    assert operated.visible() == [A]
    assert operated.open_ids() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_job_is_finished_and_has_to_be_confirmed(operated, at_once):
    decided(operated, "job-1")
    result = operated.operations.resolve(Choice.AS_WRITTEN if at_once else None, agree)
    assert result.needs_choice is not at_once
    assert operated.visible() == [A, B]
    if not at_once:
        assert "--as-written" in result.message
        with pytest.raises(OutcomeError):
            operated.protocol.plan(driver(2), "job-2")
        with pytest.raises(RefusedError, match="Choose one"):
            operated.operations.resolve(None, never)
        with pytest.raises(RefusedError, match="complete now"):
            operated.operations.release(never)
        operated.operations.resolve(Choice.AS_WRITTEN, agree)
    operated.batch(0, [b"c"], driver(2), job="job-2")
    assert operated.visible() == [A, B, b"c"]


def test_what_is_decided_cannot_be_taken_back(operated):
    decided(operated)
    with pytest.raises(RefusedError, match="cannot be taken back"):
        operated.operations.resolve(Choice.AS_NOT_WRITTEN, never)
    assert phase(operated) is Phase.DECIDED


def test_a_choice_is_not_applied_to_what_nobody_has_seen(operated):
    _, second = decided(operated, "job-1")
    operated.lose(second)
    result = operated.operations.resolve(Choice.AS_WRITTEN, agree)
    assert result.needs_choice
    record = operated.record()
    assert (record.phase, record.needs_confirmation) == (Phase.PARTIAL, True)


@pytest.mark.parametrize(
    ("how", "choice", "before", "after"),
    [
        (in_part, Choice.AS_WRITTEN, [A], [A]),
        (in_part, Choice.AS_NOT_WRITTEN, [A], [A, A, B]),
        (unknown, Choice.AS_WRITTEN, [A, B], [A, B]),
        (unknown, Choice.AS_NOT_WRITTEN, [A, B], [A, A, B, B]),
    ],
)
def test_the_choice_decides_what_a_replay_does(operated, how, choice, before, after):
    how(operated)
    assert operated.visible() == before
    with pytest.raises(RefusedError) as refused:
        operated.operations.resolve(None, never)
    for part in (
        "1 records",
        "--as-written",
        "--as-not-written",
        "become duplicates",
        "stay missing",
    ):
        assert part in str(refused.value)
    result = operated.operations.resolve(choice, agree)
    assert not result.needs_choice
    operated.batch(7, [A, B], driver(2))
    assert operated.visible() == after
    operated.batch(8, [b"c"], driver(2))
    assert operated.visible() == [*after, b"c"]


def test_what_counts_as_written_is_not_compared_with_its_replay(operated):
    """The replay differs: that may be why somebody had to choose."""
    in_part(operated)
    operated.operations.resolve(Choice.AS_WRITTEN, agree)
    operated.batch(7, [A, B, b"other"], driver(2))
    assert operated.visible() == [A]


def test_a_lost_batch_needs_no_choice(operated):
    for transaction in decided(operated):
        operated.lose(transaction)
    result = operated.operations.resolve(None, agree)
    assert not result.needs_choice
    assert phase(operated) is Phase.VOID
    operated.batch(7, [A, B], driver(2))
    assert operated.visible() == [A, B]


def test_nothing_to_resolve(operated):
    assert "no record" in operated.operations.resolve(None, never).message
    operated.protocol.plan(driver(1), None)
    assert "nothing was decided" in operated.operations.resolve(None, never).message
    operated.batch(7, [A], driver(1))
    assert "is done, 1 records" in operated.operations.resolve(None, never).message
    operated.batch(0, [A], driver(2), job="job-1", prefix="jobs")
    of_job = operated.operations_of("jobs").resolve(Choice.AS_NOT_WRITTEN, never)
    assert "is done, 1 records" in of_job.message


def test_somebody_resolves_while_the_operator_thinks(operated):
    decided(operated)

    def agree_late(what):
        operated.protocol.plan(driver(2), None)

    with pytest.raises(RefusedError, match=r"has changed.*is done, 2 records"):
        operated.operations.resolve(None, agree_late)
    record = operated.record()
    assert record.owner == driver(2)
    assert operated.visible() == [A, B]


# --- abort --------------------------------------------------------------------------------------


def test_open_transactions_are_aborted_and_their_driver_cannot_commit(operated):
    plan = operated.protocol.plan(driver(1), None)
    transactions = operated.written(plan, [A, B])
    first = transactions[0].transactional_id
    assert operated.operations.abort(first, agree).aborted == (first,)
    assert operated.open_ids() == [transactions[1].transactional_id]
    assert len(operated.operations.abort(None, agree).aborted) == 1
    assert operated.open_ids() == []
    assert operated.operations.abort(None, never).aborted == ()
    operated.batch(7, [A], driver(1))  # the same driver may begin again
    assert operated.visible() == [A]


def test_a_running_driver_that_was_not_listed_cannot_decide_either(operated):
    """The operator aborts a leftover; no half of the driver's own decision may be lost."""
    plan = operated.protocol.plan(driver(1), None)
    transactions = operated.written(plan, [A, B])
    operated.operations.abort(transactions[1].transactional_id, agree)
    with pytest.raises(FencedError):
        operated.protocol.commit(plan, unit(7), transactions[:1])
    assert operated.visible() == []


@pytest.mark.parametrize("operation", ["abort", "release"])
def test_a_decision_that_comes_while_the_operator_thinks_is_left_alone(operated, operation):
    plan = operated.protocol.plan(driver(1), None)
    transactions = operated.written(plan, [A, B])

    def agree_late(what):
        operated.commit(operated.protocol, plan, unit(7), transactions, "commit.decided")

    with pytest.raises(RefusedError, match="resolve"):
        OPERATIONS[operation](operated, agree_late)
    assert len(operated.open_ids()) == 2
    operated.operations.resolve(None, agree)
    assert operated.visible() == [A, B]


def test_a_decided_unit_is_not_aborted(operated):
    decided(operated)
    with pytest.raises(RefusedError, match="resolve --prefix p finishes it"):
        operated.operations.abort(None, never)
    assert len(operated.open_ids()) == 2


@pytest.mark.parametrize(
    "name", ["p.driver", f"q.{WORKER}.0", f"p.x.{WORKER}.0", "p", f"p.{WORKER}.0x"]
)
def test_ids_of_others_are_not_aborted(operated, name):
    with pytest.raises(RefusedError, match=r"p\.WORKER\.NUMBER"):
        operated.operations.abort(name, never)


def test_transactions_of_other_prefixes_stay(operated):
    for prefix in ("p", "p2", "p.x"):
        protocol = operated.protocol_of(prefix)
        operated.written(protocol.plan(driver(1), None), [A])
    assert operated.operations.abort(None, agree).aborted == (f"p.{WORKER}.0",)
    assert operated.open_ids() == [f"p.x.{WORKER}.0", f"p2.{WORKER}.0"]


# --- release ------------------------------------------------------------------------------------


def test_a_released_prefix_is_anybodys(operated):
    operated.batch(7, [A], driver(1))
    plan = operated.protocol.plan(driver(1), None)
    operated.written(plan, [B])
    result = operated.operations.release(agree)
    assert (result.decision, len(result.aborted)) == (None, 1)
    assert operated.record() is None
    assert operated.open_ids() == []
    operated.batch(0, [b"c"], driver(2, "/another/checkpoint"))
    assert operated.visible() == [A, b"c"]
    assert "nothing to release" in operated.operations_of("other").release(never).message


def test_a_released_query_goes_on_where_it_was(operated):
    """Its checkpoint was moved; that its record is gone is no loss of the log."""
    operated.batch(7, [A], driver(1))
    operated.operations.release(agree)
    operated.accepts_missing_record = False
    operated.batch(8, [B], driver(2, "/moved"))
    assert operated.visible() == [A, B]


@pytest.mark.parametrize("how", [decided, in_part, unknown])
def test_what_is_not_settled_is_not_released(operated, how):
    how(operated)
    before = operated.record()
    with pytest.raises(RefusedError, match="First: pykafka-sink transactions resolve"):
        operated.operations.release(never)
    assert operated.record() == before


# --- nobody agrees ------------------------------------------------------------------------------


def refuse(what: str) -> None:
    raise RefusedError("no")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_confirmation_the_driver_goes_on(operated, operation):
    plan = operated.protocol.plan(driver(1), None)
    transactions = operated.written(plan, [A, B])
    if operation == "resolve":
        operated.commit(operated.protocol, plan, unit(7), transactions, "commit.decided")
    epoch = operated.world.state("p.driver")[1]
    before = operated.record()
    with pytest.raises(RefusedError):
        OPERATIONS[operation](operated, refuse)
    assert operated.world.state("p.driver")[1] == epoch
    assert operated.record() == before
    if operation != "resolve":
        operated.protocol.commit(plan, unit(7), transactions)
        assert operated.visible() == [A, B]


def test_brokers_that_allow_less_than_a_minute(operated):
    """``transaction.max.timeout.ms`` was lowered since: repairs go on."""
    decided(operated)
    operated.world.transactions.max_timeout_ms = 20_000
    assert operated.operations.resolve(None, agree).decision.phase is Phase.DONE
    assert operated.visible() == [A, B]
