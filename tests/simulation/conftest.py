"""Fixtures that several files of simulations use."""

from __future__ import annotations

import pytest

from spark_kafka_sink.transactions import crash_points
from tests.simulation.harness import GENERATIONS, Transactional
from tests.simulation.operating import Lives, Operated

EACH_TRANSACTION_VERSION = [
    pytest.param(2, id="TV2"),
    pytest.param(1, id="TV1", marks=pytest.mark.slow),
]


@pytest.fixture(params=EACH_TRANSACTION_VERSION)
def operated(request):
    """A prefix on brokers of each transaction.version."""
    return Operated(request.param)


@pytest.fixture(params=GENERATIONS, ids=["TV2", "TV1", "TV0", "3.9", "2.1"])
def simulation(request):
    """Brokers of each kind."""
    return Transactional(*request.param)


@pytest.fixture(params=EACH_TRANSACTION_VERSION)
def lives(request):
    """Drivers under one prefix, on brokers of each transaction.version."""
    return Lives(request.param)


@pytest.fixture(autouse=True)
def no_hook_is_left():
    yield
    crash_points.set_hook(None)
