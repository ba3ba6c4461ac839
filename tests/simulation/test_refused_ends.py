"""Coordinators refuse for ever to end transactions that are decided and open. For a while they do in
tests/simulation/scenarios.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.ids import is_task_id
from tests.simulation.operating import CrashError, Prefix, driver, unit


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def lives(request: pytest.FixtureRequest) -> Iterator[Prefix]:
    yield Prefix(request.param)
    crash_points.set_hook(None)


def batch(lives: Prefix, batch_id: int, by: int) -> None:
    plan = lives.protocol.plan(driver(by), None)
    written = [lives.write(plan, n, b"%d-%d" % (batch_id, n)) for n in range(2)]
    lives.protocol.commit(plan, unit(batch_id), written)


def crash_at(lives: Prefix, point: str) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            crash_points.set_hook(None)
            raise CrashError(point)

    crash_points.set_hook(hook)


def test_what_is_refused_for_ever_stays_decided(lives: Prefix) -> None:
    crash_at(lives, "commit.decided")
    with pytest.raises(CrashError):
        batch(lives, 0, by=1)

    def refuse(point: str) -> None:
        if point == "plan.claimed":
            lives.world.cluster.on_end_txn = lambda name: (
                "INVALID_TXN_STATE" if is_task_id("p", name) else "NONE"
            )

    crash_points.set_hook(refuse)
    with pytest.raises(TransactionError, match="refuse to end them. They are decided"):
        batch(lives, 0, by=2)
    crash_points.set_hook(None)
    lives.world.cluster.on_end_txn = lambda name: "NONE"
    batch(lives, 0, by=2)
    assert lives.visible() == [b"0-0", b"0-1"]
