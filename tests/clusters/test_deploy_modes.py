"""Batches, streams, foreachBatch and exactly-once on executors in JVMs of their own."""

import subprocess
import sys

import pyspark
import pytest

from tests.clusters.standalone import QUICK_CONF, SPARK_HOME, StandaloneCluster
from tests.clusters.working import WORK, check_and_record, run, with_this_python
from tests.compatibility import results

pytestmark = pytest.mark.long

REFUSED = "Cluster deploy mode is currently not supported for python applications on standalone"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Its workers name the Python that a driver in the cluster takes."""
    own = {"PYSPARK_PYTHON": sys.executable}
    with StandaloneCluster(tmp_path_factory.mktemp("standalone"), own) as standalone:
        yield standalone


def test_local_cluster(job):
    conf = {**QUICK_CONF, "spark.master": "local-cluster[2,1,600]"}
    run([sys.executable, str(WORK), *job.arguments(conf=conf)], with_this_python())
    check_and_record(job, "local-cluster", pyspark.__version__)


def test_standalone_client_mode(cluster, job):
    run(cluster.submit(str(WORK), *job.arguments()), with_this_python())
    check_and_record(job, "standalone client", pyspark.__version__)


def test_standalone_cluster_mode_is_refused_by_spark_for_python(cluster, job):
    done = subprocess.run(
        cluster.submit("--deploy-mode", "cluster", str(WORK), *job.arguments(), conf={}),
        env=with_this_python(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert REFUSED in done.stderr


def test_standalone_cluster_mode_by_a_submit_within_the_cluster(cluster, job):
    """The way around: the master starts ``spark-submit`` itself on a worker, in client mode."""
    [jar] = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    _, *inner = cluster.submit(str(WORK), *job.arguments())
    words = ["--deploy-mode", "cluster", "--driver-memory", "700m"]
    words += ["--class", "org.apache.spark.deploy.SparkSubmit", f"file://{jar}", *inner]
    conf = {"spark.standalone.submit.waitAppCompletion": "true"}
    said = run(cluster.submit(*words, conf=conf), with_this_python())
    assert "FINISHED" in said
    assert cluster.logs_of_work().count("done: ") == len(results.WHAT)
    check_and_record(job, "standalone cluster", pyspark.__version__)
