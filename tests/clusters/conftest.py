"""A standalone cluster of two workers, and drivers in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.localkafka import LocalKafka
from tests.clusters.standalone import StandaloneCluster
from tests.clusters.working import Job
from tests.spark.conftest import new_topic  # noqa: F401


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers of one core each; the tests of a file share it."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as standalone:
        yield standalone


@pytest.fixture
def job(kafka: LocalKafka, tmp_path: Path) -> Job:
    """A run of work.py: its topics and its input."""
    return Job(kafka, tmp_path / "job")
