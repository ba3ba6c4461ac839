"""Running work.py on a cluster or through Spark Connect, and reading back what it has written.

A server's Python has what the tests have installed, and besides what foreachBatch needs there. It
has the sink only where ``with_sink`` is given. Clients have ``pyspark-client``: no Spark and no Java.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from evidence.clusters.work import BATCH_ROWS
from evidence.compatibility import results
from evidence.compatibility.table import NOT_IN_3_5
from evidence.harness.environments import clean_environment, made
from evidence.harness.standalone import CLIENT_CONF, HERE
from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION
from tests.patience import PATIENCE_S
from tests.reading import read_topic

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = Path(__file__).with_name("work.py")
BATCHES = ("batch", "exactly-once batch")
FILES = 3
ROWS_PER_FILE = 500
PARTITIONS = 3
COMMAND = "make evidence NAME=clusters"
KAFKA = DEFAULT_VERSION
_numbers = itertools.count(1)


class Job:
    """One run of work.py: its topics, its input and its checks."""

    def __init__(self, kafka, folder):
        self.kafka = kafka
        self.folder = folder
        self.topic = f"work-{os.getpid()}-{next(_numbers)}"
        for what in results.WHAT:
            kafka.create_topic(self.topic_of(what), PARTITIONS)
        (folder / "in").mkdir(parents=True)
        for number in range(FILES):
            lines = "".join(f"{n}\n" for n in _rows_of_file(number))
            (folder / "in" / f"{number}.txt").write_text(lines, encoding="utf-8")
            # Spark takes the oldest first.
            os.utime(folder / "in" / f"{number}.txt", (1_700_000_000 + number,) * 2)

    def topic_of(self, what):
        return f"{self.topic}-{what.replace(' ', '-')}"

    def arguments(self, *what, conf=None):
        """Of work.py."""
        settings = [w for name, value in (conf or {}).items() for w in ("--set", f"{name}={value}")]
        servers = self.kafka.bootstrap_servers
        return [servers, self.topic, str(self.folder), *what, *settings]

    def check(self, what):
        """Every row is there, once; and one line of metrics for each unit that is no replay."""
        records = read_topic(self.kafka.bootstrap_servers, self.topic_of(what))
        wanted = range(BATCH_ROWS) if what in BATCHES else range(FILES * ROWS_PER_FILE)
        assert sorted(int(r.value or b"-1") for r in records) == list(wanted)
        assert all(r.key == r.value for r in records)
        lines = [line["event"] for line in self.metrics(what) if "replay" not in line]
        assert lines == ["commit"] * self.units(what)

    def check_refused(self, what):
        """Spark has refused it, and nothing was written."""
        assert (self.folder / f"refused-{what}").exists()
        assert read_topic(self.kafka.bootstrap_servers, self.topic_of(what)) == []

    def units(self, what):
        return 1 if what in BATCHES else FILES

    def metrics(self, what):
        path = self.folder / f"metrics-{what.replace(' ', '-')}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows_of_file(number):
    return range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)


def run(command, environment, cwd=None):
    """What a command prints on stdout and stderr. It must succeed."""
    done = subprocess.run(
        command,
        env=dict(environment),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def with_this_python(**more):
    """Driver and Python workers are this interpreter, with this checkout."""
    return clean_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(REPOSITORY), **more)


def check_and_record(job, where, spark, python="", command=COMMAND):
    """Once the job has ended: each kind of work is checked, and its result kept."""
    for what in results.WHAT:
        refused = NOT_IN_3_5 if (what, spark[:2]) == ("stream", "3.") else ""
        with results.of(
            what=what,
            where=where,
            kafka=KAFKA,
            spark=spark,
            python=python,
            command=command,
            no=refused,
        ):
            if refused:
                job.check_refused(what)
            else:
                job.check(what)


CLIENT = "4.2.0"
"""The newest ``pyspark-client`` that there is."""
_OF_CLIENT = (f"pyspark-client=={CLIENT}", "ipykernel>=6.29", "setuptools<81")
_OF_SERVER = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71")
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")


def server_python():
    """It sees what the tests have installed, besides."""
    python = made("server", sys.executable, _OF_SERVER, sys.version.encode())
    (site_packages,) = python.parents[1].glob("lib/python*/site-packages")
    # A plain line leaves out its .pth files, and with them an editable installation.
    others = sysconfig.get_path("purelib") + "\n"
    (site_packages / "others.pth").write_text(others, encoding="utf-8")
    return str(python)


def client_python():
    return str(made("client", sys.executable, _OF_CLIENT, sys.version.encode()))


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
