"""Secured connections, hostile peers and broken stores: the documented errors are all that comes of them.

Whatever is answered to SASL, however TLS is cut and changed on its way, and with any bytes in a store.
``FUZZ_CASES`` and ``FUZZ_SEED`` as in ``test_protocol_fuzz.py``; the cases are shared out.
"""

from __future__ import annotations

import os
import random
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.network.channels import RefusedError
from spark_kafka_sink.network.tls import TlsChannel
from spark_kafka_sink.protocol.connection import Authentication, Connection, ExpectedBroker, Ready
from spark_kafka_sink.protocol.messages import client as client_api
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.security import key_formats, pkcs12
from spark_kafka_sink.security.key_formats import StoreError
from spark_kafka_sink.security.mechanisms import PlainSaslClient, ScramSaslClient, ScramUser
from tests.property.test_protocol_fuzz import SEED, mutated
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl
from tests.unit.frames import answer_frame
from tests.unit.security.tls_ends import (
    HOST,
    client_context,
    key_entry,
    server_context,
    store,
    trusted_entry,
    with_digest,
)

CASES = int(os.environ.get("FUZZ_CASES", "20000"))
SASL_CASES, TLS_CASES = max(CASES // 4, 1), max(CASES // 40, 1)
VERSIONS = [client_api.ApiVersion(key, 0, last) for key, last in ((18, 4), (17, 1), (36, 2))]
DOCUMENTED = (RemoteProtocolError, AuthenticationError, UnsupportedVersionError)


# --- SASL ------------------------------------------------------------------------------------------


def conversation(mechanism):
    ((name, password),) = USERS.items()
    if mechanism == PLAIN:
        return PlainSaslClient(name, Secret(password))
    return ScramSaslClient(SCRAM, ScramUser(name, Secret(password)), nonce=lambda: "nonce")


class Broker:
    """Answers well. ``harm`` is done to the answer whose number is ``harmed_at``."""

    def __init__(self, mechanism, harm, harmed_at):
        self._dialogue = Sasl(mechanism, USERS).dialogue()
        self._mechanism = mechanism
        self._harm = harm
        self._left = harmed_at

    def answer(self, connection):
        sent = connection.in_flight[-1]
        name = type(sent.request).__name__
        message: Message
        if name == "ApiVersionsRequest":
            message = client_api.ApiVersionsResponse(api_keys=VERSIONS)
        elif name == "SaslHandshakeRequest":
            message = client_api.SaslHandshakeResponse(0, [self._mechanism])
        else:
            challenge = self._dialogue.answer(sent.request.auth_bytes)
            message = client_api.SaslAuthenticateResponse(0, None, challenge or b"", 1_000)
        frame = answer_frame(sent.request, sent.version, sent.correlation_id, message)
        self._left -= 1
        return self._harm(frame) if self._left == -1 else frame


def is_let_in(mechanism, rng, harm):
    """A whole dialogue, in which one answer is harmed. Lets undocumented exceptions out."""
    broker = Broker(mechanism, harm, rng.randrange(4))
    meant = rng.choice((None, ExpectedBroker("cluster", 7)))
    connection = Connection("fuzz", Authentication(lambda: conversation(mechanism), rng), meant)
    connection.open(0, 1_000)
    for _ in range(8):
        asked = connection.in_flight[-1]
        data = broker.answer(connection)
        middle = rng.randrange(len(data) + 1)
        for part in (data[:middle], data[middle:]):
            for event in connection.receive(part, 0):
                if isinstance(event, Ready):
                    return True
        if not connection.in_flight or connection.in_flight[-1] is asked:
            return False  # it waits for the rest of an answer
    raise AssertionError("the dialogue does not end")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_broken_answers_in_the_middle_of_sasl():
    rng = random.Random(SEED)
    outcomes = {True: 0, False: 0}
    for case in range(SASL_CASES):
        # A key is derived for each dialogue of SCRAM, which takes milliseconds.
        mechanism = SCRAM if case % 50 == 0 else PLAIN
        try:
            outcome = is_let_in(mechanism, rng, lambda data: mutated(data, rng))
        except DOCUMENTED:
            outcome = False
        except Exception as error:
            pytest.fail(f"{error!r} (FUZZ_SEED={SEED}, case {case}, {mechanism})")
        outcomes[outcome] += 1
    assert outcomes[False] > SASL_CASES / 10


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_answers_that_are_right_let_in(mechanism):
    for seed in range(20):
        assert is_let_in(mechanism, random.Random(seed), lambda data: data)


def test_who_does_not_know_the_password_is_not_believed():
    rng = random.Random(SEED)

    def change(data):
        """One of the characters of the proof, into another one."""
        at = data.index(b"v=") + 2 + rng.randrange(42)
        letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        other = rng.choice(letters.replace(data[at : at + 1], b""))
        return data[:at] + bytes([other]) + data[at + 1 :]

    for _ in range(40):
        broker = Broker(SCRAM, change, harmed_at=3)
        connection = Connection("fuzz", Authentication(lambda: conversation(SCRAM), rng))
        connection.open(0, 1_000)
        for _ in range(3):
            list(connection.receive(broker.answer(connection), 0))
        events = connection.receive(broker.answer(connection), 0)
        with pytest.raises(AuthenticationError, match="signature"):
            list(events)


# --- TLS -------------------------------------------------------------------------------------------


class Wire:
    """A socket that a channel reads from and writes to, without a network.

    most_bytes: that each call takes or gives, so that everything is cut anywhere
    """

    def __init__(self, rng, most_bytes):
        self._rng = rng
        self._most_bytes = most_bytes
        self.sent = bytearray()
        self.arrived = bytearray()

    def _some(self, size):
        return min(size, self._rng.randint(1, self._most_bytes))

    def connect_ex(self, address):
        return 0

    def getsockopt(self, level, option):
        return 0

    def recv(self, size):
        if not self.arrived or self._rng.random() < 0.1:
            raise BlockingIOError
        size = self._some(min(size, len(self.arrived)))
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        return data

    def send(self, data):
        if self._rng.random() < 0.1:
            raise BlockingIOError
        size = self._some(len(data))
        self.sent += data[:size]
        return size

    def close(self):
        pass


class Pair:
    """A channel, and OpenSSL's own server at the other end, which sends back what it gets."""

    def __init__(self, rng, most_bytes, version):
        self.wire = Wire(rng, most_bytes)
        client = client_context()
        client.maximum_version = client.minimum_version = version
        self.channel = TlsChannel(1, self.wire, HOST, client, _explain)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server = _SERVER.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False

    def serve(self, harm):
        """Take what was sent and answer it. A server that fails is silent from then on."""
        self._incoming.write(bytes(self.wire.sent))
        self.wire.sent.clear()
        try:
            if not self._is_open:
                self._server.do_handshake()
                self._is_open = True
            while data := self._server.read(65536):
                self._server.write(data)
        except ssl.SSLError:
            pass
        answer = self._outgoing.read()
        if answer:
            self.wire.arrived += harm(answer)

    def echo(self, data, harm):
        """What comes back. Raises what the channel raises; ends when nothing moves any more."""
        got, is_queued, idle = b"", False, 0
        while idle < 60:
            before = (len(got), len(self.wire.arrived))
            if not self.channel.is_connected:
                got += self.channel.finish_connect()
            else:
                if not is_queued:
                    self.channel.queue(data)
                    is_queued = True
                self.channel.write()
                got += self.channel.read()
            if self.channel.failure is not None:
                raise self.channel.failure
            if self.wire.sent:
                self.serve(harm)
            idle = 0 if (len(got), len(self.wire.arrived)) != before else idle + 1
        return got


def _explain(error, host, port):
    return str(error)


_SERVER = server_context()
TLS_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("version", TLS_VERSIONS)
@pytest.mark.parametrize("most_bytes", [1, 7, 1_000, 100_000])
def test_chunks_do_not_matter(version, most_bytes):
    rng = random.Random(f"{SEED} {most_bytes} {version}")
    size = 60 * most_bytes if most_bytes < 1_000 else 400_000
    for _ in range(3):
        pieces = [rng.randbytes(rng.choice((0, 1, 20, 5_000, 40_000)) % size) for _ in range(12)]
        pair = Pair(rng, most_bytes, version)
        assert pair.echo(pieces, lambda data: data) == b"".join(pieces)
        assert not pair.channel.has_unsent


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tls_that_is_changed_on_its_way():
    rng = random.Random(SEED)
    broken = 0
    for case in range(TLS_CASES):
        pair = Pair(rng, 10_000, rng.choice(TLS_VERSIONS))
        left = rng.randrange(3)

        def harm(data):
            nonlocal left
            left -= 1
            return mutated(data, rng) if left == -1 else data

        data = [rng.randbytes(rng.choice((10, 3_000, 20_000))) for _ in range(3)]
        try:
            got = pair.echo(data, harm)
        except Exception as error:
            # One of OpenSSL's own is an OSError, too, but one that nobody has explained.
            if isinstance(error, ssl.SSLError) or not isinstance(error, (OSError, RefusedError)):
                pytest.fail(f"{error!r} (FUZZ_SEED={SEED}, case {case})")
            broken += 1
        else:
            assert b"".join(data).startswith(got), f"other bytes (FUZZ_SEED={SEED}, case {case})"
    assert broken > TLS_CASES / 4


STORE_CASES = 4000
PASSWORD = "password"
CLIENT = Authority().issue("client")
JKS = store(PASSWORD, key_entry("k", b"key" * 9, PASSWORD, [b"own"]), trusted_entry("t", b"other"))
PKCS12 = CLIENT.pkcs12(PASSWORD)
LINE_ENDS = ("\n", "\r\n", "\r", " ", "\t", "\\n", "\\r\\n", "", "\\\n  ", "\n\n")


def read_jks(data):
    for entry in key_formats.read_jks(data, None).keys:
        key_formats.unlock_jks_key(entry, PASSWORD)


def read_jks_with_right_digest(data):
    for entry in key_formats.read_jks(with_digest(data[:-20], PASSWORD), PASSWORD).keys:
        key_formats.unlock_jks_key(entry, PASSWORD)


def read_pkcs12_without_password(data):
    pkcs12.trusted_certificates(data, None)


def read_pkcs12(data):
    pkcs12.key_material(data, PASSWORD, None)


def read_pem(data):
    text = data.decode("utf-8", "replace")
    key_formats.pem_certificates(text)
    key_formats.pem_private_key(text)


def in_clear():
    """A store that keytool would write without passwords: certificates in clear, no MAC."""
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization import pkcs12 as writer

    return writer.serialize_key_and_certificates(
        b"k", CLIENT.key, CLIENT.certificate, [CLIENT.issuer], NoEncryption()
    )


READERS = {
    "JKS": (read_jks, JKS, STORE_CASES),
    "JKS, digest right": (read_jks_with_right_digest, JKS, STORE_CASES),
    "PKCS12 in clear": (read_pkcs12_without_password, in_clear(), STORE_CASES),
    # Each case derives a key from the password.
    "PKCS12": (read_pkcs12, PKCS12, STORE_CASES // 20),
    "PEM": (read_pem, CLIENT.pem().encode(), STORE_CASES // 4),
}


@pytest.mark.parametrize("name", READERS)
def test_broken_stores_raise_nothing_but_store_error(name):
    read, whole, cases = READERS[name]
    read(whole)
    rng = random.Random(SEED)
    refused = 0
    for _ in range(cases):
        try:
            read(mutated(whole, rng))
        except StoreError:
            refused += 1
    assert refused > cases // 20


@given(st.binary(max_size=300))
def test_bytes_without_sense_raise_nothing_but_store_error(data):
    for read, whole, _ in READERS.values():
        for content in (data, whole[:8] + data):
            try:
                read(content)
            except StoreError:
                continue


@given(
    blocks=st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=4),
    line_end=st.sampled_from(LINE_ENDS),
    around=st.text(st.characters(exclude_characters="-", exclude_categories=("Cs",)), max_size=40),
)
def test_mangled_text_is_read_as_it_was(blocks, line_end, around):
    certificates = tuple(b"0\x82" + len(data).to_bytes(2, "big") + data for data in blocks)
    texts = [key_formats.encode_pem("CERTIFICATE", certificate) for certificate in certificates]
    text = around + around.join([*texts, key_formats.encode_pem("PRIVATE KEY", blocks[0])]) + around
    mangled = text.replace("\n", line_end)
    assert key_formats.pem_certificates(mangled) == certificates
    assert key_formats.pem_private_key(mangled).key.reveal() == key_formats.encode_pem(
        "PRIVATE KEY", blocks[0]
    )
