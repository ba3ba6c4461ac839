"""Every option that is a duration works at its documented maximum, which users give for "for ever"."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG, ProducerConfig
from spark_kafka_sink.network.transport import NetworkEvent
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.producer import KafkaProducer
from tests.golden.producing import ScriptedBroker, Topic
from tests.simulation.harness import arrow_batch, keyed, simulate

LONGEST = {"int": 2**31 - 1, "long": 2**63 - 1}
DURATIONS = {
    name: LONGEST[key.type] for name, key in PRODUCER_CONFIG.keys.items() if name.endswith(".ms")
}
GENEROUS_S = 300.0


class WaitingBroker(ScriptedBroker):
    """Answers at once; a poll that finds nothing waits a little, as a selector does."""

    def __init__(self) -> None:
        super().__init__({"t": Topic()}, ProducerIdAndEpoch(7, 0), {}, True)
        self._woken = threading.Event()

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        if not self._events:
            self._woken.wait(0.001)
            self._woken.clear()
        return super().poll(timeout_ms)

    def wakeup(self) -> None:
        self._woken.set()


class SenderThread:
    """Repeats the sender's rounds until the block ends."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        clock = SystemClock()
        try:
            while not self._is_over:
                self._producer.sender.run_once(clock.now_ms())
        except Exception as error:
            self._producer.sender.fail(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._thread.join(GENEROUS_S)


def settings(name: str) -> dict[str, str]:
    return {"bootstrap.servers": "scripted:9092", name: str(DURATIONS[name])}


def test_the_table_has_durations() -> None:
    assert {"max.block.ms", "delivery.timeout.ms", "linger.ms"} <= DURATIONS.keys()


@pytest.mark.parametrize("name", DURATIONS)
def test_longest_duration_on_the_simulated_monitor(name: str) -> None:
    simulation = simulate(buffer_memory="65536", **{name.replace(".", "_"): str(DURATIONS[name])})
    for task in range(3):
        simulation.producer.begin_task(["t"])
        simulation.append(keyed(500, size=300))  # more than buffer.memory holds
        simulation.producer.flush()
        assert len(simulation.all_values()) == 500 * (task + 1)


@pytest.mark.parametrize("name", DURATIONS)
def test_longest_duration_on_two_threads(name: str) -> None:
    config = ProducerConfig.parse({**settings(name), "buffer.memory": "65536"})
    producer = KafkaProducer(
        config, WaitingBroker(), SystemClock(), random.Random(1), ThreadMonitor()
    )
    rows: Sequence[tuple[bytes | None, bytes | None]] = keyed(500, size=300)
    with SenderThread(producer):
        for _ in range(2):
            producer.begin_task(["t"])
            producer.append(arrow_batch(list(rows)), ColumnPositions(1, 0, topic_option="t"))
            producer.flush()
            assert sum(report.records for report in producer.report.values()) == 500
