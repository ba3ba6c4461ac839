"""A TLS server of Python's own in a thread, a network with TLS and one channel, and what each needs to trust the other."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.network.interface import Address, Disconnected, Received
from spark_kafka_sink.network.tls import TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork

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


CHANNEL = 7


def explain(error, host, port):
    return f"{host}: {error}"


class Client:
    """A network, and its one channel."""

    def __init__(self, context=None):
        context = client_context() if context is None else context
        self.network = SelectorNetwork(open_channel=TlsChannels(lambda: context, explain))

    def connect(self, server, host=HOST):
        """The first event: Connected or Disconnected."""
        self.network.connect(CHANNEL, Address(socket.AF_INET, server.address), host)
        return self.until(bool)[0]

    def until(self, is_done, poll_ms=1_000):
        """All events up to the one after which ``is_done(events)``."""
        events = []
        deadline = time.monotonic() + DEADLINE_S
        while not is_done(events):
            assert time.monotonic() < deadline, f"only {events}"
            events += self.network.poll(poll_ms)
        return events

    def until_lost(self):
        event = self.until(lambda events: any(isinstance(e, Disconnected) for e in events))[-1]
        assert isinstance(event, Disconnected)
        return event

    def until_received(self, size):
        return received(self.until(lambda events: len(received(events)) >= size))


def received(events):
    return b"".join(event.data for event in events if isinstance(event, Received))


def limited(context, version):
    context.maximum_version = context.minimum_version = ssl.TLSVersion[version]
    return context
