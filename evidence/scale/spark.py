"""What many tasks, topics and partitions cost: real Spark, a real broker, one job after the other.

python -m evidence spark-scale
python -m evidence spark-scale "100 tasks"      # one of them

Every job is counted by others than the sink: requests and connections by the broker (JMX), memory by
the operating system, records by confluent-kafka. "After the last task" is the time from the end of
Spark's stage to the end of the write: the commit messages' way to the driver, and the commit.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import SparkProcesses
from evidence.chaos.brokers import session
from evidence.harness.planning import parser_of, show
from evidence.scale.soak import connections_count
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.producer.metrics import PartitionReport
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from tests.broker.producing import Topics
from tests.patience import PATIENCE_MS

RESULTS = Path(__file__).with_name("spark_results.json")
_SAMPLE_EVERY_S = 0.1
_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,*"
_SOCKETS = "kafka.server:type=socket-server-metrics,listener=PLAINTEXT,*"
_COUNTED = {
    "connections": ":connection-creation-total=",
    "metadata": "request=Metadata,",
    "produce": "request=Produce,",
    "init_producer_id": "request=InitProducerId,",
}


class Job(NamedTuple):
    """A job: ``rows`` per task; keys decide the partition, ids the topic.

    ``is_again``: into the topics of the job before it, which has the same number of rows.
    slots: how many tasks the executor runs at the same time
    """

    name: str
    tasks: int
    topics: int
    partitions: int
    rows: int
    is_exactly_once: bool = False
    is_again: bool = False
    slots: int = 2


_TOPICS_500 = Job("500 topics, 16 slots", 16, 500, 4, 62_500, slots=16)
_TOPICS_200 = Job("200 topics", 8, 200, 5, 20_000)
_PARTITIONS_2000 = Job("2,000 partitions", 8, 1, 2_000, 50_000)
JOBS = [
    *(Job(f"{n:,} tasks", n, 1, 100, 1_000) for n in (10, 100, 1_000)),
    *(Job(f"{n:,} tasks, exactly-once", n, 1, 100, 1_000, True) for n in (10, 100, 1_000)),
    *(Job(f"{n} topics", 8, n, 5, 20_000) for n in (1, 20)),
    *(_TOPICS_200, _TOPICS_200._replace(name="200 topics, again", is_again=True)),
    *(Job(f"{n} partitions", 8, 1, n, 50_000) for n in (20, 200)),
    *(_PARTITIONS_2000, _PARTITIONS_2000._replace(name="2,000 partitions, again", is_again=True)),
    *(_TOPICS_500, _TOPICS_500._replace(name=f"{_TOPICS_500.name}, again", is_again=True)),
    _TOPICS_500._replace(name="500 topics, 16 slots, exactly-once", is_exactly_once=True),
]


@dataclass(frozen=True)
class Cost:
    """Of one job. ``before_ms``, ``after_ms``: from the call to Spark's first task, and from the end
    of the last one to the end of the call. ``commit_ms``: of that, the transactions.
    """

    job: str
    tasks: int
    topics: int
    partitions: int
    records: int
    missing: int
    seconds: float
    before_ms: int
    after_ms: int
    commit_ms: int | None
    message_bytes: int
    worker_peak_mib: float
    connections_peak: int
    requests: dict[str, int]


class _Sampler(threading.Thread):
    """The most connections that the broker has had open while this ran."""

    def __init__(self, kafka):
        super().__init__(daemon=True)
        self._kafka = kafka
        self._is_over = threading.Event()
        self.most = 0

    def run(self):
        while not self._is_over.wait(_SAMPLE_EVERY_S):
            self.most = max(self.most, connections_count(self._kafka))

    def stop(self):
        self._is_over.set()
        self.join()
        return self.most


def counts(kafka, jmx_port):
    """What the broker has counted since it began."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"
    told = kafka.run_tool(
        "org.apache.kafka.tools.JmxTool",
        *("--jmx-url", url, "--object-name", _SOCKETS, "--object-name", _REQUESTS),
        *("--attributes", "Count,connection-creation-total"),
        *("--one-time", "--report-format", "properties"),
    )
    lines = told.splitlines()
    return {
        name: round(sum(float(line.split("=")[-1]) for line in lines if what in line))
        for name, what in _COUNTED.items()
    }


def stage_times_ms(spark):
    """When the newest stage began and ended, by Spark's own clock."""
    context = spark.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(None, False, False, none, None)
    newest = max((found.apply(i) for i in range(found.size())), key=lambda s: s.stageId())
    return newest.submissionTime().get().getTime(), newest.completionTime().get().getTime()


