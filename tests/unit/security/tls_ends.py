"""TLS servers and clients over sockets and in memory, and JKS written by hand."""

import hashlib
import itertools
import socket
import ssl
import struct
import threading
import time
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple, Optional

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.network.channels import Address, Disconnected, Reached, Received
from spark_kafka_sink.network.tls import TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.security.tls import private_file

DEADLINE_S = 60
HOST = "localhost"
ENOUGH_TURNS = 6


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


def server_context(identity=None, clients=None, version=None):
    """clients: whose certificates are required; None if none are. version: the only one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if version is not None:
        context.maximum_version = context.minimum_version = version
    load_identity(context, identity or broker())
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem)
    return context


def load_identity(context, identity):
    """Python takes keys out of files only."""
    with private_file(identity.pem().encode()) as path:
        context.load_cert_chain(path)


class Outcome(NamedTuple):
    """What both sides agreed on, or the client's error. peer: the client's name to the server."""

    version: Optional[str] = None
    cipher: Optional[str] = None
    peer: Optional[str] = None
    error: Optional[ssl.SSLError] = None


def handshake(client, server, host="localhost"):
    """Until both are done, and the client has read a byte that the server sent after it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(ENOUGH_TURNS):
        try:
            near.do_handshake() if "near" not in done else near.read(1)
            done.add("near" if "near" not in done else "all")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return Outcome(error=error)
        if "far" not in done:
            try:
                far.do_handshake()
                far.write(b"x")
                done.add("far")
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                done.add("far")  # its alert is in the buffer, for the client
    assert "all" in done
    cipher = near.cipher()
    return Outcome(near.version(), cipher[0] if cipher else None, _name(far.getpeercert()))


def _name(certificate):
    """The common name of who sent a certificate; None without one."""
    if not certificate:
        return None
    subject = certificate["subject"]
    assert isinstance(subject, tuple)
    return str(dict(part[0] for part in subject)["commonName"])


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
        """The first event after the address was reached: Connected or Disconnected."""
        self.network.connect(CHANNEL, Address(socket.AF_INET, server.address), host)
        events = self.until(lambda events: any(event != Reached(CHANNEL) for event in events))
        return next(event for event in events if event != Reached(CHANNEL))

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


SALT = bytes(range(20))
_ALGORITHM = bytes.fromhex("060a2b060104012a021101010500")


def key_entry(alias, key, password, chain, version=2):
    """key: PKCS#8, DER."""
    protected = _sequence(_sequence(_ALGORITHM) + _element(0x04, _locked(key, password)))
    certificates = b"".join(_certificate(one, version) for one in chain)
    return b"".join(
        (
            *(struct.pack(">I", 1), _text(alias), struct.pack(">Q", 0)),
            *(struct.pack(">I", len(protected)), protected),
            *(struct.pack(">I", len(chain)), certificates),
        )
    )


def trusted_entry(alias, certificate, version=2):
    return (
        struct.pack(">I", 2)
        + _text(alias)
        + struct.pack(">Q", 0)
        + _certificate(certificate, version)
    )


def store(password, *entries, version=2):
    content = struct.pack(">III", 0xFEEDFEED, version, len(entries)) + b"".join(entries)
    return with_digest(content, password)


def with_digest(content, password):
    secret = password.encode("utf-16-be")
    return content + hashlib.sha1(secret + b"Mighty Aphrodite" + content).digest()


def _locked(key, password):
    secret = password.encode("utf-16-be")
    digests = itertools.accumulate(
        itertools.repeat(b"", len(key) // 20 + 1),
        lambda last, _: hashlib.sha1(secret + last).digest(),
        initial=SALT,
    )
    stream = b"".join(digests)[len(SALT) :]
    mixed = bytes(a ^ b for a, b in zip(key, stream))
    return SALT + mixed + hashlib.sha1(secret + key).digest()


def _certificate(certificate, version):
    kind = _text("X.509") if version > 1 else b""
    return kind + struct.pack(">I", len(certificate)) + certificate


def _text(text):
    return struct.pack(">H", len(text.encode())) + text.encode()


def _sequence(content):
    return _element(0x30, content)


def _element(tag, content):
    return bytes([tag, 0x84]) + struct.pack(">I", len(content)) + content
