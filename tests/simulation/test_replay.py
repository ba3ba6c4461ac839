"""What was written comes again, as a micro-batch, a job with a name, or an attempt that is late."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError, TransactionError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.writer import completed_commands
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.commit_protocol import check_replay
from spark_kafka_sink.transactions.model import (
    TOPICS_OF_ROWS,
    Decision,
    FencedError,
    OutcomeError,
    Phase,
    ReplayError,
    RowSummary,
    TaskTransaction,
    TransactionLostError,
    Write,
)
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.harness import Transactional, assert_has
from tests.simulation.operating import (
    DRIVER_POINTS,
    OPTIONS,
    TIMEOUT_MS,
    A,
    B,
    Operated,
    agree,
    at,
    dies_at,
    driver,
    rows_of,
    unit,
)

FIRST = [b"0-0", b"0-1"]
OTHERS = [b"0-0", b"0-2"]  # as many, and as large


def write_all(lives, values, by):
    """Micro-batch 0 with these rows; whether anything was committed."""
    plan, written = lives.begun(driver(by), *values)
    return lives.protocol.commit(plan, unit(0), written) is not None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([*FIRST, b"0-2"], "3 records of 9 bytes"),
        ([b"0-0", b"0-10"], "2 records of 7 bytes"),
        (OTHERS, "as many of both, and other"),
        ([], "0 records of 0 bytes"),
    ],
)
def test_a_replay_with_other_rows_is_an_error(lives, values, message):
    """The checkpoint has lost its last offsets: batch 0 is another one now."""
    lives.batch(0, driver(1))
    for number in (2, 3):
        whole = f"2 records of 6 bytes, and has come again with {message}"
        with pytest.raises(ReplayError, match=whole):
            write_all(lives, values, number)
        lives.protocol.abort(driver(number))
    lives.check_settled(*FIRST)


def test_a_replay_without_a_single_task_is_an_error(lives):
    """What it leaves out would come in the next micro-batch, and be doubled."""
    lives.batch(0, driver(1))
    with pytest.raises(ReplayError, match="0 records"):
        lives.protocol.commit_without_tasks(unit(0), driver(2))
    lives.protocol.commit_without_tasks(unit(1), driver(2))


def test_the_error_says_what_it_may_mean_and_names_commands_to_paste():
    options = SinkOptions.parse({**OPTIONS, "transactional.id.prefix": "p q"})
    done = Decision(driver(1), Phase.DONE, unit(0), rows=rows_of(A), records=1)
    other = TaskTransaction("p.x.0", 7, 0, 2, 0, 1, rows_of(B).text)
    with pytest.raises(ReplayError) as error, completed_commands(options):
        check_replay(done, [other], options.exactly_once)
    lines = str(error.value).splitlines()
    command = (
        "pykafka-sink transactions resolve --bootstrap-server simulated:1 --prefix 'p q' --as-"
    )
    choices = [f"  {command}{choice}" for choice in ("written", "not-written")]
    assert [line for line in lines if command in line] == choices
    causes = "checkpoint has lost offsets", "rand()", "transaction.replay=drop", "source has"
    assert_has(str(error.value), *causes)


def test_a_replay_by_other_tasks_or_in_another_order_is_dropped(lives):
    lives.batch(0, driver(1))
    assert not write_all(lives, FIRST[::-1], 2)
    plan = lives.protocol.plan(driver(2), None)
    both = RowSummary.total(rows_of(value) for value in FIRST).text
    alone = lives.write(plan, 3, b"0-0")._replace(records=2, digest=both)
    assert lives.protocol.commit(plan, unit(0), [alone]) is None
    assert lives.visible() == FIRST


@pytest.mark.parametrize("values", [OTHERS, [*FIRST, b"0-2"], []])
def test_on_request_it_is_dropped_whatever_it_has(lives, values, caplog):
    lives.batch(0, driver(1))
    lives.drops_replays = True
    lives.protocol = lives.protocol_of("p")
    assert not write_all(lives, values, 2)
    assert "it is dropped, as transaction.replay=drop says" in caplog.text
    lives.check_settled(*FIRST)


# --- jobs that name what they write -------------------------------------------------------------


class Jobs:
    """Each run is a job of its own, by a driver of its own."""

    def __init__(self, lives):
        self.lives = lives
        self.runs = 0

    def run(self, write, values):
        """Whether it was written. A write that is done already has tasks that write nothing."""
        self.runs += 1
        job = f"job-{self.runs}"
        plan = self.lives.protocol.plan(driver(self.runs, None), job, write)
        written = [] if plan.is_repeated else values
        tasks = self.lives.written(plan, written)
        return self.lives.protocol.commit(plan, unit(0, job), tasks) is not None

    def run_and_die(self, point, write):
        dies_at(point, lambda: self.run(write, [b"1a", b"1b"]))


@pytest.fixture
def jobs(lives):
    return Jobs(lives)


def test_versions_come_in_any_order_and_names_are_apart(jobs):
    """A scheduler that catches up runs day 4 after day 5: no day must vanish."""
    assert jobs.run(Write("etl", 5), [b"etl5"])
    assert jobs.run(Write("etl", 4), [b"etl4"])
    assert not jobs.run(Write("etl", 4), [b"etl4"])
    assert jobs.run(Write("other", 4), [b"other4"])
    assert jobs.run(None, [b"no name"])
    assert jobs.run(Write("etl", 6), [b"etl6"])
    assert not jobs.run(Write("other", 4), [b"other4"])
    assert jobs.lives.visible() == [b"etl4", b"etl5", b"etl6", b"no name", b"other4"]


def test_a_version_that_may_have_been_written_is_an_error_and_changes_nothing(jobs):
    """Of each name the log keeps 64 ranges; the oldest are known only as a limit."""
    for version in range(0, 132, 2):
        jobs.run(Write("etl", version), [])
    before = jobs.lives.record()
    for version in (0, 1, 2):
        with pytest.raises(ConfigError, match=r"may be written already, or not: .*others up to 2"):
            jobs.run(Write("etl", version), [b"x"])
    assert jobs.lives.record() == before
    assert not jobs.run(Write("etl", 4), [])
    assert jobs.run(Write("etl", 3), [b"3"])


def test_two_versions_at_once_are_both_written(jobs):
    """The first one is fenced, and run again."""
    plan = jobs.lives.protocol.plan(driver(8, None), "first", Write("etl", 4))
    late = jobs.lives.written(plan, [b"4"])
    assert jobs.run(Write("etl", 5), [b"5"])
    with pytest.raises(TransactionError):
        jobs.lives.protocol.commit(plan, unit(0, "first"), late)
    assert jobs.run(Write("etl", 4), [b"4"])
    assert str(jobs.lives.record().written[0]) == "4–5"
    jobs.lives.check_settled(b"4", b"5")


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_crash_anywhere_needs_no_human(jobs, point):
    jobs.run(Write("etl", 0), [b"0"])
    jobs.run_and_die(point, Write("etl", 1))
    jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert jobs.run(Write("etl", 2), [b"2"])
    jobs.lives.check_settled(b"0", b"1a", b"1b", b"2")


def lose_a_part(jobs, topic=TOPICS_OF_ROWS):
    """Decided, one task's transaction committed, the other aborted by the brokers."""
    jobs.run_and_die("commit.ending", Write("etl", 1, topic))
    jobs.lives.world.run_for(TIMEOUT_MS + 20_000)


