"""What a task tells the driver, and what the driver says about it.

Source of the shape: Spark's Python Data Source API hands ``commit`` and ``abort`` the pickled
messages of all tasks, None for those that failed, in another process than the one that planned.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.node_metrics import NodeMetrics, NodesMetrics
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.metrics.line import (
    LINE_VERSION,
    BatchMetrics,
    Line,
    TaskMetrics,
    by_topic,
    file_line,
    log_line,
)
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.producer.metrics import DeliveryReport, PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.envelope import Enveloped
from spark_kafka_sink.spark.versions import WriterCommitMessage
from spark_kafka_sink.spark.worker import DOCUMENT, ensure_log_handler
from spark_kafka_sink.transactions.model import DriverToken, Plan, TaskTransaction

if TYPE_CHECKING:
    import pyarrow as pa


class TimedInput:
    """Arrow batches as they come, those without rows left out.

    started_at_ms: when the task began to wait for the first, since 1970
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
        """Such as are timed already go on as they are."""
        return arrow_batches if isinstance(arrow_batches, cls) else cls(arrow_batches)

    def has_rows(self) -> bool:
        """Wait until it is known. To be called once, before the rows are taken."""
        self._first = next(self, None)
        return self._first is not None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """What is done meanwhile is what a new process does once."""
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
        """How long the task has taken until now, loaded, and waited for rows."""
        metrics.task_ns = self._clock.perf_ns() - self._started_ns
        metrics.load_ns = self._loaded_ns
        metrics.input_wait_ns = self._waited_ns


logger = logging.getLogger(__name__)


class Planned(NamedTuple):
    """When the driver began to plan a batch, since 1970, and how long that took."""

    started_at_ms: int
    took_ms: float


@dataclass
class KafkaCommitMessage(Enveloped, WriterCommitMessage):
    """Everything that one task wrote is acknowledged.

    partitions: offsets, records and bytes per topic-partition; metrics: the producer's counters;
    nodes: what was exchanged with each broker
    started_at_ms: when its rows began to come, by the clock of ``host``; 0 without rows
    query_id, batch_id: of a streaming query, where Spark tells, else None
    dead_letters: how many there are of each cause, None where no error is tolerated
    planned: of the batch, from Spark partition 0 alone
    transaction: what the task has written in and left open, if there were rows; token: of the plan
    that it belongs to; plan: from Spark partition 0 alone, for it may be as large as all messages.
    All three only with exactly-once delivery
    """

    partition_id: int
    attempt_number: int
    query_id: str | None = None
    partitions: DeliveryReport = field(default_factory=dict)
    metrics: ProducerMetrics = field(default_factory=ProducerMetrics)
    transaction: TaskTransaction | None = None
    token: DriverToken | None = None
    plan: Plan | None = None
    nodes: NodesMetrics = field(default_factory=dict)
    started_at_ms: int = 0
    host: str = field(default_factory=platform.node)
    batch_id: int | None = None
    dead_letters: dict[str, int] | None = None
    planned: Planned | None = None

    def belong_to(self, plan: Plan) -> None:
        """Tell the driver whose task it was: Spark commits in another process than it plans in."""
        self.token = plan.token
        self.plan = plan if self.partition_id == 0 else None

    @property
    def records(self) -> int:
        """Records that brokers acknowledged."""
        return sum(report.records for report in self.partitions.values())

    def summary(self) -> dict[str, Any]:
        """What interceptors are told: offsets, records and bytes per partition, and counters."""
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
        """What is told of a single task."""
        return TaskMetrics(
            self.partition_id,
            self.attempt_number,
            self.host,
            self.started_at_ms,
            self.records,
            self.metrics,
        )


def common_plan(messages: Sequence[KafkaCommitMessage]) -> Plan | None:
    """The plan that all of these tasks belong to; None if there was no task.

    Raises TransactionError for messages of several plans, or of one that nobody has sent.
    """
    tokens = {m.token for m in messages}
    if not tokens:
        return None
    plan = next((m.plan for m in messages if m.plan is not None), None)
    if plan is None or tokens != {plan.token}:
        raise TransactionError(
            f"{len(tokens)} plan(s) in the messages of one batch, "
            f"{'none' if plan is None else 'one'} of them sent: this is a defect of the sink"
        )
    return plan


@dataclass
class BatchSummary:
    """The merged messages of all tasks of one job or micro-batch.

    tasks, failed_tasks: None where Spark does not tell what became of the tasks
    """

    tasks: int | None = 0
    failed_tasks: int | None = 0
    query_id: str | None = None
    partitions: DeliveryReport = field(default_factory=dict)
    metrics: ProducerMetrics = field(default_factory=ProducerMetrics)
    nodes: NodesMetrics = field(default_factory=dict)
    figures: list[TaskMetrics] = field(default_factory=list)
    dead_letters: dict[str, int] | None = None
    planned: Planned | None = None

    @classmethod
    def merge(cls, messages: Iterable[WriterCommitMessage | None]) -> BatchSummary:
        """Add up. None stands for a task that failed."""
        given = list(messages)
        written = [message for message in given if isinstance(message, KafkaCommitMessage)]
        summary = cls(tasks=len(given), failed_tasks=len(given) - len(written))
        for message in written:
            summary.query_id = summary.query_id or message.query_id
            summary.planned = summary.planned or message.planned
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
        """By cause; None where no error is tolerated."""
        if counts is not None:
            mine = {} if self.dead_letters is None else self.dead_letters
            causes = sorted({*mine, *counts})
            self.dead_letters = {c: mine.get(c, 0) + counts.get(c, 0) for c in causes}

    def line(self, event: str, micro_batch_id: int | None, **more: Any) -> Line:
        """What happened to which batch, in total and per partition: ``metrics/line.py``."""
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
) -> None:
    """Say that a batch is written: in the log if ``is_logged``, and where ``outputs`` says."""
    summary = messages if isinstance(messages, BatchSummary) else BatchSummary.merge(messages)
    line = summary.line("commit", micro_batch_id, **more)
    if is_logged:
        _log(logging.INFO, log_line(line))
    _write_outputs(outputs, line)


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
) -> None:
    """Say what is known of a batch that failed."""
    summary = messages if isinstance(messages, BatchSummary) else BatchSummary.merge(messages)
    more["note"] = note
    line = summary.line("abort", micro_batch_id, **more)
    _log(logging.WARNING, log_line(line))
    _write_outputs(outputs, line)


def _log(level: int, line: Line) -> None:
    ensure_log_handler()
    logger.log(level, json.dumps(line), extra={DOCUMENT: line})


def _write_outputs(outputs: MetricsOutputs, line: Line) -> None:
    """The records are in Kafka: an exception would make Spark write them all again."""
    for problem in write_outputs(outputs, line):
        ensure_log_handler()
        logger.warning(problem)
