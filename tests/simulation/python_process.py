"""The Python processes that Spark starts, with the real code of the sink in them.

What modules keep between calls is a process's own: it is exchanged whenever another process runs.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

import pyspark

from spark_kafka_sink.base.errors import ProducerClosedError
from spark_kafka_sink.client.admin import AdminClient, bootstrap_addresses
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import ClientSettings
from spark_kafka_sink.producer.pool import ProducerPool
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.spark import task
from spark_kafka_sink.transactions import crash_points, operations, session
from spark_kafka_sink.transactions.model import WorkerTransactionalIds
from tests.simulation.monitor import SteppingMonitor
from tests.simulation.processes import Process, World


class ActorMonitor(SteppingMonitor):
    """Steps the sender for as long as the task waits; others go on meanwhile."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self._world = world

    def _step(self, producer: KafkaProducer, until_ms: int) -> None:
        producer.sender.run_once(self.clock.ms, until_ms)

    def _pass_time(self) -> None:
        self._world.sleep(1)


class TaskProducer(KafkaProducer):
    """What the pool of a Python worker keeps: a producer whose sender runs while its task waits."""

    def __init__(self, process: PythonProcess, config: ProducerConfig, topics: Sequence[str]):
        world = process.world
        monitor = ActorMonitor(world)
        rng = random.Random(world.rng.random())
        super().__init__(config, process.new_network(), world.clock, rng, monitor)
        monitor.producer = self
        self._process = process
        self._is_closed = False
        process.producer = self
        self.begin_task(topics)

    @property
    def is_healthy(self) -> bool:
        return self.is_clean and not self._is_closed

    def mark_idle(self, until_ms: int | None) -> None:
        """No task uses it from now on."""

    def reactivate(self) -> bool:
        self._process.producer = self
        return self.is_healthy

    def send_for(self, duration_ms: int) -> None:
        """The task computes; the sender goes on beside it."""
        clock = self._process.world.clock
        end_ms = clock.ms + duration_ms
        while clock.ms < end_ms:
            self.sender.run_once(clock.ms, end_ms)

    def close(self) -> None:
        self._is_closed = True
        self.client.close()
        if self.accumulator.failure is None:
            self.accumulator.fail(ProducerClosedError("the producer is closed"))


class PythonProcess(Process):
    """A Python worker, or one of the processes that plan and commit.

    local_dirs: what Spark tells all Python processes of one driver, and of no other.
    """

    def __init__(self, world: World, name: str, number: int, local_dirs: str) -> None:
        super().__init__(world, name)
        self.sessions: dict[Any, Any] = {}
        self.prepared_at_ms: dict[Any, int] = {}
        self.local_dirs = local_dirs
        self.slots = WorkerTransactionalIds(f"{number:012x}")
        self.pool = ProducerPool(self._create, world.clock)
        self.producer: TaskProducer | None = None

    def _create(self, config: ProducerConfig, topics: Sequence[str]) -> TaskProducer:
        return TaskProducer(self, config, topics)

    def compute_for(self, duration_ms: int) -> None:
        """For tasks: let time pass."""
        if self.producer is not None and self.producer.is_healthy:
            self.producer.send_for(duration_ms)
        else:
            self.world.sleep(duration_ms)

    def install(self) -> None:
        """Have the modules find what is this process's own."""
        session._sessions = self.sessions
        session._prepared_at_ms = self.prepared_at_ms
        task.TRANSACTIONAL_IDS = self.slots
        task.POOL = self.pool
        os.environ["SPARK_LOCAL_DIRS"] = self.local_dirs


class TaskContext:
    """As much of Spark's as the sink asks for. ``query_id``: None for a batch job."""

    def __init__(self, partition_id: int, attempt_number: int, query_id: str | None) -> None:
        self._partition_id = partition_id
        self._attempt_number = attempt_number
        self._query_id = query_id

    def partitionId(self) -> int:  # noqa: N802
        return self._partition_id

    def attemptNumber(self) -> int:  # noqa: N802
        return self._attempt_number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._query_id if name == "sql.streaming.queryId" else None


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing is logged: thousands of lives have much to tell."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def python_processes(world: World, on_point: Callable[[str], None]) -> Iterator[None]:
    """The sink's modules run in ``world``. ``on_point``: called at each named crash point."""

    class SimAdminClient(AdminClient):
        @classmethod
        def of(
            cls, config: ProducerConfig, clock: Any = None, patience_ms: int | None = None
        ) -> AdminClient:
            network = world.acting.process.new_network()
            rng = random.Random(world.rng.random())
            settings = ClientSettings.of(config)
            return AdminClient(bootstrap_addresses(config), settings, network, world.clock, rng)

    class CurrentContext:
        @staticmethod
        def get() -> TaskContext:
            context = world.acting.context
            assert isinstance(context, TaskContext)
            return context

    def install(process: Process) -> None:
        if isinstance(process, PythonProcess):
            process.install()

    world.on_switch = install
    ids = SimpleNamespace(uuid4=lambda: UUID(int=world.rng.getrandbits(128)))
    with (
        _silence(),
        mock.patch.object(session, "AdminClient", SimAdminClient),
        mock.patch.object(session, "_clock", world.clock),
        mock.patch.object(session, "uuid", ids),
        mock.patch.object(operations, "uuid", ids),
        mock.patch.object(session, "_sessions", {}),
        mock.patch.object(session, "_prepared_at_ms", {}),
        mock.patch.object(task, "TRANSACTIONAL_IDS", WorkerTransactionalIds("0" * 12)),
        mock.patch.object(task, "POOL", ProducerPool()),
        mock.patch.object(pyspark, "TaskContext", CurrentContext),
        mock.patch.object(crash_points, "_hook", on_point),
        mock.patch.dict(os.environ),
    ):
        try:
            yield
        finally:
            world.close()
