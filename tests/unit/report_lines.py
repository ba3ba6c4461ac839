"""Lines as the sink writes them, of tasks with the figures that a test wants."""

import copy
import json

from spark_kafka_sink.base.kafka_metrics import NodeMetrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage
from tests.lines import check_text

NS = 1_000_000
START_MS = 1_700_000_000_000


def node(latency_ms, answers=20, throttle_ms=0):
    """A broker that has answered so many requests."""
    metrics = NodeMetrics()
    metrics.connected()
    for _ in range(answers):
        metrics.sent(10_000)
        metrics.record_produce_response(latency_ms, throttle_ms)
    return metrics


def times(task_ms, **parts_ms):
    """For ``ProducerMetrics``, in its nanoseconds."""
    found = {f"{name}_ns": int(ms * NS) for name, ms in parts_ms.items()}
    return {"task_ns": int(task_ms * NS), **found}


def task(number, by_partition, **more):
    """One that has written so many records to partitions 0, 1, …, 100 bytes each.

    more: counters of ``ProducerMetrics``, and nodes
    """
    nodes = more.pop("nodes", None) or {1: node(5), 2: node(5), 3: node(5)}
    records = sum(by_partition)
    known = {
        "records": records,
        "batches": max(records // 1000, 1),
        "uncompressed_bytes": records * 100,
        "compressed_bytes": records * 50,
        "batch_size_max": 60_000,
        "requests": 20,
        **(times(1000, input_wait=300, encode=300) if "task_ns" not in more else {}),
    }
    metrics = ProducerMetrics(**{**known, **more})
    reports = {
        TopicPartition("orders", partition): PartitionReport(0, n - 1, n, 50 * n, 100 * n, 0)
        for partition, n in enumerate(by_partition)
        if n
    }
    message = KafkaCommitMessage(number, 0, "0b1c", reports, metrics, nodes=nodes)
    message.started_at_ms = START_MS
    return message


def line(*tasks, batch_id=17, event="commit", **more):
    """As it is read from a file."""
    made = BatchSummary.merge(tasks).line(event, batch_id)
    made["time_ms"] = START_MS + 10_000 * batch_id
    text = json.dumps(with_fields(made, **more))
    check_text(text)
    return json.loads(text)


def with_fields(made, **more):
    """In the order in which the sink writes them: what is plain before what is by name."""
    others = {name: value for name, value in made.items() if name not in ("sink", *more)}
    return {"sink": "pykafka-sink", **more, **others}


EVEN = [2000] * 6

INTERRUPTED = (
    "Py4JJavaError: An error occurred while calling o157.collectToPython.\n"
    ": java.lang.InterruptedException\n\tat java.base/java.util.concurrent.locks",
    "PySparkException: [SPARK_JOB_CANCELLED] Job 12 cancelled part of cancelled job group 4a1b",
    "Py4JJavaError: An error occurred while calling o9.collectToPython.\n: org.apache.spark."
    "SparkException: Job 3 cancelled as part of cancellation of all jobs",
    "KeyboardInterrupt: ",
)
"""Errors of a write that a user stops, from Spark 3.5 to 4.3."""


def four_tasks(by_partition, **more):
    """A line of four tasks that are alike."""
    return line(*(task(number, by_partition, **copy.deepcopy(more)) for number in range(4)))


SLOW_BROKER = four_tasks(
    EVEN,
    nodes={1: node(8), 2: node(900), 3: node(9)},
    **times(4000, input_wait=300, encode=200, buffer_wait=2800, ack_wait=500),
)
THROTTLED = four_tasks(
    EVEN,
    nodes={1: node(5, throttle_ms=60), 2: node(5), 3: node(6)},
    throttle_time_ms=1200,
    throttle_time_max_ms=60,
    **times(2500, input_wait=300, encode=200, buffer_wait=1500, ack_wait=300),
)
SKEWED_KEY = four_tasks(
    [40_000, 500, 400, 600, 500, 500],
    nodes={1: node(300, answers=90), 2: node(5), 3: node(5)},
    **times(3000, input_wait=600, encode=200, buffer_wait=1500, ack_wait=500),
)
TINY_BATCHES = four_tasks(
    EVEN,
    batches=12_000,
    requests=3_000,
    batch_size_max=170,
    **times(3000, input_wait=200, encode=900, buffer_wait=1000, ack_wait=200),
)
CODEC_BOUND = four_tasks(
    EVEN, **times(3000, input_wait=500, encode=200, compress=2100, ack_wait=50)
)
HEALTHY = four_tasks(EVEN)
