"""Host names: what they become, and that nobody waits for them."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS
from spark_kafka_sink.network import resolver
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.interface import Address, Disconnected, NetworkEvent, Resolved
from spark_kafka_sink.network.resolver import Resolver, canonical_addresses, look_up
from spark_kafka_sink.network.transport import SelectorNetwork

DEADLINE_S = 60
FOUND = Address(socket.AF_INET, ("10.0.0.1", 9092))


class NameServer:
    """Answers for names that begin with ``slow`` only when it is told to; addresses go past it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._getaddrinfo = socket.getaddrinfo
        self.may_answer = threading.Event()
        self.asked = threading.Semaphore(0)
        self.addresses: list[tuple[Any, ...]] = [(FOUND.family, FOUND.sockaddr)]
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, **more: Any) -> list[Any]:
        if not host.endswith(".example") or more.get("flags"):
            return self._getaddrinfo(host, port, **more)
        if host.startswith("slow"):
            self.asked.release()
            assert self.may_answer.wait(DEADLINE_S)
        return [(family, 0, 0, "", sockaddr) for family, sockaddr in self.addresses]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    name_server = NameServer(monkeypatch)
    yield name_server
    name_server.may_answer.set()


@pytest.fixture
def network() -> Iterator[SelectorNetwork]:
    network = SelectorNetwork()
    yield network
    network.close()


def next_event(network: SelectorNetwork) -> NetworkEvent:
    deadline = time.monotonic() + DEADLINE_S
    while not (events := network.poll(1_000)):
        assert time.monotonic() < deadline
    [event] = events
    return event


def test_a_name_with_several_addresses(network: SelectorNetwork, name_server: NameServer) -> None:
    four, six = ("10.0.0.1", 9092), ("::1", 9092, 0, 0)
    name_server.addresses = [
        (socket.AF_INET6, six),
        (socket.AF_INET, four),
        (socket.AF_INET6, six),
    ]
    network.resolve(7, "broker.example", 9092)
    addresses = [Address(socket.AF_INET6, six), Address(socket.AF_INET, four)]
    assert next_event(network) == Resolved(7, addresses)
    assert [str(address) for address in addresses] == ["::1", "10.0.0.1"]


@pytest.mark.parametrize("name", ["no-such-host.invalid", "kafka..test", f"{'k' * 64}.test"])
def test_a_name_that_does_not_exist(network: SelectorNetwork, name: str) -> None:
    """Also those that Python refuses to look up: an empty label, or one of 64 characters."""
    network.resolve(7, name, 9092)
    event = next_event(network)
    assert isinstance(event, Disconnected)
    assert event.channel_id == 7
    assert event.reason.startswith("host name: ")


def test_an_address_needs_no_thread(network: SelectorNetwork) -> None:
    network.resolve(7, "127.0.0.1", 9092)
    assert network.poll(0) == [
        Resolved(7, [Address(socket.AF_INET, ("127.0.0.1", 9092))]),
    ]
    assert network._resolver._threads_count == 0


def test_an_answer_ends_a_poll(network: SelectorNetwork, name_server: NameServer) -> None:
    network.resolve(7, "slow.example", 9092)
    assert name_server.asked.acquire(timeout=DEADLINE_S)
    assert network.poll(0) == []
    events: list[NetworkEvent] = []

    def poll() -> None:
        while not events:
            events.extend(network.poll(DEADLINE_S * 1_000))

    waiting = threading.Thread(target=poll, daemon=True)
    waiting.start()
    name_server.may_answer.set()
    waiting.join(DEADLINE_S)
    assert events == [Resolved(7, [FOUND])]


def test_a_slow_name_holds_up_neither_its_caller_nor_other_names(
    network: SelectorNetwork, name_server: NameServer
) -> None:
    network.resolve(1, "slow.example", 9092)
    assert name_server.asked.acquire(timeout=DEADLINE_S)
    network.resolve(2, "quick.example", 9092)
    assert next_event(network) == Resolved(2, [FOUND])
    name_server.may_answer.set()
    assert next_event(network) == Resolved(1, [FOUND])


def test_a_client_serves_its_other_nodes_while_a_name_is_looked_up(
    network: SelectorNetwork, name_server: NameServer
) -> None:
    """Whoever asks whether a node is ready may hold the producer's monitor."""
    clock = SystemClock()
    client = NetworkClient(DEFAULT_SETTINGS, network, clock, random.Random(1))
    slow = Node(1, "slow.example", 9092)
    asking = threading.Thread(target=client.ready, args=(slow, clock.now_ms()), daemon=True)
    asking.start()
    asking.join(DEADLINE_S / 4)
    assert not asking.is_alive(), "the look-up is waited for"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        quick = Node(2, *listener.getsockname())
        assert not client.ready(quick, clock.now_ms())
        client.poll(0, clock.now_ms())
        listener.accept()[0].close()
    assert client.poll_delay_ms(slow, clock.now_ms()) is None
    assert client.last_failure(slow) is None
    assert client.why_not_ready(slow) == "its host name is still being looked up"


def test_more_slow_names_than_threads_are_all_looked_up(name_server: NameServer) -> None:
    found = threading.Semaphore(0)
    names = 3 * resolver._MAX_THREADS
    looking = Resolver()
    for index in range(names):
        looking.resolve(f"slow{index}.example", 9092, lambda _: found.release())
    for _ in range(resolver._MAX_THREADS):
        assert name_server.asked.acquire(timeout=DEADLINE_S)
    assert looking._threads_count == resolver._MAX_THREADS
    assert not name_server.asked.acquire(blocking=False)
    name_server.may_answer.set()
    for _ in range(names):
        assert found.acquire(timeout=DEADLINE_S)


def test_a_closed_resolver_begins_no_look_up(name_server: NameServer) -> None:
    found: list[object] = []
    looking = Resolver()
    for index in range(2 * resolver._MAX_THREADS):
        looking.resolve(f"slow{index}.example", 9092, found.append)
    for _ in range(resolver._MAX_THREADS):
        assert name_server.asked.acquire(timeout=DEADLINE_S)
    looking.close()
    name_server.may_answer.set()
    deadline = time.monotonic() + DEADLINE_S
    while looking._threads_count and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert len(found) == resolver._MAX_THREADS


def test_no_thread_to_be_had(network: SelectorNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    network.resolve(7, "broker.example", 9092)
    assert network.poll(0) == [Disconnected(7, "host name: can't start new thread")]


def test_canonical_names(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    name_server.addresses = [
        (socket.AF_INET, ("10.0.0.1", 1)),
        (socket.AF_INET, ("10.0.0.2", 1)),
    ]
    names = {"10.0.0.1": "one.example", "10.0.0.2": "two.example"}
    monkeypatch.setattr(socket, "getnameinfo", lambda addr, flags: (names[addr[0]], "1"))
    expected = [("one.example", 9092), ("two.example", 9092)]
    twice = [("brokers.example", 9092), ("brokers.example", 9092)]
    assert canonical_addresses(twice) == expected


def test_a_name_without_addresses_stays_as_it_is() -> None:
    unknown = ("no-such-host.invalid", 9092)
    assert canonical_addresses([unknown]) == [unknown]
    assert isinstance(look_up(*unknown), OSError)
