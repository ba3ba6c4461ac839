"""What holds for all tests with a registry."""

import gc

import pytest

from evidence.harness.apicurio import running_apicurio
from spark_kafka_sink.registry import schemas


@pytest.fixture(autouse=True)
def connections_are_closed():
    """Confluent's client leaves that to the garbage collection, which warns of it."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def registry():
    with running_apicurio() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_known():
    schemas._answers.clear()


@pytest.fixture
def topic(kafka, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    kafka.create_topic(name, 1)
    return name
