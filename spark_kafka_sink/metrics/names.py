"""Names of the metrics that a line holds: Kafka's names, and the sink's own.

A line describes one batch. The Java producer reports averages, rates and maxima of the last 30
seconds, and totals of its whole life. Here averages, rates and maxima cover the batch, and totals
add up over lines. A job has a producer in each task; a line reports all tasks as one client.

Metrics that Java's producers do not have get names of the sink's own, for Prometheus and
OpenTelemetry.

Source: ``SenderMetricsRegistry``, ``KafkaProducerMetrics``, ``BufferPool``, ``RecordAccumulator``,
``Selector.SelectorMetrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Union

from spark_kafka_sink.base.kafka_metrics import (
    NODE_GROUP,
    NODE_METRICS,
    PRODUCER_GROUP,
    PRODUCER_METRICS,
    TOPIC_GROUP,
    TOPIC_METRICS,
    KafkaMetric,
    Values,
)

# --- Kafka's names -------------------------------------------------------------------------------

_NOT_MEASURED = (
    *("select-rate", "select-total", "io-wait-time-ns-avg", "io-wait-time-ns-total"),
    *("io-wait-ratio", "io-time-ns-avg", "io-time-ns-total", "io-ratio"),
)
_NOT_COUNTED = (
    *("successful-authentication-rate", "successful-authentication-total"),
    *("successful-authentication-no-reauth-total", "successful-reauthentication-rate"),
    *("successful-reauthentication-total", "failed-authentication-rate"),
    *("failed-authentication-total", "failed-reauthentication-rate"),
    *("failed-reauthentication-total", "reauthentication-latency-avg"),
    "reauthentication-latency-max",
)
UNAVAILABLE_METRICS: dict[str, str] = {
    "buffer-exhausted-rate": "a task without memory for `kafka.max.block.ms` fails with an error",
    "buffer-exhausted-total": "as the rate",
    "waiting-threads": "a task has one thread; `buffer_wait_ms` is its waiting time",
    "txn-begin-time-ns-total": "beginning a transaction sends nothing: see txn-init",
    "txn-send-offsets-time-ns-total": "Spark keeps the offsets",
    "txn-abort-time-ns-total": "a line `abort` reports failures, without times",
    "txn-prepare-time-ns-total": "the sink does not use the two-phase commit of KIP-939",
    **dict.fromkeys(_NOT_MEASURED, "the sender thread has no such counters"),
    **dict.fromkeys(
        _NOT_COUNTED,
        "a failed login ends the task with its reason; successful logins are not counted",
    ),
}
"""Metrics of the Java producer that a line cannot give, and why."""

UNAVAILABLE_TOPIC_METRICS: dict[str, str] = {
    "record-error-rate": "a rejected batch fails its task and has no line",
    "record-error-total": "as the rate",
}
"""Metrics of topics that a line cannot give, and why."""


def values_of(line: Values) -> dict[str, Any]:
    """Return the values that PRODUCER_METRICS use: the line, and its counters beside the rest."""
    return {**line, **line.get("metrics", {})}


def topic_or_node_values(line: Values, part: Values) -> dict[str, Any]:
    """Return the values that TOPIC_METRICS and NODE_METRICS use."""
    return {"elapsed_ms": line.get("elapsed_ms"), **part}


class Measurement(NamedTuple):
    """One metric of one line. labels: topic or node; the client's labels come on top."""

    group: str
    metric: KafkaMetric
    labels: Mapping[str, str]
    value: float

    @property
    def doc(self) -> str:
        return f"{self.group}: {self.metric.name}. {self.metric.follows}".replace("`", "")


def measurements(line: Values) -> Iterator[Measurement]:
    """Yield all metrics of a line; none if the batch had no rows or the line has no counters."""
    if "metrics" not in line or not line["metrics"]["task_ms"]:
        return
    yield from _measured(PRODUCER_GROUP, PRODUCER_METRICS, {}, values_of(line))
    for topic, values in line.get("topics", {}).items():
        labels = {"topic": topic}
        yield from _measured(TOPIC_GROUP, TOPIC_METRICS, labels, topic_or_node_values(line, values))
    for node, values in line.get("nodes", {}).items():
        labels = {"node_id": f"node-{node}"}
        yield from _measured(NODE_GROUP, NODE_METRICS, labels, topic_or_node_values(line, values))


def _measured(
    group: str, metrics: tuple[KafkaMetric, ...], labels: Mapping[str, str], values: Values
) -> Iterator[Measurement]:
    for metric in metrics:
        value = metric.value(values)
        if value is not None:
            yield Measurement(group, metric, labels, value)


def send_time_ms(line: Values) -> float | None:
    """Return Flink's ``currentSendTime``: time of the last records in the queue and to the broker.

    Source: ``KafkaWriter.computeSendTime`` of Flink's connector.
    """
    averages = {metric.name: metric.value(values_of(line)) for metric in PRODUCER_METRICS}
    queue_time_ms = averages["record-queue-time-avg"]
    latency_ms = averages["request-latency-avg"]
    return None if queue_time_ms is None or latency_ms is None else queue_time_ms + latency_ms


def labels_of(line: Values, query: str = "") -> dict[str, str]:
    """Return the labels of the client. query: name of the query; by default the line's."""
    query = query or str(line.get("query_name") or line.get("query_id", ""))
    return {"client_id": str(line.get("client_id", "")), "query": query}


