"""A client that brokers authenticate, refuse or quote, or whose credentials are replaced."""

import contextlib
import dataclasses
import logging
import random
import ssl
from datetime import datetime, timezone
from unittest import mock

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    CredentialsUnavailableError,
    error_named,
)
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.base.text import HIDDEN, MOST_SHOWN, Secret
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import certificates
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.channels import Disconnected
from spark_kafka_sink.network.transport import LookUp, Resolver, look_up
from spark_kafka_sink.producer.producer import ProducerPool
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from spark_kafka_sink.security.key_formats import expires_at_ms
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
)
from spark_kafka_sink.security.security import Security
from spark_kafka_sink.security.tls import BROKERS, TlsErrorContext, explain
from tests.property.message_values import REQUEST_TYPES
from tests.simulation.time import SimClock
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork, Silence

NODE = Node(1, "broker.example", 9092)
TIMEOUT_MS = 60_000
SASL = {SaslHandshakeRequest: (0, 1), SaslAuthenticateRequest: (0, 2)}
PASSWORD = "marked-p%ss wörd"


class World:
    """A client and one broker, which answers SASL well unless ``answers`` say otherwise."""

    def __init__(self, is_authenticated=True):
        self.clock = SimClock(0)
        self.answers = {}
        self.hosts = []
        self.password = PASSWORD
        self.unavailable_until_ms = 0
        brokers = [MetadataResponseBroker(1, *NODE[1:3])]
        self.well = {
            SaslHandshakeRequest: SaslHandshakeResponse(0, ["PLAIN"]),
            SaslAuthenticateRequest: SaslAuthenticateResponse(session_lifetime_ms=10_000),
            MetadataRequest: MetadataResponse(brokers=brokers, cluster_id="c"),
        }
        offered = {MetadataRequest: (0, 12), **SASL}
        self.network = ScriptedNetwork({1: NODE}, self.clock, self._answer, offered)
        self.admin = AdminClient(
            [(NODE.host, NODE.port)],
            DEFAULT_SETTINGS,
            self.network,
            self.clock,
            random.Random(1),
            self._create_sasl_client if is_authenticated else None,
        )

    def _create_sasl_client(self, host):
        self.hosts.append(host)
        if self.clock.ms < self.unavailable_until_ms:
            raise CredentialsUnavailableError("the issuer is away")
        return PlainSaslClient("alice", Secret(self.password))

    def _answer(self, asked):
        """An answer that is a function is called, and may raise."""
        kind = type(asked.request)
        answer = self.answers.get(kind, self.well[kind])
        return answer(asked) if callable(answer) else answer

    def ask(self):
        self.admin.metadata([], False, self.admin.deadline_in(TIMEOUT_MS))

    def refusal(self, error=AuthenticationError):
        """What is told; it took no time."""
        before_ms = self.clock.ms
        with pytest.raises(error) as raised:
            self.ask()
        assert error is not AuthenticationError or self.clock.ms == before_ms
        return str(raised.value)

    @property
    def asked(self):
        return [type(asked.request).__name__ for asked in self.network.asked]


@pytest.fixture
def world():
    return World()


def lose(asked):
    raise LoseConnection


REFUSED = SaslAuthenticateResponse(
    error_named("SASL_AUTHENTICATION_FAILED").code,
    "Authentication failed: Invalid username or password",
)
LOGIN = ["SaslHandshakeRequest", "SaslAuthenticateRequest"]


def test_a_session_is_renewed_when_there_is_something_to_send(world):
    world.ask()
    assert world.asked == [*LOGIN, "MetadataRequest"]
    assert world.hosts == [NODE.host]
    world.clock.ms += 9_600
    world.admin.pause(0, world.clock.ms + 1_000)
    assert len(world.network.connects) == 1
    world.ask()
    assert world.asked == [*LOGIN, "MetadataRequest", *LOGIN, "MetadataRequest"]
    assert len(world.network.connects) == 1


def test_after_a_session_the_connection_is_made_anew(world):
    world.ask()
    world.clock.ms += 10_000
    started_ms = world.clock.ms
    world.ask()
    assert world.asked == [*LOGIN, "MetadataRequest", *LOGIN, "MetadataRequest"]
    assert len(world.network.connects) == 2
    assert world.clock.ms == started_ms, "nothing went wrong: there is no back-off"


