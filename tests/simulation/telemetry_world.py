"""A producer whose brokers take what it tells of itself (KIP-714)."""

from __future__ import annotations

import random

from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.telemetry_subscription import State
from tests.simulation.harness import Simulation, keyed, simulate
from tests.simulation.telemetry import Push, TelemetryPlugin

INTERVAL_MS = 10_000
TOTAL, RATE, LATENCY = "record.send.total", "record.send.rate", "node.request.latency.avg"


class TelemetrySources:
    """A simulation whose brokers take metrics."""

    def __init__(self, seed: int = 0, brokers: int = 3, **options: str) -> None:
        self.simulation: Simulation = simulate(seed, brokers=brokers, linger_ms="0", **options)
        self.plugin: TelemetryPlugin = self.simulation.cluster.enable_telemetry()
        self.plugin.interval_ms = INTERVAL_MS

    @property
    def producer(self) -> KafkaProducer:
        return self.simulation.producer

    @property
    def state(self) -> State:
        return self.producer.telemetry.state

    def write(self, rows: int = 10, topic: str = "t", size: int = 20) -> None:
        self.simulation.append(keyed(rows, size), topic)
        self.producer.flush()

    def run_for(self, duration_ms: int) -> None:
        self.simulation.run_for(duration_ms)

    def next_task(self) -> None:
        self.producer.begin_task(["t"])


def first_push(watched: TelemetrySources) -> Push:
    watched.run_for(INTERVAL_MS * 3 // 2 + 100)
    return watched.plugin.pushes[0]


def maybe_ask_for_metrics(simulation: Simulation, rng: random.Random) -> None:
    """In three lives of ten, brokers want metrics, and answer pushes in all ways that there are."""
    if rng.random() < 0.3:
        simulation.cluster.enable_telemetry().behave_badly(rng)


def push_final_telemetry(simulation: Simulation) -> int:
    """What closing does; returns how many milliseconds that took."""
    telemetry, started_ms = simulation.producer.telemetry, simulation.clock.ms
    assert telemetry is not None
    telemetry.finish()
    return simulation.clock.ms - started_ms
