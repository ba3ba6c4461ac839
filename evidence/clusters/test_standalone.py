"""Batches, streams, foreachBatch and exactly-once on executors in JVMs of their own, also by YARN."""

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from evidence.clusters.working import (
    REPOSITORY,
    WORK,
    check_and_record,
    run,
    with_this_python,
)
from evidence.compatibility import results
from evidence.harness.environments import clean_environment
from evidence.harness.standalone import (
    QUICK_CONF,
    SPARK_HOME,
    Processes,
    StandaloneCluster,
)
from spark_kafka_sink.localkafka import fetch_jars


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


_MAIN = Path(__file__).with_name("Yarn.java")
_NEEDED = (
    "org.junit.jupiter:junit-jupiter-api:5.11.4",
    "org.junit.platform:junit-platform-commons:1.11.4",
    "org.opentest4j:opentest4j:1.3.0",
    "org.bouncycastle:bcprov-jdk18on:1.78.1",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcutil-jdk18on:1.78.1",
)
"""What MiniYARNCluster needs beside Spark's jars."""


@contextmanager
def yarn_cluster(folder):
    """Its processes, and the folder that is HADOOP_CONF_DIR for spark-submit. Needs a JDK."""
    jars = SPARK_HOME / "jars"
    (api,) = jars.glob("hadoop-client-api-*.jar")
    hadoop = api.stem.removeprefix("hadoop-client-api-")
    mini = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop}"
    fetched = fetch_jars([mini, *_NEEDED], f"yarn-{hadoop}", transitive=False)
    path = ":".join([*map(str, fetched), f"{jars}/*"])
    conf = folder / "conf"
    conf.mkdir(parents=True)
    java = shutil.which("java")
    processes = Processes(folder, clean_environment())
    try:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path]
        command = [java, *options, str(_MAIN), str(conf), str(folder / "data")]
        process = processes.launch("yarn", command)
        processes.await_said("yarn", process, lambda text: "YARN is ready" in text)
        yield processes, conf
    finally:
        processes.end()


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