def test_a_part_that_the_brokers_aborted_is_filled_in_by_the_same_write(jobs):
    lose_a_part(jobs)
    again = r"visible in part.* version 1 of write\.id 'etl', run again with the same rows, fills"
    with pytest.raises(OutcomeError, match=again):
        jobs.run(Write("etl", 2), [b"2"])
    with pytest.raises(RefusedError, match="Run version 1 of write.id 'etl' again, which fills in"):
        Operated.operations_of(jobs.lives, "p").resolve(None, agree)
    assert jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert not jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert jobs.lives.visible() == [b"1a", b"1b"]


@pytest.mark.parametrize("choice", list(Choice))
def test_what_an_operator_counts_as_written_is_not_written_again(jobs, choice):
    lose_a_part(jobs)
    with pytest.raises(OutcomeError):
        jobs.run(Write("etl", 2), [b"2"])
    Operated.operations_of(jobs.lives, "p").resolve(choice, agree)
    assert jobs.run(Write("etl", 1), [b"1a", b"1b"]) is (choice is Choice.AS_NOT_WRITTEN)


def test_a_write_without_rows_is_done_too(jobs):
    assert jobs.run(Write("etl", 1), [])
    assert not jobs.run(Write("etl", 1), [b"late"])
    assert jobs.lives.visible() == []


@pytest.mark.slow
def test_names_are_not_for_single_runs(jobs):
    for number in range(100):
        jobs.run(Write(f"run-{number}", 0), [])
    assert len(jobs.lives.record().written) == 100
    with pytest.raises(ConfigError, match="write.version counts"):
        jobs.run(Write("run-100", 0), [b"x"])
    assert not jobs.run(Write("run-99", 0), [])


