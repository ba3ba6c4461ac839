"""The cluster that the other tests of this folder write on."""

import os
import subprocess
import sys

import pytest

from tests.clusters.standalone import CLIENT_CONF, StandaloneCluster
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.long

COUNT_ON_EXECUTORS = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1])
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
print("sum", spark.sparkContext.parallelize(range(4), 4).map(lambda n: n + 1).sum(), flush=True)
input()
print("sum", spark.sparkContext.parallelize(range(4), 4).map(lambda n: n + 2).sum(), flush=True)
"""


def test_executors_and_their_python_workers_are_known_and_end_with_the_cluster(tmp_path):
    with StandaloneCluster(tmp_path) as cluster:
        settings = [f"{name}={value}" for name, value in CLIENT_CONF.items()]
        driver = subprocess.Popen(
            [sys.executable, "-c", COUNT_ON_EXECUTORS, cluster.master, *settings],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert driver.stdout is not None
        assert driver.stdout.readline() == "sum 10\n"
        executors = cluster.executors()
        assert [one.worker for one in executors] == [0, 1]
        assert all(one.python_workers() for one in executors)
        assert all(len(one.python_processes()) >= 2 for one in executors)
        cluster.kill_worker(0)
        assert [one.worker for one in cluster.executors()] == [1]
        cluster.start_worker(0)
        said, _ = driver.communicate("go on\n", timeout=PATIENCE_S)
        assert said == "sum 14\n"
        assert driver.returncode == 0
    assert cluster.processes() == []
