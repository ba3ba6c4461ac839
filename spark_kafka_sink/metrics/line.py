"""The JSON line of a batch: tables of its fields, and how tasks' counters become a line.

The schema and the document are generated from the tables. A published field keeps its name and
meaning within a version of the line; fields may be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

from spark_kafka_sink.base.node_metrics import (
    SCALE,
    NodeMetrics,
    NodesMetrics,
    quantile_ms,
    sum_of,
)
from spark_kafka_sink.producer.metrics import DeliveryReport, ProducerMetrics

# --- fields --------------------------------------------------------------------------------------

LINE_VERSION = 1
"""Version of the line; raised when a field changes its meaning or is removed."""

MOST_SLOW_TASKS = 5
OPTIONAL_OF_SLOW_TASK = ("limit_wait_ms", "throttle_time_ms", "throttle_left_ms")
"""Fields that the first lines of this version lack."""
MOST_LOGGED_PARTITIONS = 32
"""A topic's name has up to 249 characters; with more partitions, a line could exceed 16 KiB."""


class Field(NamedTuple):
    """A field of the line. type: of JSON Schema, or a table below; doc: with the unit."""

    name: str
    type: str
    doc: str


COUNTERS = (
    Field("records", "integer", "records in finished batches"),
    Field("batches", "integer", "finished record batches"),
    Field("uncompressed_bytes", "integer", "bytes of finished batches before compression"),
    Field("compressed_bytes", "integer", "bytes of finished batches as sent"),
    Field("batch_size_max", "integer", "bytes of the largest batch as sent"),
    Field("compression_rate_sum", "number", "compressed / original size, added up over batches"),
    Field("record_size_max", "integer", "bytes of the largest record before compression"),
    Field("requests", "integer", "produce requests sent"),
    Field("records_sent", "integer", "records in produce requests; retries count again"),
    Field("batches_sent", "integer", "record batches in produce requests; retries count again"),
    Field("queue_time_ms", "integer", "sum of times from a batch's first record until sent"),
    Field("queue_time_max_ms", "integer", "longest time from first record until sent"),
    Field("requests_in_flight_max", "integer", "most unanswered produce requests at once"),
    Field("responses", "integer", "produce responses"),
    Field("request_latency_ms", "integer", "sum of times from produce request to response"),
    Field("request_latency_max_ms", "integer", "longest time from produce request to response"),
    Field("retries", "integer", "batches sent again"),
    Field("record_retries", "integer", "records sent again"),
    Field("record_errors", "integer", "records that brokers rejected permanently"),
    Field("batch_splits", "integer", "batches that were too large and sent in parts"),
    Field("throttle_time_ms", "integer", "sum of pauses that brokers requested for quotas"),
    Field("throttle_time_max_ms", "integer", "longest pause that a broker requested"),
    Field("throttle_left_ms", "integer", "rest of earlier pauses at the start of tasks"),
    Field("limit_wait_ms", "integer", "time waiting for max.bytes.per.second.per.task"),
    Field("same_rack_bytes", "integer", "acknowledged bytes of leaders in `kafka.client.rack`"),
    Field("connections", "integer", "connections open at the end of tasks"),
    Field("metadata_age_max_ms", "integer", "age of the oldest metadata at the end of a task"),
    Field("buffer_total_bytes", "integer", "`kafka.buffer.memory` of all tasks"),
    Field("buffer_used_max_bytes", "integer", "largest use of `kafka.buffer.memory` in one task"),
    Field("load_ms", "number", "time of imports and kernels in a worker's first task"),
    Field("input_wait_ms", "number", "time waiting for rows from Spark"),
    Field("encode_ms", "number", "time writing rows as records"),
    Field("compress_ms", "number", "time compressing batches, in the task thread and beside it"),
    Field("buffer_wait_ms", "number", "waiting for `kafka.buffer.memory`: brokers are the limit"),
    Field("metadata_wait_ms", "number", "time waiting for metadata of topics"),
    Field("ack_wait_ms", "number", "time waiting for acknowledgements at the end of tasks"),
    Field("transaction_begin_ms", "number", "time until the tasks' transactions had begun"),
    Field("task_ms", "number", "time from a task's start in Python to its last acknowledgement"),
)
"""``metrics``: sums over all tasks, except the maxima (names with max)."""

