"""Non-blocking byte streams over the operating system's sockets, in clear text.

The layer above sees a :class:`~spark_kafka_sink.network.interface.Network`: it opens channels,
queues buffers, and gets events from ``poll``. Tests put a simulated network in its place.

Source: ``Selector``, ``KafkaChannel``, ``PlaintextTransportLayer``.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice

from spark_kafka_sink.base.clock import wait_seconds
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

USE_OS_BUFFER_SIZE = -1
_RECEIVE_BYTES = 65536
# POSIX guarantees 16, Linux and macOS allow 1024 buffers in one sendmsg.
_BUFFERS_PER_SEND = 1024


class PlaintextChannel:
    """One TCP connection: partial reads and writes, scatter/gather sends."""

    def __init__(self, channel_id: int, sock: socket.socket) -> None:
        self.channel_id = channel_id
        self.socket = sock
        self.is_connected = False
        self._unsent: deque[memoryview] = deque()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def begin_connect(self, address: Address) -> None:
        code = self.socket.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(code, os.strerror(code))

    def finish_connect(self) -> None:
        """Raises OSError with the reason when the connection was refused or timed out."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.is_connected = True

    def queue(self, buffers: Sequence[Buffer]) -> None:
        # sendmsg() returns 0 for empty buffers, and write() would repeat it without end.
        self._unsent.extend(memoryview(buffer) for buffer in buffers if len(buffer))

    def write(self) -> None:
        """Send as much as the socket takes now. Raises OSError when the connection is broken."""
        while self._unsent:
            try:
                sent = self.socket.sendmsg(islice(self._unsent, _BUFFERS_PER_SEND))
            except BlockingIOError:
                return
            complete = self._advance(sent)
            if not complete:
                return

    def _advance(self, sent: int) -> bool:
        """Drop ``sent`` bytes from the queue; False if the socket took only part of a buffer."""
        while sent:
            head = self._unsent[0]
            if sent < len(head):
                self._unsent[0] = head[sent:]
                return False
            sent -= len(head)
            self._unsent.popleft()
        return True

    def read(self) -> bytes:
        """What has arrived; empty when nothing has. Raises OSError at end of stream."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed by the broker")
        return data

    def close(self) -> None:
        self._unsent.clear()
        self.socket.close()


class SelectorNetwork:
    """A :class:`Network` over the operating system's sockets."""

    def __init__(
        self,
        send_buffer_bytes: int = USE_OS_BUFFER_SIZE,
        receive_buffer_bytes: int = USE_OS_BUFFER_SIZE,
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, PlaintextChannel] = {}
        # Events of connect() and send(), which the next poll() returns.
        self._pending: list[NetworkEvent] = []
        self._resolver = Resolver()
        # The resolver's threads append to it, and then wake poll() up.
        self._resolved: deque[NetworkEvent] = deque()
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        self._wakeup_receiver.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, None)
        # Each thread sets its own flag before it looks at the other's, so that one of them sees it.
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

    def connect(self, channel_id: int, address: Address) -> None:
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM)
        except (
            OSError
        ) as error:  # an address family that this machine does not have, or too many open files
            self._pending.append(Disconnected(channel_id, _reason(error)))
            return
        channel = PlaintextChannel(channel_id, sock)
        try:
            self._set_options(sock)
            channel.begin_connect(address)
        except OSError as error:
            channel.close()
            self._pending.append(Disconnected(channel_id, _reason(error)))
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

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> None:
        channel = self._channels.get(channel_id)
        if channel is None:
            return  # just lost: the next poll returns the event
        channel.queue(buffers)
        try:
            channel.write()
        except OSError as error:
            self._lose(channel, error, self._pending)
            return
        if channel.has_unsent:
            interest = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(channel.socket, interest, channel)
        else:
            self._pending.append(SendCompleted(channel_id))

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        events, self._pending = self._pending, []
        for key, mask in self._select(0 if events else timeout_ms):
            channel: PlaintextChannel | None = key.data
            if channel is None:
                self._drain_wakeups()
            else:
                self._serve(channel, mask, events)
        while self._resolved:
            events.append(self._resolved.popleft())
        return events

    def _select(self, timeout_ms: int) -> list[tuple[selectors.SelectorKey, int]]:
        self._is_in_select = True
        ready = self._selector.select(0.0 if self._is_wakeup_asked else wait_seconds(timeout_ms))
        self._is_in_select = False
        # A wake-up before this line ends this poll, a later one ends the next.
        self._is_wakeup_asked = False
        return ready

    def _serve(self, channel: PlaintextChannel, mask: int, events: list[NetworkEvent]) -> None:
        try:
            if mask & selectors.EVENT_READ:
                data = channel.read()
                if data:
                    events.append(Received(channel.channel_id, data))
            if mask & selectors.EVENT_WRITE:
                self._serve_writable(channel, events)
        except OSError as error:
            self._lose(channel, error, events)

    def _lose(self, channel: PlaintextChannel, error: OSError, events: list[NetworkEvent]) -> None:
        self.disconnect(channel.channel_id)
        events.append(Disconnected(channel.channel_id, _reason(error)))

    def _serve_writable(self, channel: PlaintextChannel, events: list[NetworkEvent]) -> None:
        if not channel.is_connected:
            channel.finish_connect()
            events.append(Connected(channel.channel_id))
        elif channel.has_unsent:
            channel.write()
            if channel.has_unsent:
                return
            events.append(SendCompleted(channel.channel_id))
        self._selector.modify(channel.socket, selectors.EVENT_READ, channel)

    def _drain_wakeups(self) -> None:
        try:
            while self._wakeup_receiver.recv(_RECEIVE_BYTES):
                pass
        except BlockingIOError:
            pass

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


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
