"""A LocalKafka with security, as other clients see it: librdkafka, Kafka's own tools."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.localkafka import AUTHORIZER, LocalKafkaError, LocalSecurity
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_S

USERS = {"alice": 'a "password\\, of; some=length ü', "bob": "bobs"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def secured():
    security = {
        "SASL_TLS": LocalSecurity("sasl_ssl", MECHANISMS, USERS),
        "SASL": LocalSecurity("SASL_PLAINTEXT", MECHANISMS, USERS),
        "MUTUAL": LocalSecurity("SSL", users=USERS, client_auth="required", key_type="RSA"),
    }
    properties = {**AUTHORIZER, "auto.create.topics.enable": "false"}
    with PatientKafka(security=security, server_properties=properties) as kafka:
        yield kafka


def librdkafka(kafka, listener, user, **changed):
    """Another client's names for the same."""
    security = kafka.secured(listener).security
    config = {
        "bootstrap.servers": kafka.bootstrap_servers_of(listener),
        "security.protocol": security.protocol,
    }
    if security.has_tls:
        config["ssl.ca.location"] = str(kafka.secured(listener).authority_file)
    if security.client_auth == "required":
        file = str(kafka.secured(listener).user_file(user))
        config |= {"ssl.key.location": file, "ssl.certificate.location": file}
    if security.has_sasl:
        config |= {"sasl.username": user, "sasl.password": security.users[user]}
    return config | {key.replace("_", "."): value for key, value in changed.items()}


def brokers_seen(config, timeout_s=PATIENCE_S):
    return len(AdminClient({**config, "log_level": "0"}).list_topics(timeout=timeout_s).brokers)


@pytest.mark.parametrize("listener", ["SASL", "SASL_TLS"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_users_log_in(secured, listener, mechanism, user):
    assert brokers_seen(librdkafka(secured, listener, user, sasl_mechanism=mechanism)) == 1


def test_users_show_their_certificates(secured):
    assert brokers_seen(librdkafka(secured, "MUTUAL", "alice")) == 1


@pytest.mark.parametrize(
    ("listener", "changed"),
    [
        ("SASL", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password": "wrong"}),
        ("SASL_TLS", {"sasl_mechanism": "PLAIN", "sasl_username": "nobody"}),
    ],
)
def test_others_do_not(secured, listener, changed):
    with pytest.raises(KafkaException):
        brokers_seen(librdkafka(secured, listener, "alice", **changed), timeout_s=2)


def test_nobody_gets_in_without_a_certificate(secured):
    config = librdkafka(secured, "MUTUAL", "alice")
    config = {k: v for k, v in config.items() if "key" not in k and "certificate" not in k}
    with pytest.raises(KafkaException):
        brokers_seen(config, timeout_s=2)


@pytest.mark.parametrize("listener", ["SASL_TLS", "MUTUAL"])
def test_its_properties_file_serves_kafkas_own_tools(secured, tmp_path, listener):
    path = secured.write_client_properties(tmp_path / "client.properties", "bob", listener)
    assert path.stat().st_mode & 0o777 == 0o600
    secured.create_topic(f"seen-through-{listener}")
    principal = "User:CN=bob" if listener == "MUTUAL" else "User:bob"
    secured.run_tool(
        "AclCommand",
        *("--bootstrap-server", secured.bootstrap_servers_of(MAIN_LISTENER)),
        *("--add", "--allow-principal", principal, "--operation", "Describe", "--topic"),
        f"seen-through-{listener}",
    )
    listed = secured.run_tool(
        "TopicCommand",
        *("--bootstrap-server", secured.bootstrap_servers_of(listener)),
        *("--command-config", str(path), "--list"),
    )
    assert listed.split() == [f"seen-through-{listener}"], "the authorizer hides all others"


def test_options_are_those_of_both_sinks(secured):
    options = secured.client_options("bob", "SASL_TLS", "PLAIN")
    assert options == {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="bob" password="bobs";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.secured("SASL_TLS").authority_file),
    }
    mutual = secured.client_options("bob", "MUTUAL")
    assert mutual["kafka.ssl.keystore.location"] == str(secured.secured("MUTUAL").user_file("bob"))
    assert "kafka.sasl.mechanism" not in mutual


def test_keys_are_for_the_owner_alone(secured):
    folder = secured.secured("MUTUAL").broker_file.parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_names_that_do_not_exist(secured):
    with pytest.raises(LocalKafkaError, match="there is no user carol, only alice, bob"):
        secured.client_options("carol", "SASL")
    with pytest.raises(LocalKafkaError, match="no secured listener SECURED, only SASL_TLS, SASL"):
        secured.client_options()
    with pytest.raises(LocalKafkaError, match="no listener OTHER, only SASL_TLS, SASL, MUTUAL, PL"):
        secured.bootstrap_servers_of("OTHER")


@pytest.mark.long
def test_three_brokers_of_an_older_kafka_are_found_by_metadata():
    with PatientKafka(3, "3.9.1", security="sasl_ssl") as kafka:
        config = librdkafka(kafka, "SECURED", "alice", sasl_mechanism="SCRAM-SHA-512")
        host, port = kafka.address(1)
        config["bootstrap.servers"] = f"{host}:{port}"
        assert kafka.bootstrap_servers.startswith(f"{host}:{port},")
        brokers = AdminClient({**config, "log_level": "0"}).list_topics(timeout=PATIENCE_S).brokers
        told = {(broker.host, broker.port) for broker in brokers.values()}
        assert told == {kafka.address(broker_id) for broker_id in (1, 2, 3)}
