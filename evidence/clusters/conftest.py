"""A standalone cluster of two workers, and drivers in processes of their own."""

import pytest

from evidence.clusters.working import Job
from evidence.harness.standalone import StandaloneCluster
from tests.spark.conftest import new_topic  # noqa: F401


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A master and two workers of one core each; the tests of a file share it."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as standalone:
        yield standalone


@pytest.fixture
def job(kafka, tmp_path):
    """A run of work.py: its topics and its input."""
    return Job(kafka, tmp_path / "job")
