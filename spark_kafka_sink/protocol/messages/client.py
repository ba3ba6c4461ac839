"""Messages of a client about itself: its versions, its credentials, its metrics."""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.protocol.schema import SMALL_RESPONSE, Message, Request, Struct, message, wire
from spark_kafka_sink.protocol.types import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TEXT,
    UUID_TYPE,
    ArrayOf,
)


@message(slots=True)
class ApiVersion(Struct):
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message(slots=True)
class SupportedFeatureKey(Struct):
    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message(slots=True)
class FinalizedFeatureKey(Struct):
    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message(slots=True)
class ApiVersionsResponse(Message):
    api_key = 18
    min_version = 0
    max_version = 5
    flexible_from = 3

    error_code: int = wire(INT16)
    api_keys: list[ApiVersion] = wire(ArrayOf(ApiVersion))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(
        ArrayOf(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(INT64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire(
        ArrayOf(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)


@message(slots=True)
class ApiVersionsRequest(Request):
    """ApiVersions (18): the API versions of a broker. Versions 0-5; KIP-35, KIP-511, KIP-584.

    cluster_id, node_id: the expected broker, which rejects the request if it is another (KIP-1242)
    """

    api_key = 18
    min_version = 0
    max_version = 5
    flexible_from = 3
    response_type = ApiVersionsResponse
    throttled_from = 2

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)
    cluster_id: str | None = wire(STRING, "5+", nullable="5+", ignorable=True)
    node_id: int = wire(INT32, "5+", default=-1, ignorable=True)


@message(slots=True)
class SaslHandshakeResponse(Message):
    """The response to SaslHandshake.

    mechanisms: those of the listener
    """

    api_key = 17
    min_version = 1
    max_version = 1
    flexible_from = 2

    error_code: int = wire(INT16)
    mechanisms: list[str] = wire(ArrayOf(TEXT))


@message(slots=True)
class SaslHandshakeRequest(Request):
    """SaslHandshake (17): the mechanism that authenticates a connection. Version 1.

    Version 0 sends tokens without Kafka's framing afterwards, and is not supported.
    """

    api_key = 17
    min_version = 1
    max_version = 1
    flexible_from = 2
    response_type = SaslHandshakeResponse

    mechanism: str = wire(STRING)


@message(slots=True)
class SaslAuthenticateResponse(Message):
    """The response to SaslAuthenticate.

    session_lifetime_ms: how long the broker accepts requests; 0 for no limit
    """

    api_key = 36
    min_version = 0
    max_version = 2
    flexible_from = 2

    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)

    def __repr__(self) -> str:
        return (
            f"SaslAuthenticateResponse(error_code={self.error_code}, "
            f"session_lifetime_ms={self.session_lifetime_ms})"
        )


@message(slots=True)
class SaslAuthenticateRequest(Request):
    """SaslAuthenticate (36): one message of a SASL conversation. Versions 0-2.

    Version 1 added the session's lifetime (KIP-368). The bytes may hold a password, so neither
    request nor response shows them.
    """

    api_key = 36
    min_version = 0
    max_version = 2
    flexible_from = 2
    response_type = SaslAuthenticateResponse

    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


NO_INSTANCE = UUID(int=0)
"""A client sends it while it has no instance id; the broker assigns one."""


@message(slots=True)
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


@message(slots=True)
class GetTelemetrySubscriptionsRequest(Request):
    """GetTelemetrySubscriptions (71): the metrics that brokers request. Version 0; KIP-714.

    Brokers advertise it only with a plugin that receives the metrics of clients.
    """

    api_key = 71
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = GetTelemetrySubscriptionsResponse
    response_limits = SMALL_RESPONSE

    client_instance_id: UUID = wire(UUID_TYPE)


@message(slots=True)
class PushTelemetryResponse(Message):
    api_key = 72
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)


@message(slots=True)
class PushTelemetryRequest(Request):
    """PushTelemetry (72): metrics of this client, as OTLP's MetricsData. Version 0; KIP-714."""

    api_key = 72
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = PushTelemetryResponse
    response_limits = SMALL_RESPONSE

    client_instance_id: UUID = wire(UUID_TYPE)
    subscription_id: int = wire(INT32)
    terminating: bool = wire(BOOL)
    compression_type: int = wire(INT8)
    metrics: bytes = wire(BYTES)
