"""Several processes in one simulated world: real blocking code, one of them running at a time.

Each thing that goes on at the same time as others is an :class:`Actor`, a greenlet that runs only
while the world waits for it. It stops where it polls its network or sleeps; then the world lets the
next actor run that can, in a fixed order, and moves the clock when none can. A process is killed as
by SIGKILL: its actors end where they are, and what they do while they end has no effect on others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from spark_kafka_sink.network.interface import Address, NetworkEvent
from spark_kafka_sink.protocol.types import Buffer
from tests.simulation.network import ClientNetwork, SimNetwork
from tests.simulation.time import Scheduler, SimClock

Condition = Callable[[], bool]

_NEVER = 1 << 62


class KilledError(BaseException):
    """The process was killed. Nothing of the package may catch this."""


class Process:
    """One process and its connections. ``is_given_up``: nobody waits for it; it may still run."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.frozen_until_ms = 0
        self.is_given_up = False
        self.actors: list[Actor] = []
        self.networks: list[MemberNetwork] = []

    @property
    def is_frozen(self) -> bool:
        return self.world.clock.ms < self.frozen_until_ms

    def new_network(self) -> MemberNetwork:
        network = MemberNetwork(self.world.network, self)
        self.networks.append(network)
        return network

    def kill(self) -> None:
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

    def __init__(self, world: World, process: Process, action: Callable[[], Any]) -> None:
        self.world = world
        self.process = process
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.context: Any = None
        self._action = action
        self._condition: Condition | None = None
        self._deadline_ms = 0
        self._greenlet = greenlet(self._run, world.root)
        process.actors.append(self)

    def _run(self) -> None:
        try:
            if not self.process.is_alive:
                raise KilledError(self.process.name)
            self.result = self._action()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self.process.actors.remove(self)

    def wait(self, condition: Condition | None, deadline_ms: int) -> None:
        """Let others run until ``condition`` holds or the deadline has come."""
        if not self.process.is_alive:
            raise KilledError(self.process.name)
        self._condition, self._deadline_ms = condition, deadline_ms
        self.world.root.switch()
        if not self.process.is_alive:
            raise KilledError(self.process.name)

    def go_on(self) -> None:
        """Run until it waits again or ends. Called by the world."""
        self._greenlet.switch()

    @property
    def may_run(self) -> bool:
        if not self.process.is_alive:
            return True
        if self.process.is_frozen:
            return False
        is_due = self.world.clock.ms >= self._deadline_ms
        return is_due or (self._condition is not None and self._condition())

    @property
    def next_ms(self) -> int:
        return max(self._deadline_ms, self.process.frozen_until_ms)


class World:
    """Clock, network and actors. Exactly one actor runs at any time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(rng.random()))
        # What runs the world; every actor gives way to it.
        self.root = getcurrent()
        self.current: Actor | None = None
        self.on_switch: Callable[[Process], None] = lambda process: None
        self.switches = 0
        self._actors: list[Actor] = []

    def spawn(self, process: Process, action: Callable[[], Any]) -> Actor:
        """Something new to go on, from the next turn."""
        actor = Actor(self, process, action)
        self._actors.append(actor)
        return actor

    @property
    def acting(self) -> Actor:
        """The actor that runs now."""
        assert self.current is not None, "nobody is running"
        return self.current

    def sleep(self, duration_ms: int) -> None:
        """For actors: let others run for that long."""
        self.acting.wait(None, self.clock.ms + duration_ms)

    def wait_for(self, condition: Condition, timeout_ms: int | None = None) -> bool:
        """For actors: let others run until ``condition`` holds. Whether it does."""
        deadline_ms = _NEVER if timeout_ms is None else self.clock.ms + timeout_ms
        while not condition() and self.clock.ms < deadline_ms:
            self.acting.wait(condition, deadline_ms)
        return condition()

    def run(self, is_over: Condition, most_switches: int) -> None:
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

    def _give_floor(self, actor: Actor) -> None:
        self.switches += 1
        self.current = actor
        self.on_switch(actor.process)
        try:
            actor.go_on()
        finally:
            self.current = None
        if actor.is_done:
            self._actors.remove(actor)

    def _move_clock(self) -> None:
        upcoming = [actor.next_ms for actor in self._actors]
        next_at_ms = self.scheduler.next_at_ms()
        if next_at_ms is not None:
            upcoming.append(next_at_ms)
        assert upcoming, "everybody waits for something that nobody does"
        assert min(upcoming) < _NEVER, "everybody waits for something that nobody does"
        self.clock.ms = max(self.clock.ms, min(upcoming))

    def close(self) -> None:
        """End all actors, so that none is left."""
        for actor in self._actors:
            actor.process.is_alive = False
        while self._actors:
            for actor in list(self._actors):
                self._give_floor(actor)


class MemberNetwork(ClientNetwork):
    """The network of one client of a process: who waits for it lets the other actors run."""

    def __init__(self, root: SimNetwork, process: Process) -> None:
        super().__init__(root)
        self._process = process

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        if self._process.is_alive:
            super().connect(channel_id, address, host)

    def send(self, channel_id: int, buffers: list[Buffer]) -> bool:  # type: ignore[override]
        return self._process.is_alive and super().send(channel_id, buffers)

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        self.polls += 1
        world = self._process.world
        if not self._has_news():
            world.acting.wait(self._has_news, world.clock.ms + timeout_ms)
        self._is_woken = False
        events, self._events = self._events, []
        return events

    def _has_news(self) -> bool:
        return bool(self._events) or self._is_woken

    def close(self) -> None:
        super().close()
        if self in self._root.members:
            self._root.members.remove(self)
