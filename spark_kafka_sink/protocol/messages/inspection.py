"""Messages for inspection, which no task sends: partitions, the quorum and quotas of a cluster."""

from __future__ import annotations

from spark_kafka_sink.protocol.schema import Message, Request, Struct, message, wire
from spark_kafka_sink.protocol.types import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    TEXT,
    ArrayOf,
    Records,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""``isolation_level``: up to the last stable offset, with a list of aborted transactions.
Source: ``IsolationLevel``."""


@message(slots=True)
class EpochEndOffset(Struct):
    epoch: int = wire(INT32, "12+", default=-1)
    end_offset: int = wire(INT64, "12+", default=-1)


@message(slots=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


@message(slots=True)
class SnapshotId(Struct):
    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message(slots=True)
class AbortedTransaction(Struct):
    producer_id: int = wire(INT64, "4+")
    first_offset: int = wire(INT64, "4+")


@message(slots=True)
class PartitionData(Struct):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire(
        ArrayOf(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    records: Records | None = wire(RECORDS, nullable="0+")


@message(slots=True)
class FetchableTopicResponse(Struct):
    topic: str = wire(STRING, "0-12", ignorable=True)
    partitions: list[PartitionData] = wire(ArrayOf(PartitionData))


@message(slots=True)
class FetchResponse(Message):
    api_key = 1
    min_version = 4
    max_version = 12
    flexible_from = 12

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: list[FetchableTopicResponse] = wire(ArrayOf(FetchableTopicResponse))


@message(slots=True)
class FetchPartition(Struct):
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)


@message(slots=True)
class FetchTopic(Struct):
    topic: str = wire(STRING, "0-12", ignorable=True)
    partitions: list[FetchPartition] = wire(ArrayOf(FetchPartition))


@message(slots=True)
class ForgottenTopic(Struct):
    topic: str = wire(STRING, "7-12", ignorable=True)
    partitions: list[int] = wire(ArrayOf(INT32), "7+")


@message(slots=True)
class FetchRequest(Request):
    """Fetch (1): record batches from the leaders of their partitions. Versions 4-12.

    Version 4 added record batches v2 and isolation levels (KIP-98), 7 fetch sessions (KIP-227), 9
    leader epochs (KIP-320), 10 zstd (KIP-110), 11 reading from followers (KIP-392), 12 tagged
    fields. Version 13 names topics by id (KIP-516), which a reader of single topics does not need.

    The defaults are those of a reader without a fetch session.
    """

    api_key = 1
    min_version = 4
    max_version = 12
    flexible_from = 12
    response_type = FetchResponse
    throttled_from = 8

    cluster_id: str | None = wire(STRING, "12+", nullable="12+", tag=0, ignorable=True)
    replica_id: int = wire(INT32, default=-1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, "3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = wire(INT8, "4+", ignorable=True)
    session_id: int = wire(INT32, "7+", ignorable=True)
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(ArrayOf(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(ArrayOf(ForgottenTopic), "7+")
    rack_id: str = wire(STRING, "11+", ignorable=True)


LATEST_TIMESTAMP = -1
"""``timestamp`` for the end: the high watermark, or the last stable offset with ``isolation_level``
1. Source: ``ListOffsetsRequest``."""
EARLIEST_TIMESTAMP = -2
"""``timestamp`` for the beginning of the log."""


@message(slots=True)
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, "1+", default=-1)
    offset: int = wire(INT64, "1+", default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1)


@message(slots=True)
class ListOffsetsTopicResponse(Struct):
    name: str = wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = wire(ArrayOf(ListOffsetsPartitionResponse))


@message(slots=True)
class ListOffsetsResponse(Message):
    api_key = 2
    min_version = 1
    max_version = 11
    flexible_from = 6

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(ArrayOf(ListOffsetsTopicResponse))


@message(slots=True)
class ListOffsetsPartition(Struct):
    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@message(slots=True)
class ListOffsetsTopic(Struct):
    name: str = wire(STRING)
    partitions: list[ListOffsetsPartition] = wire(ArrayOf(ListOffsetsPartition))


@message(slots=True)
class ListOffsetsRequest(Request):
    """ListOffsets (2): the offset of a partition's beginning, end or a timestamp. Versions 1-11.

    Version 2 added the isolation level (KIP-98), 4 leader epochs (KIP-320), 10 the timeout of
    remote storage (KIP-1075). Versions 7, 8, 9 and 11 only added special timestamps.
    """

    api_key = 2
    min_version = 1
    max_version = 11
    flexible_from = 6
    response_type = ListOffsetsResponse
    throttled_from = 3

    # Kafka's default is 0, which is a broker's id; clients are no replicas and send -1.
    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, "2+")
    topics: list[ListOffsetsTopic] = wire(ArrayOf(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, "10+", ignorable=True)


@message(slots=True)
class ProducerState(Struct):
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@message(slots=True)
class PartitionResponse(Struct):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    active_producers: list[ProducerState] = wire(ArrayOf(ProducerState))


@message(slots=True)
class TopicResponse(Struct):
    name: str = wire(STRING)
    partitions: list[PartitionResponse] = wire(ArrayOf(PartitionResponse))


@message(slots=True)
class DescribeProducersResponse(Message):
    api_key = 61
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    topics: list[TopicResponse] = wire(ArrayOf(TopicResponse))


@message(slots=True)
class TopicRequest(Struct):
    name: str = wire(STRING)
    partition_indexes: list[int] = wire(ArrayOf(INT32))


@message(slots=True)
class DescribeProducersRequest(Request):
    """DescribeProducers (61): the producers of a partition, from its leader. Version 0; KIP-664."""

    api_key = 61
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = DescribeProducersResponse

    topics: list[TopicRequest] = wire(ArrayOf(TopicRequest))


METADATA_TOPIC = "__cluster_metadata"
"""The controllers' log, which has one partition. Source: ``Topic.CLUSTER_METADATA_TOPIC_NAME``."""


