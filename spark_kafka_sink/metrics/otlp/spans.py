"""A line as one trace: the batch, what the driver and the tasks did of it, and its slowest task.

Names of spans are few, as OpenTelemetry asks for; which batch it is is an attribute.

Source: OpenTelemetry's semantic conventions for messaging, and for exceptions.
"""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from spark_kafka_sink.metrics.names import Values
from spark_kafka_sink.metrics.otlp import times
from spark_kafka_sink.metrics.otlp.times import Interval
from spark_kafka_sink.metrics.own_names import TASK_PARTS

_ABORT = "abort"
_IDS = RandomIdGenerator()
_OWN = "pykafka_sink."
_OF_THE_BATCH = (
    *("event", "batch_id", "tasks", "failed_tasks", "failed_attempts", "transactions", "replay"),
    "note",
)
_OF_THE_COMMIT = ("commit_ms", "oldest_transaction_ms", "decided_for_ms", "transactions")


class Trace(NamedTuple):
    """exemplar: the slowest produce request of the slowest task, None without one"""

    spans: list[ReadableSpan]
    exemplar: Exemplar | None


def trace_of(line: Values, resource: Resource, scope: InstrumentationScope) -> Trace:
    """Spans of all that the line tells the times of."""
    return _Spans(line, resource, scope).trace()


class _Spans:
    """One trace, while it is made."""

    def __init__(self, line: Values, resource: Resource, scope: InstrumentationScope) -> None:
        self._line = line
        self._resource = resource
        self._scope = scope
        told = line.get("trace_id")
        self._trace_id = _IDS.generate_trace_id() if told is None else int(told, 16)
        self._is_abort = line["event"] == _ABORT
        self._spans: list[ReadableSpan] = []

    def trace(self) -> Trace:
        line = self._line
        root = self._root()
        planning, commit = times.planning(line), times.commit(line)
        if planning is not None:
            self._add("planning", planning, root, {"planning_ms": line["planning_ms"]})
        exemplar = self._tasks(root)
        if commit is not None:
            told = {name: line[name] for name in _OF_THE_COMMIT if name in line}
            self._add(_ABORT if self._is_abort else "commit", commit, root, told)
        return Trace(self._spans, exemplar)

    def _root(self) -> SpanContext:
        line = self._line
        own = {name: line[name] for name in _OF_THE_BATCH if name in line}
        more = self._of_messaging()
        topics = line.get("topics", {})
        if len(topics) == 1:
            more["messaging.destination.name"] = next(iter(topics))
        name = "micro-batch" if "batch_id" in line else "job"
        return self._add(name, times.interval_of(line), None, own, more)

    def _of_messaging(self) -> dict[str, str | int]:
        line = self._line
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": str(line.get("client_id", "")),
            "messaging.batch.message_count": int(line.get("records_acknowledged", 0)),
        }

    def _tasks(self, root: SpanContext) -> Exemplar | None:
        whole, flush = times.tasks(self._line), times.flush(self._line)
        if whole is None:
            return None
        metrics = self._line["metrics"]
        parts = {f"{part}_ms": metrics[f"{part}_ms"] for part in TASK_PARTS}
        tasks = self._add("tasks", whole, root, {**parts, "task_ms": metrics["task_ms"]})
        if flush is not None:
            self._add("flush", flush, root, {"ack_wait_ms": metrics["ack_wait_ms"]})
        slowest = times.slowest_task(self._line)
        return None if slowest is None else self._slowest_task(slowest, tasks)

    def _slowest_task(self, when: Interval, tasks: SpanContext) -> Exemplar | None:
        told = self._line["slowest_tasks"][0]
        own = {f"task.{name}": value for name, value in told.items() if name != "started_at_ms"}
        more = {**self._of_messaging(), "messaging.batch.message_count": told["records"]}
        context = self._add("task", when, tasks, own, more)
        waited = int(told["ack_wait_ms"]) * 1_000_000
        flushed_from_ns = max(when.started_ns, when.ended_ns - waited)
        self._add("task flush", Interval(flushed_from_ns, when.ended_ns), context, {})
        latency_ms = told.get("request_latency_max_ms")
        if not latency_ms:
            return None
        where = {"task": told["task"], "host": told["host"]}
        ids = {"span_id": context.span_id, "trace_id": context.trace_id}
        return Exemplar(where, float(latency_ms), when.ended_ns, **ids)

    def _add(
        self,
        name: str,
        when: Interval,
        parent: SpanContext | None,
        own: dict[str, str | int | float],
        more: dict[str, str | int] | None = None,
    ) -> SpanContext:
        """own: attributes, without the prefix of the sink's own names"""
        context = SpanContext(
            self._trace_id, _IDS.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED)
        )
        attributes = {**{_OWN + key: value for key, value in own.items()}, **(more or {})}
        is_root = parent is None
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            events=self._events(when) if is_root else (),
            kind=SpanKind.PRODUCER if name == "task" else SpanKind.INTERNAL,
            status=self._status() if is_root else Status(),
            start_time=when.started_ns,
            end_time=when.ended_ns,
            instrumentation_scope=self._scope,
        )
        self._spans.append(span)
        return context

    def _events(self, when: Interval) -> list[Event]:
        error = self._line.get("error")
        if error is None:
            return []
        kind, _, message = error.partition(": ")
        attributes = {"exception.type": kind, "exception.message": message}
        return [Event("exception", attributes, when.ended_ns)]

    def _status(self) -> Status:
        return Status(StatusCode.ERROR, why_aborted(self._line)) if self._is_abort else Status()


def why_aborted(line: Values) -> str:
    """As far as Spark tells the sink."""
    if "error" in line:
        return str(line["error"])
    failed, tasks = line.get("failed_tasks"), line.get("tasks")
    if failed:
        return f"{failed} of {tasks} tasks failed: Spark's log has their errors"
    if tasks is not None:
        return "no task failed, but the commit did, or Spark gave the batch up: see its log"
    return "Spark does not tell why"
