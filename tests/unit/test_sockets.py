"""Real loopback sockets under the selector: partial writes and reads, ends of all kinds, wake-ups;
and look-ups of names, which nothing waits for.

Every wait is for an event with a deadline; nothing sleeps.
"""

import contextlib
import os
import random
import resource
import selectors
import socket
import struct
import threading
import time

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network import transport
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS
from spark_kafka_sink.network.channels import (
    Address,
    Connected,
    Disconnected,
    PlaintextChannel,
    Received,
    RefusedError,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import NodeConnection, Outages
from spark_kafka_sink.network.transport import (
    Resolver,
    SelectorNetwork,
    canonical_addresses,
    look_up,
)

DEADLINE_S = 60
CHANNEL = 7
MIB = 1024 * 1024


class LikeKqueue(selectors.PollSelector):
    """As the selector of macOS: it lists a socket twice that can be written to and read."""

    def select(self, timeout=None):
        both = (selectors.EVENT_WRITE, selectors.EVENT_READ)
        return [
            (key, event) for key, mask in super().select(timeout) for event in both if mask & event
        ]


@pytest.fixture(params=[selectors.DefaultSelector, LikeKqueue])
def network(request, monkeypatch):
    monkeypatch.setattr(selectors, "DefaultSelector", request.param)
    network = SelectorNetwork()
    yield network
    network.close()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        yield listener


def address_of(listener):
    return Address(socket.AF_INET, listener.getsockname())


def until(network, is_done, poll_ms=1_000):
    """All events up to the one after which ``is_done(events)``."""
    events = []
    deadline = time.monotonic() + DEADLINE_S
    while not is_done(events):
        assert time.monotonic() < deadline, f"only {events}"
        events += network.poll(poll_ms)
    return events


def has(kind):
    return lambda events: any(isinstance(event, kind) for event in events)


def received_bytes(events):
    return b"".join(event.data for event in events if isinstance(event, Received))


@pytest.fixture
def peer(network, listener):
    """The broker's end of CHANNEL."""
    network.connect(CHANNEL, address_of(listener), "localhost")
    assert until(network, bool) == [Connected(CHANNEL)]
    accepted, _ = listener.accept()
    accepted.settimeout(DEADLINE_S)
    with accepted:
        yield accepted


def read_exactly(peer, size):
    data = bytearray()
    while len(data) < size:
        chunk = peer.recv(MIB)
        assert chunk, f"closed after {len(data)} bytes"
        data += chunk
    return bytes(data)


def reset(peer):
    """End the connection with RST instead of FIN."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


# --- connecting -----------------------------------------------------------------------------------


def test_a_connection_refused_and_an_address_that_cannot_be_reached_at_all(network):
    """There connect() itself fails; the reason comes with the next poll, which does not wait."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        network.connect(CHANNEL, address_of(unused), "localhost")
        assert until(network, bool) == [Disconnected(CHANNEL, "Connection refused")]
    network.send(CHANNEL, [b"too late"])
    assert network.poll(0) == []
    network.connect(CHANNEL, Address(socket.AF_INET, ("255.255.255.255", 1)), "localhost")
    [event] = until(network, bool)
    assert (type(event), event.channel_id) == (Disconnected, CHANNEL)
    assert event.reason


def test_socket_options(listener):
    network = SelectorNetwork(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    try:
        network.connect(CHANNEL, address_of(listener), "localhost")
        sock = network._channels[CHANNEL].socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux doubles what it is asked for.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (50_000, 100_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (60_000, 120_000)
    finally:
        network.close()


def test_a_socket_that_cannot_be_secured_is_closed():
    made = []

    def refuse(channel_id, sock, host):
        made.append(sock)
        raise RefusedError("no certificate")

    network = SelectorNetwork(open_channel=refuse)
    network.connect(1, Address(socket.AF_INET, ("127.0.0.1", 1)), "b")
    assert network.poll(0) == [Disconnected(1, "no certificate", is_refused=True)]
    assert made[0].fileno() == -1
    network.close()


class EndsWithItsHandshake(PlaintextChannel):
    """As a broker that refuses a certificate after the handshake of TLS 1.3, with bytes before."""

    def finish_connect(self):
        self.is_connected = True
        self.failure = RefusedError("bad certificate")
        return b"bytes"


def test_what_ends_a_connection_with_its_handshake_is_told_at_once(listener):
    network = SelectorNetwork(open_channel=EndsWithItsHandshake)
    network.connect(1, address_of(listener), "b")
    events = until(network, bool)
    network.close()
    assert events == [
        Connected(1),
        Received(1, b"bytes"),
        Disconnected(1, "bad certificate", is_refused=True),
    ]


# --- sending --------------------------------------------------------------------------------------


def test_small_requests_are_sent_at_once(network, peer):
    """Empty buffers are skipped: sendmsg of nothing else returns 0, again and again."""
    buffers = [b"", b"size", bytearray(b"header"), b"", memoryview(b"records")[:3], b""]
    assert network.send(CHANNEL, buffers)
    assert network.poll(0) == [], "complete already"
    assert read_exactly(peer, 13) == b"sizeheaderrec"
    for index in range(50):
        assert network.send(CHANNEL, [bytes([index]) * 10])
    assert read_exactly(peer, 500) == b"".join(bytes([index]) * 10 for index in range(50))


@pytest.mark.parametrize(
    "sizes",
    [[8 * MIB], [100] * 5_000 + [4 * MIB], [1] * 3_000, [65_536] * 200],
    ids=["one buffer", "many small ones and a large one", "more than one sendmsg takes", "pages"],
)
def test_a_request_larger_than_the_sockets_buffers(network, peer, sizes):
    """The peer reads only what it must for the rest to be written: every write is partial.

    A socket can nearly always be written to: interest in that must end with the request.
    """
    buffers = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    expected = b"".join(buffers)
    is_whole = network.send(CHANNEL, buffers)
    data = bytearray()
    peer.setblocking(False)

    def is_sent(events):
        try:
            data.extend(peer.recv(100_000))
        except BlockingIOError:
            pass
        return SendCompleted(CHANNEL) in events

    # The peer's reading drives it: a poll that waited for the peer would never end.
    if not is_whole:
        assert until(network, is_sent, poll_ms=0) == [SendCompleted(CHANNEL)]
    peer.settimeout(DEADLINE_S)
    data += read_exactly(peer, len(expected) - len(data))
    assert bytes(data) == expected
    assert network._selector.select(0) == [], "an idle channel does not keep poll awake"


def test_answers_arrive_while_a_request_is_being_written(network, peer):
    network.send(CHANNEL, [bytes(16 * MIB)])
    peer.sendall(b"answer")
    events = until(network, has(Received))
    assert received_bytes(events) == b"answer"
    assert SendCompleted(CHANNEL) not in events


class Renewing(PlaintextChannel):
    """Sends all that is left as soon as it reads, as TLS does with new keys."""

    def read(self):
        data = super().read()
        self.socket.settimeout(DEADLINE_S)
        while self.has_unsent:
            self.write()
        self.socket.setblocking(False)
        return data


def test_a_request_whose_rest_goes_with_what_a_channel_sends_by_itself_is_complete(listener):
    network = SelectorNetwork(open_channel=Renewing)
    network.connect(CHANNEL, address_of(listener), "localhost")
    until(network, has(Connected))
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(DEADLINE_S)
        network.send(CHANNEL, [bytes(16 * MIB)])
        peer.sendall(b"new keys")
        reading = threading.Thread(target=read_exactly, args=(peer, 16 * MIB))
        reading.start()
        events = until(network, has(Received))
        reading.join(DEADLINE_S)
    network.close()
    assert received_bytes(events) == b"new keys"
    assert has(SendCompleted)(events), "before its answer, which may come with the next poll"


def test_an_endless_answer_does_not_starve_the_other_channels(network, peer, listener):
    """One poll reads a bounded amount of each channel."""
    network.connect(8, address_of(listener), "localhost")
    until(network, bool)
    other, _ = listener.accept()
    with other:
        writer = threading.Thread(target=peer.sendall, args=(bytes(8 * MIB),), daemon=True)
        writer.start()
        other.sendall(b"small")
        events = until(
            network,
            lambda events: any(e.channel_id == 8 for e in events if isinstance(e, Received)),
        )
        assert len(received_bytes(events)) < 8 * MIB
        until(network, lambda events: not writer.is_alive())


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reason"),
    [(socket.socket.close, "closed by the broker"), (reset, "Connection reset by peer")],
)
def test_the_peer_ends_the_connection(network, peer, end, reason):
    end(peer)
    assert until(network, bool) == [Disconnected(CHANNEL, reason)]
    assert network._channels == {}
    assert network._selector.select(0) == []


def test_the_last_answer_comes_before_the_end(network, peer):
    peer.sendall(b"last words")
    peer.close()
    events = until(network, has(Disconnected))
    assert received_bytes(events) == b"last words"
    assert events[-1] == Disconnected(CHANNEL, "closed by the broker")


def test_the_peer_resets_while_a_request_is_being_written(network, peer):
    network.send(CHANNEL, [bytes(16 * MIB)])
    peer.recv(1)
    reset(peer)
    events = until(network, has(Disconnected))
    assert SendCompleted(CHANNEL) not in events
    assert sum(isinstance(event, Disconnected) for event in events) == 1


def test_a_send_that_fails_is_told_by_the_next_poll(network, peer):
    network._channels[CHANNEL].socket.shutdown(socket.SHUT_WR)
    network.send(CHANNEL, [b"request"])
    assert network.poll(0) == [Disconnected(CHANNEL, "Broken pipe")]


def test_a_channel_that_this_side_closes_tells_nothing_more(network, peer):
    peer.sendall(b"never read")
    network.disconnect(CHANNEL)
    network.disconnect(CHANNEL)
    network.disconnect(99)
    assert network.poll(0) == []
    # Unread bytes make the close a reset.
    with pytest.raises(ConnectionResetError):
        peer.recv(1)


def test_closing_closes_every_socket(listener):
    network = SelectorNetwork()
    for channel_id in range(3):
        network.connect(channel_id, address_of(listener), "localhost")
    until(network, lambda events: len(events) >= 3)
    sockets = [channel.socket for channel in network._channels.values()]
    network.close()
    assert [sock.fileno() for sock in sockets] == [-1] * 3
    network.wakeup()


# --- waking up ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 100_000])  # the last is more than a pipe holds
def test_wakeups_end_the_next_poll_only_and_write_nothing_to_a_thread_that_is_awake(network, count):
    for _ in range(count):
        network.wakeup()
    assert network._selector.select(0) == []
    started = time.monotonic()
    assert network.poll(10 * DEADLINE_S * 1_000) == []
    assert time.monotonic() - started < DEADLINE_S
    assert network._selector.select(0) == []
    started = time.monotonic()
    assert network.poll(50) == []
    assert time.monotonic() - started >= 0.04


def test_what_was_written_to_wake_a_poll_ends_no_other_one(network):
    for _ in range(2):  # the resolver's threads and the task may both find it waiting
        network._is_in_select = True
        network.wakeup()
    assert len(network._selector.select(0)) == 1
    assert network.poll(60_000) == []
    assert network._selector.select(0) == []


def test_no_wakeup_is_lost_between_two_threads(network):
    """Each poll waits for the wake-up that follows it: a lost one would stop both threads."""
    rounds, seen = 2_000, threading.Semaphore(0)

    def poll_again_and_again():
        for _ in range(rounds):
            network.poll(60_000)
            seen.release()

    poll = threading.Thread(target=poll_again_and_again, daemon=True)
    poll.start()
    deadline = time.monotonic() + DEADLINE_S
    while poll.is_alive() and time.monotonic() < deadline:
        network.wakeup()
        assert seen.acquire(timeout=DEADLINE_S)
    assert not poll.is_alive()


FOUND = Address(socket.AF_INET, ("10.0.0.1", 9092))


# --- names ----------------------------------------------------------------------------------------


class NameServer:
    """Answers for names that begin with ``slow`` only when it is told to; addresses go past it."""

    def __init__(self, monkeypatch):
        self._getaddrinfo = socket.getaddrinfo
        self.may_answer = threading.Event()
        self.asked = threading.Semaphore(0)
        self.addresses = [(FOUND.family, FOUND.sockaddr)]
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host, port, **more):
        if not host.endswith(".example") or more.get("flags"):
            return self._getaddrinfo(host, port, **more)
        if host.startswith("slow"):
            self.asked.release()
            assert self.may_answer.wait(DEADLINE_S)
        return [(family, 0, 0, "", sockaddr) for family, sockaddr in self.addresses]


@pytest.fixture
def name_server(monkeypatch):
    name_server = NameServer(monkeypatch)
    yield name_server
    name_server.may_answer.set()


def test_a_name_with_several_addresses(network, name_server):
    four, six = ("10.0.0.1", 9092), ("::1", 9092, 0, 0)
    name_server.addresses = [(socket.AF_INET6, six), (socket.AF_INET, four), (socket.AF_INET6, six)]
    network.resolve(7, "broker.example", 9092)
    addresses = [Address(socket.AF_INET6, six), Address(socket.AF_INET, four)]
    assert until(network, bool) == [Resolved(7, addresses)]
    assert [str(address) for address in addresses] == ["::1", "10.0.0.1"]


def test_a_first_address_that_nothing_answers_at_holds_nothing_up(network, name_server, listener):
    """As a load balancer with a dead zone. An attempt may take ten minutes here."""
    with contextlib.ExitStack() as open_ones:
        silent = open_ones.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        for _ in range(3):  # as many as wait to be accepted, and more: no further one is answered
            waiting = open_ones.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        name_server.addresses = [
            (socket.AF_INET, there.getsockname()) for there in (silent, listener)
        ]
        clock, patient_ms = SystemClock(), 600_000
        settings = DEFAULT_SETTINGS._replace(
            socket_connection_setup_timeout_ms=patient_ms,
            socket_connection_setup_timeout_max_ms=patient_ms,
        )
        client = NetworkClient(settings, network, clock, random.Random(1))
        node = Node(1, "zones.example", 9092)
        deadline = time.monotonic() + DEADLINE_S
        while not client.in_flight_count(node):
            assert time.monotonic() < deadline, client.why_not_ready(node, clock.now_ms())
            client.ready(node, clock.now_ms())
            client.poll(1_000, clock.now_ms())
        listener.accept()[0].close()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "kafka..test", f"{'k' * 64}.test"])
