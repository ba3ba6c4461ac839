"""Waits as long as options allow: Kafka's idiom for "for ever" is the largest number."""

from __future__ import annotations

import random
import threading

import pytest

from spark_kafka_sink.base.clock import LONGEST_WAIT_MS, ExponentialBackoff, wait_seconds
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.client import ClientSettings
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.producer.monitor import ThreadMonitor
from tests.simulation.time import SimClock
from tests.unit.test_admin_retries import ScriptedBrokers, cluster

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
DEADLINE_S = 60
LONGEST = pytest.mark.parametrize("longest_ms", [INT_MAX, LONG_MAX, 2 * LONG_MAX])


def ends(wait, end) -> bool:
    """Whether ``wait`` ends, and without an error, once ``end`` was called."""
    results = []
    thread = threading.Thread(target=lambda: results.append(wait()), daemon=True)
    thread.start()
    end()
    thread.join(DEADLINE_S)
    return len(results) == 1


@LONGEST
def test_the_network_waits_until_it_is_woken(longest_ms):
    network = SelectorNetwork()
    try:
        assert ends(lambda: network.poll(longest_ms), network.wakeup)
    finally:
        network.close()


@LONGEST
def test_the_task_waits_until_it_is_notified(longest_ms):
    monitor = ThreadMonitor()
    is_waiting = threading.Event()

    def wait() -> None:
        with monitor:
            is_waiting.set()
            monitor.wait(longest_ms)

    def notify() -> None:
        assert is_waiting.wait(DEADLINE_S)
        with monitor:
            monitor.notify_all()

    assert ends(wait, notify)


def test_a_wait_is_never_negative_and_never_longer_than_the_operating_system_takes():
    assert wait_seconds(-1) == 0
    assert wait_seconds(1_500) == 1.5
    assert wait_seconds(LONG_MAX) == LONGEST_WAIT_MS / 1_000 < threading.TIMEOUT_MAX


@pytest.mark.parametrize("initial_ms", [0, 1, 100, INT_MAX, LONG_MAX - 1, LONG_MAX])
@pytest.mark.parametrize("max_ms", [0, 1, INT_MAX, LONG_MAX])
def test_a_back_off_stays_below_its_maximum(initial_ms, max_ms):
    backoff = ExponentialBackoff(initial_ms, max_ms, random.Random(1))
    assert all(0 <= backoff.backoff_ms(n) <= max_ms for n in (0, 1, 10, 62, 63, 64, 10_000))


@pytest.mark.parametrize(
    "setting", [name for name in ClientSettings._fields if name.endswith("_ms")]
)
def test_the_blocking_client_with_the_longest_of_each(setting):
    clock = SimClock(0)
    brokers = ScriptedBrokers(clock, lambda port, request: cluster())
    settings = DEFAULT_SETTINGS._replace(**{setting: LONG_MAX})
    with AdminClient([("boot", 100)], settings, brokers, clock, random.Random(1)) as admin:
        assert len(admin.nodes(admin.deadline_in(LONG_MAX))) == 2


def test_an_attempt_is_repeated_although_the_deadline_is_far():
    clock = SimClock(0)
    answers = [None, "reset", cluster()]
    brokers = ScriptedBrokers(clock, lambda port, request: answers.pop(0))
    with AdminClient([("boot", 100)], DEFAULT_SETTINGS, brokers, clock, random.Random(1)) as admin:
        assert len(admin.nodes(LONG_MAX)) == 2
    assert clock.ms < DEADLINE_S * 1_000
