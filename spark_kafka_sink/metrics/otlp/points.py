"""A line as OpenTelemetry's metrics.

Names are those under which Kafka's clients push their metrics to brokers (KIP-714). What Java's
producers do not have is named ``pykafka_sink.…``, so that Prometheus' translation of
OpenTelemetry's names gives those of ``metrics/own_names.py``.

Sums and histograms are deltas, each of one batch. Totals would have to live as long as a query, and
what commits a batch is a process of Spark's, which may be another one for each batch.

Source: OpenTelemetry's data model of metrics; ``TelemetryMetricNamingConvention`` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from spark_kafka_sink.base.latencies import count_up_to
from spark_kafka_sink.metrics.names import Values, measurements
from spark_kafka_sink.metrics.otlp.times import Interval, interval_of
from spark_kafka_sink.metrics.own_names import OWN_METRICS

LATENCY = "pykafka_sink.request_latency"
_LATENCY_DOC = "Produce requests by how long they took until the answer"
_KAFKA = "org.apache.kafka"
_OWN_PREFIX, _OWN_DOMAIN = "pykafka_sink_", "pykafka_sink."
_SECONDS = "_seconds"
_DELTA = AggregationTemporality.DELTA
_DOUBLINGS = range(18)

_Number = Union[int, float]


class _Described(NamedTuple):
    """What all points of one metric have in common."""

    name: str
    doc: str
    unit: str
    is_total: bool


def metrics_of(line: Values, exemplar: Exemplar | None, has_exponential: bool) -> list[Metric]:
    """All metrics of one line.

    exemplar: of the slowest produce request of the slowest task
    has_exponential: the latencies as a histogram whose buckets grow by the eighth root of 2, as the
    line has it; otherwise they grow by 2
    """
    interval = interval_of(line)
    client = {
        "client_id": str(line.get("client_id", "")),
        "query": str(line.get("query_name") or line.get("query_id", "")),
    }
    points: dict[_Described, list[NumberDataPoint]] = {}
    for described, labels, value in _numbers(line):
        attributes = {**client, **labels}
        point = NumberDataPoint(attributes, interval.started_ns, interval.ended_ns, value)
        points.setdefault(described, []).append(point)
    metrics = [_metric(described, of_it) for described, of_it in points.items()]
    if "histogram" in line.get("request_latency", {}):
        histogram = _exponential if has_exponential else _explicit
        exemplars = [] if exemplar is None else [exemplar]
        data = histogram(line, interval, client, exemplars)
        metrics.append(Metric(LATENCY, _LATENCY_DOC, "ms", data))
    return metrics


def telemetry_name(group: str, name: str) -> str:
    """As Kafka's clients name a metric of a group when they push it."""
    return f"{_KAFKA}.{group}.{name}".replace("-", ".").replace(".metrics.", ".", 1)


def _metric(described: _Described, points: list[NumberDataPoint]) -> Metric:
    data = Sum(points, _DELTA, is_monotonic=True) if described.is_total else Gauge(points)
    return Metric(described.name, described.doc, described.unit, data)


def _numbers(line: Values) -> Iterator[tuple[_Described, Mapping[str, str], _Number]]:
    for group, kafka, labels, value in measurements(line):
        doc = f"{group}: {kafka.name}. {kafka.follows}".replace("`", "")
        described = _Described(telemetry_name(group, kafka.name), doc, "", kafka.is_total)
        yield described, labels, round(value) if kafka.is_total else float(value)
    for own in OWN_METRICS:
        name = own.name.removesuffix("_total")
        unit = "s" if name.endswith(_SECONDS) else ""
        name = _OWN_DOMAIN + name.removesuffix(_SECONDS).removeprefix(_OWN_PREFIX)
        described = _Described(name, own.doc, unit, own.is_total)
        for labels, value in own.values(line):
            yield described, labels, float(value) if unit or not own.is_total else round(value)


def _exponential(
    line: Values, interval: Interval, client: Mapping[str, str], exemplars: list[Exemplar]
) -> ExponentialHistogram:
    """Indices of buckets are the line's own: they mean the same."""
    told = line["request_latency"]["histogram"]
    counts = {int(index): count for index, count in told["counts"].items()}
    first = min(counts)
    dense = [counts.get(index, 0) for index in range(first, max(counts) + 1)]
    point = ExponentialHistogramDataPoint(
        client,
        interval.started_ns,
        interval.ended_ns,
        count=sum(dense),
        sum=float(line["metrics"]["request_latency_ms"]),
        scale=told["scale"],
        zero_count=0,
        positive=Buckets(first, dense),
        negative=Buckets(0, []),
        flags=0,
        min=_UNKNOWN,
        max=float(line["metrics"]["request_latency_max_ms"]),
        exemplars=exemplars,
    )
    return ExponentialHistogram([point], _DELTA)


def _explicit(
    line: Values, interval: Interval, client: Mapping[str, str], exemplars: list[Exemplar]
) -> Histogram:
    told = line["request_latency"]["histogram"]["counts"]
    counts = {int(index): count for index, count in told.items()}
    up_to = [count_up_to(counts, doublings) for doublings in _DOUBLINGS]
    total = sum(counts.values())
    point = HistogramDataPoint(
        client,
        interval.started_ns,
        interval.ended_ns,
        count=total,
        sum=float(line["metrics"]["request_latency_ms"]),
        bucket_counts=[more - less for less, more in zip([0, *up_to], [*up_to, total])],
        explicit_bounds=[float(2**doublings) for doublings in _DOUBLINGS],
        min=_UNKNOWN,
        max=float(line["metrics"]["request_latency_max_ms"]),
        exemplars=exemplars,
    )
    return Histogram([point], _DELTA)


_UNKNOWN: Any = None
"""Of what the protocol leaves to the sender, and the library's types do not."""