def message_bytes(partitions):
    """Of the commit message of a task that wrote to so many partitions, pickled as Spark does.

    With numbers as large as those of a topic that is in use.
    """
    first = 1 << 33
    report = {
        TopicPartition("t", i): PartitionReport(first + i, first + i + 999, 1_000, 70_000, 120_000)
        for i in range(partitions)
    }
    return len(pickle.dumps(KafkaCommitMessage(0, 0, None, report)))


def run(spark, kafka, jmx_port, job):
    """Write the job's rows into topics of its own, and say what it took."""
    prefix = job.name.removesuffix(", again").replace(" ", "-").replace(",", "").lower()
    names = [f"{prefix}-{i}" for i in range(job.topics)]
    if not job.is_again:
        for name in names:
            kafka.create_topic(name, job.partitions, timeout_ms=120_000)
    frame = spark.range(0, job.tasks * job.rows, 1, job.tasks).selectExpr(
        f"concat('{prefix}-', CAST(id % {job.topics} AS STRING)) AS topic",
        "CAST(id AS STRING) AS key",
        "repeat('x', 100) AS value",
    )
    processes = SparkProcesses(spark)
    before, sampler = counts(kafka, jmx_port), _Sampler(kafka)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        writer = frame.write.format("pykafka-sink").mode("append")
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.option("metrics.path", metrics.name)
        # The broker may be slow, on a machine of any load.
        writer = writer.option("kafka.max.block.ms", str(PATIENCE_MS))
        writer = writer.option("kafka.delivery.timeout.ms", str(PATIENCE_MS))
        if job.is_exactly_once:
            writer = writer.option("delivery.guarantee", "exactly-once")
            writer = writer.option("transactional.id.prefix", prefix)
            writer = writer.option("transaction.log.replication.factor", "1")
        processes.reset_peaks()
        sampler.start()
        began_ms = time.time_ns() // 1_000_000
        writer.save()
        ended_ms = time.time_ns() // 1_000_000
        line = json.loads(metrics.read().splitlines()[-1])
    connections_peak = sampler.stop()
    stage_began_ms, stage_ended_ms = stage_times_ms(spark)
    after = counts(kafka, jmx_port)
    topics = Topics(kafka.bootstrap_servers)
    records = line["records_acknowledged"]
    # With transactions each partition has markers, too: they are not records.
    stored = records if job.is_exactly_once else sum(topics.records_count(n) for n in names)
    return Cost(
        job=job.name,
        tasks=job.tasks,
        topics=job.topics,
        partitions=job.partitions * job.topics,
        records=records,
        missing=job.tasks * job.rows * (2 if job.is_again else 1) - stored,
        seconds=round((ended_ms - began_ms) / 1000, 1),
        before_ms=stage_began_ms - began_ms,
        after_ms=ended_ms - stage_ended_ms,
        commit_ms=line.get("commit_ms"),
        message_bytes=message_bytes(job.partitions * job.topics),
        worker_peak_mib=round(processes.peak_mib(), 1),
        connections_peak=connections_peak,
        requests={name: after[name] - before[name] for name in after},
    )


def main(words=None):
    """All jobs, smallest first, after one that warms everything up."""
    parser = parser_of(__doc__)
    names = [job.name for job in JOBS]
    parser.add_argument("jobs", nargs="*", help=", ".join(names))
    arguments = parser.parse_args(words)
    argv = arguments.jobs
    if unknown := set(argv) - set(names):
        parser.error(f"no such jobs: {sorted(unknown)}")
    chosen = [job for job in JOBS if not argv or job.name in argv]
    if arguments.plan:
        return show(job.name for job in chosen)
    (jmx_port,) = free_ports(1, "127.0.0.1")
    jmx = ("port=" + str(jmx_port), "authenticate=false", "ssl=false", "local.only=true")
    options = [f"-Dcom.sun.management.jmxremote.{option}" for option in jmx]
    options.append("-Djava.rmi.server.hostname=127.0.0.1")
    costs = []
    with LocalKafka(jvm_options=options, heap="1g", start_timeout_ms=300_000) as kafka:
        for slots, jobs in groupby(chosen, lambda job: job.slots):
            with session(slots) as spark:
                warm_up = Job(f"warm-up-{slots}", slots, 1, 1, 1_000, slots=slots)
                run(spark, kafka, jmx_port, warm_up)
                for job in jobs:
                    cost = asdict(run(spark, kafka, jmx_port, job))
                    print(json.dumps(cost), flush=True)
                    costs.append(cost)
    kept = [] if not argv else json.loads(RESULTS.read_text(encoding="utf-8"))
    by_job = {cost["job"]: cost for cost in [*kept, *costs]}
    RESULTS.write_text(json.dumps([*by_job.values()], indent=1) + "\n", encoding="utf-8")
    return int(any(cost["missing"] for cost in costs))
