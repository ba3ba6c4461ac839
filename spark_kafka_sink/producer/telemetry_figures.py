"""Figures that a producer pushes to brokers (KIP-714): Kafka's metrics as OTLP's MetricsData.

The figures follow from the task's counters by the same formulas as the metrics of a micro-batch,
and have Kafka's dotted names. Totals cover the client instance, over all its tasks. Averages and
rates cover the time since the last push. Maxima cover the tasks since the last push.

MetricsData nests nine other messages, with fields of four wire types. This module encodes them,
because the official package would load protobuf's runtime into each Python worker.

The module is loaded only if brokers ask for metrics.

Source: ``KafkaMetricsCollector``, ``TelemetryMetricNamingConvention``;
``opentelemetry/proto/metrics/v1/metrics.proto`` of OTLP 1.x, whose field numbers are here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.kafka_metrics import (
    COUNTERS_OF_NODE,
    NODE_GROUP,
    NODE_METRICS,
    PRODUCER_GROUP,
    PRODUCER_METRICS,
    TOPIC_GROUP,
    TOPIC_METRICS,
    KafkaMetric,
)
from spark_kafka_sink.base.kafka_metrics import MAXIMA as MAXIMA_OF_NODES
from spark_kafka_sink.producer.metrics import MAXIMA, ProducerMetrics
from spark_kafka_sink.record.compression import CODEC_IDS, create_compressor

if TYPE_CHECKING:
    from spark_kafka_sink.producer.telemetry import Subscription, TelemetrySources

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_DELTA, _CUMULATIVE = 1, 2
_NS_PER_MS = 1_000_000


class Point(NamedTuple):
    """A value of a metric, and the attributes that distinguish its points."""

    value: float
    attributes: Mapping[str, str]


class Metric(NamedTuple):
    """A metric's name and points.

    started_at_ms: when a monotonic sum begins to count; None for a gauge
    """

    name: str
    points: Iterable[Point]
    started_at_ms: int | None


class Payload(NamedTuple):
    """Content of one push.

    resource: attributes of the whole client
    at_ms: now, in milliseconds since 1970
    is_delta: sums count from the last push
    """

    resource: Mapping[str, str]
    metrics: Iterable[Metric]
    at_ms: int
    is_delta: bool


def metrics_data(payload: Payload) -> bytes:
    """Encode ``MetricsData`` with one resource and one scope."""
    resource = b"".join(_field(1, _key_value(*pair)) for pair in payload.resource.items())
    scope = b"".join(_field(2, _metric(metric, payload)) for metric in payload.metrics)
    return _field(1, _field(1, resource) + _field(2, scope))


def _metric(metric: Metric, payload: Payload) -> bytes:
    """Encode a ``Metric``: a ``Gauge``, or a monotonic ``Sum``."""
    times = _fixed(3, payload.at_ms * _NS_PER_MS)
    if metric.started_at_ms is not None:
        times = _fixed(2, metric.started_at_ms * _NS_PER_MS) + times
    points = b"".join(_field(1, times + _point(point)) for point in metric.points)
    name = _field(1, metric.name.encode())
    if metric.started_at_ms is None:
        return name + _field(5, points)
    temporality = _DELTA if payload.is_delta else _CUMULATIVE
    return name + _field(7, points + _number(2, temporality) + _number(3, True))


def _point(point: Point) -> bytes:
    """Encode a ``NumberDataPoint`` without its times."""
    attributes = b"".join(_field(7, _key_value(*pair)) for pair in point.attributes.items())
    return _tag(4, _FIXED64) + struct.pack("<d", point.value) + attributes


def _key_value(key: str, value: str) -> bytes:
    """Encode a ``KeyValue`` whose ``AnyValue`` is a string."""
    return _field(1, key.encode()) + _field(2, _field(1, value.encode()))


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, _LENGTH) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value)


def _fixed(number: int, value: int) -> bytes:
    return _tag(number, _FIXED64) + struct.pack("<Q", value)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_DOMAIN = "org.apache.kafka"
_TAGS = {TOPIC_GROUP: "topic", NODE_GROUP: "node_id"}
_METRICS = {
    PRODUCER_GROUP: PRODUCER_METRICS,
    NODE_GROUP: NODE_METRICS,
    TOPIC_GROUP: TOPIC_METRICS,
}
"""Groups in order of importance: if not all groups fit, the last ones are omitted."""

_OF_NODES = tuple(name for name in COUNTERS_OF_NODE if name != "connections")
_OF_TOPICS = ("records", "record_retries", "compressed_bytes", "uncompressed_bytes")


class _Key(NamedTuple):
    """A counter of the producer, or of the node or topic that ``label`` names."""

    group: str
    label: str
    field: str

    @property
    def is_maximum(self) -> bool:
        return self.field in (MAXIMA_OF_NODES if self.group == NODE_GROUP else MAXIMA)


_Counts = dict[_Key, float]


class _Instant(NamedTuple):
    """Counters at one moment. ``at_ms``: since 1970."""

    counts: _Counts
    at_ms: int


class EncodedMetrics(NamedTuple):
    """Encoded and compressed metrics."""

    codec_id: int
    data: bytes


class TelemetryCollector:
    """Figures of one client instance."""

    def __init__(self, sources: TelemetrySources, began_at_ms: int) -> None:
        """``began_at_ms``: begin of the current task, in milliseconds since 1970."""
        self._sources = sources
        self._began_at_ms = began_at_ms
        self._former: _Counts = {}
        self._last_pushed = self._collected = _Instant({}, began_at_ms)

    def end_task(self) -> None:
        """Keep the counters before they are reset. The caller holds the monitor."""
        self._former = self._current_counts()

    def collect(self, subscription: Subscription, rack: str) -> list[Payload]:
        """Return all requested metrics, then with fewer and fewer groups. Under the monitor."""
        at_ms = self._sources.clock.timestamp_ms()
        self._collected = _Instant(self._current_counts(), at_ms)
        whole, since = self._collected.counts, self._last_pushed
        values = {
            True: _values(whole, self._state(at_ms - self._began_at_ms)),
            False: _values(_without(whole, since.counts), self._state(at_ms - since.at_ms)),
        }
        began_at_ms = self._began_at_ms
        if subscription.is_delta:
            values[True], began_at_ms = values[False], since.at_ms
        groups = [list(_metrics(group, values, began_at_ms)) for group in _METRICS]
        resource = self._resource(rack)
        payloads = []
        for count in range(len(groups), 0, -1):
            metrics = [m for group in groups[:count] for m in group if subscription.wants(m.name)]
            payloads.append(Payload(resource, metrics, at_ms, subscription.is_delta))
        return payloads

    def mark_pushed(self) -> None:
        """Record that the last figures were pushed; the next push covers the time after them."""
        self._last_pushed = self._collected
        self._former = {key: 0 if key.is_maximum else n for key, n in self._former.items()}

    def _current_counts(self) -> _Counts:
        """Return counters since the beginning, maxima since the last push or the task's begin."""
        counts = dict(self._former)
        for key, count in self._of_task():
            before = counts.get(key, 0)
            counts[key] = max(before, count) if key.is_maximum else before + count
        return counts

    def _of_task(self) -> Iterator[tuple[_Key, float]]:
        metrics, report = self._sources.totals
        for field in fields(ProducerMetrics):
            yield _Key(PRODUCER_GROUP, "", field.name), getattr(metrics, field.name)
        for node_id, node in list(self._sources.client.nodes.items()):
            if node.requests:
                for name in _OF_NODES:
                    yield _Key(NODE_GROUP, f"node-{node_id}", name), getattr(node, name)
        for where, partition in list(report.items()):
            for name in _OF_TOPICS:
                yield _Key(TOPIC_GROUP, where.topic, name), getattr(partition, name)

    def _state(self, elapsed_ms: int) -> dict[str, Any]:
        """Return the values that are not counted, under the names in the formulas."""
        sources = self._sources
        nodes = list(sources.client.nodes.values())
        return {
            "elapsed_ms": elapsed_ms,
            "task_ms": elapsed_ms,
            "tasks_summary": {"with_rows": 1},
            "buffer_total_bytes": sources.buffer_bytes,
            "connections": sum(node.connections for node in nodes),
            "metadata_age_max_ms": sources.metadata.age_ms(sources.clock.now_ms()),
        }

    def _resource(self, rack: str) -> dict[str, str]:
        """Return the attributes of the resource. Source: ``ClientTelemetryProvider``."""
        resource = {"client_rack": rack} if rack else {}
        transaction = self._sources.transaction()
        if transaction is not None:
            resource["transactional_id"] = transaction.transactional_id
        return resource


