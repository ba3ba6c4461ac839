"""Kafka's producer metrics: names, and formulas over the counters of tasks.

The Java producer reports averages, rates and maxima of the last 30 seconds, and totals of its
lifetime. Here the metrics cover the time of the counters: a batch (``metrics/names.py``), or the
time between two pushes to brokers (``producer/telemetry_figures.py``).

Source: ``SenderMetricsRegistry``, ``KafkaProducerMetrics``, ``BufferPool``, ``RecordAccumulator``,
``Selector.SelectorMetrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional

PRODUCER_GROUP = "producer-metrics"
TOPIC_GROUP = "producer-topic-metrics"
NODE_GROUP = "producer-node-metrics"

Values = Mapping[str, Any]
"""The input of a formula: the fields of a metrics line, or of one topic or node in it."""

Formula = Callable[[Values], Optional[float]]

_NS_PER_MS = 1_000_000


class KafkaMetric(NamedTuple):
    """A metric and its formula.

    name: Kafka's
    value: of one line; None if the line lacks its fields
    is_total: values of lines add up
    follows: the fields, in words
    """

    name: str
    value: Formula
    is_total: bool
    follows: str


def _total(name: str, field: Formula, follows: str) -> KafkaMetric:
    return KafkaMetric(f"{name}-total", field, True, follows)


def _rated(name: str, field: Formula, follows: str) -> tuple[KafkaMetric, KafkaMetric]:
    rate = KafkaMetric(f"{name}-rate", _per_second(field), False, f"{follows}, per second")
    return rate, _total(name, field, follows)


def _per_second(field: Formula) -> Formula:
    def rate(values: Values) -> float | None:
        value, elapsed_ms = field(values), values.get("elapsed_ms")
        return None if value is None or not elapsed_ms else 1000 * value / elapsed_ms

    return rate


def _number(name: str) -> Formula:
    """Return a field of ``metrics``, or of a topic or node."""
    return lambda values: values.get(name)


def _share(sum_of: Formula, count: Formula) -> Formula:
    def average(values: Values) -> float | None:
        number, total = count(values), sum_of(values)
        return None if not number or total is None else total / number

    return average


def _avg(name: str, field: str, count: str) -> KafkaMetric:
    value = _share(_number(field), _number(count))
    return KafkaMetric(f"{name}-avg", value, False, f"`{field}` / `{count}`")


def _max(name: str, field: str) -> KafkaMetric:
    return KafkaMetric(f"{name}-max", _number(field), False, f"`{field}`")


def _gauge(name: str, field: Formula, follows: str) -> KafkaMetric:
    return KafkaMetric(name, field, False, follows)


def _ns(name: str, field: str) -> KafkaMetric:
    """Return Java's total in nanoseconds."""

    def nanoseconds(values: Values) -> float | None:
        value = values.get(field)
        return None if value is None else value * _NS_PER_MS

    return _total(f"{name}-time-ns", nanoseconds, f"`{field}`")


def _of_nodes(field: str, together: Callable[..., Any] = sum) -> Formula:
    def all_nodes(values: Values) -> float | None:
        nodes = values.get("nodes")
        return together(node[field] for node in nodes.values()) if nodes else None

    return all_nodes


def _sum_of_nodes(*fields: str) -> Formula:
    def total(values: Values) -> float | None:
        nodes = values.get("nodes")
        return sum(node[name] for node in nodes.values() for name in fields) if nodes else None

    return total


def _per_task(field: str) -> Formula:
    """Return the mean over tasks with rows, because each such task has a producer."""

    def mean(values: Values) -> float | None:
        tasks = values.get("tasks_summary", {}).get("with_rows")
        return values[field] / tasks if tasks and field in values else None

    return mean


def _available(values: Values) -> float | None:
    total = _per_task("buffer_total_bytes")(values)
    return None if total is None else total - values["buffer_used_max_bytes"]


def _seconds(field: str) -> Formula:
    return lambda values: None if field not in values else values[field] / 1000


