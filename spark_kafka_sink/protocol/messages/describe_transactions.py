"""DescribeTransactions (65): what a coordinator knows of transactional ids. Version 0; KIP-664."""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING, TEXT, ArrayOf


@dataclass(slots=True)
class TopicData:
    topic: str = wire(STRING)
    partitions: list[int] = wire(ArrayOf(INT32))


@dataclass(slots=True)
class TransactionState:
    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(TEXT)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: list[TopicData] = wire(ArrayOf(TopicData))


@dataclass(slots=True)
class DescribeTransactionsResponse(Message):
    api_key = 65
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    transaction_states: list[TransactionState] = wire(ArrayOf(TransactionState))


@dataclass(slots=True)
class DescribeTransactionsRequest(Request):
    """DescribeTransactions (65): what a coordinator knows of transactional ids. Version 0;
    KIP-664."""

    api_key = 65
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = DescribeTransactionsResponse

    transactional_ids: list[str] = wire(ArrayOf(STRING))
