"""One Spark application on two workers, which serves many runs: starting JVMs is what takes long."""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from tests.chaos.traps import Traps
from tests.clusters.lost.jobs import ROWS_PER_ARROW_BATCH, prepare
from tests.clusters.standalone import CLIENT_CONF, StandaloneCluster
from tests.patience import eventually

WORKERS = 2
PARTITIONS = 6
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_REPOSITORY = Path(__file__).resolve().parents[3]
# Speculation wants a second host for a second attempt.
_HOSTS = ("127.0.0.1", "127.0.0.2")
_DAEMON_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.deploy.maxExecutorRetries=-1 "
    "-Dspark.decommission.enabled=true"
)
CONF = {
    **CLIENT_CONF,
    "spark.cores.max": str(WORKERS),
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "4",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_ARROW_BATCH),
    "spark.sql.files.minPartitionNum": "4",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
}


class Application:
    """The cluster, its application, and a Kafka to write to."""

    def __init__(self, cluster, spark, kafka, folder):
        self.cluster = cluster
        self.spark = spark
        self.kafka = kafka
        self.folder = folder
        self.traps = Traps(folder)

    @property
    def context(self):
        """Scala's SparkContext."""
        java = self.spark.sparkContext._jsc
        return java.sc()

    def executors(self):
        """Of this application, by the processes that run."""
        return self.cluster.executors(self.spark.sparkContext.applicationId)

    def executor_of(self, process_id):
        """The one that a Python process belongs to."""
        parents = {p.pid for p in psutil.Process(process_id).parents()}
        (found,) = [one for one in self.executors() if one.pid in parents]
        return found

    def metrics(self, topic):
        """Where the sink writes what it commits."""
        return self.folder / f"{topic}.jsonl"

    def committed(self, topic):
        """Micro-batches so far, or jobs."""
        path = self.metrics(topic)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return sum(json.loads(line)["event"] == "commit" for line in lines)

    def options(self, topic, guarantee):
        """Of the sink. What a task has appended is sent soon, so that it can die with a part of it
        written.
        """
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": topic,
            "kafka.linger.ms": "0",
            "kafka.batch.size": "16384",
            "metrics.log": "false",
            "metrics.path": str(self.metrics(topic)),
            "delivery.guarantee": guarantee,
        }
        if guarantee == EXACTLY_ONCE:
            exactly_once = {"transaction.log.replication.factor": "1"}
            return {**options, **exactly_once, "transactional.id.prefix": topic}
        return {**options, "interceptors": "tests.chaos.crash:Interceptor"}

    def make_whole(self):
        """Start the workers that are gone, and wait until Spark has an executor on each."""
        for number in range(WORKERS):
            if not self.cluster.is_worker_running(number):
                self.cluster.start_worker(number)

        def is_whole():
            running = {executor.worker for executor in self.executors()}
            known = self.context.getExecutorMemoryStatus().size() - 1  # the driver is one of them
            return len(running) == known == WORKERS

        assert eventually(is_whole), f"executors: {self.executors()}\n{self.cluster.log('master')}"


@contextmanager
def application(kafka, folder, conf):
    """``conf``: of Spark, besides CONF."""
    folder.mkdir(parents=True, exist_ok=True)
    # The driver's processes and the executors' have it from this one.
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_REPOSITORY)}
    os.environ.update({**Traps(folder).environment, **python})
    environment = {"SPARK_DAEMON_JAVA_OPTS": _DAEMON_JAVA}
    with StandaloneCluster(folder / "cluster", environment, hosts=_HOSTS) as cluster:
        builder = SparkSession.builder.master(cluster.master).appName("lost executors")
        for name, value in {**CONF, **conf}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            prepare(spark, folder)
            yield Application(cluster, spark, kafka, folder)
        finally:
            spark.stop()
