"""CreateTopics (19). Versions 2-7; KIP-4, KIP-464, KIP-525."""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    TEXT,
    UUID_TYPE,
    ArrayOf,
)


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "5+")


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = wire(STRING)
    topic_id: UUID = wire(UUID_TYPE, "7+", ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = wire(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire(
        ArrayOf(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@dataclass(slots=True)
class CreateTopicsResponse(Message):
    api_key = 19
    min_version = 2
    max_version = 7
    flexible_from = 5

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire(ArrayOf(CreatableTopicResult))


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire(ArrayOf(INT32))


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class CreatableTopic:
    name: str = wire(STRING)
    num_partitions: int = wire(INT32, default=-1)
    replication_factor: int = wire(INT16, default=-1)
    assignments: list[CreatableReplicaAssignment] = wire(ArrayOf(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(ArrayOf(CreatableTopicConfig))


@dataclass(slots=True)
class CreateTopicsRequest(Request):
    """CreateTopics (19). Versions 2-7; KIP-4, KIP-464, KIP-525."""

    api_key = 19
    min_version = 2
    max_version = 7
    flexible_from = 5
    response_type = CreateTopicsResponse
    throttled_from = 3

    topics: list[CreatableTopic] = wire(ArrayOf(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, "1+")