PRODUCER_METRICS: tuple[KafkaMetric, ...] = (
    *_rated("record-send", _number("records_sent"), "`records_sent`"),
    *_rated("record-retry", _number("record_retries"), "`record_retries`"),
    *_rated("record-error", _number("record_errors"), "`record_errors`"),
    _max("record-size", "record_size_max"),
    _avg("record-size", "uncompressed_bytes", "records"),
    _max("record-queue-time", "queue_time_max_ms"),
    _avg("record-queue-time", "queue_time_ms", "batches_sent"),
    _avg("records-per-request", "records_sent", "requests"),
    _max("batch-size", "batch_size_max"),
    _avg("batch-size", "compressed_bytes", "batches"),
    *_rated("batch-split", _number("batch_splits"), "`batch_splits`"),
    _avg("compression-rate", "compression_rate_sum", "batches"),
    _max("request-latency", "request_latency_max_ms"),
    _avg("request-latency", "request_latency_ms", "responses"),
    _gauge("requests-in-flight", _number("requests_in_flight_max"), "`requests_in_flight_max`"),
    _max("produce-throttle-time", "throttle_time_max_ms"),
    _avg("produce-throttle-time", "throttle_time_ms", "responses"),
    _gauge("metadata-age", _seconds("metadata_age_max_ms"), "`metadata_age_max_ms`, in seconds"),
    _gauge(
        "bufferpool-wait-ratio",
        _share(_number("buffer_wait_ms"), _number("task_ms")),
        "`buffer_wait_ms` / `task_ms`",
    ),
    _ns("bufferpool-wait", "buffer_wait_ms"),
    _gauge(
        "buffer-total-bytes", _per_task("buffer_total_bytes"), "`buffer_total_bytes`, of one task"
    ),
    _gauge(
        "buffer-available-bytes",
        _available,
        "of one task, where most is used: without `buffer_used_max_bytes`",
    ),
    _ns("flush", "ack_wait_ms"),
    _ns("metadata-wait", "metadata_wait_ms"),
    _ns("txn-init", "transaction_begin_ms"),
    _ns("txn-commit", "commit_ms"),
    _gauge("connection-count", _number("connections"), "`connections`"),
    *_rated(
        "connection-creation", _of_nodes("connections_created"), "`connections_created` of nodes"
    ),
    *_rated("connection-close", _of_nodes("connections_closed"), "`connections_closed` of nodes"),
    *_rated("request", _of_nodes("requests"), "`requests` of nodes"),
    *_rated("response", _of_nodes("responses"), "`responses` of nodes"),
    *_rated("outgoing-byte", _of_nodes("outgoing_bytes"), "`outgoing_bytes` of nodes"),
    *_rated("incoming-byte", _of_nodes("incoming_bytes"), "`incoming_bytes` of nodes"),
    *_rated(
        "network-io", _sum_of_nodes("requests", "responses"), "`requests` and `responses` of nodes"
    ),
    KafkaMetric(
        "request-size-avg",
        _share(_of_nodes("outgoing_bytes"), _of_nodes("requests")),
        False,
        "`outgoing_bytes` / `requests` of nodes",
    ),
    KafkaMetric(
        "request-size-max", _of_nodes("request_max_bytes", max), False, "`request_max_bytes`"
    ),
)
"""Metrics of the MBean ``kafka.producer:type=producer-metrics,client-id=…``."""


def _bytes_sent(topic: Values) -> float:
    """Estimate the bytes with retries, as if the retried records had the average size."""
    sent = topic["records"] + topic["record_retries"]
    return float(topic["compressed_bytes"] * sent / max(topic["records"], 1))


TOPIC_METRICS: tuple[KafkaMetric, ...] = (
    *_rated(
        "record-send",
        lambda topic: topic["records"] + topic["record_retries"],
        "`records` and `record_retries` of the topic",
    ),
    *_rated(
        "byte",
        _bytes_sent,
        "`compressed_bytes` of the topic, more by the share of records that were sent again",
    ),
    *_rated("record-retry", _number("record_retries"), "`record_retries` of the topic"),
    _gauge(
        "compression-rate",
        _share(_number("compressed_bytes"), _number("uncompressed_bytes")),
        "`compressed_bytes` / `uncompressed_bytes` of the topic",
    ),
)
"""Metrics of the MBean ``kafka.producer:type=producer-topic-metrics,client-id=…,topic=…``."""

NODE_METRICS: tuple[KafkaMetric, ...] = (
    *_rated("request", _number("requests"), "`requests` of the node"),
    *_rated("response", _number("responses"), "`responses` of the node"),
    *_rated("outgoing-byte", _number("outgoing_bytes"), "`outgoing_bytes` of the node"),
    *_rated("incoming-byte", _number("incoming_bytes"), "`incoming_bytes` of the node"),
    _avg("request-size", "outgoing_bytes", "requests"),
    _max("request-size", "request_max_bytes"),
    _avg("request-latency", "request_latency_ms", "produce_responses"),
    _max("request-latency", "request_latency_max_ms"),
)
"""Metrics of the MBean ``kafka.producer:type=producer-node-metrics,client-id=…,node-id=node-…``."""
