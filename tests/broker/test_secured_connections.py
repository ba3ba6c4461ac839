"""Secured connections to a real broker: who gets in, who is told why not, and for how long."""

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, KafkaSinkError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import LocalSecurity
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ConnectionState
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.broker.confluent import consume
from tests.broker.producing import batch_of, plan_of
from tests.local_kafka import PatientKafka
from tests.patience import AN_HOUR_MS, NO_OTHER_TIMEOUT, reason_given_time

USERS = {"alice": "alices", "bob": "bobs"}
LIFETIME_MS = 5_000


@pytest.fixture(scope="module")
def kafka():
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


def options_of(kafka, listener, **changed):
    """The options of a client in Kafka's names; ``None`` leaves one away."""
    options = {
        key.removeprefix("kafka."): value
        for key, value in kafka.client_options("alice", listener).items()
    }
    return {**options, **{key.replace("_", "."): value for key, value in changed.items()}}


def config_of(kafka, listener, **changed):
    return ProducerConfig.parse(options_of(kafka, listener, **changed))


@pytest.mark.parametrize("listener", ["SASL_TLS", "SASL", "MUTUAL", "SHORT"])
def test_records_arrive(kafka, listener):
    topic = f"through-{listener}"
    kafka.create_topic(topic)
    producer = ThreadedProducer(config_of(kafka, listener))
    try:
        batch = batch_of(value=[b"%d" % i for i in range(5_000)])
        producer.append(batch, plan_of(batch, topic))
        producer.flush()
    finally:
        producer.close()
    assert len(consume(kafka.bootstrap_servers_of(MAIN_LISTENER), topic)) == 5_000


@pytest.mark.long
def test_sessions_are_renewed_under_load(kafka, monkeypatch):
    """With requests in flight: nothing is lost, nothing out of order, nothing twice."""
    topic = "renewed"
    kafka.create_topic(topic)
    renewed = 0
    usable = NetworkClient._handle_ready

    def counting(client, connection, *more):
        nonlocal renewed
        renewed += connection.state is ConnectionState.REAUTHENTICATING
        usable(client, connection, *more)

    monkeypatch.setattr(NetworkClient, "_handle_ready", counting)
    producer = ThreadedProducer(config_of(kafka, "SHORT", batch_size="1000", linger_ms="0"))
    sent = 0
    try:
        while renewed < 4:
            batch = batch_of(value=[b"%d" % (sent + i) for i in range(200)])
            producer.append(batch, plan_of(batch, topic))
            sent += 200
        producer.flush()
    finally:
        producer.close()
    values = [int(value) for value in consume(kafka.bootstrap_servers_of(MAIN_LISTENER), topic)]
    assert values == list(range(sent))


def assert_told(config, *words):
    """What an admin client is told within 5 s, on a quiet machine."""

    def ask(timeout_ms):
        with AdminClient.of(config) as admin:
            admin.metadata([], False, admin.deadline_in(timeout_ms))

    message = reason_given_time(ask, KafkaSinkError, 5_000, *words)
    for word in words:
        assert word in message


def assert_refused(config, *words):
    """At once: however much time there is."""
    with pytest.raises(AuthenticationError) as raised, AdminClient.of(config) as admin:
        admin.metadata([], False, admin.deadline_in(AN_HOUR_MS))
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("listener", "changed", "words"),
    [
        ("SASL", {"sasl_jaas_config": "wrong"}, ["!", "SCRAM-SHA-512", "invalid credentials"]),
        (
            "SASL",
            {"sasl_mechanism": "SCRAM-SHA-256"},
            ["!", "enabled there: SCRAM-SHA-512"],
        ),
        ("SASL", {"security_protocol": "PLAINTEXT"}, ["SASL_SSL or SASL_PLAINTEXT"]),
        ("SASL_TLS", {"security_protocol": "SASL_PLAINTEXT"}, ["!", "TLS"]),
        ("SASL_TLS", {"security_protocol": "SSL"}, ["SASL_SSL or SASL_PLAINTEXT"]),
        ("MUTUAL", {"security_protocol": "PLAINTEXT"}, ["!", "TLS listener"]),
        ("MUTUAL", {"ssl_keystore_location": ""}, ["!", "ssl.keystore"]),
        ("MUTUAL", {"ssl_truststore_location": ""}, ["!", "ssl.truststore"]),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_a_refusal_is_told(kafka, listener, changed, words):
    options = options_of(kafka, listener)
    for name, value in changed.items():
        key = name.replace("_", ".")
        if value == "wrong":
            options[key] = options[key].replace(USERS["alice"] + '"', 'nothing"')
        elif value:
            options[key] = value
        else:
            options = {k: v for k, v in options.items() if not k.startswith(key[: key.rindex(".")])}
    config = ProducerConfig.parse(options)
    if words[0] == "!":
        assert_refused(config, *words[1:])
    else:
        assert_told(config, *words)


def test_tls_to_a_listener_in_clear_text(kafka):
    options = options_of(
        kafka, "MUTUAL", bootstrap_servers=kafka.bootstrap_servers_of(MAIN_LISTENER)
    )
    assert_told(ProducerConfig.parse(options), "TLS", "security.protocol")


def test_sasl_to_a_listener_without(kafka):
    options = options_of(kafka, "SASL", bootstrap_servers=kafka.bootstrap_servers_of(MAIN_LISTENER))
    assert_refused(ProducerConfig.parse(options), "has no SASL")


def test_a_refusal_ends_a_producer_at_once(kafka):
    """Not after ``max.block.ms``, and with what the broker said."""
    options = options_of(kafka, "SASL", **NO_OTHER_TIMEOUT)
    options["sasl.jaas.config"] = options["sasl.jaas.config"].replace('alices"', 'nothing"')
    producer = ThreadedProducer(ProducerConfig.parse(options))
    try:
        batch = batch_of(value=[b"lost"])
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            producer.append(batch, plan_of(batch, "anything"))
    finally:
        producer.close()
