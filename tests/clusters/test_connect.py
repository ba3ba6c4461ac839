"""Spark Connect: the sink runs on the server and its executors, the client has no Java."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest

from tests.clusters.connect import client_environment, client_python, start_server
from tests.clusters.standalone import StandaloneCluster
from tests.clusters.working import WORK, Job, check_and_record, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """With cores for two servers."""
    folder = tmp_path_factory.mktemp("standalone")
    with StandaloneCluster(folder, cores=2, memory="2g") as standalone:
        yield standalone


@pytest.fixture(scope="module")
def url(cluster: StandaloneCluster) -> str:
    """Of a server whose Python has the sink."""
    return start_server(cluster, "connect", with_sink=True)


def test_all_kinds_of_writes_from_a_client_that_has_neither_java_nor_the_sink(url: str, job: Job):
    run([client_python(), str(WORK), *job.arguments()], client_environment(url))
    check_and_record(job, "connect", pyspark.__version__)
