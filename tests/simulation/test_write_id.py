"""Jobs that name what they write: written once, however often they are run, and without a human."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.model import TOPICS_OF_ROWS, Decision, OutcomeError, Write
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.operating import (
    PATIENCE_MS,
    TIMEOUT_MS,
    CrashError,
    Lives,
    Operated,
    agree,
    crash_at,
    driver,
    unit,
)

POINTS = [p for p in crash_points.POINTS if p.startswith(("plan.", "commit."))]


class Jobs:
    """Each run is a job of its own, by a driver of its own."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.runs = 0

    def run(self, write: Write | None, values: list[bytes]) -> bool:
        """Whether it was written. A write that is done already has tasks that write nothing."""
        self.runs += 1
        job = f"job-{self.runs}"
        plan = self.lives.protocol.plan(driver(self.runs, None), job, write)
        written = [] if plan.is_repeated else values
        tasks = [self.lives.write(plan, n, value) for n, value in enumerate(written)]
        return self.lives.protocol.commit(plan, unit(0, job), tasks) is not None


@pytest.fixture
def jobs(lives: Lives) -> Jobs:
    return Jobs(lives)


def test_a_write_that_is_run_again_is_dropped(jobs: Jobs) -> None:
    assert jobs.run(Write("etl", 1), [b"1a", b"1b"])
    for _ in range(2):
        assert not jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert jobs.lives.visible() == [b"1a", b"1b"]
    assert jobs.lives.open_ids() == []


def test_versions_grow_and_names_are_apart(jobs: Jobs) -> None:
    assert jobs.run(Write("etl", 5), [b"etl5"])
    assert not jobs.run(Write("etl", 4), [b"etl4"])  # as with Delta: it was written, or is too late
    assert jobs.run(Write("other", 4), [b"other4"])
    assert jobs.run(None, [b"no name"])
    assert jobs.run(Write("etl", 6), [b"etl6"])
    assert not jobs.run(Write("other", 4), [b"other4"])
    assert jobs.lives.visible() == [b"etl5", b"etl6", b"no name", b"other4"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_needs_no_human(jobs: Jobs, point: str) -> None:
    jobs.run(Write("etl", 0), [b"0"])
    crash_at(point)
    with pytest.raises(CrashError):
        jobs.run(Write("etl", 1), [b"1a", b"1b"])
    jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert jobs.run(Write("etl", 2), [b"2"])
    assert jobs.lives.visible() == [b"0", b"1a", b"1b", b"2"]
    assert jobs.lives.open_ids() == []


def lose_a_part(jobs: Jobs, topic: str | None = None) -> None:
    """Decided, one task's transaction committed, the other aborted by the brokers."""
    crash_at("commit.ending")
    with pytest.raises(CrashError):
        jobs.run(Write("etl", 1, topic), [b"1a", b"1b"])
    jobs.lives.world.run_for(TIMEOUT_MS + 20_000)


def test_a_part_that_the_brokers_aborted_is_filled_in_by_the_same_write(jobs: Jobs) -> None:
    lose_a_part(jobs)
    again = r"visible in part.* version 1 of write\.id 'etl', run again with the same rows, fills"
    with pytest.raises(OutcomeError, match=again):
        jobs.run(Write("etl", 2), [b"2"])
    with pytest.raises(RefusedError, match="Run version 1 of write.id 'etl' again, which fills in"):
        Operated.operations_of(jobs.lives, "p").resolve(None, agree)  # type: ignore[arg-type]
    assert jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert not jobs.run(Write("etl", 1), [b"1a", b"1b"])
    assert jobs.lives.visible() == [b"1a", b"1b"]


def test_a_part_that_the_brokers_aborted_is_not_filled_in_by_other_rows(jobs: Jobs) -> None:
    lose_a_part(jobs)
    with pytest.raises(OutcomeError, match="not the same: Spark partitions 1 differ"):
        jobs.run(Write("etl", 1), [b"1a", b"other"])
    assert len(jobs.lives.visible()) == 1


@pytest.mark.parametrize("choice", list(Choice))
def test_what_an_operator_counts_as_written_is_not_written_again(
    jobs: Jobs, choice: Choice
) -> None:
    lose_a_part(jobs)
    with pytest.raises(OutcomeError):
        jobs.run(Write("etl", 2), [b"2"])
    Operated.operations_of(jobs.lives, "p").resolve(choice, agree)  # type: ignore[arg-type]
    assert jobs.run(Write("etl", 1), [b"1a", b"1b"]) is (choice is Choice.AS_NOT_WRITTEN)


def test_a_write_without_rows_is_done_too(jobs: Jobs) -> None:
    assert jobs.run(Write("etl", 1), [])
    assert not jobs.run(Write("etl", 1), [b"late"])
    assert jobs.lives.visible() == []


def test_names_are_not_for_single_runs(jobs: Jobs) -> None:
    record = jobs.lives.protocol.log
    for number in range(100):
        jobs.run(Write(f"run-{number}", 0), [])
    decision = record.read(jobs.lives.world.clock.ms + PATIENCE_MS)
    assert decision is not None
    assert len(decision.written) == 100
    with pytest.raises(ConfigError, match="write.version counts"):
        jobs.run(Write("run-100", 0), [b"x"])
    assert not jobs.run(Write("run-99", 0), [])


def test_the_same_write_for_another_topic_is_refused(jobs: Jobs) -> None:
    """What was written is in the first one: to drop it would lose the rows of the second."""
    assert jobs.run(Write("etl", 2, "first"), [b"2"])
    for version, topic in ((2, "second"), (1, "second"), (2, TOPICS_OF_ROWS)):
        with pytest.raises(ConfigError, match=r"is for (topic 'second'|the topics of its rows)"):
            jobs.run(Write("etl", version, topic), [b"lost"])
    assert not jobs.run(Write("etl", 2, "first"), [b"2"])
    assert jobs.run(Write("etl", 3, "second"), [b"3"])
    assert jobs.run(Write("other", 2, "second"), [b"o2"])
    assert jobs.lives.visible() == [b"2", b"3", b"o2"]
    assert jobs.lives.open_ids() == []


def test_a_write_whose_topic_is_not_known_is_dropped(jobs: Jobs) -> None:
    """Earlier versions of the sink have not written it down."""
    assert jobs.run(Write("etl", 1), [b"1"])
    assert not jobs.run(Write("etl", 1, "second"), [b"1"])


def test_what_is_visible_in_part_is_not_filled_in_in_another_topic(jobs: Jobs) -> None:
    lose_a_part(jobs, "first")
    with pytest.raises(ConfigError, match="version 1 of write.id 'etl' was for topic 'first'"):
        jobs.run(Write("etl", 1, "second"), [b"1a", b"1b"])


def test_earlier_versions_of_the_sink_read_what_is_written() -> None:
    """Topics are apart from the names and versions of writes."""
    owner = driver(1, None)
    decision = replace(Decision(owner), write=Write("etl", 1, "t")).done()
    body = json.loads(decision.to_json())
    assert (body["write"], body["written"], body["topics"]) == (
        ["etl", 1],
        [["etl", 1]],
        {"etl": "t"},
    )
    assert Decision.from_json(decision.to_json()) == decision
    del body["topics"]
    before = Decision.from_json(json.dumps(body))
    assert before.written == (Write("etl", 1),)
