"""How old transactions and decisions are: what is told of it."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import crash_points, session
from tests.simulation.operating import CrashError, Lives, crash_at, driver, unit


def test_ages_of_transactions_and_of_the_decision(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, 0, b"old")]
    lives.world.run_for(200_000)
    written.append(lives.write(plan, 1, b"young"))

    def dawdle(point: str) -> None:
        if point == "commit.ending":
            lives.world.run_for(30_000)

    crash_points.set_hook(dawdle)
    times = lives.protocol.commit(plan, unit(0), written)
    assert times is not None
    assert 200_000 <= times.oldest_transaction_ms < 230_000
    assert 30_000 <= times.decided_for_ms < 60_000


def test_how_long_a_dead_driver_has_left_a_decision(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    crash_at("commit.decided")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    lives.world.run_for(200_000)
    assert caplog.text == ""
    lives.protocol.plan(driver(2), None)
    told = f"{unit(0)} was decided 3 min 20 s ago under transactional.id.prefix 'p'"
    assert told in caplog.text
    assert "it is DONE now" in caplog.text


def test_the_line_of_a_micro_batch_has_them_unless_it_is_a_replay(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_protocol", lambda options: lives.protocol)
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "simulated:1",
            "topic": "t",
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": "p",
        }
    )
    ages = {"oldest_transaction_ms", "decided_for_ms"}
    for number, is_replay in enumerate((False, True), start=1):
        plan = lives.protocol.plan(driver(number), None)
        told = session.commit_unit(options, plan, unit(0), [lives.write(plan, 0, b"a")])
        assert told.keys() == {"transactions", "commit_ms", *(["replay"] if is_replay else ages)}
