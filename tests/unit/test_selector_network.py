"""Real loopback sockets under the selector: partial writes and reads, ends of all kinds.

Every wait is for an event with a deadline; nothing sleeps.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_kafka_sink.network.channels import PlaintextChannel
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    NetworkEvent,
    Received,
    SendCompleted,
)
from spark_kafka_sink.network.transport import SelectorNetwork

DEADLINE_S = 20
CHANNEL = 7
MIB = 1024 * 1024


@pytest.fixture
def network() -> Iterator[SelectorNetwork]:
    network = SelectorNetwork()
    yield network
    network.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        yield listener


def address_of(listener: socket.socket) -> Address:
    return Address(socket.AF_INET, listener.getsockname())


def until(
    network: SelectorNetwork, is_done: Callable[[list[NetworkEvent]], Any], poll_ms: int = 1_000
) -> list[NetworkEvent]:
    """All events up to the one after which ``is_done(events)``."""
    events: list[NetworkEvent] = []
    deadline = time.monotonic() + DEADLINE_S
    while not is_done(events):
        assert time.monotonic() < deadline, f"only {events}"
        events += network.poll(poll_ms)
    return events


def has(kind: type) -> Callable[[list[NetworkEvent]], bool]:
    return lambda events: any(isinstance(event, kind) for event in events)


def received_bytes(events: list[NetworkEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Received))


@pytest.fixture
def peer(network: SelectorNetwork, listener: socket.socket) -> Iterator[socket.socket]:
    """The broker's end of CHANNEL."""
    network.connect(CHANNEL, address_of(listener), "localhost")
    assert until(network, bool) == [Connected(CHANNEL)]
    accepted, _ = listener.accept()
    accepted.settimeout(DEADLINE_S)
    with accepted:
        yield accepted


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = peer.recv(MIB)
        assert chunk, f"closed after {len(data)} bytes"
        data += chunk
    return bytes(data)