# --- the sink's own names ------------------------------------------------------------------------

Labelled = tuple[Mapping[str, str], Union[int, float]]
"""Labels besides client and query, and the value."""

TASK_PARTS = ("input_wait", "encode", "compress", "metadata_wait", "buffer_wait", "ack_wait")


class OwnMetric(NamedTuple):
    """A metric of the sink's own."""

    name: str
    doc: str
    values: Callable[[Values], Iterator[Labelled]]

    @property
    def is_total(self) -> bool:
        """True if the values of lines add up."""
        return self.name.endswith("_total")


def _field(name: str, divisor: int = 1) -> Callable[[Values], Iterator[Labelled]]:
    def values(line: Values) -> Iterator[Labelled]:
        if name in line:
            yield {}, line[name] if divisor == 1 else line[name] / divisor

    return values


def _counter_seconds(name: str) -> Callable[[Values], Iterator[Labelled]]:
    return lambda line: _field(name, 1000)(line.get("metrics", {}))


def _task_times(line: Values) -> Iterator[Labelled]:
    metrics = line.get("metrics")
    if metrics:
        for part in TASK_PARTS:
            yield {"part": part}, metrics[f"{part}_ms"] / 1000


def _quantiles(line: Values) -> Iterator[Labelled]:
    latency = line.get("request_latency", {})
    for percentile, name in (("50", "p50_ms"), ("95", "p95_ms"), ("99", "p99_ms")):
        if name in latency:
            yield {"percentile": percentile}, latency[name] / 1000


def _send_time(line: Values) -> Iterator[Labelled]:
    value = send_time_ms(line) if "metrics" in line else None
    if value is not None:
        yield {}, value / 1000


def _extremes(summary: str, field: str) -> Callable[[Values], Iterator[Labelled]]:
    def values(line: Values) -> Iterator[Labelled]:
        found = line.get(summary)
        if found:
            for extreme in ("least", "most"):
                yield {"extreme": extreme}, found[f"{extreme}_{field}"][field]

    return values


def _dead_letters(line: Values) -> Iterator[Labelled]:
    for cause, count in line.get("dead_letters", {}).items():
        yield {"cause": cause}, count


def _slowest_task(line: Values) -> Iterator[Labelled]:
    found = line.get("tasks_summary")
    if found:
        yield {}, found["most_task_ms"]["task_ms"] / 1000


OWN_METRICS = (
    OwnMetric(
        "pykafka_sink_batches_total",
        "Micro-batches and jobs, by event",
        lambda line: iter([({"event": line["event"]}, 1)]),
    ),
    OwnMetric("pykafka_sink_tasks_total", "Tasks of micro-batches and jobs", _field("tasks")),
    OwnMetric(
        "pykafka_sink_failed_tasks_total",
        "Tasks without a commit message, in aborted batches",
        _field("failed_tasks"),
    ),
    OwnMetric(
        "pykafka_sink_failed_attempts_total",
        "Failed attempts of tasks that succeeded later",
        _field("failed_attempts"),
    ),
    OwnMetric(
        "pykafka_sink_records_acknowledged_total",
        "Records that brokers acknowledged",
        _field("records_acknowledged"),
    ),
    OwnMetric("pykafka_sink_dead_letters_total", "Dead letters by cause", _dead_letters),
    OwnMetric(
        "pykafka_sink_task_seconds_total",
        "Time of tasks, from their start to their last acknowledgement",
        _counter_seconds("task_ms"),
    ),
    OwnMetric(
        "pykafka_sink_task_part_seconds_total",
        "Time of tasks by part, as far as it is measured",
        _task_times,
    ),
    OwnMetric(
        "pykafka_sink_limit_wait_seconds_total",
        "Time that tasks waited for max.bytes.per.second.per.task",
        _counter_seconds("limit_wait_ms"),
    ),
    OwnMetric(
        "pykafka_sink_commit_seconds_total",
        "Exactly-once: time of deciding and committing transactions",
        _field("commit_ms", 1000),
    ),
    OwnMetric(
        "pykafka_sink_batch_seconds",
        "Time from the start of the last batch's first task to the end of its last one",
        _field("elapsed_ms", 1000),
    ),
    OwnMetric(
        "pykafka_sink_request_latency_percentile_seconds",
        "Latency of the last batch's produce requests",
        _quantiles,
    ),
    OwnMetric(
        "pykafka_sink_current_send_time_seconds",
        "Flink's currentSendTime: queue time and request latency of the last batch, on average",
        _send_time,
    ),
    OwnMetric(
        "pykafka_sink_task_records",
        "Least and most records of a task in the last batch",
        _extremes("tasks_summary", "records"),
    ),
    OwnMetric(
        "pykafka_sink_partition_records",
        "Least and most records of a topic-partition in the last batch",
        _extremes("partitions_summary", "records"),
    ),
    OwnMetric(
        "pykafka_sink_slowest_task_seconds", "Time of the last batch's slowest task", _slowest_task
    ),
    OwnMetric(
        "pykafka_sink_last_batch_id", "Number of the last batch of a query", _field("batch_id")
    ),
    OwnMetric(
        "pykafka_sink_last_event_timestamp_seconds",
        "Time of the last line, by event, in seconds since 1970",
        lambda line: iter([({"event": line["event"]}, line["time_ms"] / 1000)]),
    ),
)