def test_a_refusal_is_raised_at_once_and_names_the_broker(world):
    world.answers[SaslAuthenticateRequest] = REFUSED
    told = world.refusal()
    assert NODE.address in told
    assert "Invalid username or password" in told
    # A client that lives on may ask again: somebody may have created the user meanwhile.
    del world.answers[SaslAuthenticateRequest]
    world.ask()
    # So it is when a session is renewed.
    world.clock.ms = 9_600
    world.answers[SaslAuthenticateRequest] = REFUSED
    world.refusal()


def test_credentials_that_are_not_there_yet_are_waited_for(world):
    world.unavailable_until_ms = 20_000
    world.ask()
    assert world.clock.ms >= 20_000
    never = World()
    never.unavailable_until_ms = TIMEOUT_MS * 10
    assert "the issuer is away" in never.refusal(BootstrapError)


def test_a_connection_lost_in_the_middle_of_sasl_is_made_again(world):
    def lose_once(asked):
        del world.answers[SaslAuthenticateRequest]
        raise LoseConnection

    world.answers[SaslAuthenticateRequest] = lose_once
    world.ask()
    assert len(world.network.connects) == 2


def test_a_broker_that_hangs_in_the_middle_of_sasl(world):
    """It has the time of any request."""

    def say_nothing(asked):
        raise Silence

    world.answers[SaslAuthenticateRequest] = say_nothing
    told = world.refusal(BootstrapError)
    assert "not authenticated within kafka.request.timeout.ms = 30000" in told
    assert len(world.network.connects) == 2


def test_tls_that_refuses_ends_the_wait(world):
    def connect(channel_id, address, host):
        event = Disconnected(channel_id, f"{host}: expired", is_refused=True)
        world.network._events.append(event)

    world.network.connect = connect
    assert "broker.example: expired" in world.refusal()


def test_a_listener_with_sasl_that_is_not_asked_for_it():
    """It answers ApiVersions, and ends the connection at the next request."""
    in_clear = World(is_authenticated=False)
    in_clear.answers[MetadataRequest] = lose
    told = in_clear.refusal((BootstrapError, BrokerError))
    for words in ("before the first answer", "kafka.security.protocol", "SASL_SSL"):
        assert words in told
    # A connection that has answered is just lost.
    del in_clear.answers[MetadataRequest]
    in_clear.ask()
    in_clear.answers[MetadataRequest] = lose
    in_clear.network.lose(1)
    assert "SASL" not in in_clear.refusal(BootstrapError)


# --- brokers that quote what they were sent, and commands for a terminal ----------------------------

BLOW = "\x1b[2J\r\n2026-01-01 ERROR forged\u202e\x9b31m"


def is_harmless(text):
    return text.isprintable() and "marked" not in text


@pytest.mark.parametrize(
    ("kind", "answer", "told"),
    [
        (
            SaslAuthenticateRequest,
            SaslAuthenticateResponse(58, f"no: \0alice\0{PASSWORD} {BLOW}"),
            HIDDEN,
        ),
        (SaslHandshakeRequest, SaslHandshakeResponse(33, [BLOW]), "forged"),
        (SaslHandshakeRequest, SaslHandshakeResponse(33, ["M" * 30] * 9999), "MMM"),
    ],
    ids=["the password", "mechanisms", "many mechanisms"],
)
def test_a_broker_that_quotes_and_blows(world, kind, answer, told):
    world.answers[kind] = answer
    refusal = world.refusal()
    assert told in refusal
    assert is_harmless(refusal)
    assert len(refusal) < 2 * MOST_SHOWN


