"""Who is refused does not try again: one connection, or one request for a token, and the error.

So none of the pauses and timeouts of the options counts. What is tried again until time is up, for a
broker or an issuer may come back, is in ``test_failures.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from spark_kafka_sink.localkafka.certificates import Authority
from tests.proxy import TcpProxy
from tests.security.cases import CASES
from tests.security.stores import Options
from tests.security.test_failures import failure

pytestmark = pytest.mark.timeout(2400, func_only=True)

NewTopic = Callable[..., str]


class Refused(NamedTuple):
    """listener: that the client connects to; changed: what is wrong with its options."""

    listener: str
    mechanism: str | None
    changed: Options


def _wrong_password(mechanism):
    login = {"kafka.sasl.username": "alice", "kafka.sasl.password": "wrong"}
    return Refused("SASL_TLS", mechanism, {**login, "kafka.sasl.jaas.config": ""})


REFUSED = {
    "a password by PLAIN": _wrong_password("PLAIN"),
    "a password by SCRAM": _wrong_password("SCRAM-SHA-512"),
    "a mechanism": Refused("PLAIN_ONLY", "PLAIN", {"kafka.sasl.mechanism": "SCRAM-SHA-256"}),
    "the authority": Refused("TLS_EC", None, {"kafka.ssl.truststore.location": "OTHER"}),
    "the host": Refused("WRONG_HOST", None, {}),
    "the date": Refused("EXPIRED", None, {}),
    "no client certificate, TLS 1.3": Refused(
        "MUTUAL_EC", None, {"kafka.ssl.keystore.location": "", "kafka.ssl.keystore.type": ""}
    ),
    "no client certificate, TLS 1.2": Refused(
        "MUTUAL_12", None, {"kafka.ssl.keystore.location": "", "kafka.ssl.keystore.type": ""}
    ),
    "clear text to TLS": Refused("TLS_EC", None, {"kafka.security.protocol": "PLAINTEXT"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_connection(world, new_topic, tmp_path, name):
    refused = REFUSED[name]
    options = world.client(refused.listener, refused.mechanism) | refused.changed
    if options.get("kafka.ssl.truststore.location") == "OTHER":
        other = tmp_path / "other.pem"
        other.write_text(Authority("another").pem)
        options["kafka.ssl.truststore.location"] = str(other)
    if name == "a mechanism":
        jaas = options["kafka.sasl.jaas.config"]
        options["kafka.sasl.jaas.config"] = jaas.replace("plain.Plain", "scram.Scram")
    given = {option: text for option, text in options.items() if text}
    topic = new_topic()
    with TcpProxy(lambda: world.kafka.address(1, refused.listener)) as proxy:
        given["kafka.bootstrap.servers"] = proxy.address
        failure(given, topic)
        assert proxy.accepted_count == 1


def test_one_request_for_a_token(world, new_topic):
    options = CASES["oauth-client-credentials"](world)
    options["kafka.sasl.oauthbearer.client.credentials.client.secret"] = "wrong"
    topic = new_topic()
    before = len(world.issuer.requests)
    failure(options, topic)
    assert len(world.issuer.requests) == before + 1
