"""Non-blocking byte streams over the operating system's sockets, in plaintext or with TLS.

The layer above uses a :class:`~spark_kafka_sink.network.interface.Network`: it opens channels,
queues buffers, and gets events from ``poll``. Tests replace it by a simulated network.

Source: ``Selector``.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Sequence

from spark_kafka_sink.base.clock import wait_seconds
from spark_kafka_sink.network.channels import (
    RECEIVE_BYTES,
    Channel,
    OpenChannel,
    PlaintextChannel,
    RefusedError,
)
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    NetworkEvent,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.network.resolver import Resolver
from spark_kafka_sink.protocol.types import Buffer
from spark_kafka_sink.security.security import Security

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
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, Channel] = {}
        # Events of connect() and send(), which the next poll() returns.
        self._pending: list[NetworkEvent] = []
        self._resolver = Resolver()
        # The resolver's threads append to it, and then wake up poll().
        self._resolved: deque[NetworkEvent] = deque()
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
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
                self._resolved.append(Disconnected(channel_id, f"host name: {_reason(found)}"))
            else:
                self._resolved.append(Resolved(channel_id, found))
            self.wakeup()

        self._resolver.resolve(host, port, on_found)

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:  # unsupported address family, or too many open files
            self._pending.append(Disconnected(channel_id, _reason(error)))
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
        for key, mask in self._select(0 if events else timeout_ms):
            channel: Channel | None = key.data
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
        data = channel.finish_connect()
        if channel.is_connected:
            events.append(Connected(channel.channel_id, channel.expires_at_ms))
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
    return Disconnected(channel_id, _reason(error))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
