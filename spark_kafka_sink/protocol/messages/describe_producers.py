"""DescribeProducers (61): who writes to a partition, as its leader knows. Version 0; KIP-664."""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING, TEXT, ArrayOf


@dataclass(slots=True)
class ProducerState:
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@dataclass(slots=True)
class PartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    active_producers: list[ProducerState] = wire(ArrayOf(ProducerState))


@dataclass(slots=True)
class TopicResponse:
    name: str = wire(STRING)
    partitions: list[PartitionResponse] = wire(ArrayOf(PartitionResponse))


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    api_key = 61
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    topics: list[TopicResponse] = wire(ArrayOf(TopicResponse))


@dataclass(slots=True)
class TopicRequest:
    name: str = wire(STRING)
    partition_indexes: list[int] = wire(ArrayOf(INT32))


@dataclass(slots=True)
class DescribeProducersRequest(Request):
    """DescribeProducers (61): who writes to a partition, as its leader knows. Version 0;
    KIP-664."""

    api_key = 61
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = DescribeProducersResponse

    topics: list[TopicRequest] = wire(ArrayOf(TopicRequest))
