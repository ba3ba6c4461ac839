"""Messages from tasks to the driver, and the driver's report of a committed or aborted batch.

Nothing is decided here. ``writer.py`` commits a batch (``commit_batch``). With exactly-once,
``transactions/commit_protocol.py`` decides. ``BatchSummary.line`` makes the JSON line of a batch,
whose fields are a table in ``metrics/line.py``.

Spark's Python Data Source API passes ``commit`` and ``abort`` the pickled messages of all tasks,
None for failed tasks, in a process other than the one that planned.

An envelope holds objects sent between the driver, a Spark Connect client and the tasks. Only the
sink's version that pickled an object may read it. A pickle of a dataclass with slots lists its
values by position: a version with one more option would shift the values after it. Therefore an
object is sent as a pickle inside a pickle. The outer pickle holds only the version and a function
that compares it first. Other versions look for this function, ``open_envelope``, in this module.

A pickle runs code where it is read. Only Spark's own processes read those above. A program that
runs the tasks itself gets their messages as JSON (``encode_message``), because they may come from
another machine, by Spark Connect.
"""

from __future__ import annotations

import json
import logging
import pickle
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError, TransactionError, code_of, coded
from spark_kafka_sink.base.kafka_metrics import NodeMetrics, NodesMetrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.base.text import printable
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.metrics.line import (
    LINE_VERSION,
    BatchMetrics,
    Line,
    TaskMetrics,
    abort_text,
    batch_text,
    by_topic,
    file_line,
    log_line,
    was_stopped,
)
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.producer.metrics import (
    DeliveryReport,
    LongestWait,
    PartitionReport,
    ProducerMetrics,
)
from spark_kafka_sink.spark.versions import WriterCommitMessage
from spark_kafka_sink.spark.worker import DOCUMENT, ensure_log_handler, logs_json
from spark_kafka_sink.transactions.model import DriverToken, TaskTransaction, TransactionPlan

if TYPE_CHECKING:
    import pyarrow as pa

_Scalar = TypeVar("_Scalar")


class VersionMismatchError(KafkaSinkError):
    """The object was sent by another version of the sink. Its content was not read."""

    code = "SPARK-003"


