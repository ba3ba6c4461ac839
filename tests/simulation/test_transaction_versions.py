"""transaction.version is downgraded, and producer epochs come to their end, in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.transactions import crash_points
from tests.simulation.operating import CrashError, Prefix, driver, unit

LAST_EPOCH = 2**15 - 2
"""The highest epoch that brokers give to a client."""
POINTS = ["commit.deciding", "commit.decided", "commit.ending", "commit.ended", "commit.done"]


@pytest.fixture(autouse=True)
def no_hook_is_left() -> Iterator[None]:
    yield
    crash_points.set_hook(None)


def batch(lives: Prefix, batch_id: int, by: int) -> None:
    plan = lives.protocol.plan(driver(by), None)
    written = [lives.write(plan, n, b"%d-%d" % (batch_id, n)) for n in range(2)]
    lives.protocol.commit(plan, unit(batch_id), written)


def downgrade_at(lives: Prefix, point: str, version: int, dies: bool) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            crash_points.set_hook(None)
            lives.world.transactions.transaction_version = version
            if dies:
                raise CrashError(point)

    crash_points.set_hook(hook)


@pytest.mark.parametrize("point", ["plan.begin", "plan.fenced", "plan.swept", *POINTS])
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("dies", [False, True], ids=["driver lives", "driver dies"])
def test_a_downgrade_leaves_no_transaction_open(
    lives: Prefix, point: str, version: int, dies: bool
) -> None:
    """Its connections are older than the downgrade, and say that it may end them with EndTxn v5."""
    batch(lives, 0, by=1)
    downgrade_at(lives, point, version, dies)
    if dies:
        with pytest.raises(CrashError):
            batch(lives, 1, by=1)
        batch(lives, 1, by=2)
    else:
        batch(lives, 1, by=1)
    batch(lives, 2, by=2)
    assert lives.visible() == sorted(b"%d-%d" % (b, t) for b in range(3) for t in range(2))
    assert lives.open_ids() == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first_epoch", range(LAST_EPOCH - 4, LAST_EPOCH + 1))
def test_the_drivers_id_crosses_the_end_of_its_epochs(version: int, first_epoch: int) -> None:
    """Nothing is open then: whoever plans next can always end what was left behind."""
    lives = Prefix(version)
    lives.world.transactions.first_epoch = first_epoch
    token = lives.protocol.plan(driver(1), None).token
    assert token.producer_epoch < 100
    lives.protocol.plan(driver(2), None)


@pytest.fixture
def lives() -> Prefix:
    return Prefix(2)
