"""InitProducerId (22): a producer id and epoch. Versions 0-5; KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING


@dataclass(slots=True)
class InitProducerIdResponse(Message):
    api_key = 22
    min_version = 0
    max_version = 5
    flexible_from = 2

    throttle_time_ms: int = wire(INT32, ignorable=True)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)


@dataclass(slots=True)
class InitProducerIdRequest(Request):
    """InitProducerId (22): a producer id and epoch. Versions 0-5; KIP-98, KIP-360, KIP-890."""

    api_key = 22
    min_version = 0
    max_version = 5
    flexible_from = 2
    response_type = InitProducerIdResponse
    throttled_from = 1

    transactional_id: str | None = wire(STRING, nullable="0+")
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)
