"""A Spark Connect server on a cluster, and the Python environments of server and clients.

The server's Python has what the tests have installed, and besides what foreachBatch needs there. It
has the sink only where ``with_sink`` is given. Clients have ``pyspark-client``: no Spark and no Java.
"""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import venv

from tests.clusters.standalone import CLIENT_CONF, HERE
from tests.clusters.working import REPOSITORY, clean_environment

CLIENT = "4.2.0"
"""The newest ``pyspark-client`` that there is."""
_OF_CLIENT = (f"pyspark-client=={CLIENT}", "ipykernel>=6.29", "setuptools<81")
_OF_SERVER = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71")
_ENVIRONMENTS = REPOSITORY / ".venv-clusters"
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")


class Environment:
    """A virtual environment that is made once, and again when what is to be in it changes."""

    def __init__(self, name, packages, sees_packages_of_tests):
        wanted = hashlib.sha256(repr((packages, sys.version)).encode()).hexdigest()[:8]
        self.folder = _ENVIRONMENTS / f"{name}-{wanted}"
        self.python = str(self.folder / "bin" / "python")
        if (self.folder / "complete").exists():
            return
        venv.create(self.folder, with_pip=True, clear=True)
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        if sees_packages_of_tests:
            (site_packages,) = self.folder.glob("lib/python*/site-packages")
            # A plain line leaves out its .pth files, and with them an editable installation.
            others = sysconfig.get_path("purelib") + "\n"
            (site_packages / "others.pth").write_text(others, encoding="utf-8")
        (self.folder / "complete").touch()


def server_python():
    return Environment("server", _OF_SERVER, sees_packages_of_tests=True).python


def client_python():
    return Environment("client", _OF_CLIENT, sees_packages_of_tests=False).python


def client_environment(url, python=None, **more):
    """Of a client: there is no Java to be found. ``python``: its interpreter."""
    paths = {"PATH": os.path.dirname(python or client_python()), "JAVA_HOME": "/nowhere"}
    return clean_environment(SPARK_REMOTE=url, **paths, **more)


def start_server(cluster, name, with_sink, python=None, jars=()):
    """The address of a new server, whose executors are the cluster's.

    ``python``: its interpreter, if the cluster is of another Spark than the tests. ``jars``: what
    that Spark has not.
    """
    path = str(REPOSITORY) if with_sink else "/nowhere"
    own = clean_environment(
        PYSPARK_PYTHON=python or server_python(),
        SPARK_HOME=str(cluster.spark_home),
        PYTHONPATH=path,
    )
    conf = {
        **CLIENT_CONF,
        "spark.connect.grpc.binding.address": HERE,
        "spark.connect.grpc.binding.port": "0",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": path,
    }
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", name]
    if jars:
        words += ["--jars", ",".join(map(str, jars))]
    process = cluster.launch(name, cluster.submit(*words, "spark-internal", conf=conf), own)
    cluster.await_said(name, process, lambda text: _STARTED.search(text) is not None)
    return f"sc://{HERE}:{_STARTED.findall(cluster.log(name))[0]}"
