"""What a client does when brokers authenticate it, refuse it, or it has no credentials now."""

import random
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    CredentialsUnavailableError,
    error_named,
)
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.interface import Disconnected
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
from spark_kafka_sink.protocol.schema import Message
from tests.simulation.time import SimClock
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork, Silence

NODE = Node(1, "broker.example", 9092)
TIMEOUT_MS = 60_000
SASL = {SaslHandshakeRequest: (0, 1), SaslAuthenticateRequest: (0, 2)}
METADATA = MetadataResponse(brokers=[MetadataResponseBroker(1, *NODE[1:3])], cluster_id="c")
Answer = Callable[[Asked], Message]


class OneMessage:
    """As PLAIN."""

    mechanism = "PLAIN"

    def initial_response(self):
        return b"\0alice\0secret"

    def evaluate_challenge(self, challenge):
        return None


class World:
    """A client and one broker, which answers SASL well unless ``answer`` says otherwise."""

    def __init__(self, is_authenticated=True):
        self.clock = SimClock(0)
        self.answers = {}
        self.hosts = []
        self.unavailable_until_ms = 0
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
        return OneMessage()

    def _answer(self, asked):
        answer = self.answers.get(type(asked.request))
        if answer is not None:
            return answer(asked)
        if isinstance(asked.request, SaslHandshakeRequest):
            return SaslHandshakeResponse(0, ["PLAIN"])
        if isinstance(asked.request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(session_lifetime_ms=10_000)
        return METADATA

    def ask(self):
        self.admin.metadata([], False, self.admin.deadline_in(TIMEOUT_MS))

    @property
    def asked(self):
        return [type(asked.request).__name__ for asked in self.network.asked]


@pytest.fixture
def world():
    return World()


def refuse(asked):
    code = error_named("SASL_AUTHENTICATION_FAILED").code
    return SaslAuthenticateResponse(code, "Authentication failed: Invalid username or password")


def lose(asked):
    raise LoseConnection


def say_nothing(asked):
    raise Silence


LOGIN = ["SaslHandshakeRequest", "SaslAuthenticateRequest"]


def test_authenticated_before_the_first_question(world):
    world.ask()
    assert world.asked == [*LOGIN, "MetadataRequest"]
    assert world.hosts == [NODE.host]


def test_a_session_is_renewed_when_there_is_something_to_send(world):
    world.ask()
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
    world.answers[SaslAuthenticateRequest] = refuse
    with pytest.raises(AuthenticationError) as raised:
        world.ask()
    assert world.clock.ms == 0
    assert NODE.address in str(raised.value)
    assert "Invalid username or password" in str(raised.value)


def test_so_it_is_when_a_session_is_renewed(world):
    world.ask()
    world.clock.ms = started_ms = 9_600
    world.answers[SaslAuthenticateRequest] = refuse
    with pytest.raises(AuthenticationError):
        world.ask()
    assert world.clock.ms == started_ms


def test_who_was_refused_may_ask_again(world):
    """A client that lives on: somebody may have created the user meanwhile."""
    world.answers[SaslAuthenticateRequest] = refuse
    with pytest.raises(AuthenticationError):
        world.ask()
    del world.answers[SaslAuthenticateRequest]
    world.ask()


def test_credentials_that_are_not_there_yet_are_waited_for(world):
    world.unavailable_until_ms = 20_000
    world.ask()
    assert world.clock.ms >= 20_000


def test_credentials_that_never_come(world):
    world.unavailable_until_ms = TIMEOUT_MS * 10
    with pytest.raises(BootstrapError, match="the issuer is away"):
        world.ask()


def test_a_connection_lost_in_the_middle_of_sasl_is_made_again(world):
    def lose_once(asked):
        del world.answers[SaslAuthenticateRequest]
        raise LoseConnection

    world.answers[SaslAuthenticateRequest] = lose_once
    world.ask()
    assert len(world.network.connects) == 2


def test_a_broker_that_hangs_in_the_middle_of_sasl(world):
    """It has the time of setting a connection up, which grows; not that of any request."""
    world.answers[SaslAuthenticateRequest] = say_nothing
    with pytest.raises(BootstrapError) as raised:
        world.ask()
    assert "not authenticated within kafka.socket.connection.setup.timeout.ms" in str(raised.value)
    assert len(world.network.connects) == 3, "each has longer: 10 s, 20 s, 30 s"


def test_tls_that_refuses_ends_the_wait(world):
    def connect(channel_id, address, host):
        event = Disconnected(channel_id, f"{host}: expired", is_refused=True)
        world.network._events.append(event)

    world.network.connect = connect
    with pytest.raises(AuthenticationError, match=r"broker\.example: expired"):
        world.ask()


def test_a_listener_with_sasl_that_is_not_asked_for_it():
    """It answers ApiVersions, and ends the connection at the next request."""
    world = World(is_authenticated=False)
    world.answers[MetadataRequest] = lose
    with pytest.raises((BootstrapError, BrokerError)) as raised:
        world.ask()
    for words in ("before the first answer", "kafka.security.protocol", "SASL_SSL"):
        assert words in str(raised.value)


def test_a_connection_that_has_answered_is_just_lost():
    world = World(is_authenticated=False)
    world.ask()
    world.answers[MetadataRequest] = lose
    world.network.lose(1)
    with pytest.raises(BootstrapError) as raised:
        world.ask()
    assert "SASL" not in str(raised.value)