def test_the_error_of_scram_and_the_refusal_of_a_token():
    scram = ScramSaslClient("SCRAM-SHA-256", ScramUser("alice", Secret(PASSWORD)))
    nonce = scram.initial_response().decode().partition("r=")[2]
    scram.evaluate_challenge(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    token = OAuthBearerSaslClient(Secret("marked.Wq7zR4tL9vB2kM5xY.cut"), {})
    token.initial_response()
    status = f'{{"status":"marked.Wq7zR4tL9v{BLOW}"}}'.encode()
    assert token.evaluate_challenge(status) == b"\x01"
    forged = b"e=\x1b[2J\r\n forged"
    for conversation, last, told in ((scram, forged, " forged"), (token, b"", "hidden")):
        with pytest.raises(AuthenticationError, match=told) as caught:
            conversation.evaluate_challenge(last)
        assert is_harmless(str(caught.value))


def test_an_advertised_name_in_every_error_that_names_the_broker():
    assert is_harmless(str(Node(7, f"host{BLOW}", 9092)))
    context = TlsErrorContext(BROKERS, None, None, None)
    error = ssl.SSLCertVerificationError(1, BLOW)
    error.verify_code, error.verify_message = 62, f"not valid for '{BLOW}'"
    assert is_harmless(explain(error, f"host{BLOW}", 9092, context))


@pytest.mark.parametrize("name", ["good.example\0.evil", "a\tb", "x\u202ey"])
def test_no_name_is_looked_up_that_the_system_would_cut(name):
    found = []

    def begin(take):
        while isinstance(asked := take(), LookUp):
            asked.on_found(look_up(asked.host, asked.port))

    Resolver(begin=begin).resolve(name, 9092, found.append)
    (error,) = found
    assert isinstance(error, OSError)
    assert is_harmless(str(error))
    assert "advertised.listeners" in str(error)


def text_fields(message):
    for field in dataclasses.fields(message):
        spec = field.metadata["wire"]
        wire_type = spec.wire_type
        yield message, field.name, spec
        while isinstance(wire_type, types.ArrayOf):
            wire_type = wire_type.element
        if isinstance(wire_type, type):
            yield from text_fields(wire_type)


def decoded(told):
    out = types.Writer()
    schema.encode_message(told, 1, out)
    return schema.decode_message(type(told), 1, bytes(out.tail))


def test_a_text_is_cleaned_again_when_another_secret_is_known():
    told = SaslAuthenticateResponse(error_message="refused: marked-later")
    assert decoded(told).error_message == "refused: marked-later"
    secret = Secret("marked-later")
    assert decoded(told).error_message == f"refused: {HIDDEN}", secret


# 21 and 24 characters.
CUT = {"marked-Wq7zR4tL9vB2kM": 15, "marked-Wq7zR4tL9vB2kM5xY": 20}


@pytest.mark.parametrize("password", CUT)
def test_a_password_that_a_broker_quotes_cut_is_hidden_at_its_login_and_later(password, world):
    quoted = password[: CUT[password]]
    world.password = password
    world.answers[SaslAuthenticateRequest] = SaslAuthenticateResponse(58, f"no: {quoted}")
    assert is_harmless(world.refusal())
    world.answers.clear()
    world.ask()
    # As an answer of any API, whoever asked: the producer, or a command.
    assert decoded(SaslAuthenticateResponse(error_message=f"of {quoted}")).error_message == HIDDEN


def test_of_an_answer_full_of_texts_only_some_are_cleaned():
    """A text takes long: without a limit, one answer would stop the network's thread."""
    same, others = (
        ["SCRAM-SHA-512"] * 10_000,
        [f"M-{number}-{'%2541' * 700}" for number in range(99)],
    )
    cleaned = decoded(SaslHandshakeResponse(33, [*same, *others])).mechanisms
    assert cleaned[:10_000] == same
    assert [text[:4] for text in cleaned[10_000:10_060]] == [f"M-{n}-"[:4] for n in range(60)]
    assert not any(cleaned[10_080:])


def test_no_words_of_a_broker_are_decoded_as_they_are():
    """A field that Kafka calls a message has the type that cleans it, in every answer."""
    fields = [f for request in REQUEST_TYPES for f in text_fields(request.response_type)]
    words = [(m, name, spec) for m, name, spec in fields if name.endswith("message")]
    assert len(words) >= 8
    assert [(m.__name__, name) for m, name, spec in words if spec.wire_type is not types.TEXT] == []


# --- which credentials were replaced ---------------------------------------------------------------

AUTHORITY = Authority()


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9998, 9999])
def test_when_a_certificate_expires(year, monkeypatch):
    """Two kinds of time: with two digits of the year until 2049, and with four."""
    at = datetime(year, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    begin = datetime(1990, 1, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(certificates, "_validity", lambda *_: (begin, at))
    data = AUTHORITY.issue("client").certificate.public_bytes(Encoding.DER)
    expected = None if year == 9999 else int(at.timestamp() * 1000)
    assert expires_at_ms(data) == expected
    for size in range(0, len(data), 37):
        assert expires_at_ms(data[:size]) is None
    assert expires_at_ms(bytes.fromhex("300430020500")) is None, "too few parts"


@pytest.fixture
def folder(tmp_path):
    write_private(tmp_path / "client.pem", AUTHORITY.issue("alice").pem())
    write_private(tmp_path / "ca.pem", AUTHORITY.pem)
    (tmp_path / "secrets").write_text("password=before\n")
    return tmp_path


def config_of(folder, **options):
    key = {"ssl.keystore.location": str(folder / "client.pem")}
    given = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", **key}
    return ProducerConfig.parse({**given, **options})


@pytest.fixture
def security(folder):
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.username": "alice",
        "sasl.password": f"${{file:{folder / 'secrets'}:password}}",
    }
    return Security.of(config_of(folder, **options).security)


def test_each_replaced_file_is_noticed_once_by_each_producer(folder, security):
    first, second = security.credentials_watcher(), security.credentials_watcher()
    assert not first()
    write_private(folder / "client.pem", AUTHORITY.issue("alice").pem())
    assert (first(), first()) == (True, False)
    write_private(folder / "ca.pem", AUTHORITY.pem + Authority("new").pem)
    assert (first(), first()) == (True, False)
    assert (second(), second()) == (True, False)
    (folder / "secrets").write_text("password=after\n")
    assert (first(), second(), first(), second()) == (True, True, False, False)


@pytest.mark.parametrize("name", ["client.pem", "ca.pem", "secrets"])
def test_a_half_written_file_leaves_the_former_in_use(name, folder, security, caplog):
    have_changed = security.credentials_watcher()
    path = folder / name
    whole = path.read_text()
    path.write_text("")
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        assert [have_changed() for _ in range(3)] == [False] * 3
    (record,) = caplog.records
    assert "What was read before stays in use" in record.getMessage()
    security.tls.context()
    assert security.create_sasl_client("b").initial_response() == b"\0alice\0before"
    write_private(path, whole.replace("before", "after") if name == "secrets" else whole)
    assert have_changed()


@pytest.mark.parametrize("name", ["client.pem", "ca.pem", "secrets"])
def test_what_is_gone_is_not_used_until_it_is_back(name, folder, security):
    """An operator may have withdrawn it. If a file is only being replaced, a retry succeeds."""
    use = {"secrets": lambda: security.create_sasl_client("b")}.get(name, security.tls.context)
    have_changed = security.credentials_watcher()
    whole = (folder / name).read_text()
    (folder / name).unlink()
    assert [have_changed() for _ in range(3)] == [True, False, False]
    for _ in range(2):
        with pytest.raises(CredentialsUnavailableError, match=r"no longer used \[PKS-OPTION-021\]"):
            use()
    write_private(folder / name, whole)
    assert [have_changed() for _ in range(3)] == [True, False, False]
    use()


def test_a_key_or_variable_that_is_gone_is_not_used(folder, monkeypatch):
    monkeypatch.setenv("USER_OF_TEST", "alice")
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "${env:USER_OF_TEST}",
        "sasl.password": f"${{file:{folder / 'secrets'}:password}}",
    }
    login = Security.of(
        ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:1", **options}).security
    ).login
    login.login(1)
    (folder / "secrets").write_text("other=1\n")
    with pytest.raises(CredentialsUnavailableError, match="no key 'password'"):
        login.login(1)
    (folder / "secrets").write_text("password=after\n")
    login.login(1)
    monkeypatch.delenv("USER_OF_TEST")
    with pytest.raises(CredentialsUnavailableError, match="no environment variable USER_OF_TEST"):
        login.login(1)


def test_a_producer_and_an_admin_client_that_are_kept_notice_it(folder):
    """Before the next task."""
    config, pool = config_of(folder), ProducerPool()

    def notices_once(client, look):
        with mock.patch.object(client, "renew_connections") as renew:
            look()
            assert not renew.called
            write_private(folder / "client.pem", AUTHORITY.issue("alice").pem())
            look()
            look()
            renew.assert_called_once_with()

    with contextlib.closing(pool.acquire(config, [])) as producer:

        def next_task():
            pool.release(config, producer)
            assert pool.acquire(config, []) is producer

        notices_once(producer.client, next_task)
    with AdminClient.of(config) as admin:
        notices_once(admin._client, admin.renew_if_credentials_changed)
