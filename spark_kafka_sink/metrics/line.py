"""The JSON line of a batch: tables of its fields, and how tasks' counters become a line.

The schema and the document are generated from the tables. A published field keeps its name and
meaning within a version of the line; fields may be added.

``BatchSummary.line`` (``spark/commit.py``) sets the fields of the table ``LINE``.
``ProducerMetrics`` (``producer/metrics.py``) has a counter for each row of ``COUNTERS``.

The last part turns a line into figures for people: numbers, parts of a batch's time, log texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

from spark_kafka_sink.base.kafka_metrics import (
    SCALE,
    NodeMetrics,
    NodesMetrics,
    quantile_ms,
    sum_of,
)
from spark_kafka_sink.base.text import printable
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
    Field("record_retries_by_error", "by_error", "`record_retries` by Kafka error, if any"),
)
"""``nodes``: by broker id; addresses of ``bootstrap.servers`` have negative ids."""
OPTIONAL_OF_NODE = ("request_latency", "record_retries_by_error")
"""Fields that a broker without produce responses or retries lacks."""

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
    Field("topic", "string", "option `topic`, if it is set"),
    Field("application_id", "string", "id of the Spark application, if known"),
    Field("trace_id", "string", "id of the batch's trace, if `metrics.otlp.*` sends one"),
    Field("planning_started_at_ms", "integer", "start of planning on the driver, in ms since 1970"),
    Field("planning_ms", "number", "time of checks and planning before the first task"),
    Field("started_at_ms", "integer", "start of the first task, in ms since 1970"),
    Field("elapsed_ms", "integer", "time from the first task's start to the last task's end"),
    Field("flush_started_at_ms", "integer", "when the first task had no more rows, since 1970"),
    Field("commit_started_at_ms", "integer", "start of commit or abort, in ms since 1970"),
    Field("longest_wait_ms", "integer", "longest wait of rows for brokers; omitted below 5 s"),
    Field("longest_wait_cause", "string", "what these rows waited for"),
    Field("failed_attempts", "integer", "failed attempts of tasks that succeeded later"),
    Field("transactions", "integer", "exactly-once: committed transactions"),
    Field("commit_ms", "integer", "exactly-once: time of decision and commits"),
    Field("oldest_transaction_ms", "integer", "exactly-once: its age at the decision"),
    Field("decided_for_ms", "integer", "exactly-once: time from the decision to the last commit"),
    Field(
        "replay",
        "string",
        "exactly-once: why nothing of this batch became visible; for a named write, how many rows",
    ),
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


REQUIRED_OF_NODE = field_names(field for field in NODE if field.name not in OPTIONAL_OF_NODE)
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
    described: dict[str, Any] = {name: getattr(node, name) for name in REQUIRED_OF_NODE}
    latency = _latency(node)
    if latency is not None:
        described["request_latency"] = latency
    if node.record_retries_by_error:
        described["record_retries_by_error"] = dict(sorted(node.record_retries_by_error.items()))
    return described


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


# --- numbers for people --------------------------------------------------------------------------

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: float) -> str:
    """Return a whole number with separated thousands."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Return bytes in the largest unit that gives at least 1."""
    for unit in _BYTES:
        if abs(number) < 1024 or unit == _BYTES[-1]:
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:,.1f} {unit}"


def duration(ms: float) -> str:
    """Return milliseconds in a suitable unit."""
    if ms < 1000:
        return f"{ms:,.0f} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:,.1f} s"
    minutes = seconds / 60
    return f"{minutes:,.1f} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


def percent(share: float) -> str:
    """Return a share of 1 in percent."""
    return f"{100 * share:.0f} %"


