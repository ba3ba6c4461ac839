"""A TLS server of Python's own, in a thread, and what client and server need to trust each other."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_kafka_sink.localkafka.certificates import Authority

DEADLINE_S = 60
HOST = "localhost"

Serve = Callable[[ssl.SSLSocket], None]
"""What the server does with a connection, after the handshake."""


@lru_cache
def authority():
    return Authority()


@lru_cache
def other_authority():
    return Authority("somebody else")


@lru_cache
def broker():
    return authority().issue("broker", [HOST, "127.0.0.1"])


def client_context(trusted=None):
    """As ``TlsContext`` makes it: certificate and host name are checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(trusted or authority()).pem)
    return context


def server_context(identity=None, wants_client=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(context, identity or broker())
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority().pem)
    return context


def load_identity(context, identity):
    """Python takes keys out of files only."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "identity.pem")
        path.write_text(identity.pem(), encoding="ascii")
        context.load_cert_chain(path)


class TlsServer:
    """Serves one connection. ``failure``: of handshake or ``serve``, once the thread has ended."""

    def __init__(self, context, serve):
        self._context = context
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self.address = self._listener.getsockname()
        self.failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            accepted, _ = self._listener.accept()
            accepted.settimeout(DEADLINE_S)
            with self._context.wrap_socket(accepted, server_side=True) as channel:
                self._serve(channel)
        except (OSError, AssertionError) as error:
            self.failure = error

    def join(self):
        """Wait until the connection has ended."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def close(self):
        self._listener.close()


@contextmanager
def serving(serve, context=None):
    server = TlsServer(context or server_context(), serve)
    try:
        yield server
    finally:
        server.close()


def read_exactly(channel, size):
    data = bytearray()
    while len(data) < size:
        chunk = channel.recv(1 << 20)
        assert chunk, f"closed after {len(data)} bytes"
        data += chunk
    return bytes(data)
