"""What a hostile or careless peer says: its words reach errors and logs in one line, no secret in them."""

import dataclasses
import ssl

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.base.secret import HIDDEN, Secret
from spark_kafka_sink.base.text import MOST_SHOWN
from spark_kafka_sink.network.resolver import Resolver
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
)
from spark_kafka_sink.security.tls_errors import BROKERS, TlsErrorContext, explain
from tests.property.message_values import REQUEST_TYPES
from tests.unit.test_secured_client import World

BLOW = "\x1b[2J\r\n2026-01-01 ERROR forged\u202e\x9b31m"
PASSWORD = "marked-p%ss wörd"


def is_harmless(text):
    return text.isprintable() and "marked" not in text


class Hostile(World):
    """A broker that quotes what it was sent, and commands for a terminal."""

    def __init__(self, conversation):
        super().__init__()
        self._conversation = conversation

    def _create_sasl_client(self, host):
        return self._conversation

    def refusal(self):
        with pytest.raises(AuthenticationError) as caught:
            self.ask()
        return str(caught.value)


def says(**fields):
    return lambda asked: SaslAuthenticateResponse(**fields)


def test_a_broker_that_quotes_the_password_of_plain():
    world = Hostile(PlainSaslClient("alice", Secret(PASSWORD)))
    quoted = f"no: \0alice\0{PASSWORD} {BLOW}"
    world.answers[SaslAuthenticateRequest] = says(error_code=58, error_message=quoted)
    refusal = world.refusal()
    assert HIDDEN in refusal
    assert is_harmless(refusal)


def test_the_names_of_mechanisms_before_anybody_is_authenticated():
    world = Hostile(PlainSaslClient("alice", Secret(PASSWORD)))
    world.answers[SaslHandshakeRequest] = lambda asked: SaslHandshakeResponse(33, [BLOW])
    assert is_harmless(world.refusal())


def test_the_error_of_scram():
    world = Hostile(ScramSaslClient("SCRAM-SHA-256", ScramUser("alice", Secret(PASSWORD))))
    conversation = world._conversation
    first = conversation.initial_response().decode()
    nonce = first.partition("r=")[2]
    conversation.evaluate_challenge(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(AuthenticationError) as caught:
        conversation.evaluate_challenge(b"e=\x1b[2J\r\n forged")
    assert is_harmless(str(caught.value))
    assert "forged" in str(caught.value)


def test_the_refusal_of_a_token():
    conversation = OAuthBearerSaslClient(Secret("marked.jwt.token"), {})
    conversation.initial_response()
    assert (
        conversation.evaluate_challenge(f'{{"status":"marked.jwt.token{BLOW}"}}'.encode())
        == b"\x01"
    )
    with pytest.raises(AuthenticationError) as caught:
        conversation.evaluate_challenge(b"")
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
    Resolver(begin=lambda take: found_by(take, found)).resolve(name, 9092, found.append)
    (error,) = found
    assert isinstance(error, OSError)
    assert is_harmless(str(error))
    assert "advertised.listeners" in str(error)


def found_by(take, found):
    from spark_kafka_sink.network.resolver import LookUp, look_up

    while isinstance(asked := take(), LookUp):
        asked.on_found(look_up(asked.host, asked.port))


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


def test_an_error_names_only_so_many_mechanisms():
    world = Hostile(PlainSaslClient("alice", Secret(PASSWORD)))
    world.answers[SaslHandshakeRequest] = lambda asked: SaslHandshakeResponse(33, ["M" * 30] * 9999)
    assert len(world.refusal()) < 2 * MOST_SHOWN


def test_no_words_of_a_broker_are_decoded_as_they_are():
    """A field that Kafka calls a message has the type that cleans it, in every answer."""
    fields = [f for request in REQUEST_TYPES for f in text_fields(request.response_type)]
    words = [(m, name, spec) for m, name, spec in fields if name.endswith("message")]
    assert len(words) >= 8
    assert [(m.__name__, name) for m, name, spec in words if spec.wire_type is not types.TEXT] == []
