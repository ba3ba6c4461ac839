"""Operators' repairs: what they are shown, what they do, what they refuse, and what they do not touch."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.transactions.inspection import Inspection
from spark_kafka_sink.transactions.model import (
    FencedError,
    OutcomeError,
    Phase,
    PrefixInUseError,
    ReplayError,
    TransactionLostError,
)
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.harness import assert_has
from tests.simulation.logs import NO_LEADER
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
    never,
    unit,
)


def in_part(operated):
    """Decided, and the brokers have aborted the second task's transaction since."""
    _, second = decided(operated)
    operated.lose(second)
    result = operated.operations.resolve(None, agree)
    assert (result.needs_choice, result.decision.phase) == (True, Phase.PARTIAL)


def unknown(operated):
    """Decided, the second task's transaction committed, and its coordinator has forgotten it."""
    _, second = decided(operated)
    operated.end(second)
    operated.forget(second)
    result = operated.operations.resolve(None, agree)
    assert (result.needs_choice, result.decision.phase) == (True, Phase.UNKNOWN)


OPERATIONS = {
    "resolve": lambda operated, confirm: operated.operations.resolve(None, confirm),
    "abort": lambda operated, confirm: operated.operations.abort(None, confirm),
    "release": lambda operated, confirm: operated.operations.release(confirm),
}


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
    operated.check_settled(A, B)


def test_a_decision_whose_marker_is_not_written_yet_is_seen(operated):
    """EndTxn is answered before: an operator may look right after the driver's death."""
    operated.batch(6, [b"before"], driver(1))
    operated.world.transactions.marker_delay_ms = (2000, 2000)
    decided(operated)
    result = operated.operations.resolve(None, agree)
    assert (result.decision.phase, result.decision.unit) == (Phase.DONE, unit(7))
    assert result.message.startswith("finished")


def test_who_works_under_the_prefix_is_stopped_and_may_begin_again(operated):
    plan, transactions = operated.begun(driver(1), A, B)
    operated.die_in_commit("commit.decided", plan, unit(7), transactions)
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
    plan, listed = operated.begun(driver(1), A)
    [loser] = operated.written(plan, [b"loser"])
    operated.die_in_commit("commit.decided", plan, unit(7), listed)
    result = operated.operations.resolve(None, agree)
    assert result.aborted == (loser.transactional_id,)
    operated.check_settled(A)


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
    assert operated.record().phase is Phase.DECIDED


def test_a_choice_is_not_applied_to_what_nobody_has_seen(operated):
    _, second = decided(operated, "job-1")
    operated.lose(second)
    result = operated.operations.resolve(Choice.AS_WRITTEN, agree)
    assert result.needs_choice
    assert_has(result.message, "not written: the next run of the job writes everything again")
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
    choices = "--as-written", "--as-not-written", "become duplicates", "stay missing"
    assert_has(str(refused.value), "1 records", *choices, "a replay of it writes everything again")
    assert not operated.operations.resolve(choice, agree).needs_choice
    operated.batch(7, [A, B], driver(2))
    assert operated.visible() == after
    operated.batch(8, [b"c"], driver(2))
    assert operated.visible() == [*after, b"c"]


def test_a_lost_batch_needs_no_choice(operated):
    for transaction in decided(operated):
        operated.lose(transaction)
    assert not operated.operations.resolve(None, agree).needs_choice
    assert operated.record().phase is Phase.VOID
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
    with pytest.raises(RefusedError, match=r"has changed.*is done, 2 records"):
        operated.operations.resolve(None, lambda what: operated.protocol.plan(driver(2), None))
    assert operated.record().owner == driver(2)
    assert operated.visible() == [A, B]


# --- abort --------------------------------------------------------------------------------------


def test_open_transactions_are_aborted_and_their_driver_cannot_commit(operated):
    _, transactions = operated.begun(driver(1), A, B)
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
    plan, transactions = operated.begun(driver(1), A, B)
    operated.operations.abort(transactions[1].transactional_id, agree)
    with pytest.raises(FencedError):
        operated.protocol.commit(plan, unit(7), transactions[:1])
    assert operated.visible() == []