def _without(whole: _Counts, earlier: _Counts) -> _Counts:
    return {
        key: count if key.is_maximum else count - earlier.get(key, 0)
        for key, count in whole.items()
    }


def _values(counts: _Counts, state: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the values for the formulas, by group and label."""
    groups: dict[str, dict[str, dict[str, Any]]] = {group: {} for group in _METRICS}
    for key, count in counts.items():
        name, value = key.field, count
        if name.endswith("_ns"):
            name, value = name.removesuffix("_ns") + "_ms", count / _NS_PER_MS
        labels = groups[key.group]
        labels.setdefault(key.label, {"elapsed_ms": state["elapsed_ms"]})[name] = value
    groups[PRODUCER_GROUP].setdefault("", {}).update(state, nodes=groups[NODE_GROUP])
    return groups


def _metrics(
    group: str, values: Mapping[bool, Mapping[str, Any]], began_at_ms: int
) -> Iterator[Metric]:
    """Yield a group's metrics. ``values``: under True for totals, under False for the rest."""
    for metric in _METRICS[group]:
        points = list(_points(group, metric, values[metric.is_total][group]))
        if points:
            yield Metric(_dotted(group, metric), points, began_at_ms if metric.is_total else None)


def _points(group: str, metric: KafkaMetric, values: Mapping[str, Any]) -> Iterator[Point]:
    for label, known in values.items():
        value = metric.value(known)
        if value is not None:
            yield Point(float(value), {_TAGS[group]: label} if label else {})


def _dotted(group: str, metric: KafkaMetric) -> str:
    scope = group.removesuffix("-metrics")
    return f"{_DOMAIN}.{scope}.{metric.name}".replace("-", ".")


def packed(payloads: Iterable[Payload], subscription: Subscription) -> EncodedMetrics | None:
    """Return the first of ``payloads`` within the brokers' size limit; None if all are larger."""
    compressor = create_compressor(subscription.codec, None)
    for payload in payloads:
        data = metrics_data(payload)
        if compressor is not None:
            data = bytes(compressor.compress(data))
        if subscription.most_bytes is None or len(data) <= subscription.most_bytes:
            return EncodedMetrics(CODEC_IDS[subscription.codec], data)
    return None
