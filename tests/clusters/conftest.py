"""A standalone cluster of two workers, and drivers in processes of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.localkafka import LocalKafka
from tests.clusters.standalone import StandaloneCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers of one core each; the tests of a file share it."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as standalone:
        yield standalone


@pytest.fixture
def new_topic(kafka: LocalKafka) -> Callable[..., str]:
    """Creates a topic with a name of its own."""

    def create(partitions: int = 3) -> str:
        name = f"clusters-{next(_numbers)}"
        kafka.create_topic(name, partitions)
        return name

    return create