@pytest.mark.parametrize("operation", ["abort", "release"])
def test_a_decision_that_comes_while_the_operator_thinks_is_left_alone(operated, operation):
    plan, transactions = operated.begun(driver(1), A, B)

    def agree_late(what):
        operated.die_in_commit("commit.decided", plan, unit(7), transactions)

    for confirm in (agree_late, never):
        with pytest.raises(RefusedError, match="resolve"):
            OPERATIONS[operation](operated, confirm)
        assert len(operated.open_ids()) == 2
    operated.operations.resolve(None, agree)
    assert operated.visible() == [A, B]


def test_transactions_of_others_are_not_aborted(operated):
    for prefix in ("p", "p2", "p.x"):
        operated.written(operated.protocol_of(prefix).plan(driver(1), None), [A])
    for name in ("p.driver", f"p2.{WORKER}.0", f"p.x.{WORKER}.0", "p", f"p.{WORKER}.0x"):
        with pytest.raises(RefusedError, match=r"p\.WORKER\.NUMBER"):
            operated.operations.abort(name, never)
    assert operated.operations.abort(None, agree).aborted == (f"p.{WORKER}.0",)
    assert operated.open_ids() == [f"p.x.{WORKER}.0", f"p2.{WORKER}.0"]


# --- release ------------------------------------------------------------------------------------


def test_a_released_prefix_is_anybodys(operated):
    operated.batch(7, [A], driver(1))
    operated.begun(driver(1), B)
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


def refuse(what):
    raise RefusedError("no")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_confirmation_the_driver_goes_on(operated, operation):
    plan, transactions = operated.begun(driver(1), A, B)
    if operation == "resolve":
        operated.die_in_commit("commit.decided", plan, unit(7), transactions)
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


def test_a_job_without_rows_is_no_replay_of_another_one_with_rows(operated):
    operated.batch(0, [A], driver(1, None), job="j-1")
    operated.protocol.commit_without_tasks(unit(None, "j-2"), driver(2, None))
    operated.check_settled(A)


# --- a checkpoint that is spelt differently -----------------------------------------------------

OLD, NEW = "s3://lake/ck", "s3a://lake/ck"


def test_a_replay_after_the_checkpoint_was_rebound_is_dropped(operated):
    operated.batch(7, [A], driver(1, OLD))
    operated.batch(8, [B], driver(1, OLD), "commit.decided")
    another = r"another location.* rebind --prefix p --checkpoint"
    with pytest.raises(PrefixInUseError, match=another):
        operated.batch(8, [B], driver(2, NEW))
    result = operated.operations.rebind(f"{NEW}/", agree)
    assert result.message == f"'p' belongs to checkpoint {NEW}"
    assert operated.visible() == [A]
    operated.batch(8, [B], driver(2, NEW))
    operated.batch(9, [b"c"], driver(2, NEW))
    operated.check_settled(A, B, b"c")
    with pytest.raises(PrefixInUseError):
        operated.batch(10, [A], driver(3, OLD))


def test_a_query_goes_on_with_foreach_batch(operated):
    """There its id is known before the tasks, and its checkpoint's location is not."""
    operated.batch(7, [A, B], driver(1, OLD))
    operated.batch(7, [A, B], driver(2, None, "q-1"))
    operated.batch(8, [b"c"], driver(2, None, "q-1"))
    assert operated.visible() == [A, B, b"c"]
    operated.batch(9, [b"d"], driver(3, OLD))
    with pytest.raises(PrefixInUseError, match="belongs to query q-1, driver driver-3"):
        operated.batch(10, [A], driver(4, None, "q-2"))


@pytest.mark.parametrize("has_committed", [True, False])
def test_the_value_that_a_refusal_names_is_not_refused_again(operated, has_committed):
    if has_committed:
        operated.batch(7, [A], driver(1, OLD))
    else:
        operated.protocol.plan(driver(1, OLD), None)
    other = driver(2, "hdfs://nn/of query q-2")
    with pytest.raises(PrefixInUseError) as refused:
        operated.protocol.plan(other, None)
    words = shlex.split(str(refused.value).split("; if the other")[0].partition("another")[2])
    assert words[-1] == other.checkpoint
    operated.operations.rebind(words[-1], agree)
    operated.protocol.plan(other, None)


def test_a_query_that_has_a_jobs_prefix_now_is_rebound_before_it_has_decided(operated):
    operated.batch(0, [A], driver(1, None), job="j")
    operated.protocol.plan(driver(2, OLD), None)
    operated.operations.rebind(NEW, agree)
    operated.batch(0, [B], driver(3, NEW))
    assert operated.visible() == [A, B]


