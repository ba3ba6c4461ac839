"""Whom the sender asks for metadata: a busy cluster is not an unreachable one."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings, MetadataUpdater
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.time import SimClock
from tests.unit.batches import NODES
from tests.unit.scripted_network import ScriptedNetwork

OFFERED = {InitProducerIdRequest: (0, 5), MetadataRequest: (0, 12)}
BOOTSTRAP = ("bootstrap", 9092)


class World:
    """A cluster of three that is connected to, one request in flight each, metadata due."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.throttle_time_ms = 0
        nodes = {**NODES, -1: NODES[1]._replace(node_id=-1, host=BOOTSTRAP[0], port=BOOTSTRAP[1])}
        self.network = ScriptedNetwork(nodes, self.clock, self._answer, OFFERED)
        settings = ClientSettings("test", 30_000, 1, 50, 1_000, 10_000, 30_000, 540_000)
        self.client = NetworkClient(settings, self.network, self.clock, random.Random(1))
        backoff = ExponentialBackoff(100, 1_000, random.Random(1))
        self.metadata = Metadata(
            [BOOTSTRAP], MetadataSettings(300_000, 300_000, True, 300_000), backoff
        )
        self.updater = MetadataUpdater(self.metadata, self.client, ThreadMonitor(), False)
        self.metadata.update(self._brokers(), self.clock.ms)
        for node in NODES.values():
            while not self.client.ready(node, self.clock.ms):
                self.client.poll(0, self.clock.ms)
        self.clock.ms += 1_000
        self.network.connects.clear()
        self.metadata.request_update()

    def _brokers(self):
        return MetadataResponse(brokers=[MetadataResponseBroker(*n[:3]) for n in NODES.values()])

    def _answer(self, asked):
        if isinstance(asked.request, MetadataRequest):
            return self._brokers()
        return InitProducerIdResponse(throttle_time_ms=self.throttle_time_ms)

    def ask_each(self) -> None:
        for node in NODES.values():
            request = InitProducerIdRequest()
            self.client.send(node, request, self.clock.ms, lambda result, now_ms: None)

    def update(self) -> int:
        return self.updater.maybe_update(self.clock.ms)

    def is_asked(self) -> bool:
        return any(isinstance(asked.request, MetadataRequest) for asked in self.network.asked)

    def is_calm(self) -> bool:
        """Nobody was connected to, nothing is wrong, and nothing waits because of a failure."""
        is_due = self.metadata.time_to_next_update_ms(self.clock.ms) == 0
        return not self.network.connects and self.updater.last_failure is None and is_due


@pytest.fixture
def world() -> World:
    return World()


def test_brokers_that_are_all_sent_to_are_waited_for(world):
    world.ask_each()  # and not yet told that the requests are sent
    assert world.update() > 0
    assert world.is_calm()
    assert not world.is_asked()


def test_brokers_whose_connections_are_full_are_waited_for(world):
    world.network.hung |= {1, 2, 3}
    world.ask_each()
    world.client.poll(0, world.clock.ms)
    for _ in range(5):
        assert world.update() > 0
        world.client.poll(500, world.clock.ms)
    assert world.is_calm()
    assert world.metadata.candidate_nodes(world.clock.ms) == list(NODES.values())


def test_brokers_that_throttle_are_asked_when_that_is_over(world):
    world.throttle_time_ms = 3_000
    world.ask_each()
    throttled_at_ms = world.clock.ms
    world.client.poll(0, world.clock.ms)
    assert world.update() == 3_000
    assert world.is_calm()
    world.clock.ms = throttled_at_ms + 3_000
    world.update()
    assert world.is_asked()


def test_brokers_that_cannot_be_reached_are_told_with_their_reasons(world):
    for node_id in NODES:
        world.network.lose(node_id)
    world.network.down.add(-1)
    world.client.poll(0, world.clock.ms)
    for _ in range(10):
        world.client.poll(world.update(), world.clock.ms)
    failure = world.updater.last_failure or ""
    assert "no broker reachable" in failure
    assert "None" not in failure
    assert world.network.connects