class Enveloped:
    """Base of all objects that are sent. Python's own pickle must support their contents.

    Subclasses have no slots; the reader imports them by name.
    """

    has_shared_values: ClassVar[bool] = False
    """True if no reader changes the values: all tasks of a process then share them.

    Building the options takes 0.2 ms, and Spark sends the same bytes to each task.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return open_envelope, (__version__, pickle.dumps((type(self), self.__dict__)))


class _Opened(NamedTuple):
    """The last content with ``has_shared_values`` that this process has read."""

    content: bytes
    kind: type[Enveloped]
    values: dict[str, Any]


_opened = _Opened(b"", Enveloped, {})


def _check_version(version: str) -> None:
    if version != __version__:
        raise VersionMismatchError(
            f"this was sent by pykafka-sink {printable(version)}, and has arrived at pykafka-sink "
            f"{__version__} in {Path(__file__).parents[1]} on {platform.node()}: install the same "
            "version of pykafka-sink on the driver, on all executors, and where the program runs "
            "that uses Spark Connect"
        )


def open_envelope(version: str, content: bytes) -> Enveloped:
    """Return the object that was sent. version: the sink's version that pickled ``content``

    Raises VersionMismatchError if it is not this version.
    """
    _check_version(version)
    global _opened
    opened = _opened
    if content != opened.content:
        opened = _Opened(content, *pickle.loads(content))
        if opened.kind.has_shared_values:
            _opened = opened
    instance = opened.kind.__new__(opened.kind)
    instance.__dict__.update(opened.values)
    return instance


_NOT_A_MESSAGE = (
    "Spark has returned something else than the message of a task: it cannot be known whether all "
    "rows are written"
)


def encode_message(message: KafkaCommitMessage) -> bytes:
    """Return a task's message as JSON, without the plan, which the reader has."""
    body = {
        **{name: getattr(message, name) for name in _PLAIN_FIELDS},
        "sink_version": __version__,
        "metrics": _values(message.metrics),
        "partitions": [[*key, *_values(report)] for key, report in message.partitions.items()],
        "nodes": [
            [node_id, *_values(node)[:-2], [*node.latencies.items()], node.record_retries_by_error]
            for node_id, node in message.nodes.items()
        ],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode_message(data: bytes) -> KafkaCommitMessage:
    """Return the message of a task, of which each value has the type that the task gave it.

    Raises VersionMismatchError for another version's message; KafkaSinkError for anything else.
    """
    try:
        body = json.loads(bytes(data))
        _check_version(_text(body["sink_version"]))
        return _decoded(body)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise KafkaSinkError(_NOT_A_MESSAGE, code="SPARK-010") from error


def _decoded(body: dict[str, Any]) -> KafkaCommitMessage:
    transaction, token, planned = body["transaction"], body["token"], body["planned"]
    dead_letters = body["dead_letters"]
    return KafkaCommitMessage(
        partition_id=_integer(body["partition_id"]),
        attempt_number=_integer(body["attempt_number"]),
        query_id=_optional(_text, body["query_id"]),
        partitions={
            TopicPartition(_text(topic), _integer(partition)): PartitionReport(*_integers(counts))
            for topic, partition, *counts in body["partitions"]
        },
        metrics=ProducerMetrics(*map(_number, body["metrics"])),
        transaction=None if transaction is None else _transaction(transaction),
        token=None if token is None else DriverToken(*_integers(token)),
        nodes={
            _integer(node_id): _node(numbers, latencies, errors)
            for node_id, *numbers, latencies, errors in body["nodes"]
        },
        started_at_ms=_integer(body["started_at_ms"]),
        host=_text(body["host"]),
        batch_id=_optional(_integer, body["batch_id"]),
        dead_letters=_optional(_counts, dead_letters),
        planned=None if planned is None else _planned(*planned),
        is_unordered=_is_true(body["is_unordered"]),
        dropped_rows=_integer(body["dropped_rows"]),
        open_ms=_integer(body["open_ms"]),
        longest_wait=None if body["longest_wait"] is None else _wait(*body["longest_wait"]),
        origin=_optional(_text, body["origin"]),
    )


def _wait(wait_ms: Any, cause: Any) -> LongestWait:
    return LongestWait(_integer(wait_ms), _text(cause))


def _planned(started_at_ms: Any, took_ms: Any) -> PlanningSpan:
    return PlanningSpan(_integer(started_at_ms), _number(took_ms))


def _node(numbers: list[Any], latencies: Any, errors: Any) -> NodeMetrics:
    node = NodeMetrics(*_integers(numbers))  # type: ignore[arg-type]
    node.latencies = {_integer(index): _integer(count) for index, count in latencies}
    node.record_retries_by_error = _counts(errors)
    return node


def _transaction(values: list[Any]) -> TaskTransaction:
    """Each value but the first and the last, which are texts, is a whole number."""
    found = TaskTransaction(*values)
    for number, value in enumerate(found):
        _of_type(str if number in (0, len(found) - 1) else int, value)
    return found


def _values(counted: Any) -> list[Any]:
    return [getattr(counted, one.name) for one in fields(counted)]


def _of_type(kind: type[_Scalar], value: Any) -> _Scalar:
    """Return ``value``. Raises TypeError for another type, also for a number as text."""
    if type(value) is not kind:
        raise TypeError(f"not {kind.__name__}")
    return value


def _text(value: Any) -> str:
    return _of_type(str, value)


def _integer(value: Any) -> int:
    return _of_type(int, value)


def _is_true(value: Any) -> bool:
    return _of_type(bool, value)


def _number(value: Any) -> Any:
    """Return a number; fields of whole numbers and of others have the same column."""
    if type(value) is float and isfinite(value):
        return value
    return _integer(value)


def _integers(values: Iterable[Any]) -> list[int]:
    return [_integer(value) for value in values]


def _counts(found: Any) -> dict[str, int]:
    return {_text(name): _integer(count) for name, count in _of_type(dict, found).items()}


def _optional(read: Callable[[Any], _Scalar], value: Any) -> _Scalar | None:
    return None if value is None else read(value)


class TimedInput:
    """An iterator of Arrow batches that measures waiting time and skips empty batches.

    started_at_ms: when the task began to wait for the first batch, since 1970
    """

    def __init__(self, arrow_batches: Iterable[pa.RecordBatch]) -> None:
        self._clock = SystemClock()
        self.started_at_ms = self._clock.timestamp_ms()
        self._started_ns = self._clock.perf_ns()
        self._waited_ns = self._loaded_ns = 0
        self._arrow_batches = iter(arrow_batches)
        self._first: pa.RecordBatch | None = None

    @classmethod
    def of(cls, arrow_batches: Iterable[pa.RecordBatch]) -> TimedInput:
        """Return a TimedInput of the batches; a TimedInput is returned unchanged."""
        return arrow_batches if isinstance(arrow_batches, cls) else cls(arrow_batches)

    def has_rows(self) -> bool:
        """Wait for the first row; return False if none comes. Call once, before iterating."""
        self._first = next(self, None)
        return self._first is not None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Measure the time that a new process needs to load modules and kernels."""
        started_ns = self._clock.perf_ns()
        yield
        self._loaded_ns += self._clock.perf_ns() - started_ns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        started_ns = self._clock.perf_ns()
        try:
            while not (arrow_batch := next(self._arrow_batches)).num_rows:
                pass
        finally:
            self._waited_ns += self._clock.perf_ns() - started_ns
        return arrow_batch

    def note_in(self, metrics: ProducerMetrics) -> None:
        """Set the durations until now: of the task, of loading, and of waiting for rows."""
        metrics.task_ns = self._clock.perf_ns() - self._started_ns
        metrics.load_ns = self._loaded_ns
        metrics.input_wait_ns = self._waited_ns


logger = logging.getLogger(__name__)


class PlanningSpan(NamedTuple):
    """The start of a batch's planning, ms since 1970, and its duration, ms."""

    started_at_ms: int
    took_ms: float


@dataclass
class KafkaCommitMessage(Enveloped, WriterCommitMessage):
    """The message of a task whose records are all acknowledged.

    partitions: offsets, records and bytes per topic-partition; metrics: the producer's counters;
    nodes: traffic with each broker
    started_at_ms: when the task began to wait for rows, by the clock of ``host``; 0 without rows
    query_id, batch_id: of a streaming query if Spark reports them, else None
    dead_letters: count by cause, None if no error is tolerated
    longest_wait: for brokers, if the log reported one
    origin: for lineage, Spark's properties of the run, as JSON; only from partition 0
    is_unordered: Spark may run copies of tasks, and a late copy may write older rows of a key last
    planned: of the batch, only from Spark partition 0
    transaction: the task's open transaction, if there were rows; token: the plan's token
    plan: only from Spark partition 0, because it may be as large as all messages together
    dropped_rows: rows that are not written, because their named write was written before
    open_ms: for how long the transaction was open at least, by the task's monotonic clock
    The last five are set only with exactly-once delivery
    """

    partition_id: int
    attempt_number: int
    query_id: str | None = None
    partitions: DeliveryReport = field(default_factory=dict)
    metrics: ProducerMetrics = field(default_factory=ProducerMetrics)
    transaction: TaskTransaction | None = None
    token: DriverToken | None = None
    plan: TransactionPlan | None = None
    nodes: NodesMetrics = field(default_factory=dict)
    started_at_ms: int = 0
    host: str = field(default_factory=platform.node)
    batch_id: int | None = None
    dead_letters: dict[str, int] | None = None
    planned: PlanningSpan | None = None
    is_unordered: bool = False
    dropped_rows: int = 0
    open_ms: int = 0
    longest_wait: LongestWait | None = None
    origin: str | None = None

    def belong_to(self, plan: TransactionPlan) -> None:
        """Add the plan's token: Spark commits in a process other than the one that planned."""
        self.token = plan.token
        self.plan = plan if self.partition_id == 0 else None

    @property
    def records(self) -> int:
        """Return the number of acknowledged records."""
        return sum(report.records for report in self.partitions.values())

    def summary(self) -> dict[str, Any]:
        """Return the summary for interceptors: offsets, records, bytes per partition, counters."""
        summary: dict[str, Any] = {
            "partition_id": self.partition_id,
            "attempt_number": self.attempt_number,
            "query_id": self.query_id,
            "records": self.records,
            "metrics": self.metrics.report(),
            "partitions": by_topic(self.partitions),
        }
        if self.dead_letters is not None:
            summary["dead_letters"] = dict(self.dead_letters)
        return summary

    @property
    def figures(self) -> TaskMetrics:
        """Return the figures of a single task."""
        return TaskMetrics(
            self.partition_id,
            self.attempt_number,
            self.host,
            self.started_at_ms,
            self.records,
            self.metrics,
        )


_PLAIN_FIELDS = (
    *("partition_id", "attempt_number", "query_id", "transaction", "token", "started_at_ms"),
    *("host", "batch_id", "dead_letters", "planned", "is_unordered", "dropped_rows", "open_ms"),
    *("longest_wait", "origin"),
)
"""Fields that JSON holds as they are."""


def common_plan(messages: Sequence[KafkaCommitMessage]) -> TransactionPlan | None:
    """Return the plan of these tasks; None without tasks.

    Raises TransactionError for messages of several plans, or if no message has the plan.
    """
    tokens = {m.token for m in messages}
    if not tokens:
        return None
    plan = next((m.plan for m in messages if m.plan is not None), None)
    if plan is None or tokens != {plan.token}:
        raise TransactionError(
            f"{len(tokens)} plan(s) in the messages of one batch, "
            f"{'none' if plan is None else 'one'} of them sent: this is a defect of the sink",
            code="SPARK-010",
        )
    return plan


@dataclass
class BatchSummary:
    """The merged messages of all tasks of one job or micro-batch.

    tasks, failed_tasks: None if Spark does not report the outcome of the tasks
    origin: as in a message
    """

    tasks: int | None = 0
    failed_tasks: int | None = 0
    query_id: str | None = None
    partitions: DeliveryReport = field(default_factory=dict)
    metrics: ProducerMetrics = field(default_factory=ProducerMetrics)
    nodes: NodesMetrics = field(default_factory=dict)
    figures: list[TaskMetrics] = field(default_factory=list)
    dead_letters: dict[str, int] | None = None
    planned: PlanningSpan | None = None
    longest_wait: LongestWait | None = None
    origin: str | None = None

    @classmethod
    def merge(cls, messages: Iterable[WriterCommitMessage | None]) -> BatchSummary:
        """Add up all messages. None stands for a failed task."""
        received = list(messages)
        written = [message for message in received if isinstance(message, KafkaCommitMessage)]
        summary = cls(tasks=len(received), failed_tasks=len(received) - len(written))
        for message in written:
            summary.query_id = summary.query_id or message.query_id
            summary.planned = summary.planned or message.planned
            summary.origin = summary.origin or message.origin
            waits = summary.longest_wait, message.longest_wait
            summary.longest_wait = max((w for w in waits if w is not None), default=None)
            summary.metrics.add(message.metrics)
            summary.figures.append(message.figures)
            summary.add_dead_letters(message.dead_letters)
            for topic_partition, report in message.partitions.items():
                merged = summary.partitions.setdefault(topic_partition, PartitionReport())
                merged.add(report)
            for node_id, node in message.nodes.items():
                summary.nodes.setdefault(node_id, NodeMetrics()).add(node)
        return summary

    def add_dead_letters(self, counts: dict[str, int] | None) -> None:
        """Add the counts by cause; None if no error is tolerated."""
        if counts is not None:
            mine = {} if self.dead_letters is None else self.dead_letters
            causes = sorted({*mine, *counts})
            self.dead_letters = {c: mine.get(c, 0) + counts.get(c, 0) for c in causes}

    def line(self, event: str, micro_batch_id: int | None, **more: Any) -> Line:
        """Return the metrics line of a batch: ``metrics/line.py``."""
        is_known = self.tasks is not None
        line = {
            "sink": "pykafka-sink",
            "event": event,
            "query_id": self.query_id,
            "batch_id": micro_batch_id,
            "tasks": self.tasks,
            "failed_tasks": self.failed_tasks,
            "records_acknowledged": self._records if is_known else None,
            "dead_letters": self.dead_letters,
            "version": LINE_VERSION,
            "sink_version": __version__,
            "time_ms": SystemClock().timestamp_ms(),
            **more,
        }
        if self.planned is not None:
            line["planning_started_at_ms"], line["planning_ms"] = self.planned
        if self.longest_wait is not None:
            line["longest_wait_ms"], line["longest_wait_cause"] = self.longest_wait
        if is_known:
            measured = BatchMetrics(self.metrics, self.partitions, self.nodes, self.figures)
            line.update(file_line(measured))
        return {name: value for name, value in line.items() if value is not None}

    @property
    def _records(self) -> int:
        return sum(report.records for report in self.partitions.values())


def report_commit(
    messages: Sequence[WriterCommitMessage | None] | BatchSummary,
    micro_batch_id: int | None,
    is_logged: bool,
    outputs: MetricsOutputs,
    **more: Any,
) -> Line:
    """Report a committed batch to ``outputs``, and to the log if ``is_logged``; return its line."""
    summary = messages if isinstance(messages, BatchSummary) else BatchSummary.merge(messages)
    line = summary.line("commit", micro_batch_id, **more)
    if is_logged:
        _log(logging.INFO, batch_text(line), line)
    ensure_log_handler()
    write_outputs(outputs, line)
    return line


AT_LEAST_ONCE_NOTE = (
    "records_acknowledged by finished tasks are in Kafka and will be written again when the "
    "batch is retried; failed tasks may have written more"
)
AT_LEAST_ONCE_JOB_NOTE = (
    "records_acknowledged by finished tasks are in Kafka and stay there, failed tasks may have "
    "written more; running the job again writes all rows once more"
)
UNKNOWN_NOTE = (
    "a part of the rows may be in Kafka and stays there; writing the batch or job again writes all "
    "rows once more"
)


def report_abort(
    messages: Sequence[WriterCommitMessage | None] | BatchSummary,
    micro_batch_id: int | None,
    outputs: MetricsOutputs,
    note: str = AT_LEAST_ONCE_NOTE,
    **more: Any,
) -> Line:
    """Report a failed batch to the log and to ``outputs``; return its line."""
    summary = messages if isinstance(messages, BatchSummary) else BatchSummary.merge(messages)
    more["note"] = note
    line = summary.line("abort", micro_batch_id, **more)
    text = abort_text(line)
    if was_stopped(line):
        _log(logging.INFO, text, line)
    else:
        # The note may quote another error, which is not the cause.
        _log(logging.WARNING, text, line, code_of(line.get("error")) or "DELIVERY-006")
    ensure_log_handler()
    write_outputs(outputs, line)
    return line


def _log(level: int, text: str, line: Line, code: str = "") -> None:
    """Log the text; with ``log.format=json`` log the line instead."""
    ensure_log_handler()
    document = log_line(line) if logs_json() else None
    extra = None if document is None else {DOCUMENT: document}
    logger.log(level, json.dumps(document) if document else coded(text, code), extra=extra)
