"""Fixtures that several files of simulations use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.transactions import crash_points
from tests.simulation.operating import Lives, Operated
from tests.simulation.transactional import GENERATIONS, Transactional


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def operated(request: pytest.FixtureRequest) -> Operated:
    """A prefix on brokers of each transaction.version."""
    return Operated(request.param)


@pytest.fixture(params=GENERATIONS, ids=["TV2", "TV1", "TV0", "3.9", "2.1"])
def simulation(request: pytest.FixtureRequest) -> Transactional:
    """Brokers of each kind."""
    return Transactional(*request.param)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def lives(request: pytest.FixtureRequest) -> Lives:
    """Drivers under one prefix, on brokers of each transaction.version."""
    return Lives(request.param)


@pytest.fixture(autouse=True)
def no_hook_is_left() -> Iterator[None]:
    yield
    crash_points.set_hook(None)
