"""Kafka's names for what a line holds: the metrics of the Java producer, as they follow from it.

A line tells of one batch, the Java producer of the last 30 seconds (averages, rates, maxima) or of
its whole life (totals). So averages, rates and maxima are of the batch, and totals are to be added
up over lines. A job has a producer in each task: they are told together, as one client.

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
"""What a metric follows from: the line, and of a topic or node what the line has of it."""

Formula = Callable[[Values], Optional[float]]

_NS_PER_MS = 1_000_000


class KafkaMetric(NamedTuple):
    """name: Kafka's; value: of one line, None where that does not tell

    is_total: values of lines add up
    follows: in words, from which fields
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
    """A field of ``metrics``, or of a topic or node."""
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
    """Java's totals of nanoseconds."""

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
    """Of one task: every task that had rows has a producer."""

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
"""MBean ``kafka.producer:type=producer-metrics,client-id=…``."""


def _bytes_sent(topic: Values) -> float:
    """What is sent again is as large as the rest."""
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
"""MBean ``kafka.producer:type=producer-topic-metrics,client-id=…,topic=…``."""

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
"""MBean ``kafka.producer:type=producer-node-metrics,client-id=…,node-id=node-…``."""

_NO_SUCH_WAIT = "the sender thread is not measured: it waits, or is at work beside the task thread"
_OF_LOGINS = "a login that fails ends the task, with its reason; one that succeeds is not counted"

NOT_GIVEN: dict[str, str] = {
    "buffer-exhausted-rate": "a task without memory for `kafka.max.block.ms` fails, and tells why",
    "buffer-exhausted-total": "as the rate",
    "waiting-threads": "a task has one thread; `buffer_wait_ms` tells how long it waited",
    "txn-begin-time-ns-total": "beginning is nothing by itself: see txn-init",
    "txn-send-offsets-time-ns-total": "Spark keeps the offsets",
    "txn-abort-time-ns-total": "what fails is told by a line `abort`, without times",
    "txn-prepare-time-ns-total": "there is no two-phase commit of KIP-939 here",
    "select-rate": _NO_SUCH_WAIT,
    "select-total": _NO_SUCH_WAIT,
    "io-wait-time-ns-avg": _NO_SUCH_WAIT,
    "io-wait-time-ns-total": _NO_SUCH_WAIT,
    "io-wait-ratio": _NO_SUCH_WAIT,
    "io-time-ns-avg": _NO_SUCH_WAIT,
    "io-time-ns-total": _NO_SUCH_WAIT,
    "io-ratio": _NO_SUCH_WAIT,
    "successful-authentication-rate": _OF_LOGINS,
    "successful-authentication-total": _OF_LOGINS,
    "successful-authentication-no-reauth-total": _OF_LOGINS,
    "successful-reauthentication-rate": _OF_LOGINS,
    "successful-reauthentication-total": _OF_LOGINS,
    "failed-authentication-rate": _OF_LOGINS,
    "failed-authentication-total": _OF_LOGINS,
    "failed-reauthentication-rate": _OF_LOGINS,
    "failed-reauthentication-total": _OF_LOGINS,
    "reauthentication-latency-avg": _OF_LOGINS,
    "reauthentication-latency-max": _OF_LOGINS,
}
"""Metrics of the Java producer that do not follow from a line, and why."""

NOT_GIVEN_OF_TOPICS: dict[str, str] = {
    "record-error-rate": "a batch that is refused fails its task: there is no line of it",
    "record-error-total": "as the rate",
}
"""The same for topics."""


def values_of(line: Values) -> dict[str, Any]:
    """What PRODUCER_METRICS follow from: the line, with its counters beside the rest."""
    return {**line, **line.get("metrics", {})}


def values_of_part(line: Values, part: Values) -> dict[str, Any]:
    """What TOPIC_METRICS and NODE_METRICS follow from."""
    return {"elapsed_ms": line.get("elapsed_ms"), **part}


def send_time_ms(line: Values) -> float | None:
    """Flink's ``currentSendTime``: how long the last records took, in the queue and to the broker.

    Source: ``KafkaWriter.computeSendTime`` of Flink's connector.
    """
    averages = {metric.name: metric.value(values_of(line)) for metric in PRODUCER_METRICS}
    queue_time_ms = averages["record-queue-time-avg"]
    latency_ms = averages["request-latency-avg"]
    return None if queue_time_ms is None or latency_ms is None else queue_time_ms + latency_ms
