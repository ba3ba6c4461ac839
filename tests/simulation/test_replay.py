"""A micro-batch that is committed comes again: dropped, after it was compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.writer import completed_commands
from spark_kafka_sink.transactions.commit_protocol import check_replay
from spark_kafka_sink.transactions.model import (
    Decision,
    OutcomeError,
    Phase,
    ReplayError,
    RowSummary,
    TaskTransaction,
)
from tests.simulation.operating import (
    PATIENCE_MS,
    A,
    B,
    Lives,
    driver,
    rows_of,
    unit,
)

FIRST = [b"0-0", b"0-1"]
OTHERS = [b"0-0", b"0-2"]  # as many, and as large


def write_all(lives: Lives, values: list[bytes], by: int) -> bool:
    """Micro-batch 0 with these rows; whether anything was committed."""
    plan = lives.protocol.plan(driver(by), None)
    written = [lives.write(plan, n, value) for n, value in enumerate(values)]
    return lives.protocol.commit(plan, unit(0), written) is not None


def test_a_replay_of_a_finished_batch_is_dropped(lives: Lives) -> None:
    lives.batch(0, driver(1))
    lives.batch(0, driver(1))
    assert lives.visible() == FIRST
    assert lives.open_ids() == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([*FIRST, b"0-2"], "2 records of 6 bytes, and has come again with 3 records of 9 bytes"),
        ([b"0-0", b"0-10"], "2 records of 6 bytes, and has come again with 2 records of 7 bytes"),
        (OTHERS, "2 records of 6 bytes, and has come again with as many of both, and other"),
        ([], "2 records of 6 bytes, and has come again with 0 records of 0 bytes"),
    ],
)
def test_a_replay_with_other_rows_is_an_error(
    lives: Lives, values: list[bytes], message: str
) -> None:
    """The checkpoint has lost its last offsets: batch 0 is another one now."""
    lives.batch(0, driver(1))
    for number in (2, 3):
        with pytest.raises(ReplayError, match=message):
            write_all(lives, values, number)
        lives.protocol.abort(driver(number))
    assert lives.visible() == FIRST
    assert lives.open_ids() == []


def test_a_replay_without_a_single_task_is_an_error(lives: Lives) -> None:
    """What it leaves out would come in the next micro-batch, and be doubled."""
    lives.batch(0, driver(1))
    with pytest.raises(ReplayError, match="0 records"):
        lives.protocol.commit_without_tasks(unit(0), driver(2))
    lives.protocol.commit_without_tasks(unit(1), driver(2))


def test_the_error_says_what_it_may_mean_and_names_commands_to_paste() -> None:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "one:9092",
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": "p q",
        }
    )
    assert options.exactly_once is not None
    done = Decision(driver(1), Phase.DONE, unit(0), rows=rows_of(A), records=1)
    other = TaskTransaction("p.x.0", 7, 0, 2, 0, 1, rows_of(B).text)
    with pytest.raises(ReplayError) as error, completed_commands(options):
        check_replay(done, [other], options.exactly_once)
    text = str(error.value)
    command = "pykafka-sink transactions resolve --bootstrap-server one:9092 --prefix 'p q' --as-"
    assert [line for line in text.splitlines() if command in line] == [
        f"  {command}written",
        f"  {command}not-written",
    ]
    for cause in ("checkpoint has lost offsets", "rand()", "transaction.replay=drop", "source has"):
        assert cause in text


def test_a_replay_by_other_tasks_or_in_another_order_is_dropped(lives: Lives) -> None:
    lives.batch(0, driver(1))
    assert not write_all(lives, FIRST[::-1], 2)
    plan = lives.protocol.plan(driver(2), None)
    both = RowSummary.total(rows_of(value) for value in FIRST).text
    alone = lives.write(plan, 3, b"0-0")._replace(records=2, digest=both)
    assert lives.protocol.commit(plan, unit(0), [alone]) is None
    assert lives.visible() == FIRST


@pytest.mark.parametrize("values", [OTHERS, [*FIRST, b"0-2"], []])
def test_on_request_it_is_dropped_whatever_it_has(
    lives: Lives, values: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    lives.batch(0, driver(1))
    lives.drops_replays = True
    lives.protocol = lives.protocol_of("p")
    assert not write_all(lives, values, 2)
    assert "it is dropped, as transaction.replay=drop says" in caplog.text
    assert lives.visible() == FIRST
    assert lives.open_ids() == []


# --- records of the version before ---------------------------------------------------------------


def rewritten(lives: Lives, **changes: object) -> None:
    """The record as another version has left it."""
    decision, token = lives.protocol.fence_and_read()
    assert decision is not None
    body = {**json.loads(decision.to_json()), **changes}
    older = Decision.from_json(json.dumps(body))
    lives.protocol.log.write(older, token, lives.world.clock.ms + PATIENCE_MS)


OLDER = {"records": 2, "data_bytes": 6, "digest": "9f86d081884c7d659a2feaa0c55ad015"}


def test_a_record_without_contents_is_compared_by_size(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    lives.batch(0, driver(1))
    rewritten(lives, rows=OLDER)
    assert not write_all(lives, OTHERS, 2)
    assert "without a comparison of contents" in caplog.text
    with pytest.raises(ReplayError, match="again with 3 records of 9 bytes"):
        lives.batch(0, driver(2), tasks=3)
    assert lives.visible() == FIRST


def test_a_record_without_rows_has_nothing_to_compare_with(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    lives.batch(0, driver(1))
    rewritten(lives, rows=None)
    assert not write_all(lives, [*FIRST, b"0-2"], 2)
    assert "are not known" in caplog.text
    assert lives.visible() == FIRST


def test_what_the_version_before_has_left_in_part_is_not_filled_in(lives: Lives) -> None:
    """Its digests tell another thing: equal sizes are not enough to write a part of the rows."""
    plan = lives.protocol.plan(driver(1), None)
    lost, there = (lives.write(plan, n, value) for n, value in enumerate(FIRST))
    older = [t._replace(digest="1-3-0a1b2c3d.11223344") for t in (lost, there)]
    decision = replace(
        plan.decision,
        phase=Phase.PARTIAL,
        unit=unit(0),
        transactions=(older[0],),
        committed=(older[1],),
    )
    lives.protocol.log.write(decision, plan.token, lives.world.clock.ms + PATIENCE_MS)
    with pytest.raises(OutcomeError, match="An earlier version of the sink"):
        write_all(lives, FIRST, 2)
