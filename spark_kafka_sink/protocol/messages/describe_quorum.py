"""DescribeQuorum (55): the replicas of the controllers' log. Versions 0-1; KIP-595, KIP-836.

Version 1 brought the replicas' times. Those of the leader are its own clock's, at the moment of
the answer: the only time of a broker that any client may ask for.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING, ArrayOf

METADATA_TOPIC = "__cluster_metadata"
"""The controllers' log, which has one partition. Source: ``Topic.CLUSTER_METADATA_TOPIC_NAME``."""


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = wire(INT32)
    log_end_offset: int = wire(INT64)
    last_fetch_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)


@dataclass(slots=True)
class DescribeQuorumResponsePartition:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    high_watermark: int = wire(INT64)
    current_voters: list[ReplicaState] = wire(ArrayOf(ReplicaState))
    observers: list[ReplicaState] = wire(ArrayOf(ReplicaState))


@dataclass(slots=True)
class DescribeQuorumResponseTopic:
    topic_name: str = wire(STRING)
    partitions: list[DescribeQuorumResponsePartition] = wire(
        ArrayOf(DescribeQuorumResponsePartition)
    )


@dataclass(slots=True)
class DescribeQuorumResponse(Message):
    api_key = 55
    min_version = 0
    max_version = 1
    flexible_from = 0

    error_code: int = wire(INT16)
    topics: list[DescribeQuorumResponseTopic] = wire(ArrayOf(DescribeQuorumResponseTopic))


@dataclass(slots=True)
class DescribeQuorumRequestPartition:
    partition_index: int = wire(INT32)


@dataclass(slots=True)
class DescribeQuorumRequestTopic:
    topic_name: str = wire(STRING)
    partitions: list[DescribeQuorumRequestPartition] = wire(ArrayOf(DescribeQuorumRequestPartition))


@dataclass(slots=True)
class DescribeQuorumRequest(Request):
    """DescribeQuorum (55): the replicas of the controllers' log. Versions 0-1; KIP-595, KIP-836.

    Version 1 brought the replicas' times. Those of the leader are its own clock's, at the moment of
    the answer: the only time of a broker that any client may ask for.
    """

    api_key = 55
    min_version = 0
    max_version = 1
    flexible_from = 0
    response_type = DescribeQuorumResponse

    topics: list[DescribeQuorumRequestTopic] = wire(ArrayOf(DescribeQuorumRequestTopic))
