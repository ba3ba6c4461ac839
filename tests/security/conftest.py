"""One secured cluster for most tests: two brokers, each with every kind of listener."""

import os

import pytest

from spark_kafka_sink.localkafka import AUTHORIZER, DEFAULT_VERSION
from spark_kafka_sink.localkafka.certificates import Authority
from tests.local_kafka import PatientKafka
from tests.security.cases import World
from tests.security.issuer import Issuer
from tests.security.listeners import SECRETS, listeners_of
from tests.spark.session import spark_session

VERSION_VARIABLE = "KAFKA_VERSION"
"""Of the brokers: `make evidence NAME=security KAFKA_VERSION=3.9.1`. The newest, if it is not set."""


@pytest.fixture(scope="session")
def issuer():
    """Whose tokens the brokers accept. Leave it as it was."""
    with Issuer(SECRETS) as running:
        yield running


@pytest.fixture(scope="session")
def authority():
    """Whose certificates clients and brokers trust."""
    return Authority("authority of the tests")


@pytest.fixture(scope="session")
def secured(issuer, authority, tmp_path_factory):
    """Two brokers. Leave them running; give topics names of your own."""
    security = listeners_of(authority, issuer.oauth, tmp_path_factory.mktemp("stores"))
    properties = {
        **AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice;User:CN=alice",
        "auto.create.topics.enable": "false",
        "delegation.token.secret.key": "the key of the delegation tokens",
        # A second of the broker's patience, for each refusal.
        "connection.failed.authentication.delay.ms": "100",
        "num.network.threads": "1",
    }
    version = os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION)
    with PatientKafka(2, version, properties, security=security) as kafka:
        yield kafka


@pytest.fixture
def new_topic(secured, request):
    """Creates a topic of the test's own, with partitions on both brokers."""
    numbers = iter(range(1, 100))

    def create(partitions=4):
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        topic = f"{name[:200]}-{next(numbers)}"
        secured.create_topic(topic, partitions, replication_factor=1)
        return topic

    return create


@pytest.fixture(scope="session")
def world(secured, issuer, authority, tmp_path_factory):
    return World(secured, issuer, authority, tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="session")
def spark():
    # Spark's own client is of Kafka 3.9: it does not know the options of KIP-1139 and KIP-1258.
    with spark_session(DEFAULT_VERSION) as session:
        yield session