def test_nothing_is_asked_where_there_is_nothing_to_do(operated):
    with pytest.raises(RefusedError, match="no record"):
        operated.operations.rebind(NEW, never)
    operated.batch(7, [A], driver(1, NEW))
    assert "already" in operated.operations.rebind(NEW, never).message
    operated.operations_of("jobs")
    operated.batch(0, [B], driver(1, None), job="j", prefix="jobs")
    with pytest.raises(RefusedError, match="no record of a query"):
        operated.operations_of("jobs").rebind(NEW, never)


# --- a replay that was refused, as it has other rows --------------------------------------------


def refused(operated, values):
    with pytest.raises(ReplayError):
        operated.batch(7, values, driver(2))
    operated.protocol.abort(driver(2))


@pytest.mark.parametrize(
    ("choice", "visible"), [(Choice.AS_WRITTEN, [A, B]), (Choice.AS_NOT_WRITTEN, [A, A, B, b"c"])]
)
def test_the_operator_decides_what_becomes_of_other_rows(operated, choice, visible):
    operated.batch(7, [A, B], driver(1))
    refused(operated, [A, b"c"])
    told = []
    result = operated.operations.resolve(choice, lambda what: agree(what) or told.append(what))
    assert not result.needs_choice
    assert "2 records" in told[0] or "2 visible records" in told[0]
    assert operated.visible() == [A, B]
    operated.batch(7, [A, b"c"], driver(2))
    assert operated.visible() == visible
    operated.batch(8, [b"d"], driver(2))
    operated.check_settled(*visible, b"d")


def test_the_choice_is_for_one_micro_batch(operated):
    operated.batch(7, [A, B], driver(1))
    operated.operations.resolve(Choice.AS_WRITTEN, agree)
    operated.batch(7, [A, b"c"], driver(2))
    operated.batch(7, [b"d"], driver(3))  # killed before Spark knew, and yet other rows
    operated.batch(8, [b"e"], driver(3))
    with pytest.raises(ReplayError):
        operated.batch(8, [b"f"], driver(4))
    assert operated.visible() == [A, B, b"e"]


def test_a_query_that_is_running_is_stopped_by_the_choice(operated):
    operated.batch(7, [A, B], driver(1))
    plan, written = operated.begun(driver(1), b"c")
    operated.operations.resolve(Choice.AS_NOT_WRITTEN, agree)
    with pytest.raises(TransactionLostError, match="another write under the same"):
        operated.protocol.commit(plan, unit(8), written)
    operated.batch(8, [b"c"], driver(1))
    assert operated.visible() == [A, B, b"c"]


def test_a_choice_is_not_made_for_what_was_decided_meanwhile(operated):
    operated.batch(7, [A, B], driver(1))
    with pytest.raises(RefusedError, match="has changed since it was read"):
        operated.operations.resolve(
            Choice.AS_NOT_WRITTEN, lambda what: operated.batch(8, [b"c"], driver(1))
        )
    assert (operated.record().phase, operated.record().unit) == (Phase.DONE, unit(8))


def test_without_a_choice_the_operator_is_told_of_both(operated):
    operated.batch(7, [A, B], driver(1))
    message = operated.operations.resolve(None, never).message
    assert_has(message, "nothing to resolve", "--as-written: ", "--as-not-written: ")
    operated.operations.resolve(Choice.AS_WRITTEN, agree)
    for choice in (None, *Choice):
        message = operated.operations.resolve(choice, never).message
        assert "a replay of it is dropped, whatever rows it has" in message


# --- what operators are shown -------------------------------------------------------------------


def inspection(operated):
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


def test_parts_of_a_unit_and_their_present_state(operated):
    first, second = decided(operated)
    operated.lose(second)

    def parts(*topics):
        described = inspection(operated).describe("p", topics)
        return [(p.transaction, p.recorded, p.now) for p in described.parts]

    undecided = "to be committed"
    assert parts() == [(first, undecided, "Ongoing"), (second, undecided, "CompleteAbort")]
    operated.operations.resolve(None, agree)
    ended = [(first, "committed", "CompleteCommit"), (second, "lost", "CompleteAbort")]
    assert parts("t") == ended
    operated.world.init(first.transactional_id)
    assert parts()[0] == (first, "committed", "id used again")
    operated.forget(first)
    assert parts()[0] == (first, "committed", "forgotten")


def test_who_holds_back_readers(operated):
    _, (first, second) = operated.begun(driver(1), A, B)
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
