"""Byte streams over sockets, and the interface of the real and the simulated network.

The network client uses the interface :class:`Network`, which ``transport.py`` implements. A
:class:`Channel` is one byte stream: :class:`PlaintextChannel` here, ``TlsChannel`` in ``tls.py``.

Source: ``KafkaChannel``, ``TransportLayer``, ``PlaintextTransportLayer``; ``Selectable``.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, Union

from spark_kafka_sink.protocol.types import Buffer


class Address(NamedTuple):
    """A resolved socket address."""

    family: int
    sockaddr: tuple[object, ...]

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class Resolved(NamedTuple):
    """The addresses of the requested host name, at least one."""

    channel_id: int
    addresses: list[Address]


class Reached(NamedTuple):
    """The address accepts the connection, and a TLS handshake follows."""

    channel_id: int


class Connected(NamedTuple):
    """The channel can be written to; with TLS, after its handshake.

    expires_at_ms: expiry of the certificate that this side has sent, in milliseconds since
        1970-01-01 UTC; None without one
    """

    channel_id: int
    expires_at_ms: int | None = None


class Disconnected(NamedTuple):
    """The channel is closed, or could not be opened.

    reason: from the operating system or TLS
    is_refused: in TLS, one side rejects the certificate of the other, so a retry would not help
    """

    channel_id: int
    reason: str
    is_refused: bool = False


class Received(NamedTuple):
    """Bytes have arrived, in chunks of any size."""

    channel_id: int
    data: bytes


class SendCompleted(NamedTuple):
    """All buffers of one ``send`` that had returned False were handed to the operating system."""

    channel_id: int


NetworkEvent = Union[Resolved, Reached, Connected, Disconnected, Received, SendCompleted]


class Network(Protocol):
    """Network of the client. The caller chooses channel ids, and never reuses one.

    Only ``poll`` blocks. Only ``wakeup`` may be called from any thread.
    """

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        """Begin to resolve ``host``. Ends as Resolved or Disconnected in a later ``poll``."""
        ...

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        """Begin to connect. Ends as Connected or Disconnected in a later ``poll``.

        With TLS, Reached precedes Connected.

        host: the name of ``address``, which TLS expects in the broker's certificate
        """
        ...

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> bool:
        """Send one request. At most one may be in progress per channel.

        Returns True if all buffers were handed to the operating system. Otherwise SendCompleted
        follows in a later ``poll``, unless the channel is lost.
        """
        ...

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        """Wait up to ``timeout_ms`` for events; ``wakeup`` ends the wait."""
        ...

    def disconnect(self, channel_id: int) -> None:
        """Close at once. Only the result of a look-up in progress may still follow."""
        ...

    def wakeup(self) -> None:
        """End the current ``poll`` of another thread, or else the next ``poll``."""
        ...

    def close(self) -> None:
        """Close every channel."""
        ...


RECEIVE_BYTES = 65536
# POSIX guarantees 16, Linux and macOS allow 1024 buffers in one sendmsg.
_BUFFERS_PER_SEND = 1024


class RefusedError(Exception):
    """One side of a TLS connection rejects the other. A retry would not help."""


class Channel(Protocol):
    """One connection, driven by a selector.

    All methods raise OSError if the connection is broken, RefusedError if TLS rejects it.

    is_reached: the address accepts the connection
    is_connected: the channel can be written to and read from
    has_unsent: queued bytes wait until the socket accepts more
    failure: error that has ended the connection after the bytes that were read last
    expires_at_ms: as in ``Connected``
    """

    channel_id: int
    socket: socket.socket
    is_reached: bool
    is_connected: bool
    failure: OSError | RefusedError | None
    expires_at_ms: int | None

    @property
    def has_unsent(self) -> bool: ...

    def begin_connect(self, address: Address) -> None:
        """Begin to connect, without blocking."""
        ...

    def finish_connect(self) -> bytes:
        """Do the next step of connecting; the socket is ready. The last sets ``is_connected``.

        Returns the bytes that the broker sent with the last step.
        """
        ...

    def queue(self, buffers: Sequence[Buffer]) -> None:
        """Write ``buffers`` after those in the queue. Their memory must not change until then."""
        ...

    def write(self) -> None:
        """Send as much as the socket accepts now."""
        ...

    def read(self) -> bytes:
        """Return the bytes that have arrived; empty without any. Raises OSError at end of stream.

        Returns all bytes taken from the socket, because the selector does not report them again.
        """
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


OpenChannel = Callable[[int, socket.socket, str], Channel]
"""Opens a channel: channel id, socket, host name. Raises RefusedError if it cannot be secured."""


def broken(code: int) -> OSError:
    """Return the operating system's error with its reason."""
    return OSError(code, os.strerror(code))


def closed() -> OSError:
    """Return the error of a reader at end of stream."""
    return ConnectionResetError(errno.ECONNRESET, "closed by the broker")


def begin_connect(sock: socket.socket, address: Address) -> None:
    """Begin to connect, without blocking. Raises OSError if that fails at once."""
    code = sock.connect_ex(address.sockaddr)
    if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        raise broken(code)


def check_connected(sock: socket.socket) -> None:
    """Raise OSError with the reason if the connection was refused or timed out."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise broken(code)


class PlaintextChannel:
    """A plaintext :class:`Channel`: partial reads and writes, scatter/gather sends."""

    def __init__(self, channel_id: int, sock: socket.socket, host: str = "") -> None:
        self.channel_id = channel_id
        self.socket = sock
        self.is_reached = self.is_connected = False
        self.failure: OSError | RefusedError | None = None
        self.expires_at_ms: int | None = None
        self._unsent: deque[memoryview] = deque()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def begin_connect(self, address: Address) -> None:
        begin_connect(self.socket, address)

    def finish_connect(self) -> bytes:
        check_connected(self.socket)
        self.is_reached = self.is_connected = True
        return b""

    def queue(self, buffers: Sequence[Buffer]) -> None:
        # sendmsg() returns 0 for empty buffers, and write() would repeat it for ever.
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
