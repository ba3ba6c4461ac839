"""What brokers with a plugin for clients' metrics answer (KIP-714); they know the same of clients.

Source: ``ClientMetricsManager``.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.protocol.messages.client import (
    NO_INSTANCE,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from spark_kafka_sink.record.compression import decompress
from tests.simulation.time import SimClock

API_VERSIONS = {71: (0, 0), 72: (0, 0)}
_MOST_BYTES = 1 << 20
_PASSING_ERRORS = (
    "UNKNOWN_SUBSCRIPTION_ID",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "TELEMETRY_TOO_LARGE",
    "THROTTLING_QUOTA_EXCEEDED",
)
_ALL_ERRORS = (
    "NONE",
    *_PASSING_ERRORS,
    "INVALID_REQUEST",
    "INVALID_RECORD",
    "UNKNOWN_SERVER_ERROR",
)


@dataclass
class Instance:
    """A client. subscription_id: that it was told; error: of its last request"""

    subscription_id: int = 0
    got_at_ms: int | None = None
    pushed_at_ms: int | None = None
    error: str = "NONE"
    is_over: bool = False


@dataclass
class Push:
    """A push that was taken. sizes: of its bytes as they came, in the codec"""

    instance_id: UUID
    node_id: int
    at_ms: int
    is_last: bool
    codec_id: int
    size_bytes: int
    data: MetricsData

    @property
    def metrics(self):
        return [
            metric
            for resource in self.data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    @property
    def names(self):
        return [metric.name for metric in self.metrics]

    @property
    def resource(self):
        (resource,) = self.data.resource_metrics
        return {pair.key: pair.value.string_value for pair in resource.resource.attributes}

    def points(self, name):
        (metric,) = [m for m in self.metrics if m.name == f"org.apache.kafka.producer.{name}"]
        return list((metric.sum if metric.HasField("sum") else metric.gauge).data_points)

    def value(self, name):
        (point,) = self.points(name)
        return point.as_double

    def is_delta(self, name):
        (metric,) = [m for m in self.metrics if m.name == f"org.apache.kafka.producer.{name}"]
        temporality = metric.sum.aggregation_temporality
        return temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


@dataclass
class TelemetryPlugin:
    """Set its fields to change the subscription.

    errors: to answer the next requests with, "NONE" for as it is; hangs: nobody is answered;
    most_bytes: 0 for no limit
    """

    clock: SimClock
    requested: list[str] = field(default_factory=lambda: ["*"])
    interval_ms: int = 10_000
    codecs: list[int] = field(default_factory=lambda: [4, 3, 1, 2])
    most_bytes: int = _MOST_BYTES
    is_delta: bool = True
    subscription_id: int = 7
    gives_ids: bool = True
    hangs: bool = False
    rng: random.Random = field(default_factory=lambda: random.Random(714))
    errors: deque[str] = field(default_factory=deque)
    instances: dict[UUID, Instance] = field(default_factory=dict)
    asked: list[tuple[int, UUID, str]] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)

    @property
    def requests(self):
        return len(self.asked) + len(self.pushes) + len(self.refused)

    def behave_badly(self, rng):
        """Small intervals, and all the errors that there are, in any order."""
        self.rng = rng
        self.interval_ms = rng.choice((50, 500, 3_000))
        self.is_delta = rng.random() < 0.5
        self.most_bytes = rng.choice((100, 5_000, _MOST_BYTES))
        kinds = ("NONE", "NONE", "NONE", *_PASSING_ERRORS) if rng.random() < 0.8 else _ALL_ERRORS
        self.errors.extend(rng.choice(kinds) for _ in range(30))

    def handle(self, node_id, request, reply):
        if isinstance(request, GetTelemetrySubscriptionsRequest):
            response = self._subscription(request)
        else:
            assert isinstance(request, PushTelemetryRequest)
            response = self._taken(node_id, request)
        if not self.hangs:
            reply(response)

    def _subscription(self, request):
        instance_id = request.client_instance_id
        if instance_id == NO_INSTANCE:
            instance_id = UUID(int=self.rng.getrandbits(128) | 1)
        instance = self.instances.setdefault(instance_id, Instance())
        error = self.errors.popleft() if self.errors else "NONE"
        if error == "NONE" and not self._may_ask(instance):
            error = "THROTTLING_QUOTA_EXCEEDED"
        self.asked.append((self.clock.ms, request.client_instance_id, error))
        instance.error = error
        if error != "NONE":
            return GetTelemetrySubscriptionsResponse(error_code=error_named(error).code)
        instance.got_at_ms = self.clock.ms
        instance.subscription_id = self.subscription_id
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id if self.gives_ids else NO_INSTANCE,
            subscription_id=self.subscription_id,
            accepted_compression_types=list(self.codecs),
            push_interval_ms=self.interval_ms,
            telemetry_max_bytes=self.most_bytes,
            delta_temporality=self.is_delta,
            requested_metrics=list(self.requested),
        )

    def _may_ask(self, instance):
        if instance.error in ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"):
            return True
        times = [at for at in (instance.got_at_ms, instance.pushed_at_ms) if at is not None]
        return not times or self.clock.ms - max(times) >= self.interval_ms

    def _taken(self, node_id, request):
        instance = self.instances.setdefault(request.client_instance_id, Instance())
        error = self.errors.popleft() if self.errors else "NONE"
        if error == "NONE":
            error = self._judge(instance, request)
        instance.error = error
        if error != "NONE":
            self.refused.append((self.clock.ms, error))
            return PushTelemetryResponse(error_code=error_named(error).code)
        instance.pushed_at_ms = self.clock.ms
        instance.is_over = request.terminating
        plain = decompress(request.compression_type, request.metrics, 1 << 24)
        push = Push(
            request.client_instance_id,
            node_id,
            self.clock.ms,
            request.terminating,
            request.compression_type,
            len(request.metrics),
            MetricsData.FromString(plain),
        )
        self.pushes.append(push)
        return PushTelemetryResponse()

    def _judge(self, instance, request):
        if instance.is_over:
            return "INVALID_REQUEST"
        got, pushed = instance.got_at_ms, instance.pushed_at_ms
        is_first = pushed is None or (got is not None and got > pushed)
        is_early = not is_first and self.clock.ms - (pushed or 0) < self.interval_ms
        if is_early and not request.terminating:
            return "THROTTLING_QUOTA_EXCEEDED"
        if request.subscription_id != self.subscription_id:
            return "UNKNOWN_SUBSCRIPTION_ID"
        if request.compression_type and request.compression_type not in self.codecs:
            return "UNSUPPORTED_COMPRESSION_TYPE"
        return "TELEMETRY_TOO_LARGE" if 0 < self.most_bytes < len(request.metrics) else "NONE"
