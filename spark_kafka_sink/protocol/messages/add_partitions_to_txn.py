"""AddPartitionsToTxn (24): the coordinator notes partitions of a transaction. Versions 0-3.

Version 2 brought the error PRODUCER_FENCED. Versions 4 and 5 are spoken between brokers only; where
transaction.version is 2, a produce request itself adds its partitions (KIP-890).
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING, ArrayOf


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: str = wire(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(
        ArrayOf(AddPartitionsToTxnPartitionResult)
    )


@dataclass(slots=True)
class AddPartitionsToTxnResponse(Message):
    api_key = 24
    min_version = 0
    max_version = 3
    flexible_from = 3

    throttle_time_ms: int = wire(INT32)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        ArrayOf(AddPartitionsToTxnTopicResult), "0-3"
    )


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: str = wire(STRING)
    partitions: list[int] = wire(ArrayOf(INT32))


@dataclass(slots=True)
class AddPartitionsToTxnRequest(Request):
    """AddPartitionsToTxn (24): the coordinator notes partitions of a transaction. Versions 0-3.

    Version 2 brought the error PRODUCER_FENCED. Versions 4 and 5 are spoken between brokers only;
    where transaction.version is 2, a produce request itself adds its partitions (KIP-890).
    """

    api_key = 24
    min_version = 0
    max_version = 3
    flexible_from = 3
    response_type = AddPartitionsToTxnResponse
    throttled_from = 1

    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(
        ArrayOf(AddPartitionsToTxnTopic), "0-3"
    )
