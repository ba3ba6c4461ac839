"""YARN: the driver in a container of the cluster, or outside."""

import sys

import pyspark
import pytest

from tests.clusters.standalone import QUICK_CONF, SPARK_HOME
from tests.clusters.working import (
    REPOSITORY,
    WORK,
    check_and_record,
    clean_environment,
    run,
)
from tests.clusters.yarn import yarn_cluster

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def hadoop_conf(tmp_path_factory):
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as (_, conf):
        yield conf


def submit(hadoop_conf, job, mode):
    """Python and this checkout are named in the environment of containers."""
    own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    conf = {
        **QUICK_CONF,
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
        "spark.yarn.stagingDir": f"file://{job.folder}",
        "spark.executor.instances": "2",
        "spark.driver.memory": "700m",
        **{f"spark.executorEnv.{name}": value for name, value in own.items()},
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in own.items()},
    }
    settings = [word for item in conf.items() for word in ("--conf", "=".join(item))]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "yarn"]
    command += ["--deploy-mode", mode, *settings, str(WORK), *job.arguments()]
    run(command, clean_environment(HADOOP_CONF_DIR=str(hadoop_conf), **own))


def test_cluster_mode(hadoop_conf, job):
    submit(hadoop_conf, job, "cluster")
    check_and_record(job, "yarn cluster", pyspark.__version__)


def test_client_mode(hadoop_conf, job):
    submit(hadoop_conf, job, "client")
    check_and_record(job, "yarn client", pyspark.__version__)
