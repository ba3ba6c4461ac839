"""Byte streams over sockets: the interface that the selector needs, and the stream in clear text.

``tls.py`` has the stream inside TLS.

Source: ``KafkaChannel``, ``TransportLayer``, ``PlaintextTransportLayer``.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from spark_kafka_sink.network.interface import Address
from spark_kafka_sink.protocol.types import Buffer

RECEIVE_BYTES = 65536
# POSIX guarantees 16, Linux and macOS allow 1024 buffers in one sendmsg.
_BUFFERS_PER_SEND = 1024


class RefusedError(Exception):
    """One side of a TLS connection does not let the other in: to connect again would not help."""


class Channel(Protocol):
    """One connection, for whoever waits for its socket.

    All methods raise OSError when the connection is broken, RefusedError when TLS refuses it.

    is_connected: it can be written to and read from
    has_unsent: the socket is to be waited for until it takes more
    failure: what has ended the connection after the bytes that were read last
    expires_at_ms: as of ``Connected``
    """

    channel_id: int
    socket: socket.socket
    is_connected: bool
    failure: OSError | RefusedError | None
    expires_at_ms: int | None

    @property
    def has_unsent(self) -> bool: ...

    def begin_connect(self, address: Address) -> None:
        """Connect without waiting."""
        ...

    def go_on_connecting(self) -> bytes:
        """The socket is ready for the next step, after the last of which ``is_connected`` is true.

        Returns what has come from the broker with the last step.
        """
        ...

    def queue(self, buffers: Sequence[Buffer]) -> None:
        """Write ``buffers`` after what is queued. Their memory is not to change until then."""
        ...

    def write(self) -> None:
        """Send as much as the socket takes now."""
        ...

    def read(self) -> bytes:
        """What has arrived; empty when nothing has. Raises OSError at end of stream.

        Nothing that the socket has given away is kept back: there may be no next time.
        """
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


OpenChannel = Callable[[int, socket.socket, str], Channel]
"""Given channel id, socket and host name. Raises RefusedError where that cannot be secured."""


def broken(code: int) -> OSError:
    """The operating system's error with its reason."""
    return OSError(code, os.strerror(code))


def closed() -> OSError:
    """What a reader is told at end of stream."""
    return ConnectionResetError(errno.ECONNRESET, "closed by the broker")


def begin_connect(sock: socket.socket, address: Address) -> None:
    """Connect without waiting. Raises OSError where that fails at once."""
    code = sock.connect_ex(address.sockaddr)
    if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        raise broken(code)


def check_connected(sock: socket.socket) -> None:
    """Raises OSError with the reason when the connection was refused or timed out."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise broken(code)


class PlaintextChannel:
    """A :class:`Channel` in clear text: partial reads and writes, scatter/gather sends."""

    def __init__(self, channel_id: int, sock: socket.socket, host: str = "") -> None:
        self.channel_id = channel_id
        self.socket = sock
        self.is_connected = False
        self.failure: OSError | RefusedError | None = None
        self.expires_at_ms: int | None = None
        self._unsent: deque[memoryview] = deque()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def begin_connect(self, address: Address) -> None:
        begin_connect(self.socket, address)

    def go_on_connecting(self) -> bytes:
        check_connected(self.socket)
        self.is_connected = True
        return b""

    def queue(self, buffers: Sequence[Buffer]) -> None:
        # sendmsg() returns 0 for empty buffers, and write() would repeat it without end.
        self._unsent.extend(memoryview(buffer) for buffer in buffers if len(buffer))

    def write(self) -> None:
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
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise closed()
        return data

    def close(self) -> None:
        self._unsent.clear()
        self.socket.close()