NODE = (
    Field("requests", "integer", "requests of all kinds"),
    Field("outgoing_bytes", "integer", "bytes of these requests before encryption"),
    Field("request_max_bytes", "integer", "bytes of the largest request"),
    Field("responses", "integer", "responses of all kinds"),
    Field("incoming_bytes", "integer", "bytes of these responses"),
    Field("connections_created", "integer", "connections established"),
    Field("connections_closed", "integer", "connections closed by either side"),
    Field("connections", "integer", "connections open at the end of tasks"),
    Field("produce_responses", "integer", "produce responses"),
    Field("request_latency_ms", "integer", "sum of times from produce request to response"),
    Field("request_latency_max_ms", "integer", "longest time from produce request to response"),
    Field("throttle_time_ms", "integer", "sum of pauses that the broker requested for quotas"),
    Field("record_retries", "integer", "records sent again after a failure at this broker"),
    Field("request_latency", "latency", "latency histogram of this broker"),
)
"""``nodes``: by broker id; addresses of ``bootstrap.servers`` have negative ids."""

LATENCY = (
    Field("p50_ms", "number", "median latency of produce requests"),
    Field("p95_ms", "number", "95th percentile"),
    Field("p99_ms", "number", "99th percentile"),
    Field("histogram", "histogram", "counts, which add up over lines"),
)
"""``request_latency``: quantiles within 4.5 %."""

TOPIC = (
    Field("partitions", "integer", "partitions written to"),
    Field("records", "integer", "acknowledged records"),
    Field("compressed_bytes", "integer", "bytes of batches as sent"),
    Field("uncompressed_bytes", "integer", "bytes of batches before compression"),
    Field("record_retries", "integer", "records sent again"),
)
"""``topics``: by name."""

PARTITION = (
    Field("first_offset", "integer", "first offset of the records; -1 if the broker returns none"),
    Field("last_offset", "integer", "last offset; other writers' records may lie between"),
    Field("records", "integer", "acknowledged records"),
    Field("compressed_bytes", "integer", "bytes of batches as sent"),
    Field("uncompressed_bytes", "integer", "bytes of batches before compression"),
)
"""``partitions``: by topic and number."""

SLOW_TASK = (
    Field("task", "integer", "number of the Spark partition"),
    Field("attempt", "integer", "number of the attempt; 0 is the first"),
    Field("host", "string", "host of the task"),
    Field("started_at_ms", "integer", "start, in ms since 1970 by the host's clock"),
    Field("records", "integer", "acknowledged records"),
    Field("compressed_bytes", "integer", "bytes of its batches as sent"),
    Field("request_latency_max_ms", "integer", "latency of its slowest produce request"),
    Field("task_ms", "number", "its time, which includes the following parts"),
    *(
        Field(name, "number", "see `metrics`")
        for name in (
            *("load_ms", "input_wait_ms", "encode_ms", "compress_ms", "buffer_wait_ms"),
            *("metadata_wait_ms", "ack_wait_ms"),
        )
    ),
    *(Field(name, "integer", "see `metrics`") for name in OPTIONAL_OF_SLOW_TASK),
)
"""``slowest_tasks``: up to five of those that have written rows, the slowest first."""

CAUSES_OF_DEAD_LETTERS = (
    *("interceptor", "not-encodable", "null-header", "null-topic", "invalid-topic"),
    *("bad-timestamp", "too-large", "null-key", "bad-partition", "partitioner", "refused"),
)
"""``dead_letters``: the number of dead letters by cause."""

EXTREMES_OF_TASKS = ("records", "compressed_bytes", "task_ms")
EXTREMES_OF_PARTITIONS = ("records", "compressed_bytes", "uncompressed_bytes")

