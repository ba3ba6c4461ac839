"""What does not work, told at once: the cause, the option, and what to do.

All timeouts are an hour: a client that waits for one of them is ended by pytest.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.patience import reason_given_time
from tests.proxy import TcpProxy
from tests.security.cases import CASES
from tests.security.stores import Options
from tests.security.writing import write

pytestmark = pytest.mark.timeout(2400, func_only=True)

SASL = "kafka.sasl.jaas.config"
SECURITY = "org.apache.kafka.common.security"


def failure(options, topic):
    """What is told to whoever writes with ``options``."""
    with pytest.raises(KafkaSinkError) as raised:
        write(options, topic)
    return str(raised.value)


def tells(message, *parts):
    """All ``parts`` are in it."""
    for part in parts:
        assert part in message, f"{part!r} is missing in: {message}"


def at(world, listener, **changed):
    """Alice's options of another listener, sent to ``listener``."""
    options = world.client(changed.pop("of", listener))
    options["kafka.bootstrap.servers"] = world.kafka.bootstrap_servers_of(listener)
    return {**options, **{f"kafka.{k.replace('_', '.')}": v for k, v in changed.items()}}


class Refused(NamedTuple):
    """A client that is refused at once. changed: of its options; "" leaves one out

    mechanism: of the client's options, as those of the listener
    parts: of what it is told
    """

    parts: tuple[str, ...]
    listener: str
    mechanism: str | None = None
    changed: Options = {}  # noqa: RUF012


NO_STORE = {"kafka.ssl.keystore.location": "", "kafka.ssl.keystore.type": ""}
WANTED = ("wants a client certificate, and kafka.ssl.keystore.location is not set",)
STRANGER = {"kafka.ssl.keystore.location": "FOLDER/stranger.pem"}
UNKNOWN = ("refuses the client's certificate, that of kafka.ssl.keystore.location",)
AUTHORITY = "the server's certificate is not signed by an authority of "
HOST_NAME = "kafka.ssl.endpoint.identification.algorithm"
NO_SCRAM = (
    "this listener does not have the SASL mechanism SCRAM-SHA-256; enabled there: PLAIN. "
    "Set kafka.sasl.mechanism to one of these",
)


def wrong_login(mechanism):
    login = {"kafka.sasl.username": "alice", "kafka.sasl.password": "wrong", SASL: ""}
    check = "check kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password"
    return Refused((f"{mechanism}: Authentication failed", check), "SASL_TLS", mechanism, login)


REFUSED = {
    "another authority": Refused(
        (AUTHORITY, "kafka.ssl.truststore.location"),
        "TLS_RSA",
        changed={"kafka.ssl.truststore.location": "FOLDER/other.pem"},
    ),
    "another host": Refused(("is not for the name or address", HOST_NAME), "WRONG_HOST"),
    "no client certificate": Refused(WANTED, "MUTUAL_EC", changed=NO_STORE),
    "no client certificate, TLS 1.2": Refused(WANTED, "MUTUAL_12", changed=NO_STORE),
    "a stranger": Refused(UNKNOWN, "MUTUAL_EC", changed=STRANGER),
    "a stranger, TLS 1.2": Refused(UNKNOWN, "MUTUAL_12", changed=STRANGER),
    "clear text to TLS": Refused(
        ("is a TLS listener: use kafka.security.protocol=SSL",),
        "TLS_EC",
        changed={"kafka.security.protocol": "PLAINTEXT"},
    ),
    "a password by PLAIN": wrong_login("PLAIN"),
    "a password by SCRAM": wrong_login("SCRAM-SHA-512"),
    "a mechanism": Refused(
        NO_SCRAM,
        "PLAIN_ONLY",
        changed={
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            SASL: f'{SECURITY}.scram.ScramLoginModule required username="u" password="p";',
        },
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_told_after_one_connection(world, new_topic, tmp_path, name):
    refused = REFUSED[name]
    (tmp_path / "other.pem").write_text(Authority("another").pem)
    (tmp_path / "stranger.pem").write_text(Authority("another").issue("alice").pem())
    options = world.client(refused.listener, refused.mechanism) | refused.changed
    given = {k: text.replace("FOLDER", str(tmp_path)) for k, text in options.items() if text}
    topic = new_topic()
    with TcpProxy(lambda: world.kafka.address(1, refused.listener)) as proxy:
        given["kafka.bootstrap.servers"] = proxy.address
        tells(failure(given, topic), *refused.parts)
        assert proxy.accepted_count == 1


ANSWERED = [
    ("SASL_TLS", "SASL", "SASL_PLAINTEXT", ("is a TLS listener", "SASL_SSL")),
    (MAIN_LISTENER, "SASL", "SASL_PLAINTEXT", ("has no SASL", "PLAINTEXT")),
    ("TLS_EC", "SASL_TLS", "SASL_SSL", ("has no SASL", "kafka.security.protocol=SSL")),
]
HUNG_UP_ON = [
    ("SASL", "SASL_TLS", "SASL_SSL", ("does not speak TLS", "SASL_PLAINTEXT")),
    ("SASL", "SASL", "PLAINTEXT", ("SASL", "kafka.security.protocol")),
    ("SASL_TLS", "SASL_TLS", "SSL", ("SASL", "kafka.security.protocol")),
]


@pytest.mark.parametrize(("listener", "of", "protocol", "parts"), [*ANSWERED, *HUNG_UP_ON])
def test_protocols_that_do_not_meet(world, new_topic, listener, of, protocol, parts):
    """``of``: the listener that the client's other options are for.

    A broker that hangs up without a word may be one that is being restarted: it is tried again
    until time is up.
    """
    options, topic = at(world, listener, of=of, security_protocol=protocol), new_topic()
    if (listener, of, protocol, parts) in ANSWERED:
        tells(failure(options, topic), *parts)
        return

    def fails(timeout_ms):
        write({**options, "kafka.max.block.ms": str(timeout_ms)}, topic)

    tells(reason_given_time(fails, KafkaSinkError, 4_000, *parts), *parts)


def test_the_issuer_refuses(world, new_topic):
    options = CASES["oauth-client-credentials"](world)
    options["kafka.sasl.oauthbearer.client.credentials.client.secret"] = "wrong secret"
    before = len(world.issuer.requests)
    message = failure(options, new_topic())
    assert len(world.issuer.requests) == before + 1
    tells(message, "401", "invalid_client", "client.secret")
    assert "wrong secret" not in message


@pytest.mark.parametrize("claims", [{"aud": "others"}, {"iss": "http://others"}])
def test_the_brokers_refuse_the_token(world, new_topic, tmp_path, claims):
    path = tmp_path / "token"
    path.write_text(world.issuer.token("alice", **claims))
    options = CASES["oauth-file-RS256"](world)
    options["kafka.sasl.oauthbearer.token.endpoint.url"] = path.as_uri()
    message = failure(options, new_topic())
    tells(message, "OAUTHBEARER", "invalid_token", "issuer, audience")
    assert path.read_text() not in message
