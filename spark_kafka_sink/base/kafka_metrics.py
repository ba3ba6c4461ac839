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
    follows: the fields, in words
    is_total: values of lines add up
    """

    name: str
    value: Formula
    follows: str
    is_total: bool = False


def _rated(name: str, field: Formula, follows: str) -> tuple[KafkaMetric, KafkaMetric]:
    def rate(values: Values) -> float | None:
        value, elapsed_ms = field(values), values.get("elapsed_ms")
        return None if value is None or not elapsed_ms else 1000 * value / elapsed_ms

    total = KafkaMetric(f"{name}-total", field, follows, True)
    return KafkaMetric(f"{name}-rate", rate, f"{follows}, per second"), total


def _number(name: str) -> Formula:
    """Return a field of ``metrics``, or of a topic or node."""
    return lambda values: values.get(name)


def _share(sum_of: Formula, count: Formula) -> Formula:
    def average(values: Values) -> float | None:
        number, total = count(values), sum_of(values)
        return None if not number or total is None else total / number

    return average


def _counted(name: str, field: str) -> tuple[KafkaMetric, KafkaMetric]:
    return _rated(name, _number(field), f"`{field}`")


def _of_node(name: str, field: str) -> tuple[KafkaMetric, KafkaMetric]:
    return _rated(name, _number(field), f"`{field}` of the node")


def _of_all_nodes(name: str, field: str) -> tuple[KafkaMetric, KafkaMetric]:
    return _rated(name, _nodes(field), f"`{field}` of nodes")


def _avg(name: str, field: str, count: str) -> KafkaMetric:
    value = _share(_number(field), _number(count))
    return KafkaMetric(f"{name}-avg", value, f"`{field}` / `{count}`")


def _gauge(name: str, field: str) -> KafkaMetric:
    return KafkaMetric(name, _number(field), f"`{field}`")


def _max(name: str, field: str) -> KafkaMetric:
    return _gauge(f"{name}-max", field)


def _ns(name: str, field: str) -> KafkaMetric:
    """Return Java's total in nanoseconds."""

    def nanoseconds(values: Values) -> float | None:
        value = values.get(field)
        return None if value is None else value * _NS_PER_MS

    return KafkaMetric(f"{name}-time-ns-total", nanoseconds, f"`{field}`", True)


def _nodes(*fields: str, together: Callable[..., Any] = sum) -> Formula:
    def all_nodes(values: Values) -> float | None:
        nodes = values.get("nodes")
        return together(node[name] for node in nodes.values() for name in fields) if nodes else None

    return all_nodes


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
    *_counted("record-send", "records_sent"),
    *_counted("record-retry", "record_retries"),
    *_counted("record-error", "record_errors"),
    _max("record-size", "record_size_max"),
    _avg("record-size", "uncompressed_bytes", "records"),
    _max("record-queue-time", "queue_time_max_ms"),
    _avg("record-queue-time", "queue_time_ms", "batches_sent"),
    _avg("records-per-request", "records_sent", "requests"),
    _max("batch-size", "batch_size_max"),
    _avg("batch-size", "compressed_bytes", "batches"),
    *_counted("batch-split", "batch_splits"),
    _avg("compression-rate", "compression_rate_sum", "batches"),
    _max("request-latency", "request_latency_max_ms"),
    _avg("request-latency", "request_latency_ms", "responses"),
    _gauge("requests-in-flight", "requests_in_flight_max"),
    _max("produce-throttle-time", "throttle_time_max_ms"),
    _avg("produce-throttle-time", "throttle_time_ms", "responses"),
    KafkaMetric(
        "metadata-age", _seconds("metadata_age_max_ms"), "`metadata_age_max_ms`, in seconds"
    ),
    _avg("bufferpool-wait", "buffer_wait_ms", "task_ms")._replace(name="bufferpool-wait-ratio"),
    _ns("bufferpool-wait", "buffer_wait_ms"),
    KafkaMetric(
        "buffer-total-bytes", _per_task("buffer_total_bytes"), "`buffer_total_bytes`, of one task"
    ),
    KafkaMetric(
        "buffer-available-bytes",
        _available,
        "of one task, where most is used: without `buffer_used_max_bytes`",
    ),
    _ns("flush", "ack_wait_ms"),
    _ns("metadata-wait", "metadata_wait_ms"),
    _ns("txn-init", "transaction_begin_ms"),
    _ns("txn-commit", "commit_ms"),
    _gauge("connection-count", "connections"),
    *_of_all_nodes("connection-creation", "connections_created"),
    *_of_all_nodes("connection-close", "connections_closed"),
    *_of_all_nodes("request", "requests"),
    *_of_all_nodes("response", "responses"),
    *_of_all_nodes("outgoing-byte", "outgoing_bytes"),
    *_of_all_nodes("incoming-byte", "incoming_bytes"),
    *_rated("network-io", _nodes("requests", "responses"), "`requests` and `responses` of nodes"),
    KafkaMetric(
        "request-size-avg",
        _share(_nodes("outgoing_bytes"), _nodes("requests")),
        "`outgoing_bytes` / `requests` of nodes",
    ),
    KafkaMetric(
        "request-size-max", _nodes("request_max_bytes", together=max), "`request_max_bytes`"
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
    KafkaMetric(
        "compression-rate",
        _share(_number("compressed_bytes"), _number("uncompressed_bytes")),
        "`compressed_bytes` / `uncompressed_bytes` of the topic",
    ),
)
"""Metrics of the MBean ``kafka.producer:type=producer-topic-metrics,client-id=…,topic=…``."""

NODE_METRICS: tuple[KafkaMetric, ...] = (
    *_of_node("request", "requests"),
    *_of_node("response", "responses"),
    *_of_node("outgoing-byte", "outgoing_bytes"),
    *_of_node("incoming-byte", "incoming_bytes"),
    _avg("request-size", "outgoing_bytes", "requests"),
    _max("request-size", "request_max_bytes"),
    _avg("request-latency", "request_latency_ms", "produce_responses"),
    _max("request-latency", "request_latency_max_ms"),
)
"""Metrics of the MBean ``kafka.producer:type=producer-node-metrics,client-id=…,node-id=node-…``."""
