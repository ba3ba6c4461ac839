"""The selector of a client: all its channels over the operating system's sockets, and host names.

``SelectorNetwork`` implements :class:`~spark_kafka_sink.network.channels.Network`. The client opens
channels, sends buffers, and gets events from ``poll``. Tests use a simulated network instead.

Host names are resolved in separate threads, because the operating system's call blocks. The call
may block for a minute and more if the name server does not answer.

Source: ``Selector``; ``ClientUtils.resolve``, which blocks,
``ClientUtils.parseAndValidateAddresses``.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional, Union

from spark_kafka_sink.base.clock import wait_seconds
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.machine import explained, find_shortage
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.network.channels import (
    RECEIVE_BYTES,
    Address,
    Channel,
    Connected,
    Disconnected,
    NetworkEvent,
    OpenChannel,
    PlaintextChannel,
    Reached,
    Received,
    RefusedError,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.protocol.types import Buffer
from spark_kafka_sink.security.security import Security

# --- host names ----------------------------------------------------------------------------------

# A cluster may have hundreds of brokers, which is too many for a thread each.
_MAX_THREADS = 8

OnFound = Callable[[Union[list[Address], OSError]], None]
"""Called with at least one address, or with the reason why there is none."""


class LookUp(NamedTuple):
    """A host name to resolve, and the callback for the result."""

    host: str
    port: int
    on_found: OnFound


Take = Callable[[], Optional[LookUp]]
"""Returns the next look-up; None ends the calling thread."""


def _in_a_thread(take: Take) -> None:
    """Start a resolver thread. Raises RuntimeError if the operating system allows no more."""
    thread = threading.Thread(
        target=_look_up_all, args=(take,), name="pykafka-sink-resolver", daemon=True
    )
    thread.start()


def _look_up_all(take: Take) -> None:
    while (look_up_request := take()) is not None:
        look_up_request.on_found(look_up(look_up_request.host, look_up_request.port))


class Resolver:
    """Resolves names without blocking the caller. A few slow names do not delay the others."""

    def __init__(self, begin: Callable[[Take], None] = _in_a_thread) -> None:
        """``begin`` starts a thread that resolves names in turn; tests simulate the thread."""
        self._begin = begin
        self._lock = threading.Lock()
        self._waiting: deque[LookUp] = deque()
        self._threads_count = 0

    def resolve(self, host: str, port: int, on_found: OnFound) -> None:
        """Call ``on_found``: at once for an IP address, otherwise from another thread."""
        addresses = _numeric_addresses(host, port)
        if addresses:
            on_found(addresses)
            return
        with self._lock:
            self._waiting.append(LookUp(host, port, on_found))
            if self._threads_count >= _MAX_THREADS:
                return
            self._threads_count += 1
        try:
            self._begin(self._next)
        except RuntimeError as error:
            self._fail_waiting(OSError(str(error)))

    def close(self) -> None:
        """Begin no more look-ups. Look-ups in progress end by themselves."""
        with self._lock:
            self._waiting.clear()

    def _next(self) -> LookUp | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads_count -= 1
            return None

    def _fail_waiting(self, error: OSError) -> None:
        """Handle a failed thread start: without another thread, look-ups fail with ``error``."""
        with self._lock:
            self._threads_count -= 1
            failed = [] if self._threads_count else list(self._waiting)
            if failed:
                self._waiting.clear()
        for waiting in failed:
            waiting.on_found(error)


def look_up(host: str, port: int) -> list[Address] | OSError:
    """Return all addresses of ``host``, in the operating system's order. Blocks."""
    try:
        return _addresses(host, port)
    except OSError as error:
        return find_shortage(error)
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        return OSError(redacted(error))


def _numeric_addresses(host: str, port: int) -> list[Address]:
    """Return the address if ``host`` is an IP address; empty for a name. Does not block."""
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []


