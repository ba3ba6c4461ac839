"""The sink in each version of Spark, on a standalone cluster and through a Spark Connect server of it.

Like test_versions.py, with the jobs of evidence/clusters; clients of Spark Connect are of the same version.
"""

import json
import subprocess
from pathlib import Path

import pytest

from evidence.clusters.working import (
    REPOSITORY,
    WORK,
    Job,
    check_and_record,
    client_environment,
    run,
    start_server,
)
from evidence.harness.environments import (
    ON_CLUSTERS,
    clean_environment,
    environment,
    interpreter,
)
from evidence.harness.standalone import StandaloneCluster
from evidence.versions.test_versions import ALL, COMMAND, STREAMED
from spark_kafka_sink.localkafka import fetch_jars
from tests.reading import read_topic

pytestmark = pytest.mark.timeout(3600)

CONNECT_PROGRAM = Path(__file__).with_name("connect_program.py")
OF_FUNCTIONS = {
    "write": ALL,
    "write-exactly-once": ALL,
    "foreach": STREAMED,
    "foreach-exactly-once": STREAMED,
    "foreach-nameless": [],
}
"""Ways of connect_program.py, and the rows that each leaves."""


class Spark:
    """One version: its interpreter, and a cluster with cores for a job beside a server."""

    def __init__(self, pair, python, folder):
        self.pair = pair
        self.python = str(python)
        (home,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
        self.cluster = StandaloneCluster(folder, cores=2, memory="2g", spark_home=home)

    @property
    def version_of_python(self):
        code = "import platform; print(platform.python_version())"
        return run([self.python, "-c", code], clean_environment()).strip()

    def driver_environment(self):
        return clean_environment(
            SPARK_HOME=str(self.cluster.spark_home),
            PYSPARK_PYTHON=self.python,
            PYTHONPATH=str(REPOSITORY),
        )

    def jars_of_connect(self):
        """What a server needs that is not in the package of that version."""
        if self.pair.spark.startswith("3."):
            module = f"org.apache.spark:spark-connect_2.12:{self.pair.spark}"
            return fetch_jars([module], f"spark-connect-{self.pair.spark}", transitive=False)
        return []


@pytest.fixture(scope="module", params=ON_CLUSTERS, ids=str)
def spark(request, tmp_path_factory):
    pair = request.param
    python = interpreter(pair.python)
    if python is None:
        pytest.skip(f"there is no Python {pair.python} on this machine")
    one = Spark(pair, environment(pair, python), tmp_path_factory.mktemp(str(pair)))
    with one.cluster:
        yield one


@pytest.fixture(scope="module")
def url(spark):
    """Of a server whose executors are the cluster's."""
    return start_server(
        spark.cluster, "connect", with_sink=True, python=spark.python, jars=spark.jars_of_connect()
    )


@pytest.fixture
def job(kafka, tmp_path):
    return Job(kafka, tmp_path / "job")


def record(spark, job, where):
    check_and_record(job, where, spark.pair.spark, spark.version_of_python, COMMAND)


def test_standalone_client_mode(spark, job):
    run(spark.cluster.submit(str(WORK), *job.arguments()), spark.driver_environment())
    record(spark, job, "standalone client")


def test_connect(spark, url, job):
    own = client_environment(url, spark.python, PYTHONPATH=str(REPOSITORY))
    run([spark.python, str(WORK), *job.arguments()], own)
    record(spark, job, "connect")


def test_functions_with_connect(spark, url, kafka, tmp_path):
    prefix = f"connect-{spark.pair.spark}-"
    for way in OF_FUNCTIONS:
        kafka.create_topic(f"{prefix}{way}", 2)
    command = [spark.python, str(CONNECT_PROGRAM), kafka.bootstrap_servers, str(tmp_path), prefix]
    own = client_environment(url, spark.python, PYTHONPATH=str(REPOSITORY))
    said = subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True, check=True).stdout
    errors = {one["way"]: one["error"] for one in map(json.loads, said.splitlines())}
    for way, rows in OF_FUNCTIONS.items():
        if way == "foreach-nameless":
            assert errors[way] is not None
            # A client of 3.5 is told that the query has ended with an exception, and not which.
            told = spark.cluster.log("connect") if spark.pair.spark < "4" else errors[way]
            assert "Spark Connect does not tell: give option write.id" in told
        else:
            assert errors[way] is None, way
        records = read_topic(kafka.bootstrap_servers, prefix + way)
        assert sorted(int(record.value or b"-1") for record in records) == rows, way