@message(slots=True)
class ReplicaState(Struct):
    replica_id: int = wire(INT32)
    log_end_offset: int = wire(INT64)
    last_fetch_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)


@message(slots=True)
class DescribeQuorumResponsePartition(Struct):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    high_watermark: int = wire(INT64)
    current_voters: list[ReplicaState] = wire(ArrayOf(ReplicaState))
    observers: list[ReplicaState] = wire(ArrayOf(ReplicaState))


@message(slots=True)
class DescribeQuorumResponseTopic(Struct):
    topic_name: str = wire(STRING)
    partitions: list[DescribeQuorumResponsePartition] = wire(
        ArrayOf(DescribeQuorumResponsePartition)
    )


@message(slots=True)
class DescribeQuorumResponse(Message):
    api_key = 55
    min_version = 0
    max_version = 1
    flexible_from = 0

    error_code: int = wire(INT16)
    topics: list[DescribeQuorumResponseTopic] = wire(ArrayOf(DescribeQuorumResponseTopic))


@message(slots=True)
class DescribeQuorumRequestPartition(Struct):
    partition_index: int = wire(INT32)


@message(slots=True)
class DescribeQuorumRequestTopic(Struct):
    topic_name: str = wire(STRING)
    partitions: list[DescribeQuorumRequestPartition] = wire(ArrayOf(DescribeQuorumRequestPartition))


@message(slots=True)
class DescribeQuorumRequest(Request):
    """DescribeQuorum (55): the replicas of the controllers' log. Versions 0-1; KIP-595, KIP-836.

    Version 1 added the replicas' times. The leader's time is its own clock at the moment of the
    response: the only clock of a broker that any client can read.
    """

    api_key = 55
    min_version = 0
    max_version = 1
    flexible_from = 0
    response_type = DescribeQuorumResponse

    topics: list[DescribeQuorumRequestTopic] = wire(ArrayOf(DescribeQuorumRequestTopic))


MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2
"""``match_type``: of that name; the default of all names; any name, or the default.
Source: ``DescribeClientQuotasRequest``."""


@message(slots=True)
class QuotaEntity(Struct):
    """An entity with a quota.

    entity_name: None for the default of the type
    """

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@message(slots=True)
class QuotaValue(Struct):
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@message(slots=True)
class QuotaEntry(Struct):
    entity: list[QuotaEntity] = wire(ArrayOf(QuotaEntity))
    values: list[QuotaValue] = wire(ArrayOf(QuotaValue))


@message(slots=True)
class DescribeClientQuotasResponse(Message):
    api_key = 48
    min_version = 0
    max_version = 1
    flexible_from = 1

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    entries: list[QuotaEntry] | None = wire(ArrayOf(QuotaEntry), nullable="0+")


@message(slots=True)
class QuotaComponent(Struct):
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


@message(slots=True)
class DescribeClientQuotasRequest(Request):
    """DescribeClientQuotas (48): the quotas of users and clients. Versions 0-1; KIP-546.

    strict: omit entries that have further entities
    """

    api_key = 48
    min_version = 0
    max_version = 1
    flexible_from = 1
    response_type = DescribeClientQuotasResponse

    components: list[QuotaComponent] = wire(ArrayOf(QuotaComponent))
    strict: bool = wire(BOOL)
