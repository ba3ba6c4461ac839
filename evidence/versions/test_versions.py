"""The sink in each version of Spark: in local mode with each Python, on a cluster, and through a server of it.

All run the job of evidence/clusters. Clients of Spark Connect are of the same version.
"""

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
from evidence.compatibility import results
from evidence.harness.environments import (
    ON_CLUSTERS,
    PAIRS,
    clean_environment,
    environment,
    interpreter,
)
from evidence.harness.standalone import QUICK_CONF, StandaloneCluster
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
from spark_kafka_sink.localkafka import fetch_jars

pytestmark = pytest.mark.timeout(3600)

COMMAND = "make evidence NAME=versions"


def version_of(python):
    """The whole version of an interpreter."""
    code = "import platform; print(platform.python_version())"
    return run([str(python), "-c", code], clean_environment()).strip()


class Spark:
    """One version: its interpreter, and a cluster with cores for a job beside a server."""

    def __init__(self, pair, python, folder):
        self.pair = pair
        self.python = str(python)
        (home,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
        self.cluster = StandaloneCluster(folder, cores=2, memory="2g", spark_home=home)

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
    check_and_record(job, where, spark.pair.spark, version_of(spark.python), COMMAND)


def test_standalone_client_mode(spark, job):
    run(spark.cluster.submit(str(WORK), *job.arguments()), spark.driver_environment())
    record(spark, job, "standalone client")


def test_connect(spark, url, job):
    own = client_environment(url, spark.python, PYTHONPATH=str(REPOSITORY))
    run([spark.python, str(WORK), *job.arguments()], own)
    record(spark, job, "connect")


def test_functions_with_connect(spark, url, job):
    """Spark 3.5 has only these: there the test above has used them."""
    if spark.pair.spark.startswith("3."):
        pytest.skip("shown above")
    own = client_environment(url, spark.python, PYTHONPATH=str(REPOSITORY))
    what = [one for one in results.WHAT if one != "stream"]
    run([spark.python, str(WORK), *job.arguments(*what), "--functions"], own)
    for one in what:
        job.check(one)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_local(pair, job):
    python = interpreter(pair.python)
    if python is None:
        pytest.skip(f"there is no Python {pair.python} on this machine")
    own = environment(pair, python)
    conf = {**QUICK_CONF, UNIX_SOCKETS: "true", "spark.master": "local[2,3]"}
    environ = clean_environment(PYSPARK_PYTHON=str(own), PYTHONPATH=str(REPOSITORY))
    run([str(own), str(WORK), *job.arguments(conf=conf)], environ)
    check_and_record(job, "local", pair.spark, version_of(own), COMMAND)
