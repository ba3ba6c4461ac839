"""ListOffsets (2): the offset of a partition's beginning, end or a timestamp. Versions 1-11.

Version 2 brought the isolation level (KIP-98), 4 leader epochs (KIP-320), 10 the timeout of remote
storage (KIP-1075). Versions 7, 8, 9 and 11 only brought more special timestamps.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT8, INT16, INT32, INT64, STRING, ArrayOf

LATEST_TIMESTAMP = -1
"""``timestamp`` that asks for the end: the high watermark, or the last stable offset with
``isolation_level`` 1. Source: ``ListOffsetsRequest``."""
EARLIEST_TIMESTAMP = -2
"""``timestamp`` that asks for the beginning of the log."""


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, "1+", default=-1)
    offset: int = wire(INT64, "1+", default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: str = wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = wire(ArrayOf(ListOffsetsPartitionResponse))


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    api_key = 2
    min_version = 1
    max_version = 11
    flexible_from = 6

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(ArrayOf(ListOffsetsTopicResponse))


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str = wire(STRING)
    partitions: list[ListOffsetsPartition] = wire(ArrayOf(ListOffsetsPartition))


@dataclass(slots=True)
class ListOffsetsRequest(Request):
    """ListOffsets (2): the offset of a partition's beginning, end or a timestamp. Versions 1-11.

    Version 2 brought the isolation level (KIP-98), 4 leader epochs (KIP-320), 10 the timeout of
    remote storage (KIP-1075). Versions 7, 8, 9 and 11 only brought more special timestamps.
    """

    api_key = 2
    min_version = 1
    max_version = 11
    flexible_from = 6
    response_type = ListOffsetsResponse
    throttled_from = 3

    # Kafka's default is 0, a broker's id; clients, which are no replicas, send -1.
    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, "2+")
    topics: list[ListOffsetsTopic] = wire(ArrayOf(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, "10+", ignorable=True)
