"""Several processes in one simulated world: real blocking code, one of them running at a time.

Each thing that goes on at the same time as others is an :class:`Actor`, a greenlet that runs only
while the world waits for it. It stops where it polls its network or sleeps; then the world lets the
next actor run that can, in a fixed order, and moves the clock when none can. A process is killed as
by SIGKILL: its actors end where they are, and what they do while they end has no effect on others.

The Python processes that Spark starts have the real code of the sink in them. What modules keep
between calls is a process's own: it is exchanged whenever another process runs.
"""

from __future__ import annotations

import logging
import os
import random
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock
from uuid import UUID

import pyspark
from greenlet import getcurrent, greenlet

from spark_kafka_sink.base.errors import ProducerClosedError
from spark_kafka_sink.network.admin import AdminClient, bootstrap_addresses
from spark_kafka_sink.network.client import ClientSettings
from spark_kafka_sink.producer.producer import KafkaProducer, ProducerPool
from spark_kafka_sink.spark import task
from spark_kafka_sink.transactions import crash_points, operations, session
from spark_kafka_sink.transactions.model import WorkerTransactionalIds
from tests.simulation.harness import SteppingMonitor
from tests.simulation.network import ClientNetwork, SimNetwork
from tests.simulation.time import Scheduler, SimClock

_NEVER = 1 << 62


class KilledError(BaseException):
    """The process was killed. Nothing of the package may catch this."""


class Process:
    """One process and its connections. ``is_given_up``: nobody waits for it; it may still run."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.is_alive = True
        self.frozen_until_ms = 0
        self.is_given_up = False
        self.actors = []
        self.networks = []

    @property
    def is_frozen(self):
        return self.world.clock.ms < self.frozen_until_ms

    def new_network(self):
        network = MemberNetwork(self.world.network, self)
        self.networks.append(network)
        return network

    def kill(self):
        """End it. Called from one of its own actors, it does not return."""
        self.is_alive = False
        for network in self.networks:
            network.close()
        if self.world.current in self.actors:
            raise KilledError(self.name)


class Actor:
    """Code that runs in a process, in a greenlet that runs or waits for its turn.

    After its end: ``result``, or ``error``, which is KilledError if its process was killed.
    """

    def __init__(self, world, process, action):
        self.world = world
        self.process = process
        self.is_done = False
        self.result = None
        self.error = None
        self.context = None
        self._action = action
        self._condition = None
        self._deadline_ms = 0
        self._greenlet = greenlet(self._run, world.root)
        process.actors.append(self)

    def _run(self):
        try:
            if not self.process.is_alive:
                raise KilledError(self.process.name)
            self.result = self._action()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self.process.actors.remove(self)

    def wait(self, condition, deadline_ms):
        """Let others run until ``condition`` holds or the deadline has come."""
        if not self.process.is_alive:
            raise KilledError(self.process.name)
        self._condition, self._deadline_ms = condition, deadline_ms
        self.world.root.switch()
        if not self.process.is_alive:
            raise KilledError(self.process.name)

    def go_on(self):
        """Run until it waits again or ends. Called by the world."""
        self._greenlet.switch()

    @property
    def may_run(self):
        if not self.process.is_alive:
            return True
        if self.process.is_frozen:
            return False
        is_due = self.world.clock.ms >= self._deadline_ms
        return is_due or (self._condition is not None and self._condition())

    @property
    def next_ms(self):
        return max(self._deadline_ms, self.process.frozen_until_ms)


class World:
    """Clock, network and actors. Exactly one actor runs at any time."""

    def __init__(self, rng):
        self.rng = rng
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(rng.random()))
        # What runs the world; every actor gives way to it.
        self.root = getcurrent()
        self.current = None
        self.on_switch = lambda process: None
        self.switches = 0
        self._actors = []

    def spawn(self, process, action):
        """Something new to go on, from the next turn."""
        actor = Actor(self, process, action)
        self._actors.append(actor)
        return actor

    @property
    def acting(self):
        """The actor that runs now."""
        assert self.current is not None, "nobody is running"
        return self.current

    def sleep(self, duration_ms):
        """For actors: let others run for that long."""
        self.acting.wait(None, self.clock.ms + duration_ms)

    def wait_for(self, condition, timeout_ms=None):
        """For actors: let others run until ``condition`` holds. Whether it does."""
        deadline_ms = _NEVER if timeout_ms is None else self.clock.ms + timeout_ms
        while not condition() and self.clock.ms < deadline_ms:
            self.acting.wait(condition, deadline_ms)
        return condition()

    def run(self, is_over, most_switches):
        """Go on until ``is_over``. Raises AssertionError if that takes too long, or never comes."""
        while not is_over():
            self.scheduler.run_due()
            ready = [actor for actor in self._actors if actor.may_run]
            if not ready:
                self._move_clock()
            for actor in ready:
                self._give_floor(actor)
            if self.switches > most_switches:
                raise AssertionError(f"more than {most_switches} switches: an actor does not end")

    def _give_floor(self, actor):
        self.switches += 1
        self.current = actor
        self.on_switch(actor.process)
        try:
            actor.go_on()
        finally:
            self.current = None
        if actor.is_done:
            self._actors.remove(actor)

    def _move_clock(self):
        upcoming = [actor.next_ms for actor in self._actors]
        next_at_ms = self.scheduler.next_at_ms()
        if next_at_ms is not None:
            upcoming.append(next_at_ms)
        assert upcoming, "everybody waits for something that nobody does"
        assert min(upcoming) < _NEVER, "everybody waits for something that nobody does"
        self.clock.ms = max(self.clock.ms, min(upcoming))

    def close(self):
        """End all actors, so that none is left."""
        for actor in self._actors:
            actor.process.is_alive = False
        while self._actors:
            for actor in list(self._actors):
                self._give_floor(actor)


class MemberNetwork(ClientNetwork):
    """The network of one client of a process: who waits for it lets the other actors run."""

    def __init__(self, root, process):
        super().__init__(root)
        self._process = process

    def connect(self, channel_id, address, host):
        if self._process.is_alive:
            super().connect(channel_id, address, host)

    def send(self, channel_id, buffers):
        return self._process.is_alive and super().send(channel_id, buffers)

    def poll(self, timeout_ms):
        self.polls += 1
        world = self._process.world
        if not self._has_news():
            world.acting.wait(self._has_news, world.clock.ms + timeout_ms)
        self._is_woken = False
        events, self._events = self._events, []
        return events

    def _has_news(self):
        return bool(self._events) or self._is_woken

    def close(self):
        super().close()
        if self in self._root.members:
            self._root.members.remove(self)


# --- Python processes ---------------------------------------------------------------------------


class ActorMonitor(SteppingMonitor):
    """Steps the sender for as long as the task waits; others go on meanwhile."""

    def __init__(self, world):
        super().__init__(world.clock)
        self._world = world

    def _step(self, producer, until_ms):
        producer.sender.run_once(self.clock.ms, until_ms)

    def _pass_time(self):
        self._world.sleep(1)


class TaskProducer(KafkaProducer):
    """What the pool of a Python worker keeps: a producer whose sender runs while its task waits."""

    def __init__(self, process, config, topics, plan):
        world = process.world
        monitor = ActorMonitor(world)
        rng = random.Random(world.rng.random())
        super().__init__(config, process.new_network(), world.clock, rng, monitor)
        monitor.producer = self
        self._process = process
        self._is_closed = False
        process.producer = self
        self.begin_task(topics, plan)

    @property
    def is_healthy(self):
        return self.is_clean and not self._is_closed

    def mark_idle(self, until_ms):
        """No task uses it from now on."""

    def reactivate(self):
        self._process.producer = self
        return self.is_healthy

    def send_for(self, duration_ms):
        """The task computes; the sender goes on beside it."""
        clock = self._process.world.clock
        end_ms = clock.ms + duration_ms
        while clock.ms < end_ms:
            self.sender.run_once(clock.ms, end_ms)

    def close(self):
        self._is_closed = True
        self.client.close()
        if self.accumulator.failure is None:
            self.accumulator.fail(ProducerClosedError("the producer is closed"))


class PythonProcess(Process):
    """A Python worker, or one of the processes that plan and commit.

    local_dirs: what Spark tells all Python processes of one driver, and of no other.
    """

    def __init__(self, world, name, number, local_dirs):
        super().__init__(world, name)
        self.sessions = {}
        self.prepared_at_ms = {}
        self.local_dirs = local_dirs
        # What the file metadata says in the checkpoint that this process can read.
        self.query_id = None
        self.slots = WorkerTransactionalIds(f"{number:012x}")
        self.pool = ProducerPool(self._create, world.clock)
        self.producer = None

    def _create(self, config, topics, plan):
        return TaskProducer(self, config, topics, plan)

    def compute_for(self, duration_ms):
        """For tasks: let time pass."""
        if self.producer is not None and self.producer.is_healthy:
            self.producer.send_for(duration_ms)
        else:
            self.world.sleep(duration_ms)

    def install(self):
        """Have the modules find what is this process's own."""
        session._sessions = self.sessions
        session._prepared_at_ms = self.prepared_at_ms
        task.TRANSACTIONAL_IDS = self.slots
        task.POOL = self.pool
        os.environ["SPARK_LOCAL_DIRS"] = self.local_dirs


