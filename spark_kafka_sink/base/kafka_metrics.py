"""Kafka's producer metrics: names, formulas over the counters of tasks, counters per broker.

The Java producer reports averages, rates and maxima of the last 30 seconds, and totals of its
lifetime. Here the metrics cover the time of the counters: a batch (``metrics/names.py``), or the
time between two pushes to brokers (``producer/telemetry_figures.py``).

:class:`NodeMetrics` counts a client's exchange with one broker, and can be added up. Latencies are
counted in buckets. They grow by a factor of the eighth root of 2, so each quantile is accurate
within 4.5 %. They equal those of OpenTelemetry's exponential histograms of scale 3 and of
Prometheus' native histograms of schema 3: bucket ``index`` has the values above ``2 ** (index /
8)``, up to and including ``2 ** ((index + 1) / 8)``.

Source: ``SenderMetricsRegistry``, ``KafkaProducerMetrics``, ``BufferPool``, ``RecordAccumulator``,
``Selector.SelectorMetrics``; OpenTelemetry's data model of metrics, "ExponentialHistogram";
DDSketch (Masson, Rim, Lee).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from math import ceil, log2
from operator import attrgetter
from typing import Any, NamedTuple, Optional, TypeVar

from spark_kafka_sink.base.model import dataclass

SCALE = 3
_PER_DOUBLING = 2**SCALE

_Key = TypeVar("_Key")
Latencies = dict[int, int]
"""Bucket's index -> number of values. Values of 0 and 1 are both in bucket -1, because the clock's
resolution is a millisecond."""


def observe(latencies: Latencies, value_ms: int) -> None:
    """Count one value, in milliseconds."""
    index = ceil(log2(value_ms) * _PER_DOUBLING) - 1 if value_ms > 1 else -1
    latencies[index] = latencies.get(index, 0) + 1


def add(counts: dict[_Key, int], others: Mapping[_Key, int]) -> None:
    """Add the counts of ``others``."""
    for key, count in others.items():
        counts[key] = counts.get(key, 0) + count


def upper_bound_ms(index: int) -> float:
    """Return the largest value of a bucket."""
    bound: float = 2.0 ** ((index + 1) / _PER_DOUBLING)
    return bound


def count_up_to(latencies: Mapping[int, int], doublings: int) -> int:
    """Return the number of values up to ``2 ** doublings`` ms; exact, as a bucket ends there."""
    return sum(n for index, n in latencies.items() if index < doublings * _PER_DOUBLING)


def quantile_ms(latencies: Mapping[int, int], share: float) -> float | None:
    """Return the quantile ``share``, from 0 to 1; None without values.

    It is the geometric middle of its bucket, or the whole number in a bucket with just one.
    """
    wanted = share * sum(latencies.values())
    counted = 0
    for index in sorted(latencies):
        counted += latencies[index]
        if counted >= wanted:
            return _middle_ms(index)
    return None


def _middle_ms(index: int) -> float:
    upper, lower = upper_bound_ms(index), upper_bound_ms(index - 1)
    if index < 0:
        return 1.0
    largest = int(upper + 1e-9)
    if largest - 1 <= lower:
        return float(largest)
    middle: float = (upper * lower) ** 0.5
    return round(middle, 1)


MAXIMA = ("request_max_bytes", "request_latency_max_ms")
"""Fields whose maximum over tasks counts; all other fields add up."""


@dataclass(slots=True)
class NodeMetrics:
    """Counters of one broker, of one task or of many.

    requests, outgoing_bytes, responses, incoming_bytes: of all kinds, before encryption
    request_max_bytes: of the largest request
    connections_created, connections_closed: successful connections, and those closed since
    connections: open now
    produce_responses: answered produce requests, counted in the next three fields
    request_latency_ms, request_latency_max_ms, latencies: sum, maximum and histogram
    throttle_time_ms: sum of the pauses that the responses to produce requests ask for
    record_retries: records sent again because their request failed at this broker
    record_retries_by_error: the same records by the name of the Kafka error
    """

    requests: int = 0
    outgoing_bytes: int = 0
    request_max_bytes: int = 0
    responses: int = 0
    incoming_bytes: int = 0
    connections_created: int = 0
    connections_closed: int = 0
    connections: int = 0
    produce_responses: int = 0
    request_latency_ms: int = 0
    request_latency_max_ms: int = 0
    throttle_time_ms: int = 0
    record_retries: int = 0
    latencies: Latencies = field(default_factory=dict)
    record_retries_by_error: dict[str, int] = field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        # Omit the names of fields, because a driver holds the messages of all tasks.
        return NodeMetrics, (*_numbers(self), self.latencies, self.record_retries_by_error)

    def copy(self) -> NodeMetrics:
        """Return a copy, which a client does not go on counting in."""
        kept = NodeMetrics(*_numbers(self))
        kept.latencies = dict(self.latencies)
        kept.record_retries_by_error = dict(self.record_retries_by_error)
        return kept

    def sent(self, size_bytes: int) -> None:
        """Count one request."""
        self.requests += 1
        self.outgoing_bytes += size_bytes
        self.request_max_bytes = max(self.request_max_bytes, size_bytes)

    def connected(self) -> None:
        """Count a new connection."""
        self.connections_created += 1
        self.connections += 1

    def disconnected(self) -> None:
        """Count a closed connection."""
        self.connections_closed += 1
        self.connections -= 1

    def record_produce_response(self, latency_ms: int, throttle_time_ms: int) -> None:
        """Count one response to a produce request."""
        self.produce_responses += 1
        self.request_latency_ms += latency_ms
        self.request_latency_max_ms = max(self.request_latency_max_ms, latency_ms)
        self.throttle_time_ms += throttle_time_ms
        observe(self.latencies, latency_ms)

    def record_retry(self, error: str, records: int) -> None:
        """Count records that are sent again because of ``error``, the name of a Kafka error."""
        self.record_retries += records
        add(self.record_retries_by_error, {error: records})

    def add(self, other: NodeMetrics) -> None:
        """Add the counters of another task for the same broker."""
        for name in COUNTERS_OF_NODE:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name in MAXIMA else mine + theirs)
        add(self.latencies, other.latencies)
        add(self.record_retries_by_error, other.record_retries_by_error)

    def reset(self) -> None:
        """Set all counters to 0. Connections stay."""
        for name in COUNTERS_OF_NODE:
            if name != "connections":
                setattr(self, name, 0)
        self.latencies = {}
        self.record_retries_by_error = {}


COUNTERS_OF_NODE = tuple(
    f.name for f in fields(NodeMetrics) if f.name not in ("latencies", "record_retries_by_error")
)
"""The fields that are numbers."""
_numbers = attrgetter(*COUNTERS_OF_NODE)

NodesMetrics = dict[int, NodeMetrics]
"""Broker's id -> metrics; addresses of ``bootstrap.servers`` have negative ids."""


def sum_of(nodes: Iterable[NodeMetrics]) -> NodeMetrics:
    """Return the sum over all nodes."""
    total = NodeMetrics()
    for node in nodes:
        total.add(node)
    return total


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