def _addresses(host: str, port: int, flags: int = 0) -> list[Address]:
    if not host.isprintable():
        # The operating system's call ends a name at U+0000, and would resolve another name.
        raise OSError(
            f"'{redacted(host)}' holds a character that no name has: check the brokers' "
            "advertised.listeners"
        )
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def canonical_addresses(addresses: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the canonical names of all addresses behind each of ``addresses``. Blocks.

    A name that cannot be resolved stays as it is, because connecting to it reports the reason.
    Source: ``ClientUtils.parseAndValidateAddresses`` with RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY.
    """
    names: dict[tuple[str, int], None] = {}
    for host, port in addresses:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for _, _, _, _, sockaddr in found:
                canonical, _ = socket.getnameinfo(sockaddr, socket.NI_NUMERICSERV)
                names[canonical, port] = None
        except (OSError, UnicodeError):
            names[host, port] = None
    return list(names)


# --- the selector --------------------------------------------------------------------------------

USE_OS_BUFFER_SIZE = -1


def open_channel_of(security: Security) -> OpenChannel:
    """Return the function that opens plaintext or TLS channels for ``security``."""
    if security.tls is None:
        return PlaintextChannel
    from spark_kafka_sink.network.tls import TlsChannels  # loads ssl

    return TlsChannels(security.tls.context, security.tls.explain)


class SelectorNetwork:
    """A :class:`Network` over the operating system's sockets."""

    def __init__(
        self,
        send_buffer_bytes: int = USE_OS_BUFFER_SIZE,
        receive_buffer_bytes: int = USE_OS_BUFFER_SIZE,
        open_channel: OpenChannel = PlaintextChannel,
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._open_channel = open_channel
        try:
            self._selector = selectors.DefaultSelector()
            self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        except OSError as error:
            raise KafkaSinkError(explained(error), code="CONNECT-011") from error
        self._channels: dict[int, Channel] = {}
        # Events of connect() and send(), which the next poll() returns.
        self._pending: list[NetworkEvent] = []
        self._resolver = Resolver()
        # The resolver's threads append to it, and then wake up poll().
        self._resolved: deque[NetworkEvent] = deque()
        self._wakeup_receiver.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, None)
        # Each thread sets its own flag before it reads the other thread's flag. So at least one
        # thread sees the flag of the other.
        self._is_wakeup_asked = False
        self._is_in_select = False

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        def on_found(found: list[Address] | OSError) -> None:
            if isinstance(found, OSError):
                self._resolved.append(Disconnected(channel_id, f"host name: {explained(found)}"))
            else:
                self._resolved.append(Resolved(channel_id, found))
            self.wakeup()

        self._resolver.resolve(host, port, on_found)

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:  # unsupported address family, or too many open files
            self._pending.append(Disconnected(channel_id, explained(error)))
            return
        try:
            self._set_options(sock)
            channel = self._open_channel(channel_id, sock, host)
            channel.begin_connect(address)
        except (OSError, RefusedError) as error:
            sock.close()
            self._pending.append(_disconnected(channel_id, error))
            return
        self._channels[channel_id] = channel
        self._selector.register(sock, selectors.EVENT_WRITE, channel)

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes != USE_OS_BUFFER_SIZE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes != USE_OS_BUFFER_SIZE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> bool:
        channel = self._channels.get(channel_id)
        if channel is None:
            return False  # just lost: the next poll returns the event
        channel.queue(buffers)
        try:
            channel.write()
        except (OSError, RefusedError) as error:
            self._lose(channel, error, self._pending)
            return False
        if channel.has_unsent:
            interest = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(channel.socket, interest, channel)
        return not channel.has_unsent

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        events, self._pending = self._pending, []
        # kqueue lists a socket twice that can be both read and written.
        ready: dict[Channel | None, int] = {}
        for key, mask in self._select(0 if events else timeout_ms):
            ready[key.data] = ready.get(key.data, 0) | mask
        for channel, mask in ready.items():
            if channel is None:
                self._drain_wakeups()
            else:
                self._serve(channel, mask, events)
        while self._resolved:
            events.append(self._resolved.popleft())
        return events

    def _select(self, timeout_ms: int) -> list[tuple[selectors.SelectorKey, int]]:
        # Only a select that may wait needs a byte to end it.
        self._is_in_select = timeout_ms > 0
        ready = self._selector.select(0.0 if self._is_wakeup_asked else wait_seconds(timeout_ms))
        self._is_in_select = False
        # A wake-up before this line ends this poll; a later one ends the next poll.
        self._is_wakeup_asked = False
        return ready

    def _serve(self, channel: Channel, mask: int, events: list[NetworkEvent]) -> None:
        try:
            if not channel.is_connected:
                self._continue_connecting(channel, events)
                return
            had_unsent = channel.has_unsent
            if mask & selectors.EVENT_READ:
                data = channel.read()
                if data:
                    events.append(Received(channel.channel_id, data))
                    if channel.failure is not None:
                        raise channel.failure
            # When TLS reads new keys, it may also send the rest of the request. SendCompleted must
            # precede the response.
            if mask & selectors.EVENT_WRITE or (had_unsent and not channel.has_unsent):
                self._serve_writable(channel, events)
        except (OSError, RefusedError) as error:
            self._lose(channel, error, events)

    def _lose(
        self, channel: Channel, error: OSError | RefusedError, events: list[NetworkEvent]
    ) -> None:
        self.disconnect(channel.channel_id)
        events.append(_disconnected(channel.channel_id, error))

    def _continue_connecting(self, channel: Channel, events: list[NetworkEvent]) -> None:
        was_reached = channel.is_reached
        data = channel.finish_connect()
        if channel.is_connected:
            events.append(Connected(channel.channel_id, channel.expires_at_ms))
        elif not was_reached:
            events.append(Reached(channel.channel_id))
        if data:
            events.append(Received(channel.channel_id, data))
            if channel.failure is not None:
                raise channel.failure
        interest = selectors.EVENT_READ
        if channel.has_unsent:
            interest |= selectors.EVENT_WRITE
        self._selector.modify(channel.socket, interest, channel)

    def _serve_writable(self, channel: Channel, events: list[NetworkEvent]) -> None:
        channel.write()
        if channel.has_unsent:
            return
        events.append(SendCompleted(channel.channel_id))
        self._selector.modify(channel.socket, selectors.EVENT_READ, channel)

    def _drain_wakeups(self) -> None:
        # One or two bytes. Later bytes end the next poll().
        self._wakeup_receiver.recv(RECEIVE_BYTES)

    def disconnect(self, channel_id: int) -> None:
        channel = self._channels.pop(channel_id, None)
        if channel is not None:
            self._selector.unregister(channel.socket)
            channel.close()

    def wakeup(self) -> None:
        self._is_wakeup_asked = True
        if not self._is_in_select:
            return  # the next poll will not wait
        self._is_in_select = False  # a second byte is not needed
        try:
            self._wakeup_sender.send(b"\0")
        except OSError:
            pass  # the pipe is full, so poll() wakes up anyway; or the network is closed

    def close(self) -> None:
        self._resolver.close()
        for channel_id in list(self._channels):
            self.disconnect(channel_id)
        self._selector.close()
        self._wakeup_receiver.close()
        self._wakeup_sender.close()


def _disconnected(channel_id: int, error: OSError | RefusedError) -> Disconnected:
    if isinstance(error, RefusedError):
        return Disconnected(channel_id, str(error), is_refused=True)
    return Disconnected(channel_id, explained(error))
