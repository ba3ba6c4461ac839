"""DescribeClientQuotas (48): what brokers grant to users and clients. Versions 0-1; KIP-546."""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, FLOAT64, INT8, INT16, INT32, STRING, TEXT, ArrayOf

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2
"""``match_type``: of that name; the default of all names; any name, or the default.
Source: ``DescribeClientQuotasRequest``."""


@dataclass(slots=True)
class QuotaEntity:
    """entity_name: None for the default of the type."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class QuotaValue:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@dataclass(slots=True)
class QuotaEntry:
    entity: list[QuotaEntity] = wire(ArrayOf(QuotaEntity))
    values: list[QuotaValue] = wire(ArrayOf(QuotaValue))


@dataclass(slots=True)
class DescribeClientQuotasResponse(Message):
    api_key = 48
    min_version = 0
    max_version = 1
    flexible_from = 1

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    entries: list[QuotaEntry] | None = wire(ArrayOf(QuotaEntry), nullable="0+")


@dataclass(slots=True)
class QuotaComponent:
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class DescribeClientQuotasRequest(Request):
    """DescribeClientQuotas (48): what brokers grant to users and clients. Versions 0-1; KIP-546.

    strict: without entries that have other entities beside those asked for.
    """

    api_key = 48
    min_version = 0
    max_version = 1
    flexible_from = 1
    response_type = DescribeClientQuotasResponse

    components: list[QuotaComponent] = wire(ArrayOf(QuotaComponent))
    strict: bool = wire(BOOL)
