"""Batch jobs and streams against real brokers that are killed, paused, restarted, cut off.

python -m evidence chaos                      # all faults, 2 million records each
python -m evidence chaos kill cut --records 200000
python -m evidence chaos none --jobs batch --records 100000000 --pause-ms 0
python -m evidence chaos none --jobs batch --partitions 1000

The last two are a large job and a wide topic. Without them, the first one writes evidence/chaos/results.json and the table in docs/internals/reliability.md.
"""

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from evidence.chaos.table import write_results
from evidence.harness.faults import FAULTS, Situation
from evidence.harness.jobs import JOBS, Shape, dead_letter_topic, judge_job
from evidence.harness.planning import parser_of, show
from evidence.harness.scene import proxied_kafka
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
from spark_kafka_sink.localkafka import FAST_FAILOVER
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from tests.patience import PATIENCE_MS

RECORDS = 2_000_000
PARTITIONS = 6
_REPLICAS = (1, 2, 3)


@contextlib.contextmanager
def session(slots=2):
    """``slots``: for tasks; a task that fails, fails the job: nothing may be repeated unseen."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{slots}]")
        .config("spark.ui.enabled", "false")
        .config("spark.task.maxFailures", "1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config(UNIX_SOCKETS, "true")  # as in the files under conf/
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def kill_python_workers(spark):
    """SIGKILL for all that Spark's daemons have forked; they fork others for the next job."""
    for daemon in psutil.Process(spark.sparkContext._gateway.proc.pid).children():
        for worker in daemon.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()


def create_topic(kafka, name, partitions):
    """Its replicas are on brokers 1, 2 and 3; min.insync.replicas is 2."""
    assignments = [
        CreatableReplicaAssignment(p, [_REPLICAS[(p + i) % 3] for i in range(3)])
        for p in range(partitions)
    ]
    config = [CreatableTopicConfig("min.insync.replicas", "2")]
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        asked = [CreatableTopic(name, -1, -1, assignments, config)]
        error = admin.create_topics(asked, PATIENCE_MS)[name]
    if error is not None:
        raise error


def run(spark, kafka, proxies, fault_name, job_name, arguments, folder):
    """One job under one fault; what came out of it."""
    fault = FAULTS[fault_name]
    topic = f"{fault_name}-{job_name}"
    for name in (topic, *([dead_letter_topic(topic)] if job_name == "stream" else [])):
        create_topic(kafka, name, arguments.partitions)
    situation = Situation(kafka, proxies, topic, arguments.partitions, threading.Event())
    story = []

    def suffer():
        situation.await_records(arguments.records // 10)
        try:
            story.append(fault.happen(situation))
        except Exception as error:
            story.append(f"the fault itself failed: {error!r}")
            raise

    metrics = folder / f"{topic}.jsonl"
    servers = [p.address for p in proxies] if fault.is_proxied else [kafka.bootstrap_servers]
    options = {
        "kafka.bootstrap.servers": ",".join(servers),
        "kafka.compression.type": "lz4",
        "topic": topic,
        "metrics.path": str(metrics),
        "metrics.log": "false",
    }
    thread = threading.Thread(target=suffer)
    started = time.monotonic()
    thread.start()
    failure = ""
    try:
        JOBS[job_name](spark, options, arguments.records, Shape(arguments.pause_ms), folder)
    except Exception as error:
        failure = str(error)
    seconds = time.monotonic() - started
    # What a job has promised must be there without its processes.
    kill_python_workers(spark)
    situation.is_over.set()
    thread.join()
    kafka.await_in_sync(PATIENCE_MS)
    servers = kafka.bootstrap_servers
    verdict = judge_job(job_name, servers, topic, arguments.partitions, arguments.records, metrics)
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return {
        "fault": fault_name,
        "job": job_name,
        "what": fault.what,
        "happened": story[0],
        **verdict,
        "records": arguments.records,
        "tasks_failed": sum(line.get("failed_tasks", 0) for line in lines),
        "retries": sum(line["metrics"]["retries"] for line in lines),
        "requests": sum(line["metrics"]["requests"] for line in lines),
        "seconds": round(seconds, 1),
        "failure": failure,
    }


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), help=", ".join(FAULTS))
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--pause-ms", type=int, default=40, help="per 1,000 rows of a task")
    arguments = parser.parse_args(words)
    if arguments.plan:
        return show(f"{job} under {fault}" for fault in arguments.faults for job in arguments.jobs)
    results = []
    with session() as spark, tempfile.TemporaryDirectory() as name:
        for brokers in sorted({FAULTS[fault].brokers for fault in arguments.faults}):
            with proxied_kafka(brokers, server_properties=FAST_FAILOVER) as (kafka, proxies):
                for fault in arguments.faults:
                    if FAULTS[fault].brokers != brokers:
                        continue
                    for job in arguments.jobs:
                        result = run(spark, kafka, proxies, fault, job, arguments, Path(name))
                        print(json.dumps(result), flush=True)
                        results.append(result)
    if (arguments.records, arguments.partitions) == (RECORDS, PARTITIONS):
        write_results(results)
    wrong = ("lost", "doubled", "out_of_order", "miscounted", "failure")
    return 1 if any(result[name] for result in results for name in wrong) else 0