LINE = (
    Field("sink", "string", "always `pykafka-sink`"),
    Field("event", "string", "`commit` or `abort`"),
    Field("query_id", "string", "id of the streaming query"),
    Field("batch_id", "integer", "number of the micro-batch"),
    Field("tasks", "integer", "tasks of the micro-batch or job, if Spark reports them"),
    Field("failed_tasks", "integer", "tasks without a commit message"),
    Field("records_acknowledged", "integer", "records of ended tasks that brokers acknowledged"),
    Field("dead_letters", "dead_letters", "by cause; omitted without errors.tolerance"),
    Field("version", "integer", f"version of this schema: {LINE_VERSION}"),
    Field("sink_version", "string", "version of the package"),
    Field("time_ms", "integer", "time of the line, in ms since 1970"),
    Field("client_id", "string", "`kafka.client.id`"),
    Field("query_name", "string", "name of the streaming query, if it has one"),
    Field("application_id", "string", "id of the Spark application, if known"),
    Field("trace_id", "string", "id of the batch's trace, if `metrics.otlp.*` sends one"),
    Field("planning_started_at_ms", "integer", "start of planning on the driver, in ms since 1970"),
    Field("planning_ms", "number", "time of checks and planning before the first task"),
    Field("started_at_ms", "integer", "start of the first task, in ms since 1970"),
    Field("elapsed_ms", "integer", "time from the first task's start to the last task's end"),
    Field("flush_started_at_ms", "integer", "when the first task had no more rows, since 1970"),
    Field("commit_started_at_ms", "integer", "start of commit or abort, in ms since 1970"),
    Field("failed_attempts", "integer", "failed attempts of tasks that succeeded later"),
    Field("transactions", "integer", "exactly-once: committed transactions"),
    Field("commit_ms", "integer", "exactly-once: time of decision and commits"),
    Field("oldest_transaction_ms", "integer", "exactly-once: its age at the decision"),
    Field("decided_for_ms", "integer", "exactly-once: time from the decision to the last commit"),
    Field("replay", "string", "exactly-once: reason why nothing of this batch became visible"),
    Field("note", "string", "remains of an aborted batch"),
    Field("error", "string", "beginning of the error, if Spark passes it"),
    Field("settings", "settings", "options that bound the speed; not in the log"),
    Field("metrics", "counters", "see below"),
    Field("request_latency", "latency", "latency of all brokers; without the histogram in the log"),
    Field("partitions", "partitions", "figures of partitions; in the log only up to 32"),
    Field("partitions_summary", "partitions_summary", "number of partitions, and extremes"),
    Field("topics", "topics", "figures of topics; not in the log"),
    Field("nodes", "nodes", "figures of brokers; not in the log"),
    Field("tasks_summary", "tasks_summary", "extremes of tasks"),
    Field("slowest_tasks", "slowest_tasks", "the slowest tasks; not in the log"),
)
"""The line. A line omits fields whose value is unknown."""


def field_names(fields: Iterable[Field]) -> tuple[str, ...]:
    """Return the names of the fields."""
    return tuple(field.name for field in fields)


_TOPIC_NAMES, _PARTITION_NAMES = field_names(TOPIC), field_names(PARTITION)
_partition_figures = attrgetter(*_PARTITION_NAMES)
REQUIRED = ("sink", "event", "version", "sink_version", "time_ms")


# --- making a line -------------------------------------------------------------------------------

Line = dict[str, Any]

_NS_PER_MS = 1_000_000
_FILE_ONLY_FIELDS = ("settings", "topics", "nodes", "slowest_tasks")


class TaskMetrics(NamedTuple):
    """Figures of one ended task. started_at_ms: ms since 1970, 0 if the task had no rows."""

    task: int
    attempt: int
    host: str
    started_at_ms: int
    records: int
    metrics: ProducerMetrics

    # Round instants down, so that instants of one clock keep their order.

    @property
    def flushed_from_ms(self) -> int:
        """Return when all rows were written and the task began to wait for acknowledgements."""
        written_ns = self.metrics.task_ns - self.metrics.ack_wait_ns
        return self.started_at_ms + written_ns // _NS_PER_MS

    @property
    def ended_at_ms(self) -> int:
        return self.started_at_ms + self.metrics.task_ns // _NS_PER_MS

    def extreme(self, name: str) -> float:
        """Return the value of one of ``EXTREMES_OF_TASKS``."""
        if name == "records":
            return self.records
        return self.metrics.task_ms if name == "task_ms" else self.metrics.compressed_bytes


class BatchMetrics(NamedTuple):
    """Counters of all tasks of a batch."""

    metrics: ProducerMetrics
    partitions: DeliveryReport
    nodes: NodesMetrics
    tasks: list[TaskMetrics]


def file_line(measured: BatchMetrics) -> Line:
    """Return the whole line, for files."""
    partitions = measured.partitions
    return {
        **_task_fields(measured.tasks),
        "metrics": measured.metrics.report(),
        "request_latency": _latency(sum_of(measured.nodes.values())),
        "partitions": by_topic(partitions),
        "partitions_summary": partitions_summary(partitions) if partitions else None,
        "topics": _topics(partitions),
        "nodes": {str(n): _node(measured.nodes[n]) for n in sorted(measured.nodes)},
        "tasks_summary": _tasks_summary(measured.tasks),
        "slowest_tasks": _slowest(measured.tasks),
    }


