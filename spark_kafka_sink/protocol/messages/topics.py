"""Messages about topics: their partitions and leaders, their settings, and records for them."""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.protocol.schema import (
    LARGEST_RESPONSE,
    Message,
    Request,
    ResponseLimits,
    Struct,
    message,
    wire,
)
from spark_kafka_sink.protocol.types import (
    BOOL,
    INT8,
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

NO_AUTHORIZED_OPERATIONS = -2147483648


@message(slots=True)
class MetadataResponseBroker(Struct):
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", nullable="1+", ignorable=True)


@message(slots=True)
class MetadataResponsePartition(Struct):
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(ArrayOf(INT32))
    isr_nodes: list[int] = wire(ArrayOf(INT32))
    offline_replicas: list[int] = wire(ArrayOf(INT32), "5+", ignorable=True)


@message(slots=True)
class MetadataResponseTopic(Struct):
    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="12+")
    topic_id: UUID = wire(UUID_TYPE, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(ArrayOf(MetadataResponsePartition))
    topic_authorized_operations: int = wire(
        INT32, "8+", default=NO_AUTHORIZED_OPERATIONS, ignorable=True
    )


@message(slots=True)
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


@message(slots=True)
class MetadataRequestTopic(Struct):
    topic_id: UUID = wire(UUID_TYPE, "10+", ignorable=True)
    name: str | None = wire(STRING, nullable="10+")


@message(slots=True)
class MetadataRequest(Request):
    """Metadata (3): brokers, topics, partition leaders. Versions 1-13.

    Version 0 requests all topics with the empty list that later versions use for none; no broker
    since 0.10 needs version 0.
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

    def limits(self) -> ResponseLimits:
        """Return the limits for 200,000 brokers and partitions of each topic, 2,000,000 in all.

        The largest clusters have some hundred brokers and two million partitions. A partition with
        three replicas takes 45 bytes. The answer to a request for no topics may have 100,000
        topics of one partition.
        """
        if self.topics is None:
            return _METADATA_OF_ALL
        count = 1 + len(self.topics)
        return ResponseLimits(
            min(count * _METADATA_OF_ONE.size_bytes, _METADATA_OF_ALL.size_bytes),
            min(count * _METADATA_OF_ONE.objects, _METADATA_OF_ALL.objects),
        )

    def check_response(self, response: MetadataResponse) -> None:
        """Raise RemoteProtocolError if the response has more topics than were asked for.

        If no topics were asked for, some servers that are not Kafka's return all, as in version 0.
        """
        if self.topics and len(response.topics) > len(self.topics):
            raise RemoteProtocolError(
                f"Metadata has {len(response.topics)} topics, asked for: {len(self.topics)}"
            )


_METADATA_OF_ONE = ResponseLimits(10 << 20, 200_000)
_METADATA_OF_ALL = ResponseLimits(LARGEST_RESPONSE.size_bytes, 2_000_000)


@message(slots=True)
class CreatableTopicConfigs(Struct):
    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "5+")


@message(slots=True)
class CreatableTopicResult(Struct):
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


@message(slots=True)
class CreateTopicsResponse(Message):
    api_key = 19
    min_version = 2
    max_version = 7
    flexible_from = 5

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire(ArrayOf(CreatableTopicResult))


@message(slots=True)
class CreatableReplicaAssignment(Struct):
    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire(ArrayOf(INT32))


@message(slots=True)
class CreatableTopicConfig(Struct):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@message(slots=True)
class CreatableTopic(Struct):
    name: str = wire(STRING)
    num_partitions: int = wire(INT32, default=-1)
    replication_factor: int = wire(INT16, default=-1)
    assignments: list[CreatableReplicaAssignment] = wire(ArrayOf(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(ArrayOf(CreatableTopicConfig))


@message(slots=True)
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


TOPIC_RESOURCE = 2
"""``resource_type`` for a topic, by its name. Source: ``ConfigResource.Type``."""
BROKER_RESOURCE = 4
"""``resource_type`` for a broker, by its node id in decimal."""


@message(slots=True)
class DescribeConfigsSynonym(Struct):
    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="0+")
    source: int = wire(INT8, "1+")


@message(slots=True)
class DescribeConfigsResourceResult(Struct):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = wire(
        ArrayOf(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(TEXT, "3+", nullable="0+", ignorable=True)


@message(slots=True)
class DescribeConfigsResult(Struct):
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[DescribeConfigsResourceResult] = wire(ArrayOf(DescribeConfigsResourceResult))


@message(slots=True)
class DescribeConfigsResponse(Message):
    api_key = 32
    min_version = 1
    max_version = 4
    flexible_from = 4

    throttle_time_ms: int = wire(INT32)
    results: list[DescribeConfigsResult] = wire(ArrayOf(DescribeConfigsResult))


@message(slots=True)
class DescribeConfigsResource(Struct):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: list[str] | None = wire(ArrayOf(STRING), nullable="0+")


@message(slots=True)
class DescribeConfigsRequest(Request):
    """DescribeConfigs (32): settings of topics and brokers. Versions 1-4.

    Version 1 added the source of a value and its synonyms (KIP-226), 3 type and documentation
    (KIP-569).
    """

    api_key = 32
    min_version = 1
    max_version = 4
    flexible_from = 4
    response_type = DescribeConfigsResponse
    throttled_from = 2

    resources: list[DescribeConfigsResource] = wire(ArrayOf(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


ADDS_PARTITIONS_VERSION = 12
"""First version that adds its partitions to the transaction. A broker accepts it in transactions
only with transaction.version 2. Source: ``ProduceRequest`` (KIP-890)."""

TOPIC_IDS_VERSION = 13
"""First version that names topics by id."""


@message(slots=True)
class BatchIndexAndErrorMessage(Struct):
    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(TEXT, "8+", nullable="8+")


@message(slots=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@message(slots=True)
class NodeEndpoint(Struct):
    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+")


@message(slots=True)
class PartitionProduceResponse(Struct):
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


@message(slots=True)
class TopicProduceResponse(Struct):
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_TYPE, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire(ArrayOf(PartitionProduceResponse))


@message(slots=True)
class ProduceResponse(Message):
    api_key = 0
    min_version = 3
    max_version = 13
    flexible_from = 9

    responses: list[TopicProduceResponse] = wire(ArrayOf(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), "10+", tag=0, ignorable=True)


@message(slots=True)
class PartitionProduceData(Struct):
    index: int = wire(INT32)
    records: Records | None = wire(RECORDS, nullable="0+")


@message(slots=True)
class TopicProduceData(Struct):
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_TYPE, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = wire(ArrayOf(PartitionProduceData))


@message(slots=True)
class ProduceRequest(Request):
    """Produce (0): record batches to the leaders of their partitions. Versions 3-13.

    Version 3 added record batches v2, 7 zstd, 8 record errors (KIP-467), 10 the new leader in the
    response (KIP-951), 12 implicit AddPartitionsToTxn (KIP-890), 13 topic ids instead of names
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
