"""transaction.version is downgraded, and producer epochs come to their end, in the middle of it."""

from __future__ import annotations

import pytest

from tests.simulation import scenarios
from tests.simulation.operating import Prefix, driver

LAST_EPOCH = 2**15 - 2
"""The highest epoch that brokers give to a client."""
POINTS = ["commit.deciding", "commit.decided", "commit.ending", "commit.ended", "commit.done"]


@pytest.mark.parametrize("point", ["plan.begin", "plan.fenced", "plan.swept", *POINTS])
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("dies", [False, True], ids=["driver lives", "driver dies"])
def test_a_downgrade_leaves_no_transaction_open(point: str, version: int, dies: bool) -> None:
    scenarios.downgrade(point, version, dies)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first_epoch", range(LAST_EPOCH - 4, LAST_EPOCH + 1))
def test_the_drivers_id_crosses_the_end_of_its_epochs(version: int, first_epoch: int) -> None:
    """Nothing is open then: whoever plans next can always end what was left behind."""
    lives = Prefix(version)
    lives.world.transactions.first_epoch = first_epoch
    token = lives.protocol.plan(driver(1), None).token
    assert token.producer_epoch < 100
    lives.protocol.plan(driver(2), None)
