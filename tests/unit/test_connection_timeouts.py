"""How long a connection may take, and the pause before the next one."""

from __future__ import annotations

import pytest

from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from tests.simulation.time import SimClock
from tests.unit.batches import NODES
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork

NODE = NODES[1]
REQUEST_TIMEOUT_MS, SETUP_MS, LONGEST_SETUP_MS = 30_000, 10_000, 30_000
BACKOFF_MS, LONGEST_BACKOFF_MS = 50, 1_000
IDLE_MS, NEVER_MS = 540_000, -1


class NoJitter:
    def random(self) -> float:
        return 0.5


class World:
    """One client, and brokers whose connections break as soon as they are asked something."""

    def __init__(self, max_idle_ms: int = IDLE_MS) -> None:
        self.clock = SimClock(0)
        offered = {InitProducerIdRequest: (0, 5)}
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, offered)
        settings = ClientSettings(
            "test",
            REQUEST_TIMEOUT_MS,
            5,
            BACKOFF_MS,
            LONGEST_BACKOFF_MS,
            SETUP_MS,
            LONGEST_SETUP_MS,
            max_idle_ms,
        )
        self.client = NetworkClient(settings, self.network, self.clock, NoJitter())

    def _answer(self, asked):
        raise LoseConnection

    def fails_after(self) -> int:
        """Connect, wait until it fails; how long the attempt took."""
        self.wait_for_back_off()
        started_ms = self.clock.ms
        while self.client.poll_delay_ms(NODE, self.clock.ms) in (None, 0):
            self.client.ready(NODE, self.clock.ms)
            self.client.poll(1_000_000, self.clock.ms)
        return self.clock.ms - started_ms

    def wait_for_back_off(self) -> int:
        """How long it was."""
        delay_ms = self.client.poll_delay_ms(NODE, self.clock.ms)
        assert delay_ms is not None
        self.clock.ms += delay_ms
        return delay_ms

    def become_ready(self) -> None:
        self.wait_for_back_off()
        while not self.client.ready(NODE, self.clock.ms):
            self.client.poll(1_000, self.clock.ms)

    def lose_when_ready(self) -> None:
        self.become_ready()
        request = InitProducerIdRequest()
        self.client.send(NODE, request, self.clock.ms, lambda result, now_ms: None)
        while self.client.in_flight_count(NODE):
            self.client.poll(1_000, self.clock.ms)


@pytest.fixture
def world() -> World:
    return World()


def test_an_address_that_does_not_answer_has_longer_and_longer(world):
    world.network.unreachable.add(1)
    expected = [SETUP_MS, 2 * SETUP_MS, LONGEST_SETUP_MS, LONGEST_SETUP_MS]
    assert [world.fails_after() for _ in expected] == expected
    assert world.client.last_failure(NODE) == "no connection in time"


def test_the_first_question_has_the_time_of_any_question(world):
    """``socket.connection.setup.timeout.ms`` is for the connection alone, as its name says."""
    world.network.hung.add(1)
    assert [world.fails_after() for _ in range(3)] == [REQUEST_TIMEOUT_MS] * 3
    assert "request.timeout.ms" in (world.client.last_failure(NODE) or "")


def test_a_connection_that_was_good_does_not_make_the_next_attempt_longer(world):
    world.lose_when_ready()
    world.network.unreachable.add(1)
    assert world.fails_after() == SETUP_MS


def test_neither_does_a_broker_that_took_the_connection(world):
    world.network.hung.add(1)
    world.fails_after()
    world.network.unreachable.add(1)
    assert world.fails_after() == SETUP_MS


def test_the_pause_grows_until_a_connection_is_ready_again(world):
    """A lost connection that was ready counts as the first failure, as in the Java client."""
    world.network.down.add(1)
    pauses = []
    for _ in range(6):
        world.fails_after()
        pauses.append(world.client.poll_delay_ms(NODE, world.clock.ms))
    assert pauses == [50, 100, 200, 400, 800, 1_000]
    world.network.down.clear()
    world.lose_when_ready()
    assert world.wait_for_back_off() == BACKOFF_MS
    world.network.down.add(1)
    world.fails_after()
    assert world.wait_for_back_off() == 2 * BACKOFF_MS


def test_versions_are_asked_for_again_while_the_broker_wants_a_pause(world):
    """Finalized features change; whatever state the connection is in, the answer counts."""
    world.become_ready()
    world.network.features["transaction.version"] = 2
    answers = []
    request = ApiVersionsRequest("test", "1")
    world.client.send(NODE, request, world.clock.ms, lambda result, _: answers.append(result))
    world.client._connection(NODE).throttle(world.clock.ms, world.clock.ms + 1_000)
    world.client.poll(0, world.clock.ms)
    assert answers[0].failure is None
    versions = world.client.api_versions(NODE)
    assert versions is not None
    assert versions.transaction_version == 2


def test_a_connection_is_closed_when_it_was_idle_for_so_long(world):
    world.become_ready()
    ready_at_ms = world.clock.ms
    world.client.poll(10 * IDLE_MS, world.clock.ms)
    assert world.clock.ms == ready_at_ms + IDLE_MS
    assert not world.client.is_any_connected([NODE])
    assert world.client.last_failure(NODE) is None


def test_a_connection_may_be_idle_for_ever():
    world = World(NEVER_MS)
    world.become_ready()
    ready_at_ms = world.clock.ms
    world.client.poll(10 * IDLE_MS, world.clock.ms)
    assert world.clock.ms == ready_at_ms + 10 * IDLE_MS
    assert world.client.is_any_connected([NODE])


def test_the_request_that_was_sent_first_ends_the_wait(world):
    world.become_ready()
    world.network.hung.add(1)
    results = []
    started_ms = world.clock.ms
    for _ in range(2):
        while not world.client.ready(NODE, world.clock.ms):
            world.client.poll(1_000, world.clock.ms)
        request = InitProducerIdRequest()
        world.client.send(NODE, request, world.clock.ms, lambda result, _: results.append(result))
        world.client.poll(0, world.clock.ms)
        world.clock.ms += 10_000
    world.client.poll(10 * REQUEST_TIMEOUT_MS, world.clock.ms)
    assert world.clock.ms == started_ms + REQUEST_TIMEOUT_MS
    assert [result.is_timeout for result in results] == [True, True]


def test_nothing_is_due_while_a_name_is_looked_up(world, monkeypatch):
    """However long that takes: nor is it idle then."""
    monkeypatch.setattr(world.network, "resolve", lambda channel_id, host, port: None)
    assert not world.client.ready(NODE, world.clock.ms)
    world.client.poll(10 * IDLE_MS, world.clock.ms)
    assert world.clock.ms == 10 * IDLE_MS