def test_a_name_that_does_not_exist(network, name):
    """Also those that Python refuses to look up: an empty label, or one of 64 characters."""
    network.resolve(7, name, 9092)
    [event] = until(network, bool)
    assert (type(event), event.channel_id) == (Disconnected, 7)
    assert event.reason.startswith("host name: ")


def test_an_address_needs_no_thread(network):
    network.resolve(7, "127.0.0.1", 9092)
    assert network.poll(0) == [Resolved(7, [Address(socket.AF_INET, ("127.0.0.1", 9092))])]
    assert network._resolver._threads_count == 0


def test_a_slow_name_holds_up_no_other_and_its_answer_ends_a_poll(network, name_server):
    network.resolve(1, "slow.example", 9092)
    assert name_server.asked.acquire(timeout=DEADLINE_S)
    network.resolve(2, "quick.example", 9092)
    assert until(network, bool) == [Resolved(2, [FOUND])]
    events = []

    def poll():
        while not events:
            events.extend(network.poll(DEADLINE_S * 1_000))

    waiting = threading.Thread(target=poll, daemon=True)
    waiting.start()
    name_server.may_answer.set()
    waiting.join(DEADLINE_S)
    assert events == [Resolved(1, [FOUND])]


def test_more_slow_names_than_threads_are_all_looked_up(name_server):
    found = threading.Semaphore(0)
    names = 3 * transport._MAX_THREADS
    looking = Resolver()
    for index in range(names):
        looking.resolve(f"slow{index}.example", 9092, lambda _: found.release())
    for _ in range(transport._MAX_THREADS):
        assert name_server.asked.acquire(timeout=DEADLINE_S)
    assert looking._threads_count == transport._MAX_THREADS
    assert not name_server.asked.acquire(blocking=False)
    name_server.may_answer.set()
    for _ in range(names):
        assert found.acquire(timeout=DEADLINE_S)


