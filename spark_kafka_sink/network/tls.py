"""A byte stream inside TLS. Imported only where TLS is asked for.

TLS itself has no socket here: it turns bytes into bytes (``ssl.MemoryBIO``), and the channel moves
them. So whatever the socket has given away is decrypted and handed over at once, and nothing waits
where the selector does not look.

Source: ``SslTransportLayer``.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.network.channels import (
    RECEIVE_BYTES,
    RefusedError,
    begin_connect,
    check_connected,
    closed,
)
from spark_kafka_sink.network.interface import Address
from spark_kafka_sink.protocol.types import Buffer

# What a record of TLS holds at most.
_RECORD_BYTES = 16384
# Buffers below are joined, up to a record: a header of 20 bytes in a record of its own would cost
# as many bytes again, and the sealing of a record. Larger ones are encrypted where they are.
_SMALL_BYTES = 4096
# How much is encrypted before it is sent: as much memory a connection takes for its bytes.
_ENCRYPTED_BYTES = 262144

Explain = Callable[[OSError, str, int], str]
"""What an error of TLS with the broker of this host and port means, and what to do about it."""


class TlsChannel:
    """A :class:`~spark_kafka_sink.network.channels.Channel` inside TLS."""

    def __init__(
        self,
        channel_id: int,
        sock: socket.socket,
        host: str,
        context: ssl.SSLContext,
        explain: Explain,
    ) -> None:
        """``host``: the name in the broker's certificate. Raises RefusedError for what is none."""
        self.channel_id = channel_id
        self.socket = sock
        self.is_connected = False
        self._host = host
        self._port = 0
        self._explain = explain
        self._is_reached = False
        self._has_received = False
        self.failure: OSError | RefusedError | None = None
        self.expires_at_ms: int | None = getattr(context, "expires_at_ms", None)
        self._plain: deque[Buffer] = deque()
        self._encrypted = memoryview(b"")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            # Certificates have no dot at the end, which names may have.
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=host.rstrip(".")
            )
        except ValueError as error:  # UnicodeError is one
            raise RefusedError(f"no name of a TLS server: {host!r}: {error}") from error

    # --- connecting ----------------------------------------------------------------------------

    def begin_connect(self, address: Address) -> None:
        port = address.sockaddr[1]
        self._port = port if isinstance(port, int) else 0
        begin_connect(self.socket, address)

    def go_on_connecting(self) -> bytes:
        """TCP first, then the messages of the handshake."""
        if not self._is_reached:
            check_connected(self.socket)
            self._is_reached = True
        elif self._receive_of_handshake() == 0:
            # Whoever hangs up in the middle may be restarting, or not speak TLS at all.
            raise OSError(errno.ECONNRESET, self._why(closed()))
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return b""
        except ssl.SSLZeroReturnError:
            # In order, before it is done: a broker that is being restarted. No refusal.
            raise closed() from None
        except ssl.SSLError as error:
            raise RefusedError(self._why(error)) from error
        self._send_encrypted()
        self.is_connected = True
        return self._decrypt()

    def _receive_of_handshake(self) -> int | None:
        try:
            return self._receive()
        except ConnectionResetError:
            return 0  # it has hung up as well: some bytes of this side were not read

    def _why(self, error: OSError) -> str:
        return self._explain(error, self._host, self._port)

    # --- writing -------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._plain or self._encrypted or self._outgoing.pending)

    def queue(self, buffers: Sequence[Buffer]) -> None:
        self._plain.extend(memoryview(buffer) for buffer in buffers if len(buffer))

    def write(self) -> None:
        try:
            while self._send_encrypted() and self._plain:
                if not self._encrypt():
                    self._send_encrypted()
                    return
        except OSError:
            if not self._has_received:
                self._look_for_alert()
            raise

    def _encrypt(self) -> bool:
        """Whether TLS takes bytes; False while it waits for the broker."""
        while self._plain and self._outgoing.pending < _ENCRYPTED_BYTES:
            piece = self._next_piece()
            try:
                self._tls.write(piece)
            except ssl.SSLWantReadError:
                self._plain.appendleft(piece)  # again, with the same bytes
                return False
        return True

    def _next_piece(self) -> Buffer:
        """The next bytes to be encrypted at once, copied only where they are few."""
        piece = memoryview(self._plain.popleft())
        if len(piece) > _ENCRYPTED_BYTES:
            self._plain.appendleft(piece[_ENCRYPTED_BYTES:])
            return piece[:_ENCRYPTED_BYTES]
        if len(piece) >= _SMALL_BYTES or not self._plain:
            return piece
        joined = bytearray(piece)
        while (
            self._plain
            and len(self._plain[0]) < _SMALL_BYTES
            and len(joined) + len(self._plain[0]) <= _RECORD_BYTES
        ):
            joined += self._plain.popleft()
        return joined

    def _send_encrypted(self) -> bool:
        """Give the socket what is encrypted; False if it does not take all of it now."""
        while self._encrypted or self._outgoing.pending:
            if not self._encrypted:
                self._encrypted = memoryview(self._outgoing.read())
            try:
                sent = self.socket.send(self._encrypted)
            except BlockingIOError:
                return False
            self._encrypted = self._encrypted[sent:]
        return True

    # --- reading -------------------------------------------------------------------------------

    def read(self) -> bytes:
        received = self._receive()
        if received is None:
            return b""
        if received == 0:
            raise closed()
        return self._decrypt()

    def _receive(self) -> int | None:
        """Take what the socket has: how many bytes; 0 at its end, None if there is nothing."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._incoming.write(data)
        return len(data)

    def _decrypt(self) -> bytes:
        """All that can be read of what has arrived. What comes before an error is given first."""
        chunks: list[bytes] = []
        try:
            while chunk := self._tls.read(_RECORD_BYTES):
                chunks.append(chunk)
            self.failure = closed()  # the broker has said so
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.failure = self._broken(error, bool(chunks))
        self._has_received = self._has_received or bool(chunks)
        if self._outgoing.pending:
            # TLS has answered by itself: new keys. If the socket is full, it goes out with the next
            # request, before which nobody needs it.
            self._send_encrypted()
        if chunks:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self.failure is not None:
            raise self.failure
        return b""

    def _broken(self, error: ssl.SSLError, has_chunks: bool) -> OSError | RefusedError:
        """With TLS 1.3 the client's handshake is done before the broker looks at its certificate: a
        refusal is the first that is read.
        """
        if self._has_received or has_chunks:
            return OSError(errno.ECONNRESET, f"TLS: {error.reason or error}")
        return RefusedError(self._why(error))

    def _look_for_alert(self) -> None:
        """The broker has hung up: it may have said why. Raises RefusedError if it has."""
        try:
            while self._receive():
                self._decrypt()
        except OSError:
            return

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Tell the broker, as far as that is possible without waiting."""
        self._plain.clear()
        try:
            if self.is_connected:
                self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it waits for the broker's own end, which nobody reads any more
        try:
            self._send_encrypted()
        except OSError:
            pass
        self.socket.close()


class TlsChannels:
    """Opens channels inside TLS."""

    def __init__(self, context: Callable[[], ssl.SSLContext], explain: Explain) -> None:
        """``context``: of the next connection; raises AuthenticationError or ConfigError."""
        self._context = context
        self._explain = explain

    def __call__(self, channel_id: int, sock: socket.socket, host: str) -> TlsChannel:
        """Raises RefusedError where certificates or keys cannot be read."""
        try:
            context = self._context()
        except (AuthenticationError, ConfigError) as error:
            raise RefusedError(str(error)) from error
        return TlsChannel(channel_id, sock, host, context, self._explain)
