"""What does not work, told at once: the cause, the option, and what to do.

All timeouts are an hour: a client that waits for one of them is ended by pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.settings import HOST, MAIN_LISTENER
from tests.patience import reason_given_time
from tests.security.cases import CASES
from tests.security.writing import VALUES, values_in, write

pytestmark = pytest.mark.timeout(2400, func_only=True)

NewTopic = Callable[..., str]
SASL = "kafka.sasl.jaas.config"


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


class TestCertificates:
    def test_of_another_authority(self, world, new_topic, tmp_path):
        other = tmp_path / "other.pem"
        other.write_text(Authority("another").pem)
        options = at(world, "TLS_RSA", ssl_truststore_location=str(other))
        tells(
            failure(options, new_topic()),
            "the server's certificate is not signed by an authority of ",
            "kafka.ssl.truststore.location",
        )

    def test_the_systems_authorities_do_not_know_it(self, world, new_topic):
        options = at(world, "TLS_RSA")
        del options["kafka.ssl.truststore.location"], options["kafka.ssl.truststore.type"]
        tells(failure(options, new_topic()), "kafka.ssl.truststore.location is not set")

    def test_for_another_host(self, world, new_topic):
        tells(
            failure(at(world, "WRONG_HOST"), new_topic()),
            "the server's certificate is not for the name or address 127.0.0.1",
            "kafka.ssl.endpoint.identification.algorithm",
        )

    def test_expired(self, world, new_topic):
        tells(
            failure(at(world, "EXPIRED"), new_topic()),
            "the server's certificate, or that of its authority, has expired",
        )

    @pytest.mark.parametrize("listener", ["MUTUAL_EC", "MUTUAL_12"])
    def test_none_of_the_client(self, world, new_topic, listener):
        """With TLS 1.3 the client is told after its own handshake, with 1.2 in it."""
        options = at(world, listener)
        del options["kafka.ssl.keystore.location"], options["kafka.ssl.keystore.type"]
        tells(
            failure(options, new_topic()),
            "the server wants a client certificate, and kafka.ssl.keystore.location is not set",
        )

    @pytest.mark.parametrize("listener", ["MUTUAL_EC", "MUTUAL_12"])
    def test_of_a_client_that_nobody_knows(self, world, new_topic, tmp_path, listener):
        unknown = tmp_path / "unknown.pem"
        unknown.write_text(Authority("another").issue("alice").pem())
        tells(
            failure(at(world, listener, ssl_keystore_location=str(unknown)), new_topic()),
            "the server refuses the client's certificate, that of kafka.ssl.keystore.location",
        )

    def test_versions_that_do_not_meet(self, world, new_topic):
        tells(
            failure(at(world, "TLS_12", ssl_enabled_protocols="TLSv1.3"), new_topic()),
            "no version of TLS",
            "kafka.ssl.enabled.protocols",
        )


class TestStores:
    @pytest.mark.parametrize(
        ("form", "wrong"),
        [
            ("pkcs12", "ssl.keystore.password"),
            ("pkcs12", "ssl.truststore.password"),
            ("jks", "ssl.keystore.password"),
            ("jks", "ssl.truststore.password"),
            ("jks", "ssl.key.password"),
            ("pem-encrypted", "ssl.key.password"),
        ],
    )
    def test_wrong_passwords(self, world, new_topic, form, wrong):
        options = CASES[f"{form}-EC-at-MUTUAL_EC"](world)
        options[f"kafka.{wrong}"] = "a wrong password"
        message = failure(options, new_topic())
        tells(message, "kafka.ssl.", "password", f"kafka.{wrong}")
        assert "a wrong password" not in message

    @pytest.mark.parametrize("store", ["truststore", "keystore"])
    def test_files_that_are_missing(self, world, new_topic, store):
        options = at(world, "MUTUAL_EC")
        options[f"kafka.ssl.{store}.location"] = "/nowhere/store.pem"
        tells(failure(options, new_topic()), f"kafka.ssl.{store}.location=/nowhere/store.pem")


class TestLogins:
    @pytest.mark.parametrize("listener", ["SASL", "SASL_TLS"])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    @pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "password")])
    def test_wrong_password_and_unknown_user(
        self, world, new_topic, listener, mechanism, user, password
    ):
        options = world.client(listener, mechanism)
        del options[SASL]
        options |= {"kafka.sasl.username": user, "kafka.sasl.password": password}
        tells(
            failure(options, new_topic()),
            f"{mechanism}: Authentication failed",
            "check kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password",
        )

    def test_a_mechanism_that_is_not_enabled(self, world, new_topic):
        options = world.client("PLAIN_ONLY")
        options |= {"kafka.sasl.mechanism": "SCRAM-SHA-256"}
        options[SASL] = options[SASL].replace("plain.Plain", "scram.Scram")
        tells(
            failure(options, new_topic()),
            "this listener does not have the SASL mechanism SCRAM-SHA-256; enabled there: PLAIN. "
            "Set kafka.sasl.mechanism to one of these",
        )


class WrongPort(NamedTuple):
    """A client that has the wrong protocol for a listener, and what it is told."""

    listener: str
    of: str
    """The listener that the client's other options are for."""
    protocol: str
    parts: tuple[str, ...]