def test_a_closed_resolver_begins_no_look_up(name_server):
    found = []
    looking = Resolver()
    for index in range(2 * transport._MAX_THREADS):
        looking.resolve(f"slow{index}.example", 9092, found.append)
    for _ in range(transport._MAX_THREADS):
        assert name_server.asked.acquire(timeout=DEADLINE_S)
    looking.close()
    name_server.may_answer.set()
    deadline = time.monotonic() + DEADLINE_S
    while looking._threads_count and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert len(found) == transport._MAX_THREADS


def test_no_thread_to_be_had(network, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    network.resolve(7, "broker.example", 9092)
    assert network.poll(0) == [Disconnected(7, "host name: can't start new thread")]


@contextlib.contextmanager
def without_descriptors():
    """This process may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, hard))
    try:
        yield next_one
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_too_many_open_files_are_told_at_once_and_what_to_do(network, host, caplog):
    """An error of this machine: no other broker would do, and nothing is to be waited for."""
    clock = SystemClock()
    client = NetworkClient(DEFAULT_SETTINGS, network, clock, random.Random(0))
    client.outages = Outages()
    node = Node(1, host, 9092, None)
    deadline = time.monotonic() + DEADLINE_S
    with without_descriptors() as limit:
        while not client.last_failure(node) and time.monotonic() < deadline:
            client.ready(node, clock.now_ms())
            client.poll(1_000, clock.now_ms())
        with pytest.raises(KafkaSinkError, match="Too many open files"):
            SelectorNetwork()
    assert "Too many open files: " in client.last_failure(node)
    assert f"ulimit -n is {limit}. Raise" in client.last_failure(node)
    (line,) = caplog.messages
    assert line.startswith("no connection to broker 1 ")
    assert line.endswith("[PKS-CONNECT-011]")
    client.outages.note_usable(NodeConnection(node), 0)


def test_canonical_names(name_server, monkeypatch):
    name_server.addresses = [(socket.AF_INET, ("10.0.0.1", 1)), (socket.AF_INET, ("10.0.0.2", 1))]
    names = {"10.0.0.1": "one.example", "10.0.0.2": "two.example"}
    monkeypatch.setattr(socket, "getnameinfo", lambda addr, flags: (names[addr[0]], "1"))
    expected = [("one.example", 9092), ("two.example", 9092)]
    assert canonical_addresses([("brokers.example", 9092)] * 2) == expected
    unknown = ("no-such-host.invalid", 9092)
    assert canonical_addresses([unknown]) == [unknown]
    assert isinstance(look_up(*unknown), OSError)


def test_names_are_looked_up_for_as_long_as_a_client_lives():
    """Threads that have ended make room for others: there are 8 at most at a time."""
    found = []

    def begin(take):
        while (asked := take()) is not None:
            asked.on_found(OSError("no such name"))

    transport = Resolver(begin)
    for number in range(20):
        transport.resolve(f"b{number}.example", 9092, found.append)
    assert len(found) == 20
