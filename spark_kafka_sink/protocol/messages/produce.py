"""Produce (0): record batches to the leaders of their partitions. Versions 3-13.

Version 3 brought record batches v2, 7 zstd, 8 record errors (KIP-467), 10 the new leader in the
answer (KIP-951), 12 implicit AddPartitionsToTxn (KIP-890), 13 topic ids instead of names (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    TEXT,
    UUID_TYPE,
    ArrayOf,
    Records,
)

ADDS_PARTITIONS_VERSION = 12
"""First version that adds its partitions to the transaction; a broker takes it in transactions
only where transaction.version is 2. Source: ``ProduceRequest`` (KIP-890)."""

TOPIC_IDS_VERSION = 13
"""First version that names topics by id."""


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(TEXT, "8+", nullable="8+")


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+")


@dataclass(slots=True)
class PartitionProduceResponse:
    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire(
        ArrayOf(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = wire(TEXT, "8+", nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0, ignorable=True)


@dataclass(slots=True)
class TopicProduceResponse:
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_TYPE, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire(ArrayOf(PartitionProduceResponse))


@dataclass(slots=True)
class ProduceResponse(Message):
    api_key = 0
    min_version = 3
    max_version = 13
    flexible_from = 9

    responses: list[TopicProduceResponse] = wire(ArrayOf(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), "10+", tag=0, ignorable=True)


@dataclass(slots=True)
class PartitionProduceData:
    index: int = wire(INT32)
    records: Records | None = wire(RECORDS, nullable="0+")


@dataclass(slots=True)
class TopicProduceData:
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_TYPE, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = wire(ArrayOf(PartitionProduceData))


@dataclass(slots=True)
class ProduceRequest(Request):
    """Produce (0): record batches to the leaders of their partitions. Versions 3-13.

    Version 3 brought record batches v2, 7 zstd, 8 record errors (KIP-467), 10 the new leader in the
    answer (KIP-951), 12 implicit AddPartitionsToTxn (KIP-890), 13 topic ids instead of names
    (KIP-516).
    """

    api_key = 0
    min_version = 3
    max_version = 13
    flexible_from = 9
    response_type = ProduceResponse
    throttled_from = 6

    transactional_id: str | None = wire(STRING, "3+", nullable="3+")
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: list[TopicProduceData] = wire(ArrayOf(TopicProduceData))