def moment(time_ms: float) -> str:
    """Return milliseconds since 1970 as a time in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


# --- the parts of a batch's time -----------------------------------------------------------------


class Part(NamedTuple):
    """A part of task time. field: of ``metrics``, or ``QUOTA_WAIT``"""

    field: str
    name: str


QUOTA_WAIT = "quota_wait_ms"
"""The part that ``part_times`` derives from the pauses that brokers requested."""

PARTS = (
    Part("input_wait_ms", "waiting for Spark's rows"),
    Part("encode_ms", "encoding"),
    Part("compress_ms", "compressing"),
    Part("metadata_wait_ms", "waiting for metadata"),
    Part("buffer_wait_ms", "waiting for buffer memory"),
    Part("ack_wait_ms", "waiting for acknowledgements"),
    Part("transaction_begin_ms", "beginning transactions"),
    Part("load_ms", "loading the sink"),
    Part("limit_wait_ms", "waiting for the task limit"),
    Part(QUOTA_WAIT, "waiting for broker quotas"),
)
PAUSES = ("throttle_time_ms", "throttle_left_ms")
PART_FIELDS = (*(part.field for part in PARTS if part.field != QUOTA_WAIT), *PAUSES)
"""The fields of ``metrics`` that ``part_times`` needs."""
OTHER = "other"
COMMIT = "committing"
PLANNING = "planning"
NAMES = (*(part.name for part in PARTS), OTHER, COMMIT, PLANNING)
"""The parts of a batch's seconds, in the order of display."""


def part_times(found: Mapping[str, Any], least: Callable[[Any, Any], Any] = min) -> dict[str, Any]:
    """Return the ms of each of ``PARTS``, which do not overlap.

    While a task waits for memory or acknowledgements, the limit or a pause may hold its batches.
    That time is a part of its own, and the two waits are shorter by it, in proportion.

    found: each of ``PART_FIELDS``; numbers, or arrays with a value for each line
    least: returns the smaller one of two numbers or, for arrays, of each pair
    """
    waited = found["buffer_wait_ms"] + found["ack_wait_ms"]
    limited = least(found["limit_wait_ms"], waited)
    throttled = least(sum(found[name] for name in PAUSES), waited - limited)
    kept = (waited - limited - throttled) / (waited + (waited == 0))
    times = {name: found[name] for name in PART_FIELDS if name not in PAUSES}
    times.update({"limit_wait_ms": limited, QUOTA_WAIT: throttled})
    times.update({name: found[name] * kept for name in ("buffer_wait_ms", "ack_wait_ms")})
    return {part.field: times[part.field] for part in PARTS}


def shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return each field's share of the tasks' time, for ``PARTS`` and ``OTHER``: together 1.

    Compression beside the task's thread may make the parts longer than the tasks; then the shares
    are those of the parts' sum. All shares are 0 without a time.
    """
    times = part_times({name: float(metrics.get(name) or 0) for name in PART_FIELDS})
    known = sum(times.values())
    whole = max(known, float(metrics.get("task_ms") or 0))
    if not whole:
        return {**dict.fromkeys(times, 0.0), OTHER: 0.0}
    return {**{field: ms / whole for field, ms in times.items()}, OTHER: (whole - known) / whole}


def batch_duration_ms(line: Mapping[str, Any]) -> float:
    """Return planning, elapsed (first task's start to last task's end) and commit time, in ms."""
    return sum(float(line.get(name) or 0) for name in ("planning_ms", "elapsed_ms", "commit_ms"))


def largest_part(line: Mapping[str, Any]) -> tuple[str, float]:
    """Return name and ms of the largest part of a batch's time; "" and 0 if nothing is known."""
    found = shares(line.get("metrics") or {})
    elapsed_ms = float(line.get("elapsed_ms") or 0)
    times = [(found[part.field] * elapsed_ms, part.name) for part in PARTS]
    times.append((found[OTHER] * elapsed_ms, OTHER))
    times.append((float(line.get("commit_ms") or 0), COMMIT))
    times.append((float(line.get("planning_ms") or 0), PLANNING))
    most_ms, name = max(times)
    return (name, most_ms) if most_ms > 0 else ("", 0.0)


# --- the text in the log -------------------------------------------------------------------------