ANSWERED = [
    WrongPort(
        "TLS_EC", "SASL", "PLAINTEXT", ("is a TLS listener: use kafka.security.protocol=SSL",)
    ),
    WrongPort("SASL_TLS", "SASL", "SASL_PLAINTEXT", ("is a TLS listener", "SASL_SSL")),
    WrongPort(MAIN_LISTENER, "SASL", "SASL_PLAINTEXT", ("has no SASL", "PLAINTEXT")),
    WrongPort("TLS_EC", "SASL_TLS", "SASL_SSL", ("has no SASL", "kafka.security.protocol=SSL")),
]
HUNG_UP_ON = [
    WrongPort(MAIN_LISTENER, "TLS_EC", "SSL", ("does not speak TLS", "kafka.security.protocol")),
    WrongPort("SASL", "SASL_TLS", "SASL_SSL", ("does not speak TLS", "SASL_PLAINTEXT")),
    WrongPort("SASL", "TLS_EC", "SSL", ("does not speak TLS", "kafka.security.protocol")),
    WrongPort("SASL", "SASL", "PLAINTEXT", ("SASL", "kafka.security.protocol")),
    WrongPort("SASL_TLS", "SASL_TLS", "SSL", ("SASL", "kafka.security.protocol")),
]


class TestWrongPorts:
    @pytest.mark.parametrize("wrong", ANSWERED)
    def test_protocols_that_do_not_meet(self, world, new_topic, wrong):
        options = at(world, wrong.listener, of=wrong.of, security_protocol=wrong.protocol)
        tells(failure(options, new_topic()), *wrong.parts)

    @pytest.mark.parametrize("wrong", HUNG_UP_ON)
    def test_brokers_that_hang_up_without_a_word(self, world, new_topic, wrong):
        """So does one that is being restarted: it is tried again until time is up."""
        options = at(world, wrong.listener, of=wrong.of, security_protocol=wrong.protocol)
        topic = new_topic()

        def fails(timeout_ms):
            write({**options, "kafka.max.block.ms": str(timeout_ms)}, topic)

        tells(reason_given_time(fails, KafkaSinkError, 4_000, *wrong.parts), *wrong.parts)


class TestTokens:
    TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"

    def test_the_issuer_cannot_be_reached(self, world, new_topic):
        (port,) = free_ports(1, HOST)
        options = world.client("SASL_TLS", "OAUTHBEARER")
        options[self.TOKEN_URL] = f"http://{HOST}:{port}/token"
        self.tells_given_time(options, new_topic(), self.TOKEN_URL, "refused")

    def test_an_issuer_that_is_back_in_time(self, world, new_topic):
        topic = new_topic()
        options = world.client("SASL_TLS", "OAUTHBEARER")
        del options[self.TOKEN_URL]
        issuer = _LateIssuer(world)
        _LATE.append(issuer)
        write(
            {
                **options,
                "kafka.sasl.oauthbearer.token.provider": f"{__name__}:_late_token",
                "kafka.sasl.login.retry.backoff.max.ms": "100",
            },
            topic,
        )
        assert issuer.asked == 3
        assert values_in(world.kafka, topic) == sorted(VALUES)

    def test_the_issuer_refuses(self, world, new_topic):
        options = CASES["oauth-client-credentials"](world)
        options["kafka.sasl.oauthbearer.client.credentials.client.secret"] = "wrong secret"
        message = failure(options, new_topic())
        tells(message, "401", "invalid_client", "client.secret")
        assert "wrong secret" not in message

    @pytest.mark.parametrize("claims", [{"aud": "others"}, {"iss": "http://others"}])
    def test_the_brokers_refuse_the_token(self, world, new_topic, tmp_path, claims):
        path = tmp_path / "token"
        path.write_text(world.issuer.token("alice", **claims))
        options = CASES["oauth-file-RS256"](world)
        options[self.TOKEN_URL] = path.as_uri()
        message = failure(options, new_topic())
        tells(message, "OAUTHBEARER", "invalid_token", "issuer, audience")
        assert path.read_text() not in message

    def test_a_token_that_has_expired(self, world, new_topic, tmp_path):
        path = tmp_path / "token"
        path.write_text(world.issuer.token("alice", exp=1_700_000_000))
        options = CASES["oauth-file-RS256"](world)
        options[self.TOKEN_URL] = path.as_uri()
        self.tells_given_time(options, new_topic(), "expired", self.TOKEN_URL)

    def tells_given_time(self, options, topic, *parts):
        """An issuer may come back: it is asked until time is up."""

        def fails(timeout_ms):
            write({**options, "kafka.max.block.ms": str(timeout_ms)}, topic)

        tells(reason_given_time(fails, KafkaSinkError, 4_000, *parts), *parts)


class _LateIssuer:
    """Gives no token the first two times."""

    def __init__(self, world):
        self._world = world
        self.asked = 0

    def token(self):
        self.asked += 1
        if self.asked <= 2:
            raise RuntimeError("the issuer is away")
        return self._world.issuer.token("alice")


_LATE = []


def _late_token():
    return _LATE[-1].token()
