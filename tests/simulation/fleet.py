"""Thousands of real producers in one simulated world, and brokers that can only do so much at once.

Producers take turns in one thread: each runs its sender when something has arrived for it, or when
the wait that it asked for is over. What a broker does takes time of one of its threads; what comes
while all are busy waits.
"""

from __future__ import annotations

import heapq
import json
import random
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import pyarrow as pa

from spark_kafka_sink.base import text
from spark_kafka_sink.base.model import ColumnPositions, TopicsPlan
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import KafkaProducer
from tests.simulation.cluster import SimCluster
from tests.simulation.network import ClientNetwork, SimNetwork
from tests.simulation.sasl import USERS, Sasl, options_of
from tests.simulation.time import Scheduler, SimClock

NOTHING_YET = -1
# No topic changes.
_PLAN = TopicsPlan("of the fleet", {})
_METADATA_KEY = 3


@dataclass(frozen=True)
class Capacity:
    """A broker's threads, and microseconds of one of them per connection, request, and partition
    of a metadata answer. ``benchmarks/broker_costs.py`` of 2e1d4af7 has measured them.
    """

    threads: int
    connection_us: float
    request_us: float
    partition_us: float


class BusyBroker:
    """What one broker has to do, thread by thread, and how long work had to wait."""

    def __init__(self, capacity):
        self.capacity = capacity
        self._free_at_us = [0.0] * capacity.threads
        self.longest_wait_ms = 0

    def serve(self, now_ms, cost_us):
        """After how many milliseconds work is done that comes now."""
        free_at_us = max(heapq.heappop(self._free_at_us), now_ms * 1000)
        done_at_us = free_at_us + cost_us
        heapq.heappush(self._free_at_us, done_at_us)
        self.longest_wait_ms = max(self.longest_wait_ms, int(free_at_us / 1000) - now_ms)
        return round(done_at_us / 1000) - now_ms


@dataclass
class Traffic:
    """What brokers were asked since the counts were last begun anew.

    Both peaks: of one broker, in any tenth of a second.
    """

    connections: Counter[tuple[str, int]] = field(default_factory=Counter)
    metadata: Counter[tuple[str, int]] = field(default_factory=Counter)
    given_up: int = 0

    def report(self):
        return {
            "connections": self.connections.total(),
            "connections_peak": max(self.connections.values(), default=0),
            "given_up": self.given_up,
            "metadata_requests": self.metadata.total(),
            "metadata_peak": max(self.metadata.values(), default=0),
        }


class FleetNetwork(ClientNetwork):
    """One producer's network: nothing waits in it, and brokers take their time."""

    def __init__(self, fleet, on_news):
        super().__init__(fleet.network)
        self._fleet, self._on_news = fleet, on_news
        self.asked_to_wait_ms = 0

    def poll(self, timeout_ms):
        """What has arrived. The fleet lets the producer run again when the wait would be over."""
        self.polls += 1
        events, self._events = self._events, []
        self.asked_to_wait_ms = 0 if events or self._is_woken else timeout_ms
        self._is_woken = False
        return events

    def wakeup(self):
        super().wakeup()
        self._on_news()

    def disconnect(self, channel_id):
        channel = self._channels.get(channel_id)
        if channel is not None and not channel.is_connected:
            self._fleet.traffic.given_up += 1
        super().disconnect(channel_id)

    def _tell(self, event):
        super()._tell(event)
        self._on_news()

    def _finish_connect(self, channel):
        """A broker shakes hands with who has given up, too: it cannot know."""
        self._fleet.traffic.connections[self._fleet.at(channel.server)] += 1
        cost_us = self._fleet.capacity.connection_us
        super_finish = super()._finish_connect
        self._fleet.served(channel.server, cost_us, lambda: super_finish(channel))

    def _deliver(self, channel):
        if not channel.to_server:
            return
        (api_key,) = struct.unpack_from(">h", channel.to_server, 4)
        capacity, cost_us = self._fleet.capacity, self._fleet.capacity.request_us
        if api_key == _METADATA_KEY:
            self._fleet.traffic.metadata[self._fleet.at(channel.server)] += 1
            cost_us += capacity.partition_us * self._fleet.partitions
        super_deliver = super()._deliver
        self._fleet.served(channel.server, cost_us, lambda: super_deliver(channel))


