"""Tasks of one query with a limit, in a simulated world: brokers, the driver's limit server, time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.limits import LimitAccess, LimitConfig
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.limits.ledger import Ledger
from spark_kafka_sink.producer.producer import KafkaProducer
from tests.simulation.cluster import SimCluster
from tests.simulation.network import Channel
from tests.simulation.processes import Actor, Process, World
from tests.simulation.python_process import ActorMonitor

TOKEN = "right"
PAUSE_PATH = "/held"
_PORT = 7000
_VALUE_BYTES = 1_000


class SimLimitServer:
    """The driver's server. held: whether the file of the pause is there"""

    host = "driver"

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_up = True
        self.held = False
        self.requests = 0
        self.restart()

    def restart(self) -> None:
        """All that it knew is gone."""
        self._ledger = Ledger(Secret(TOKEN), lambda path: self.held)
        self._received: dict[Channel, bytearray] = {}

    def stop(self) -> None:
        self.is_up = False
        self._world.network.cut_all(self, "Connection reset by peer")

    def receive(self, channel: Channel, data: bytes) -> None:
        received = self._received.setdefault(channel, bytearray())
        received += data
        while b"\n" in received:
            line, _, rest = received.partition(b"\n")
            received[:] = rest
            self.requests += 1
            answer = self._ledger.answer(bytes(line), self._world.clock.ms * 1_000_000)
            self._world.network.respond(channel, answer)


class LimitedTask(KafkaProducer):
    """A producer of one task, in a process of its own."""

    def __init__(self, world: World, process: Process, config: ProducerConfig) -> None:
        monitor = ActorMonitor(world)
        rng = random.Random(world.rng.random())
        super().__init__(config, process.new_network(), world.clock, rng, monitor)
        monitor.producer = self
        self.begin_task([])


class LimitedQuery:
    """A query's tasks. Options are the producer's, with underscores for dots."""

    def __init__(
        self,
        limits: LimitConfig,
        seed: int = 0,
        token: str = TOKEN,
        partitions: int = 6,
        **options: str,
    ):
        self.world = World(random.Random(seed))
        self.server = SimLimitServer(self.world)
        self.world.network.add_server(self.server.host, _PORT, self.server)
        self.cluster = SimCluster(
            self.world.network, self.world.scheduler, random.Random(seed + 1), 3
        )
        self.cluster.create_topic("t", partitions)
        values = {"bootstrap.servers": self.cluster.bootstrap_servers}
        values.update({name.replace("_", "."): value for name, value in options.items()})
        access = LimitAccess(limits, "query", self.server.host, _PORT, Secret(token))
        self.config = replace(ProducerConfig.parse(values), limits=access)
        self.tasks: list[LimitedTask] = []
        self.processes: list[Process] = []
        self._actors: list[Actor] = []

    def start(self, number: int, rows: int, before: Callable[[LimitedTask], None] | None = None):
        """A task that writes so many rows of 1,000 bytes. before: its first row"""
        process = Process(self.world, f"task-{number}")
        self.processes.append(process)

        def run() -> None:
            producer = LimitedTask(self.world, process, self.config)
            self.tasks.append(producer)
            if before is not None:
                before(producer)
            for at in range(0, rows, 200):
                count = min(200, rows - at)
                producer.append(
                    _rows(number, at, count), ColumnPositions(value=0, topic_option="t")
                )
            producer.flush()

        self._actors.append(self.world.spawn(process, run))

    def run(self, tasks: int = 0) -> int:
        """Until all tasks have ended; returns how many ms that took. Raises what one has raised.

        tasks: how many at least, where some are started later
        """
        started_ms = self.world.clock.ms
        try:
            self.world.run(lambda: self._are_done(tasks), 2_000_000)
            for actor in self._actors:
                if actor.error is not None and actor.process.is_alive:
                    raise actor.error
        finally:
            self.world.close()
        return self.world.clock.ms - started_ms

    def _are_done(self, tasks: int) -> bool:
        return len(self._actors) >= tasks and all(actor.is_done for actor in self._actors)

    def values(self) -> list[bytes]:
        """All that the brokers have, sorted."""
        logs = self.cluster.records("t").values()
        return sorted(bytes(record.value)[:12] for log in logs for record in log)

    @property
    def sent_bytes(self) -> int:
        """Of record batches, as they were sent."""
        return sum(p.compressed_bytes for task in self.tasks for p in task.report.values())


def expected(number: int, rows: int) -> list[bytes]:
    """What ``values`` has of one task."""
    return [b"%04d-%07d" % (number, row) for row in range(rows)]


def _rows(number: int, first: int, count: int) -> Any:
    values = [
        (b"%04d-%07d" % (number, row)).ljust(_VALUE_BYTES, b".")
        for row in range(first, first + count)
    ]
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])
