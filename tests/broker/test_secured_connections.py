"""Secured connections to a real broker: who gets in, who is told why not, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    KafkaSinkError,
)
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.broker.confluent import consume
from tests.broker.producing import batch_of, plan_of
from tests.local_kafka import PatientKafka

USERS = {"alice": "alices", "bob": "bobs"}
LIFETIME_MS = 2_500
_TOLD_WITHIN_S = 60


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    security = {
        "SASL_TLS": LocalSecurity("SASL_SSL", ("PLAIN", "SCRAM-SHA-256"), USERS),
        "SASL": LocalSecurity("SASL_PLAINTEXT", ("SCRAM-SHA-512",), USERS),
        "MUTUAL": LocalSecurity("SSL", users=USERS, client_auth="required"),
        "SHORT": LocalSecurity(
            "SASL_SSL",
            ("SCRAM-SHA-256",),
            USERS,
            properties={"connections.max.reauth.ms": str(LIFETIME_MS)},
        ),
    }
    with PatientKafka(security=security) as kafka:
        yield kafka


def options_of(kafka: LocalKafka, listener: str, **changed: str) -> dict[str, str]:
    """The options of a client in Kafka's names; ``None`` leaves one away."""
    options = {
        key.removeprefix("kafka."): value
        for key, value in kafka.client_options("alice", listener).items()
    }
    return {**options, **{key.replace("_", "."): value for key, value in changed.items()}}


def config_of(kafka: LocalKafka, listener: str, **changed: str) -> ProducerConfig:
    return ProducerConfig.parse(options_of(kafka, listener, **changed))


@pytest.mark.parametrize("listener", ["SASL_TLS", "SASL", "MUTUAL", "SHORT"])
def test_records_arrive(kafka: LocalKafka, listener: str) -> None:
    topic = f"through-{listener}"
    kafka.create_topic(topic)
    producer = ThreadedProducer(config_of(kafka, listener))
    try:
        batch = batch_of(value=[b"%d" % i for i in range(5_000)])
        producer.append(batch, plan_of(batch, topic))
        producer.flush()
    finally:
        producer.close()
    assert len(consume(kafka.bootstrap_servers, topic)) == 5_000


def test_sessions_are_renewed_under_load(kafka: LocalKafka) -> None:
    """For four lifetimes, with requests in flight: nothing is lost, and no connection either."""
    topic = "renewed"
    kafka.create_topic(topic)
    producer = ThreadedProducer(config_of(kafka, "SHORT", batch_size="1000", linger_ms="0"))
    lost: list[object] = []
    note = producer.client.on_disconnect
    assert note is not None
    producer.client.on_disconnect = lambda node: (lost.append(node), note(node))[1]
    sent = 0
    until = time.monotonic() + 4 * LIFETIME_MS / 1000
    try:
        while time.monotonic() < until:
            batch = batch_of(value=[b"%d" % (sent + i) for i in range(200)])
            producer.append(batch, plan_of(batch, topic))
            sent += 200
        producer.flush()
        assert producer.metrics.retries == 0
    finally:
        producer.close()
    assert lost == []
    values = [int(value) for value in consume(kafka.bootstrap_servers, topic)]
    assert values == list(range(sent))


def told(config: ProducerConfig) -> str:
    """What an admin client is told, and how."""
    started = time.monotonic()
    with pytest.raises(KafkaSinkError) as raised, AdminClient.of(config) as admin:
        admin.metadata([], False, admin.deadline_in(5_000))
    assert time.monotonic() - started < _TOLD_WITHIN_S
    return f"{type(raised.value).__name__}: {raised.value}"


@pytest.mark.parametrize(
    ("listener", "changed", "words"),
    [
        ("SASL", {"sasl_jaas_config": "wrong"}, ["AuthenticationError", "SCRAM-SHA-512"]),
        (
            "SASL",
            {"sasl_mechanism": "SCRAM-SHA-256"},
            ["AuthenticationError", "enabled there: SCRAM-SHA-512"],
        ),
        ("SASL", {"security_protocol": "PLAINTEXT"}, ["SASL_SSL or SASL_PLAINTEXT"]),
        ("SASL_TLS", {"security_protocol": "SASL_PLAINTEXT"}, ["AuthenticationError", "TLS"]),
        ("SASL_TLS", {"security_protocol": "SSL"}, ["SASL_SSL or SASL_PLAINTEXT"]),
        ("MUTUAL", {"security_protocol": "PLAINTEXT"}, ["AuthenticationError", "TLS listener"]),
        ("MUTUAL", {"ssl_keystore_location": ""}, ["AuthenticationError", "ssl.keystore"]),
        ("MUTUAL", {"ssl_truststore_location": ""}, ["AuthenticationError", "ssl.truststore"]),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_a_refusal_is_told(
    kafka: LocalKafka, listener: str, changed: dict[str, str], words: list[str]
) -> None:
    options = options_of(kafka, listener)
    for name, value in changed.items():
        key = name.replace("_", ".")
        if value == "wrong":
            options[key] = options[key].replace(USERS["alice"] + '"', 'nothing"')
        elif value:
            options[key] = value
        else:
            options = {k: v for k, v in options.items() if not k.startswith(key[: key.rindex(".")])}
    message = told(ProducerConfig.parse(options))
    for word in words:
        assert word in message, message


def test_tls_to_a_listener_in_clear_text(kafka: LocalKafka) -> None:
    options = options_of(kafka, "MUTUAL", bootstrap_servers=kafka.bootstrap_servers)
    message = told(ProducerConfig.parse(options))
    assert "TLS" in message
    assert "security.protocol" in message


def test_sasl_to_a_listener_without(kafka: LocalKafka) -> None:
    options = options_of(kafka, "SASL", bootstrap_servers=kafka.bootstrap_servers)
    message = told(ProducerConfig.parse(options))
    assert "AuthenticationError" in message
    assert "has no SASL" in message


def test_a_refusal_ends_a_producer_at_once(kafka: LocalKafka) -> None:
    """Not after ``max.block.ms``, and with what the broker said."""
    options = options_of(kafka, "SASL", max_block_ms="600000")
    options["sasl.jaas.config"] = options["sasl.jaas.config"].replace('alices"', 'nothing"')
    producer = ThreadedProducer(ProducerConfig.parse(options))
    started = time.monotonic()
    try:
        batch = batch_of(value=[b"lost"])
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            producer.append(batch, plan_of(batch, "anything"))
    finally:
        producer.close()
    assert time.monotonic() - started < _TOLD_WITHIN_S


def test_the_kinds_of_errors() -> None:
    """Who looks for one of these does not catch a refusal by chance."""
    assert not issubclass(AuthenticationError, (BootstrapError, BrokerError))
