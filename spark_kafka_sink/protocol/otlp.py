"""OpenTelemetry's MetricsData in protobuf, as far as brokers are told metrics (KIP-714): written,
never read.

It is one message of nine nested ones, with fields of four wire types. The official package would
load protobuf's runtime into each Python worker for it.

Source: ``opentelemetry/proto/metrics/v1/metrics.proto`` of OTLP 1.x, whose field numbers are here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_DELTA, _CUMULATIVE = 1, 2
_NS_PER_MS = 1_000_000


class Point(NamedTuple):
    """A value, and by which attributes it differs from others of the same metric."""

    value: float
    attributes: Mapping[str, str]


class Metric(NamedTuple):
    """A metric's name and points.

    started_at_ms: of a sum that only grows, from when on it counts; None: it is a gauge
    """

    name: str
    points: Iterable[Point]
    started_at_ms: int | None


class Payload(NamedTuple):
    """What one push tells.

    resource: attributes of the whole client; at_ms: now, in milliseconds since 1970
    is_delta: sums count from the push before
    """

    resource: Mapping[str, str]
    metrics: Iterable[Metric]
    at_ms: int
    is_delta: bool


def metrics_data(payload: Payload) -> bytes:
    """``MetricsData`` with one resource and one scope."""
    resource = b"".join(_field(1, _key_value(*pair)) for pair in payload.resource.items())
    scope = b"".join(_field(2, _metric(metric, payload)) for metric in payload.metrics)
    return _field(1, _field(1, resource) + _field(2, scope))


def _metric(metric: Metric, payload: Payload) -> bytes:
    """``Metric``: a ``Gauge``, or a monotonic ``Sum``."""
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
    """``NumberDataPoint`` without its times."""
    attributes = b"".join(_field(7, _key_value(*pair)) for pair in point.attributes.items())
    return _tag(4, _FIXED64) + struct.pack("<d", point.value) + attributes


def _key_value(key: str, value: str) -> bytes:
    """``KeyValue`` whose ``AnyValue`` is a string."""
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