class TaskContext:
    """As much of Spark's as the sink asks for. ``query_id``: None for a batch job."""

    def __init__(self, partition_id, attempt_number, query_id):
        self._partition_id = partition_id
        self._attempt_number = attempt_number
        self._query_id = query_id

    def partitionId(self):  # noqa: N802
        return self._partition_id

    def attemptNumber(self):  # noqa: N802
        return self._attempt_number

    def getLocalProperty(self, name):  # noqa: N802
        return self._query_id if name == "sql.streaming.queryId" else None


@contextmanager
def _silence():
    """Nothing is logged: thousands of lives have much to tell."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def python_processes(world, on_point):
    """The sink's modules run in ``world``. ``on_point``: called at each named crash point."""

    class SimAdminClient(AdminClient):
        @classmethod
        def of(cls, config, clock=None, patience_ms=None):
            network = world.acting.process.new_network()
            rng = random.Random(world.rng.random())
            settings = ClientSettings.of(config)
            return AdminClient(bootstrap_addresses(config), settings, network, world.clock, rng)

    class CurrentContext:
        @staticmethod
        def get():
            context = world.acting.context
            assert isinstance(context, TaskContext)
            return context

    def install(process):
        if isinstance(process, PythonProcess):
            process.install()

    world.on_switch = install

    def query_id_at(location):
        return world.acting.process.query_id

    ids = SimpleNamespace(uuid4=lambda: UUID(int=world.rng.getrandbits(128)))
    with (
        _silence(),
        mock.patch.object(session, "AdminClient", SimAdminClient),
        mock.patch.object(session, "_clock", world.clock),
        mock.patch.object(session, "uuid", ids),
        mock.patch.object(session, "query_id_at", query_id_at),
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
