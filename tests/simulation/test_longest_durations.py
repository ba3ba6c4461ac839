"""A producer with each of its durations at the maximum that the option has."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from tests.simulation.harness import keyed, simulate

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
DURATIONS = [name for name in PRODUCER_CONFIG.keys if name.endswith(".ms")]
# Kafka's rule: delivery.timeout.ms is not below the sum of the other two.
TOGETHER = {
    "linger.ms": {"delivery_timeout_ms": str(INT_MAX)},
    "request.timeout.ms": {"delivery_timeout_ms": str(INT_MAX)},
}


def longest(name: str) -> dict[str, str]:
    key = PRODUCER_CONFIG.keys[name]
    largest = INT_MAX if key.type == "int" else LONG_MAX
    return {**TOGETHER.get(name, {}), name.replace(".", "_"): str(largest)}


def test_the_options_are_found():
    assert len(DURATIONS) > 12


@pytest.mark.parametrize("name", DURATIONS)
def test_records_arrive(name):
    simulation = simulate(**longest(name))
    simulation.append(keyed(20))
    simulation.producer.flush()
    simulation.append(keyed(20))
    simulation.producer.flush()
    assert len(simulation.all_values()) == 40


# These say how long to wait after a lost connection, and there is none that is longer.
PAUSES = {"retry.backoff.ms", "reconnect.backoff.ms"}


@pytest.mark.parametrize("name", [name for name in DURATIONS if name not in PAUSES])
def test_records_arrive_although_connections_are_lost(name):
    simulation = simulate(**longest(name))
    simulation.append(keyed(20))
    simulation.network.faults.cut_next_response = True
    simulation.producer.flush()
    assert len(simulation.all_values()) == 20
