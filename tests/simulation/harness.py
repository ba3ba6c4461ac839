"""A real producer on a simulated network and clock, in one thread.

Where the producer's task thread would wait, the monitor steps the sender instead.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import KafkaProducer
from tests import twin
from tests.simulation.cluster import SimCluster
from tests.simulation.monitor import SteppingMonitor
from tests.simulation.network import SimNetwork
from tests.simulation.time import Scheduler, SimClock


class SimMonitor(SteppingMonitor):
    """Steps the sender for as long as the task waits; nobody else moves the clock."""

    def __init__(self, clock: SimClock, scheduler: Scheduler, network: SimNetwork) -> None:
        super().__init__(clock)
        self._scheduler = scheduler
        self._network = network

    def wait(self, timeout_ms: int) -> None:
        self._scheduler.after(timeout_ms, self._network.wakeup)
        super().wait(timeout_ms)

    def _step(self, producer: KafkaProducer, until_ms: int) -> None:
        producer.sender.run_once(self.clock.ms)

    def _pass_time(self) -> None:
        self.clock.ms += 1


class Simulation:
    """World and producer of one test."""

    def __init__(
        self,
        seed: int = 0,
        brokers: int = 3,
        bytes_per_second: int | None = None,
        decision_log: str | None = None,
        **options: str,
    ) -> None:
        """bytes_per_second, decision_log: of the sink's own options. options: the producer's, with
        ``_`` for ``.``
        """
        self.rng = random.Random(seed)
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(self.rng.random()))
        self.cluster = SimCluster(
            self.network, self.scheduler, random.Random(self.rng.random()), brokers
        )
        self.options = options
        self._own = {"max_bytes_per_second": bytes_per_second, "decision_log": decision_log}
        self.producer = self._create_producer()

    def _create_producer(self) -> KafkaProducer:
        values = {"bootstrap.servers": self.cluster.bootstrap_servers}
        values.update({name.replace("_", "."): value for name, value in self.options.items()})
        config = replace(ProducerConfig.parse(values), **self._own)
        monitor = SimMonitor(self.clock, self.scheduler, self.network)
        rng = random.Random(self.rng.random())
        producer = KafkaProducer(config, self.network, self.clock, rng, monitor)
        monitor.producer = producer
        return producer

    def append(self, records: list[tuple[bytes | None, bytes | None]], topic: str = "t") -> None:
        """Append (key, value) rows."""
        self.producer.append(
            arrow_batch(records), ColumnPositions(value=1, key=0, topic_option=topic)
        )

    def append_to(self, partition: int, values: list[bytes], topic: str = "t") -> None:
        """Append rows to one partition."""
        batch = pa.record_batch(
            [pa.array(values, pa.binary()), pa.array([partition] * len(values), pa.int32())],
            names=["value", "partition"],
        )
        self.producer.append(batch, ColumnPositions(value=0, partition=1, topic_option=topic))

    def step(self, times: int = 1) -> None:
        """Let the sender run."""
        for _ in range(times):
            self.producer.sender.run_once(self.clock.ms)

    def run_for(self, duration_ms: int) -> None:
        """Let the sender run for a while."""
        end_ms = self.clock.ms + duration_ms
        self.scheduler.after(duration_ms, self.network.wakeup)
        while self.clock.ms < end_ms:
            self.step()

    def values(self, topic: str = "t") -> dict[int, list[bytes | None]]:
        """Values in each partition's log, in order."""
        return {i: [r.value for r in rs] for i, rs in self.cluster.records(topic).items()}

    def all_values(self, topic: str = "t") -> list[bytes | None]:
        return sorted(v for values in self.values(topic).values() for v in values)  # type: ignore[type-var]


def simulate(seed: int = 0, partitions: int = 3, **options: Any) -> Simulation:
    """A simulation with a topic ``t``."""
    simulation = Simulation(seed, **options)
    simulation.cluster.create_topic("t", partitions)
    return simulation


def arrow_batch(records: list[tuple[bytes | None, bytes | None]]) -> Any:
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return pa.record_batch([keys, values], names=["key", "value"])


def keyed(count: int, size: int = 20) -> list[tuple[bytes | None, bytes | None]]:
    """``count`` rows with distinct keys and values."""
    return [(b"k%d" % i, (b"v%d-" % i).ljust(size, b".")) for i in range(count)]


def partition_of(key: bytes, partitions: int) -> int:
    return twin.partition_for_key(key, partitions)
