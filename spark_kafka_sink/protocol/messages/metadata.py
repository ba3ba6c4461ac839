"""Metadata (3): brokers, topics, partition leaders. Versions 1-13.

Version 0 asks for all topics where later versions ask for none, and no broker since 0.10 needs it.
"""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, INT16, INT32, STRING, UUID_TYPE, ArrayOf

NO_AUTHORIZED_OPERATIONS = -2147483648


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", nullable="1+", ignorable=True)


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(ArrayOf(INT32))
    isr_nodes: list[int] = wire(ArrayOf(INT32))
    offline_replicas: list[int] = wire(ArrayOf(INT32), "5+", ignorable=True)


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="12+")
    topic_id: UUID = wire(UUID_TYPE, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(ArrayOf(MetadataResponsePartition))
    topic_authorized_operations: int = wire(
        INT32, "8+", default=NO_AUTHORIZED_OPERATIONS, ignorable=True
    )


@dataclass(slots=True)
class MetadataResponse(Message):
    api_key = 3
    min_version = 1
    max_version = 13
    flexible_from = 9

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(ArrayOf(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, "2+", nullable="2+", ignorable=True)
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(ArrayOf(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(
        INT32, "8-10", default=NO_AUTHORIZED_OPERATIONS, ignorable=True
    )
    error_code: int = wire(INT16, "13+", ignorable=True)


@dataclass(slots=True)
class MetadataRequestTopic:
    topic_id: UUID = wire(UUID_TYPE, "10+", ignorable=True)
    name: str | None = wire(STRING, nullable="10+")


@dataclass(slots=True)
class MetadataRequest(Request):
    """Metadata (3): brokers, topics, partition leaders. Versions 1-13.

    Version 0 asks for all topics where later versions ask for none, and no broker since 0.10 needs
    it.
    """

    api_key = 3
    min_version = 1
    max_version = 13
    flexible_from = 9
    response_type = MetadataResponse
    throttled_from = 6

    topics: list[MetadataRequestTopic] | None = wire(ArrayOf(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")