MOST_IN_LOG = 138
"""Characters of a batch's text: with time, level and logger, a line of the log has 200."""
_MOST_OF_NAME = 30
"""Characters of a query's name, and of a topic's, which may have 249."""
UNKNOWN_CAUSE = "a task failed, or the query or job was stopped"
"""Spark does not pass the cause of an abort to a Python data source."""
_STOPPED = re.compile(
    r"^KeyboardInterrupt\b|\n: java\.lang\.InterruptedException\b|\bJob \d+ cancel"
)
_LETTERS_OF_ID = 8


def batch_text(line: Mapping[str, Any]) -> str:
    """Return the text of a committed batch: query, topic, records, bytes, time, its largest part.

    The text has at most ``MOST_IN_LOG`` characters. If they do not suffice, the last parts are
    omitted. A long wait for brokers is never omitted: its cause then replaces the largest part.
    """
    whole_ms = batch_duration_ms(line)
    sent = float((line.get("metrics") or {}).get("compressed_bytes") or 0)
    text = f"{_batch(line)}: {_records(line)}, {size(sent)} in {duration(whole_ms)}"
    letters = sum((line.get("dead_letters") or {}).values())
    part, part_ms = largest_part(line)
    if "longest_wait_ms" in line:
        cause = printable(str(line.get("longest_wait_cause")))
        text += f", {duration(line['longest_wait_ms'])} of {cause}"
        part = ""
    for more, is_known in (
        ("replay dropped", "replay" in line),
        (f"{count(letters)} dead letters", letters),
        (f"{percent(part_ms / (whole_ms or 1))} {part}", part),
    ):
        if is_known and len(text) + len(more) + len(", ") <= MOST_IN_LOG:
            text += f", {more}"
    return text


def abort_text(line: Mapping[str, Any]) -> str:
    """Return the text of an aborted batch: query, topic, why, failed tasks, records, what remains.

    The note may have commands for the operator: the text is never cut.
    """
    name = _batch(line)
    if was_stopped(line):
        return f"{name} was stopped. {line.get('note', '')}".rstrip()
    text = f"{name} was aborted" + f": {UNKNOWN_CAUSE}" * ("error" not in line)
    if "failed_tasks" in line:
        text += f". {count(line['failed_tasks'])} of {count(line['tasks'])} tasks did not end, "
        text += f"{_records(line)} acknowledged"
    if "note" in line:
        text += f". {line['note']}"
    if "error" in line:
        text += f". {printable(' '.join(line['error'].split()))}"
    return text


def was_stopped(line: Mapping[str, Any]) -> bool:
    """Return True if the error says that a user stopped the query or job, or cancelled its jobs."""
    return _STOPPED.search(line.get("error") or "") is not None


def _records(line: Mapping[str, Any]) -> str:
    number = line.get("records_acknowledged")
    if number is None:
        return "an unknown number of records"
    return "1 record" if number == 1 else f"{count(number)} records"


def _batch(line: Mapping[str, Any]) -> str:
    """Return the batch's number with its query and its topic, as far as they are known."""
    number = line.get("batch_id")
    name = "job" if number is None else f"batch {number}"
    for word, text in (("of", query_text(line)), ("to", topic_text(line))):
        if text:
            text = printable(text)
            cut = text if len(text) <= _MOST_OF_NAME else text[: _MOST_OF_NAME - 1] + "…"
            name += f" {word} {cut}"
    return name


def query_text(line: Mapping[str, Any]) -> str:
    """Return the name of the line's query, else the beginning of its id; "" for a job."""
    return str(line.get("query_name") or str(line.get("query_id") or "")[:_LETTERS_OF_ID])


def topic_text(line: Mapping[str, Any]) -> str:
    """Return the line's topic; "2 topics" if its rows have named several, "" if none is known."""
    topics = line.get("partitions") or line.get("topics") or {}
    found = line.get("topic") or (next(iter(topics)) if len(topics) == 1 else "")
    return str(found) if found or not topics else f"{len(topics)} topics"
