"""ApiVersions (18): what a broker speaks. Versions 0-4; KIP-35, KIP-511, KIP-584."""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, INT16, INT32, INT64, STRING, ArrayOf


@dataclass(slots=True)
class ApiVersion:
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@dataclass(slots=True)
class SupportedFeatureKey:
    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@dataclass(slots=True)
class FinalizedFeatureKey:
    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    api_key = 18
    min_version = 0
    max_version = 4
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


@dataclass(slots=True)
class ApiVersionsRequest(Request):
    """ApiVersions (18): what a broker speaks. Versions 0-4; KIP-35, KIP-511, KIP-584."""

    api_key = 18
    min_version = 0
    max_version = 4
    flexible_from = 3
    response_type = ApiVersionsResponse
    throttled_from = 2

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)