def test_the_same_write_for_another_topic_is_refused(jobs):
    """What was written is in the first one: to drop it would lose the rows of the second."""
    assert jobs.run(Write("etl", 2, "first"), [b"2"])
    for version, topic in ((2, "second"), (2, TOPICS_OF_ROWS)):
        with pytest.raises(ConfigError, match=r"is for (topic 'second'|the topics of its rows)"):
            jobs.run(Write("etl", version, topic), [b"lost"])
    assert not jobs.run(Write("etl", 2, "first"), [b"2"])
    assert jobs.run(Write("etl", 3, "second"), [b"3"])
    assert jobs.run(Write("other", 2, "second"), [b"o2"])
    jobs.lives.check_settled(b"2", b"3", b"o2")


def test_what_is_visible_in_part_is_not_filled_in_in_another_topic(jobs):
    lose_a_part(jobs, "first")
    with pytest.raises(
        ConfigError, match="version 1 of write.id 'etl' is .*: it was written for topic 'first'"
    ):
        jobs.run(Write("etl", 1, "second"), [b"1a", b"1b"])


# --- the token of a plan, by which a task sees whether it has begun in time ---------------------


def is_unused(lives, plan):
    """As tasks find out."""
    name = f"{plan.prefix}.driver"
    state = lives.client.describe([name], lives.deadline_ms)[name]
    is_held = (state.producer_id, state.producer_epoch) == plan.token.producer
    return is_held and state.transaction_state == "Empty"


@pytest.mark.parametrize("point", [None, "plan.claimed", "commit.decided", "commit.done"])
def test_tasks_get_a_token_that_nobody_has_used(lives, point):
    """Also where planning itself has written a record."""
    if point is not None:
        lives.killed(point, 0, driver(1))
    for number in (2, 2, 3):
        assert is_unused(lives, lives.protocol.plan(driver(number), None))


def test_a_decision_uses_the_token_up_before_it_sweeps(lives):
    plan = lives.protocol.plan(driver(1), None)
    unused = []

    def look(point):
        if point in ("commit.checked", "commit.decided"):
            unused.append(is_unused(lives, plan))

    crash_points.set_hook(look)
    lives.protocol.commit(plan, unit(0), [lives.write(plan, 0, b"0-0")])
    assert unused == [True, False]


def test_a_replay_that_is_dropped_uses_the_token_up_and_is_swept(lives):
    lives.batch(0, driver(1))
    plan, written = lives.begun(driver(1), b"0-0", b"0-1")
    lives.write(plan, 2, b"of an attempt that lost")
    assert lives.protocol.commit(plan, unit(0), written) is None
    assert not is_unused(lives, plan)
    assert lives.open_ids() == []
    lives.batch(1, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_abort_makes_the_token_useless(lives):
    plan = lives.protocol.plan(driver(1), None)
    lives.protocol.abort(driver(1))
    assert not is_unused(lives, plan)


@pytest.mark.parametrize("is_begun", [False, True])
def test_abort_of_an_older_plan_leaves_a_newer_one_of_the_same_driver_alone(lives, is_begun):
    """Two threads of one program write under the same prefix."""
    older, _ = lives.begun(driver(1, None), b"older", job="older")
    newer = lives.protocol_of("p").plan(driver(1, None), "newer")
    written = [lives.write(newer, 1, b"newer")] if is_begun else []
    with pytest.raises(FencedError, match="a later write of this process has taken over"):
        lives.protocol.abort(driver(1, None), older.token)
    assert is_unused(lives, newer)
    written.append(lives.write(newer, 2, b"newer"))
    lives.protocol.commit(newer, unit(0, "newer"), written)
    assert lives.visible() == [b"newer"] * len(written)


def test_abort_leaves_alone_what_a_newer_plan_has_decided(lives):
    older = lives.protocol.plan(driver(1, None), "older")
    lives.killed("commit.ending", 0, driver(1, None), job="newer")
    lives.protocol.abort(driver(1, None), older.token)
    lives.protocol.fence_and_read()
    record = lives.record()
    assert (record.phase, record.unit) == (Phase.DECIDED, unit(0, "newer"))


def test_abort_after_a_commit_that_came_too_late_sweeps(lives):
    """The commit has used the token of its plan itself: nobody else has taken over."""
    plan, written = lives.begun(driver(1, None), b"late", job="job")
    left = []

    def lose():
        lives.world.init_once(written[0].transactional_id)
        left.append(lives.write(plan, 1, b"of an attempt that lost").transactional_id)

    at("commit.decided", lose)
    with pytest.raises(TransactionLostError):
        lives.protocol.commit(plan, unit(0, "job"), written)
    assert lives.open_ids() == left
    assert lives.protocol.abort(driver(1, None), plan.token).phase is Phase.VOID
    assert lives.open_ids() == []


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_a_task_fails_that_nobody_tells_whether_it_is_in_time(error):
    """The decision needs the same coordinator: it cannot be made either."""
    simulation = Transactional()
    simulation.begin(token=simulation.describe_token(error))
    with pytest.raises(TransactionError, match=error):
        simulation.write(0, b"a")
