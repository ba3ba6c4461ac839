"""A byte stream inside TLS. Imported only if TLS is configured.

The TLS object has no socket: it converts bytes (``ssl.MemoryBIO``), and the channel moves them. So
all bytes taken from the socket are decrypted and returned at once. No bytes wait where the selector
does not see them.

``security/tls.py`` builds the ``SSLContext``, and makes the texts of errors (``explain``).

Source: ``SslTransportLayer``.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.network.channels import (
    RECEIVE_BYTES,
    Address,
    RefusedError,
    begin_connect,
    check_connected,
    closed,
)
from spark_kafka_sink.protocol.types import Buffer

# Maximum content of a TLS record.
_RECORD_BYTES = 16384
# Smaller buffers are joined, up to a record. A 20-byte header in its own record would cost as many
# bytes again, and one more encryption. Larger buffers are encrypted without a copy.
_SMALL_BYTES = 4096
# Limit of bytes encrypted before they are sent, and so of a connection's memory.
_ENCRYPTED_BYTES = 262144

Explain = Callable[[OSError, str, int], str]
"""Returns what a TLS error with the broker of this host and port means, and what to do."""


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
        """``host``: the name in the broker's certificate. Raises RefusedError if it is invalid."""
        self.channel_id = channel_id
        self.socket = sock
        self.is_reached = self.is_connected = False
        self._host = host
        self._port = 0
        self._explain = explain
        self._has_received = False
        self.failure: OSError | RefusedError | None = None
        self.expires_at_ms: int | None = getattr(context, "expires_at_ms", None)
        self._plain: deque[Buffer] = deque()
        self._encrypted = memoryview(b"")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            # Certificates have no trailing dot, but host names may have one.
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=host.rstrip(".")
            )
        except ValueError as error:  # includes UnicodeError
            raise RefusedError(f"no name of a TLS server: {host!r}: {error}") from error

    # --- connecting ----------------------------------------------------------------------------

    def begin_connect(self, address: Address) -> None:
        port = address.sockaddr[1]
        self._port = port if isinstance(port, int) else 0
        begin_connect(self.socket, address)

    def finish_connect(self) -> bytes:
        """Connect with TCP first, then exchange the messages of the handshake."""
        if not self.is_reached:
            check_connected(self.socket)
            self.is_reached = True
        elif self._receive_of_handshake() == 0:
            # A broker that closes in the middle may be restarting, or may not speak TLS at all.
            raise OSError(errno.ECONNRESET, self._why(closed()))
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return b""
        except ssl.SSLZeroReturnError:
            # An orderly close before the end of the handshake: the broker restarts. No rejection.
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
            return 0  # also a close: the broker did not read some bytes of this side

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
                self._read_alert()
            raise

    def _encrypt(self) -> bool:
        """Encrypt queued bytes; return False while TLS waits for the broker."""
        while self._plain and self._outgoing.pending < _ENCRYPTED_BYTES:
            piece = self._next_piece()
            try:
                self._tls.write(piece)
            except ssl.SSLWantReadError:
                self._plain.appendleft(piece)  # again, with the same bytes
                return False
        return True

    def _next_piece(self) -> Buffer:
        """Return the next bytes to encrypt at once; only small buffers are copied."""
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
        """Send encrypted bytes; return False if the socket does not accept all bytes now."""
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
        """Read from the socket; return the byte count, 0 at end of stream, None without data."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._incoming.write(data)
        return len(data)

    def _decrypt(self) -> bytes:
        """Return all readable bytes that have arrived. Bytes before an error are returned first."""
        chunks: list[bytes] = []
        try:
            while chunk := self._tls.read(_RECORD_BYTES):
                chunks.append(chunk)
            self.failure = closed()  # the broker has sent close_notify
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.failure = self._broken(error, bool(chunks))
        self._has_received = self._has_received or bool(chunks)
        if self._outgoing.pending:
            # TLS has answered by itself, with new keys. If the socket is full, the answer goes out
            # with the next request, and the broker does not need it earlier.
            self._send_encrypted()
        if chunks:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self.failure is not None:
            raise self.failure
        return b""

    def _broken(self, error: ssl.SSLError, has_chunks: bool) -> OSError | RefusedError:
        """Return the error for a broken stream: RefusedError if nothing was read before.

        With TLS 1.3 the client's handshake ends before the broker checks the client's certificate.
        So a rejection is the first message that is read.
        """
        if self._has_received or has_chunks:
            return OSError(errno.ECONNRESET, f"TLS: {error.reason or error}")
        return RefusedError(self._why(error))

    def _read_alert(self) -> None:
        """Raise RefusedError if the broker has sent an alert before it closed the connection."""
        try:
            while self._receive():
                self._decrypt()
        except OSError:
            return

    # --- closing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Send close_notify, as far as possible without blocking, and close the socket."""
        self._plain.clear()
        try:
            if self.is_connected:
                self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # unwrap() waits for the broker's close_notify, which is not read any more
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
        """Open a channel.

        Raises RefusedError if certificates or keys cannot be read; OSError if they may come back.
        """
        try:
            context = self._context()
        except CredentialsUnavailableError as error:
            raise OSError(str(error)) from None
        except (AuthenticationError, ConfigError) as error:
            raise RefusedError(str(error)) from error
        return TlsChannel(channel_id, sock, host, context, self._explain)
