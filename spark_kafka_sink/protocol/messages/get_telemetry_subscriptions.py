"""GetTelemetrySubscriptions (71): which metrics of a client brokers want. Version 0; KIP-714.

Brokers offer it only where a plugin takes what clients push.
"""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, INT8, INT16, INT32, STRING, UUID_TYPE, ArrayOf

NO_INSTANCE = UUID(int=0)
"""Of a client that has no instance id yet: the broker makes one."""


@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse(Message):
    api_key = 71
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    client_instance_id: UUID = wire(UUID_TYPE)
    subscription_id: int = wire(INT32)
    accepted_compression_types: list[int] = wire(ArrayOf(INT8))
    push_interval_ms: int = wire(INT32)
    telemetry_max_bytes: int = wire(INT32)
    delta_temporality: bool = wire(BOOL)
    requested_metrics: list[str] = wire(ArrayOf(STRING))


@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest(Request):
    """GetTelemetrySubscriptions (71): which metrics of a client brokers want. Version 0; KIP-714.

    Brokers offer it only where a plugin takes what clients push.
    """

    api_key = 71
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = GetTelemetrySubscriptionsResponse

    client_instance_id: UUID = wire(UUID_TYPE)
