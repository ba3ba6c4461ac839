"""Coordinators refuse for ever to end transactions that are decided and open. For a while they do in
tests/simulation/scenarios.py.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.transactions.model import is_task_id
from tests.simulation.operating import CrashError, Lives, at, crash_at, driver


def test_what_is_refused_for_ever_stays_decided(lives: Lives) -> None:
    crash_at("commit.decided")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1))
    cluster = lives.world.cluster

    def refuse() -> None:
        cluster.on_end_txn = lambda name: "INVALID_TXN_STATE" if is_task_id("p", name) else "NONE"

    at("plan.claimed", refuse)
    with pytest.raises(TransactionError, match="refuse to end them. They are decided"):
        lives.batch(0, driver(2))
    cluster.on_end_txn = lambda name: "NONE"
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]