def log_line(line: Line) -> Line:
    """Return at most 16 KiB of a line; extremes replace more than a few partitions."""
    topics = line.get("partitions", {})
    is_short = sum(map(len, topics.values())) <= MOST_LOGGED_PARTITIONS
    left_out = {*_FILE_ONLY_FIELDS, "partitions_summary" if is_short else "partitions"}
    logged = {name: value for name, value in line.items() if name not in left_out}
    if "request_latency" in logged:
        logged["request_latency"] = {**line["request_latency"]}
        logged["request_latency"].pop("histogram", None)
    return logged


def _task_fields(tasks: Iterable[TaskMetrics]) -> Line:
    started = [task for task in tasks if task.started_at_ms]
    first_ms = min((task.started_at_ms for task in started), default=None)
    last_ms = max((task.ended_at_ms for task in started), default=0)
    return {
        "started_at_ms": first_ms,
        "elapsed_ms": None if first_ms is None else last_ms - first_ms,
        "flush_started_at_ms": min((task.flushed_from_ms for task in started), default=None),
        "failed_attempts": sum(task.attempt for task in tasks),
    }


def _latency(node: NodeMetrics) -> dict[str, Any] | None:
    if not node.latencies:
        return None
    counts = {str(index): node.latencies[index] for index in sorted(node.latencies)}
    quantiles = ((f"p{p}_ms", quantile_ms(node.latencies, p / 100)) for p in (50, 95, 99))
    return {**dict(quantiles), "histogram": {"scale": SCALE, "counts": counts}}


def _node(node: NodeMetrics) -> dict[str, Any]:
    described: dict[str, Any] = {name: getattr(node, name) for name in field_names(NODE[:-1])}
    latency = _latency(node)
    return described if latency is None else {**described, "request_latency": latency}


def _topics(partitions: DeliveryReport) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for where in sorted(partitions):
        topic = topics.setdefault(where.topic, dict.fromkeys(_TOPIC_NAMES, 0))
        topic["partitions"] += 1
        for name in _TOPIC_NAMES[1:]:
            topic[name] += getattr(partitions[where], name)
    return topics


def by_topic(partitions: DeliveryReport) -> dict[str, dict[int, dict[str, int]]]:
    """Return the report of each partition, by topic and partition number."""
    topics: dict[str, dict[int, dict[str, int]]] = {}
    for where in sorted(partitions):
        figures = dict(zip(_PARTITION_NAMES, _partition_figures(partitions[where])))
        topics.setdefault(where.topic, {})[where.partition] = figures
    return topics


def partitions_summary(partitions: DeliveryReport) -> dict[str, Any]:
    """Return how many topics and partitions were written, and the least and most of a partition."""
    summary: dict[str, Any] = {
        "topics": len({topic_partition.topic for topic_partition in partitions}),
        "partitions": len(partitions),
    }
    for name in EXTREMES_OF_PARTITIONS:
        counts = {where: getattr(report, name) for where, report in partitions.items()}
        for word, where in _extremes(counts):
            summary[f"{word}_{name}"] = {**where._asdict(), name: counts[where]}
    return summary


def _tasks_summary(tasks: list[TaskMetrics]) -> dict[str, Any] | None:
    if not tasks:
        return None
    summary: dict[str, Any] = {"with_rows": sum(task.records > 0 for task in tasks)}
    for name in EXTREMES_OF_TASKS:
        counts = {task.task: task.extreme(name) for task in tasks}
        for word, number in _extremes(counts):
            summary[f"{word}_{name}"] = {"task": number, name: counts[number]}
    return summary


def _extremes(counts: Mapping[Any, int | float]) -> tuple[tuple[str, Any], tuple[str, Any]]:
    at = counts.__getitem__
    return ("least", min(counts, key=at)), ("most", max(counts, key=at))


def _slowest(tasks: Iterable[TaskMetrics]) -> list[dict[str, Any]] | None:
    with_rows = (task for task in tasks if task.started_at_ms)
    slowest = nlargest(MOST_SLOW_TASKS, with_rows, key=lambda task: task.metrics.task_ns)
    known = ({**task.metrics.report(), **task._asdict()} for task in slowest)
    return [{field.name: one[field.name] for field in SLOW_TASK} for one in known] or None
