"""Waits: exponential back-off as Java's ExponentialBackoff, and waits as long as options allow:
Kafka's idiom for "for ever" is the largest number.
"""

import random
import threading

import pytest

from spark_kafka_sink.base.clock import LONGEST_WAIT_MS, ExponentialBackoff, wait_seconds
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.producer.monitor import ThreadMonitor
from tests.tables import each_row
from tests.unit.simulated_time import NO_JITTER, Chance

LOWEST, HIGHEST = Chance(0.0), Chance(0.999)
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
DEADLINE_S = 60


@pytest.mark.parametrize(
    ("initial_ms", "max_ms", "chance", "more", "pauses"),
    [
        pytest.param(100, 1000, NO_JITTER, {}, [100, 200, 400, 800, 1000, 1000], id="doubles"),
        pytest.param(10, 1000, NO_JITTER, {"multiplier": 3}, [10, 30, 90, 270], id="multiplier"),
        # Java's caps the term, then jitters: tasks that lost a broker together reconnect one by one.
        pytest.param(100, 1000, LOWEST, {}, [80, 160, 320, 640, 800, 800], id="a fifth less"),
        pytest.param(100, 1000, HIGHEST, {}, [119, 239], id="or more"),
        pytest.param(900, 1000, HIGHEST, {}, [1000] * 5, id="never exceeds the maximum"),
        pytest.param(50, 1000, LOWEST, {"jitter": 0}, [50, 100, 200], id="without jitter"),
        pytest.param(50, 1000, HIGHEST, {"jitter": 0}, [50, 100, 200], id="whatever chance says"),
        pytest.param(5000, 1000, LOWEST, {}, [1000] * 4, id="above the maximum"),
        pytest.param(5000, 1000, HIGHEST, {}, [1000] * 4, id="above the maximum, too"),
        pytest.param(0, 0, HIGHEST, {}, [0, 0, 0], id="none"),
        pytest.param(0, 1000, HIGHEST, {}, [0, 0, 0], id="zero never waits"),
    ],
)
def test_back_off(initial_ms, max_ms, chance, more, pauses):
    backoff = ExponentialBackoff(initial_ms, max_ms, chance, **more)
    assert [backoff.backoff_ms(attempt) for attempt in range(len(pauses))] == pauses


def test_every_pause_is_within_its_bounds_and_they_spread():
    backoff = ExponentialBackoff(100, 10_000, random.Random(1))
    seen = [backoff.backoff_ms(3) for _ in range(2_000)]
    assert 640 <= min(seen) < 650
    assert 950 < max(seen) <= 960
    assert 790 < sum(seen) / len(seen) < 810


@each_row("initial_ms", [0, 1, 100, INT_MAX, LONG_MAX - 1, LONG_MAX])
@each_row("max_ms", [0, 1, INT_MAX, LONG_MAX])
def test_a_back_off_stays_below_its_maximum(initial_ms, max_ms):
    backoff = ExponentialBackoff(initial_ms, max_ms, random.Random(1))
    assert all(0 <= backoff.backoff_ms(n) <= max_ms for n in (0, 1, 10, 62, 63, 64, 10_000, 10**30))


# --- for ever -------------------------------------------------------------------------------------

LONGEST = pytest.mark.parametrize("longest_ms", [INT_MAX, LONG_MAX, 2 * LONG_MAX])


def ends(wait, end):
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

    def wait():
        with monitor:
            is_waiting.set()
            monitor.wait(longest_ms)

    def notify():
        assert is_waiting.wait(DEADLINE_S)
        with monitor:
            monitor.notify_all()

    assert ends(wait, notify)


def test_a_wait_is_never_negative_and_never_longer_than_the_operating_system_takes():
    assert wait_seconds(-1) == 0
    assert wait_seconds(1_500) == 1.5
    assert wait_seconds(LONG_MAX) == LONGEST_WAIT_MS / 1_000 < threading.TIMEOUT_MAX