class _NeverWaits:
    """A Monitor of a producer whose task never has to wait."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def wait(self, timeout_ms):
        raise AssertionError("a producer of the fleet has to wait")

    def notify_all(self):
        return None


class Member:
    """One producer of the fleet. ``acknowledged_at_ms``: when all that it had was."""

    def __init__(self, fleet, number, config, topic):
        self._fleet, self._number = fleet, number
        self._topic = topic
        self.network = FleetNetwork(fleet, lambda: fleet.wake(number, fleet.clock.ms))
        rng = random.Random(fleet.rng.random())
        self.producer = KafkaProducer(config, self.network, fleet.clock, rng, _NeverWaits())
        self.next_at_ms = 1 << 62
        self._to_append = None
        self._rows_count = NOTHING_YET
        self.acknowledged_at_ms = None

    def expect_rows(self):
        """It will get rows, and is not done before they are acknowledged."""
        self._rows_count, self.acknowledged_at_ms = NOTHING_YET, None

    def append(self, arrow_batch, positions):
        """Have rows to write, from now on: they are appended once metadata is there."""
        self._to_append, self._rows_count = (arrow_batch, positions), arrow_batch.num_rows
        self.producer.begin_task([self._topic], _PLAN)
        self._fleet.wake(self._number, self._fleet.clock.ms)

    def run(self):
        """One round, and when to have the next."""
        now_ms = self._fleet.clock.ms
        self.next_at_ms = 1 << 62
        if self._to_append is not None and self._knows_topic():
            arrow_batch, positions = self._to_append
            self._to_append = None
            self.producer.append(arrow_batch, positions)
        self.producer.sender.run_once(now_ms)
        if self.acknowledged_at_ms is None and self._is_acknowledged():
            self.acknowledged_at_ms = now_ms
        self._fleet.wake(self._number, now_ms + self.network.asked_to_wait_ms)

    def _knows_topic(self):
        return self._topic in self.producer._metadata.snapshot.topics

    def _is_acknowledged(self):
        report = self.producer.report
        return sum(partition.records for partition in report.values()) == self._rows_count


class Fleet:
    """``size`` producers of one topic, and the brokers that they write to."""

    def __init__(self, size, cluster, capacity, sasl=None, **options):
        """``cluster``: how many brokers, partitions, and replicas of each. sasl: brokers want it"""
        brokers, partitions, replicas = cluster
        self.rng = random.Random(size)
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(1))
        self.cluster = SimCluster(self.network, self.scheduler, random.Random(2), brokers)
        self.cluster.create_topic("t", partitions, replicas)
        if sasl is not None:
            self.cluster.enable_sasl(sasl)
            options = {**options_of(sasl), **options}
        self.capacity, self.partitions = capacity, partitions
        self.traffic = Traffic()
        self._busy = {broker.host: BusyBroker(capacity) for broker in self.cluster.brokers.values()}
        self._queue = []
        values = {"bootstrap.servers": self.cluster.bootstrap_servers, "buffer.memory": "65536"}
        values.update({name.replace("_", "."): value for name, value in options.items()})
        config = ProducerConfig.parse(values)
        self.members = [Member(self, number, config, "t") for number in range(size)]

    def wake(self, number, at_ms):
        """Let a producer run at ``at_ms``, unless it runs before that anyway."""
        member = self.members[number]
        if at_ms < member.next_at_ms:
            member.next_at_ms = at_ms
            heapq.heappush(self._queue, (at_ms, number))

    def at(self, server):
        """Which broker, in which tenth of a second."""
        return server.host, self.clock.ms // 100

    def served(self, server, cost_us, then):
        """``then`` happens when the broker has done what it has to do."""
        delay_ms = self._busy[server.host].serve(self.clock.ms, cost_us)
        self.scheduler.after(delay_ms, then)

    def longest_wait_ms(self):
        """For a thread of a broker; counted anew from now on."""
        longest = max(busy.longest_wait_ms for busy in self._busy.values())
        for busy in self._busy.values():
            busy.longest_wait_ms = 0
        return longest

    def run_until(self, is_over, most_ms):
        """Go on until ``is_over``, which is asked whenever the clock moves; at most for ``most_ms``."""
        until_ms = self.clock.ms + most_ms
        while not is_over():
            self._run_due()
            upcoming = [until_ms]
            if self._queue:
                upcoming.append(self._queue[0][0])
            next_at_ms = self.scheduler.next_at_ms()
            if next_at_ms is not None:
                upcoming.append(next_at_ms)
            self.clock.ms = max(self.clock.ms, min(upcoming))
            if self.clock.ms >= until_ms:
                return

    def _run_due(self):
        self.scheduler.run_due()
        due = set()
        while self._queue and self._queue[0][0] <= self.clock.ms:
            at_ms, number = heapq.heappop(self._queue)
            if at_ms == self.members[number].next_at_ms:
                due.add(number)
        for number in sorted(due):
            self.members[number].run()

    def failures(self):
        found = (member.producer.accumulator.failure for member in self.members)
        return [failure for failure in found if failure is not None]

    def waiting(self):
        """Members that have something that is not acknowledged."""
        return (m for m in self.members if m.acknowledged_at_ms is None)


# --- all start at once, and a broker restarts ---------------------------------------------------

BROKERS, PARTITIONS, REPLICAS = 6, 12, 2
_START_WITHIN_MS = 1_000
_FAILOVER_MS = 1_000
_DOWN_MS = 30_000
_APPEND_WITHIN_MS = 5_000
_PATIENCE_MS = 600_000


def rows():
    """One row for each partition: a producer of keyed rows is connected to all brokers."""
    partitions = pa.array(range(PARTITIONS), pa.int32())
    values = pa.array([b"x" * 100] * PARTITIONS, pa.binary())
    batch = pa.record_batch([values, partitions], names=["value", "partition"])
    return batch, ColumnPositions(value=0, partition=1, topic_option="t")


class Storms:
    """The steps that a fleet goes through, and what each of them was."""

    def __init__(self, size, capacity, mechanism=None, **options):
        self.sasl = None if mechanism is None else Sasl(mechanism, dict(USERS))
        self.fleet = Fleet(size, (BROKERS, PARTITIONS, REPLICAS), capacity, self.sasl, **options)
        self.steps = {}
        self._rows = rows()

    def start(self, within_ms):
        """Every task of a stage begins."""
        self._append_all(within_ms)
        self._finish("start")

    def stop_broker(self):
        """Its connections are cut; the others lead its partitions a second later."""
        self.fleet.cluster.crash(1, _FAILOVER_MS)
        self._append_all(_APPEND_WITHIN_MS)
        self._finish("broker 1 stops")

    def restart_broker(self):
        """It leads again what it led before."""
        self._wait(_DOWN_MS)
        cluster = self.fleet.cluster
        cluster.restart(1)
        self._wait(1_000)
        for index, partition in enumerate(cluster.topics["t"].partitions):
            if partition.replicas[0] == 1:
                cluster.move_leader("t", index, 1)
        self.fleet.traffic = Traffic()
        self._append_all(_APPEND_WITHIN_MS)
        self._finish("broker 1 leads again")

    def _wait(self, duration_ms):
        self.fleet.run_until(lambda: False, duration_ms)

    def _append_all(self, within_ms):
        fleet = self.fleet
        for member in fleet.members:
            member.expect_rows()
            delay_ms = fleet.rng.randint(0, within_ms)
            fleet.scheduler.after(delay_ms, lambda m=member: m.append(*self._rows))

    def _finish(self, name):
        """Go on until everything is acknowledged or one has failed, and note what that took.

        RuntimeError: not everything was acknowledged, and a further step would say nothing
        """
        fleet = self.fleet
        began_ms = fleet.clock.ms
        last_look_ms = began_ms

        def is_over():
            nonlocal last_look_ms
            if fleet.clock.ms < last_look_ms + 100:
                return False
            last_look_ms = fleet.clock.ms
            return not any(True for _ in fleet.waiting()) or bool(fleet.failures())

        fleet.run_until(is_over, _PATIENCE_MS)
        took = sorted((m.acknowledged_at_ms or fleet.clock.ms) - began_ms for m in fleet.members)
        self.steps[name] = {
            "failed": len(fleet.failures()),
            "not_acknowledged": sum(1 for _ in fleet.waiting()),
            "median_ms": took[len(took) // 2],
            "last_ms": took[-1],
            "longest_wait_of_a_broker_ms": fleet.longest_wait_ms(),
            **fleet.traffic.report(),
        }
        fleet.traffic = Traffic()
        print(name, json.dumps(self.steps[name]), file=sys.stderr, flush=True)
        if self.steps[name]["not_acknowledged"]:
            failures = [str(failure) for failure in fleet.failures()]
            raise RuntimeError(f"{name}: {self.steps[name]}; {failures[:3]}")


def storms(size, capacity, mechanism=None, **options):
    """All steps, one after the other. mechanism: of SASL"""
    # Texts of brokers are searched for all secrets of the process. Here that is one for each producer,
    # all equal; a process of Spark has a few.
    with mock.patch.object(text, "known_secrets", return_value=set(USERS.values())):
        life = Storms(size, capacity, mechanism, **options)
        life.start(_START_WITHIN_MS)
        life.stop_broker()
        life.restart_broker()
    return life
