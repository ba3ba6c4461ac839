"""Brokers that take requests and never answer: they cost seconds, whichever they are."""

from __future__ import annotations

import random
import socket
import time

import pytest

from spark_kafka_sink.base.errors import BootstrapError, BrokerError
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.client.blocking import Call
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from spark_kafka_sink.protocol.messages.transactions import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.transactions.client import TransactionClient
from tests.simulation.time import SimClock
from tests.unit.batches import NODES
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork, Silence

OFFERED = {
    FindCoordinatorRequest: (0, 6),
    InitProducerIdRequest: (0, 5),
    MetadataRequest: (0, 12),
}
AT_MOST_MS = 10_000
MINUTE_MS = 60_000


class World:
    """Three brokers, all in the bootstrap list, and a client that knows them.

    coordinator: whom they name; moves_at_ms: when broker 3 takes over from it
    """

    def __init__(self) -> None:
        self.clock = SimClock(0)
        self.coordinator, self.moves_at_ms = 2, MINUTE_MS
        self.answers_to_init: list[type[Exception] | None] = []
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, OFFERED)
        self.network.features["transaction.version"] = 2
        bootstrap = [(node.host, node.port) for node in NODES.values()]
        self.admin = AdminClient(
            bootstrap, DEFAULT_SETTINGS, self.network, self.clock, random.Random(1)
        )
        self.client = TransactionClient(self.admin)

    def _answer(self, asked: Asked) -> schema.Message:
        if isinstance(asked.request, MetadataRequest):
            brokers = [MetadataResponseBroker(*node[:3]) for node in NODES.values()]
            return MetadataResponse(brokers=brokers)
        if isinstance(asked.request, FindCoordinatorRequest):
            node = NODES[3 if self.clock.ms >= self.moves_at_ms else self.coordinator]
            keys = asked.request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(k, *node[:3]) for k in keys])
        if self.answers_to_init and (failure := self.answers_to_init.pop(0)):
            raise failure
        return InitProducerIdResponse(producer_id=4_000, producer_epoch=1)

    def connect_to_all(self) -> None:
        for node in (*self.admin.bootstrap_nodes, *NODES.values()):
            assert self.admin.await_all([node], MINUTE_MS) == [node]

    def asked(self, request_type: type[schema.Request]) -> list[int]:
        return [a.node_id for a in self.network.asked if isinstance(a.request, request_type)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("hung", [1, 2, 3])
@pytest.mark.parametrize("is_connected", [True, False])
def test_one_of_the_bootstrap_list_hangs(world, hung, is_connected):
    if is_connected:
        world.connect_to_all()
    world.network.hung.add(hung)
    assert len(world.admin.nodes(MINUTE_MS)) == 3
    assert world.clock.ms <= 3_500


@pytest.mark.parametrize("hung", [1, 3])
def test_a_broker_that_hangs_and_does_not_coordinate(world, hung):
    world.connect_to_all()
    world.network.hung.add(hung)
    world.client.init_producer_id("q.0", 60_000, MINUTE_MS)
    assert world.clock.ms <= 3_500


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("moves_at_ms", [1_000, 8_000])
def test_a_coordinator_that_hangs_until_another_takes_over(world, is_connected, moves_at_ms):
    """The client is there within two seconds of that, or within the time of one answer."""
    if is_connected:
        world.connect_to_all()
    world.moves_at_ms = moves_at_ms
    if not is_connected:
        world.coordinator = 2
    world.network.hung.add(2)
    begun = world.client.init_producer_id("q.0", 60_000, MINUTE_MS)
    assert begun.producer == (4_000, 1)
    assert world.clock.ms <= AT_MOST_MS + 500
    assert world.asked(InitProducerIdRequest)[-1] == 3


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_broker_that_is_cut_off_from_the_others_and_names_itself(world, is_connected):
    """It is the first of the list, answers, and does not know that another one coordinates now:
    what it is asked to write waits for replicas that do not hear it.
    """

    def answer(asked):
        if asked.node_id == 1:
            world.coordinator = 1
            if isinstance(asked.request, InitProducerIdRequest):
                raise Silence
        else:
            world.coordinator = 2
        return world._answer(asked)

    world.network._script = answer
    if is_connected:
        world.connect_to_all()
    begun = world.client.init_producer_id("q.0", 60_000, MINUTE_MS)
    assert begun.producer == (4_000, 1)
    assert world.asked(InitProducerIdRequest) == [1, 2]
    assert world.clock.ms <= AT_MOST_MS


def test_a_slow_broker_has_twice_the_time_for_its_next_answer(world):
    """A request that takes its time must not be cut off for ever."""
    world.connect_to_all()
    started_ms: list[int] = []

    def note(asked):
        started_ms.append(world.clock.ms)
        raise Silence

    world.network._script = note
    with pytest.raises(BrokerError, match="InitProducerId: no answer of"):
        world.admin.request(NODES[1], InitProducerIdRequest(), 50_000)
    pauses = [b - a for a, b in zip(started_ms, started_ms[1:])]
    assert [round(pause / 1_000) for pause in pauses] == [3, 6, 12, 24]
    assert world.clock.ms == 50_000


def test_a_broker_that_stays_slow_keeps_its_longer_time_until_it_is_quick_again(world):
    """Else each of its answers would be waited for in vain first."""
    world.connect_to_all()
    given_up_ms: list[int] = []

    def ask(*answers_after_ms: int | None) -> None:
        """One request; its attempts are answered after so many ms, or never."""
        attempts = iter(answers_after_ms)

        def answer(asked):
            if (after_ms := next(attempts)) is None:
                raise Silence
            world.clock.ms += after_ms
            return InitProducerIdResponse()

        world.network._script = answer
        started_ms = world.clock.ms
        world.admin.request(NODES[1], InitProducerIdRequest(), started_ms + MINUTE_MS)
        given_up_ms.append(world.clock.ms - started_ms - sum(ms or 0 for ms in answers_after_ms))

    ask(None, 4_000)
    ask(4_000)
    ask(None, 100)
    ask(None, 100)
    assert [round(ms / 1_000) for ms in given_up_ms] == [3, 0, 6, 3]


def test_what_one_broker_leaves_unanswered_gives_no_other_more_time(world):
    """Else one that hangs later would cost more."""
    world.connect_to_all()
    world.network.hung.add(1)
    for _ in range(3):
        world.admin.request_all([Call(NODES[1], InitProducerIdRequest())], MINUTE_MS)
    world.network.hung.add(2)
    started_ms = world.clock.ms
    world.admin.request_all([Call(NODES[2], InitProducerIdRequest())], MINUTE_MS)
    assert world.clock.ms - started_ms <= 3_500


def test_one_broker_that_hangs_does_not_hold_up_the_answers_of_others(world):
    world.connect_to_all()
    world.network.hung.add(2)
    calls = [Call(node, InitProducerIdRequest()) for node in NODES.values()]
    answers = world.admin.request_all(calls, MINUTE_MS)
    assert [answer is None for answer in answers] == [False, True, False]
    assert world.clock.ms <= 3_500


@pytest.mark.parametrize("failure", [Silence, LoseConnection])
def test_the_version_of_a_transaction_is_that_of_its_answer(world, failure):
    """Even if the connection is gone when it is looked at: a wrong one ends it the wrong way."""
    world.connect_to_all()
    world.answers_to_init = [None, failure]
    begun = [world.client.init_producer_id(name, 60_000, MINUTE_MS) for name in ("q.0", "q.1")]
    assert [b.transaction_version for b in begun] == [2, 2]


def test_a_real_listener_that_never_answers():
    """The kernel takes the connection; nobody reads what is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with AdminClient.connect(f"127.0.0.1:{port}") as admin:
            started = time.monotonic()
            with pytest.raises(BootstrapError, match=f"127.0.0.1:{port}"):
                admin.metadata([], False, admin.deadline_in(500))
            # The client's clock counts whole milliseconds.
            assert time.monotonic() - started > 0.499
