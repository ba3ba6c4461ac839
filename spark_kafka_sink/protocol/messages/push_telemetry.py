"""PushTelemetry (72): metrics of this client, as OTLP's MetricsData. Version 0; KIP-714."""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, BYTES, INT8, INT16, INT32, UUID_TYPE


@dataclass(slots=True)
class PushTelemetryResponse(Message):
    api_key = 72
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class PushTelemetryRequest(Request):
    """PushTelemetry (72): metrics of this client, as OTLP's MetricsData. Version 0; KIP-714."""

    api_key = 72
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = PushTelemetryResponse

    client_instance_id: UUID = wire(UUID_TYPE)
    subscription_id: int = wire(INT32)
    terminating: bool = wire(BOOL)
    compression_type: int = wire(INT8)
    metrics: bytes = wire(BYTES)