def reset(peer: socket.socket) -> None:
    """End the connection with RST instead of FIN."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


# --- connecting -----------------------------------------------------------------------------------


def test_a_connection_refused(network: SelectorNetwork) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        network.connect(CHANNEL, address_of(unused), "localhost")
        [event] = until(network, bool)
    assert event == Disconnected(CHANNEL, "Connection refused")
    network.send(CHANNEL, [b"too late"])
    assert network.poll(0) == []


def test_an_address_that_cannot_be_reached_at_all(network: SelectorNetwork) -> None:
    """connect() itself fails; the reason comes with the next poll, which does not wait."""
    network.connect(CHANNEL, Address(socket.AF_INET, ("255.255.255.255", 1)), "localhost")
    [event] = until(network, bool)
    assert isinstance(event, Disconnected)
    assert event.channel_id == CHANNEL
    assert event.reason


def test_several_connections_at_once(network: SelectorNetwork, listener: socket.socket) -> None:
    for channel_id in range(5):
        network.connect(channel_id, address_of(listener), "localhost")
    events = until(network, lambda events: len(events) >= 5)
    assert sorted(events) == [Connected(channel_id) for channel_id in range(5)]


def test_socket_options(listener: socket.socket) -> None:
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


# --- sending --------------------------------------------------------------------------------------


def test_a_small_request_is_sent_at_once(network: SelectorNetwork, peer: socket.socket) -> None:
    network.send(CHANNEL, [b"size", bytearray(b"header"), memoryview(b"records")[:3]])
    assert network.poll(0) == [SendCompleted(CHANNEL)]
    assert read_exactly(peer, 13) == b"sizeheaderrec"


@pytest.mark.parametrize(
    "sizes",
    [[8 * MIB], [100] * 5_000 + [4 * MIB], [1] * 3_000, [65_536] * 200],
    ids=["one buffer", "many small ones and a large one", "more than one sendmsg takes", "pages"],
)
def test_a_request_larger_than_the_sockets_buffers(
    network: SelectorNetwork, peer: socket.socket, sizes: list[int]
) -> None:
    """The peer reads only what it must for the rest to be written: every write is partial."""
    buffers = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    expected = b"".join(buffers)
    network.send(CHANNEL, buffers)
    data = bytearray()
    peer.setblocking(False)

    def is_sent(events: list[NetworkEvent]) -> bool:
        try:
            data.extend(peer.recv(100_000))
        except BlockingIOError:
            pass
        return SendCompleted(CHANNEL) in events

    # The peer's reading drives it: a poll that waited for the peer would never end.
    assert until(network, is_sent, poll_ms=0) == [SendCompleted(CHANNEL)]
    peer.settimeout(DEADLINE_S)
    data += read_exactly(peer, len(expected) - len(data))
    assert bytes(data) == expected


def test_one_request_after_another(network: SelectorNetwork, peer: socket.socket) -> None:
    for index in range(50):
        network.send(CHANNEL, [bytes([index]) * 10])
        assert until(network, bool) == [SendCompleted(CHANNEL)]
    assert read_exactly(peer, 500) == b"".join(bytes([index]) * 10 for index in range(50))


def test_answers_arrive_while_a_request_is_being_written(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    network.send(CHANNEL, [bytes(16 * MIB)])
    peer.sendall(b"answer")
    events = until(network, has(Received))
    assert received_bytes(events) == b"answer"
    assert SendCompleted(CHANNEL) not in events


class Renewing(PlaintextChannel):
    """Sends all that is left as soon as it reads, as TLS does with new keys."""

    def read(self) -> bytes:
        data = super().read()
        self.socket.settimeout(DEADLINE_S)
        while self.has_unsent:
            self.write()
        self.socket.setblocking(False)
        return data


def test_a_request_whose_rest_goes_with_what_a_channel_sends_by_itself_is_complete(
    listener: socket.socket,
) -> None:
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


def test_an_idle_channel_does_not_keep_poll_awake(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    """A socket can nearly always be written to: interest in that must end with the request."""
    network.send(CHANNEL, [bytes(4 * MIB)])
    reader = threading.Thread(target=read_exactly, args=(peer, 4 * MIB), daemon=True)
    reader.start()
    until(network, has(SendCompleted))
    reader.join(DEADLINE_S)
    assert network._selector.select(0) == []


def test_an_empty_buffer_does_not_stop_the_rest() -> None:
    """sendmsg of nothing but empty buffers returns 0, again and again."""

    class Socket:
        calls = 0

        def sendmsg(self, buffers: list[memoryview]) -> int:
            self.calls += 1
            assert self.calls < 10, "writes nothing for ever"
            return sum(len(buffer) for buffer in buffers)

    sock: Any = Socket()
    channel = PlaintextChannel(CHANNEL, sock)
    channel.queue([b"", b"data", b""])
    channel.write()
    assert not channel.has_unsent


# --- receiving ------------------------------------------------------------------------------------


def test_bytes_arrive_in_order_in_chunks_of_any_size(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    expected = bytes(range(256)) * 4_000
    writer = threading.Thread(target=peer.sendall, args=(expected,), daemon=True)
    writer.start()
    events = until(network, lambda events: len(received_bytes(events)) >= len(expected))
    writer.join(DEADLINE_S)
    assert received_bytes(events) == expected
    assert all(isinstance(event, Received) for event in events)


def test_byte_by_byte(network: SelectorNetwork, peer: socket.socket) -> None:
    for byte in b"answer":
        peer.sendall(bytes([byte]))
        assert until(network, bool) == [Received(CHANNEL, bytes([byte]))]


def test_an_endless_answer_does_not_starve_the_other_channels(
    network: SelectorNetwork, peer: socket.socket, listener: socket.socket
) -> None:
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


def test_the_peer_closes(network: SelectorNetwork, peer: socket.socket) -> None:
    peer.close()
    assert until(network, bool) == [Disconnected(CHANNEL, "closed by the broker")]
    assert network._channels == {}
    assert network._selector.select(0) == []


def test_the_last_answer_comes_before_the_end(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    peer.sendall(b"last words")
    peer.close()
    events = until(network, has(Disconnected))
    assert received_bytes(events) == b"last words"
    assert events[-1] == Disconnected(CHANNEL, "closed by the broker")


def test_the_peer_resets(network: SelectorNetwork, peer: socket.socket) -> None:
    reset(peer)
    assert until(network, bool) == [Disconnected(CHANNEL, "Connection reset by peer")]


def test_the_peer_resets_while_a_request_is_being_written(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    network.send(CHANNEL, [bytes(16 * MIB)])
    peer.recv(1)
    reset(peer)
    events = until(network, has(Disconnected))
    assert SendCompleted(CHANNEL) not in events
    assert sum(isinstance(event, Disconnected) for event in events) == 1


def test_a_send_that_fails_is_told_by_the_next_poll(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    network._channels[CHANNEL].socket.shutdown(socket.SHUT_WR)
    network.send(CHANNEL, [b"request"])
    assert network.poll(0) == [Disconnected(CHANNEL, "Broken pipe")]


def test_a_channel_that_this_side_closes_tells_nothing_more(
    network: SelectorNetwork, peer: socket.socket
) -> None:
    peer.sendall(b"never read")
    network.disconnect(CHANNEL)
    network.disconnect(CHANNEL)
    network.disconnect(99)
    assert network.poll(0) == []
    # Unread bytes make the close a reset.
    with pytest.raises(ConnectionResetError):
        peer.recv(1)


def test_closing_closes_every_socket(listener: socket.socket) -> None:
    network = SelectorNetwork()
    for channel_id in range(3):
        network.connect(channel_id, address_of(listener), "localhost")
    until(network, lambda events: len(events) >= 3)
    sockets = [channel.socket for channel in network._channels.values()]
    network.close()
    assert [sock.fileno() for sock in sockets] == [-1] * 3
    network.wakeup()


# --- waking up ------------------------------------------------------------------------------------


def test_a_wakeup_ends_the_next_poll(network: SelectorNetwork) -> None:
    for _ in range(3):
        network.wakeup()
    started = time.monotonic()
    assert network.poll(60_000) == []
    assert time.monotonic() - started < DEADLINE_S
    assert network._selector.select(0) == []


def test_a_wakeup_ends_a_poll_that_another_thread_is_in(network: SelectorNetwork) -> None:
    poll = threading.Thread(target=network.poll, args=(60_000,), daemon=True)
    poll.start()
    network.wakeup()
    poll.join(DEADLINE_S)
    assert not poll.is_alive()


def test_what_was_written_to_wake_a_poll_ends_no_other_one(network: SelectorNetwork) -> None:
    for _ in range(2):  # the resolver's threads and the task may both find it waiting
        network._is_in_select = True
        network.wakeup()
    assert len(network._selector.select(0)) == 1
    assert network.poll(60_000) == []
    assert network._selector.select(0) == []


def test_nothing_is_written_to_wake_a_thread_that_is_awake(network: SelectorNetwork) -> None:
    network.wakeup()
    assert network._selector.select(0) == []
    started = time.monotonic()
    network.poll(60_000)
    assert time.monotonic() - started < DEADLINE_S


def test_a_wakeup_ends_one_poll_only(network: SelectorNetwork) -> None:
    network.wakeup()
    network.poll(60_000)
    started = time.monotonic()
    assert network.poll(50) == []
    assert time.monotonic() - started >= 0.04


def test_no_wakeup_is_lost_between_two_threads(network: SelectorNetwork) -> None:
    """Each poll waits for the wake-up that follows it: a lost one would stop both threads."""
    rounds, seen = 2_000, threading.Semaphore(0)

    def poll_again_and_again() -> None:
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


def test_more_wakeups_than_the_pipe_holds(network: SelectorNetwork) -> None:
    for _ in range(100_000):
        network.wakeup()
    network.poll(60_000)
    assert network._selector.select(0) == []
