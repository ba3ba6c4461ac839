"""Fetch (1): record batches from the leaders of their partitions. Versions 4-12.

Version 4 brought record batches v2 and isolation levels (KIP-98), 7 fetch sessions (KIP-227), 9
leader epochs (KIP-320), 10 zstd (KIP-110), 11 followers to read from (KIP-392), 12 tagged fields.
Version 13 names topics by id (KIP-516), which a reader of single topics can do without.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    ArrayOf,
    Records,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""``isolation_level``: up to the last stable offset, with a list of aborted transactions.
Source: ``IsolationLevel``."""


@dataclass(slots=True)
class EpochEndOffset:
    epoch: int = wire(INT32, "12+", default=-1)
    end_offset: int = wire(INT64, "12+", default=-1)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int = wire(INT64, "4+")
    first_offset: int = wire(INT64, "4+")


@dataclass(slots=True)
class PartitionData:
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


@dataclass(slots=True)
class FetchableTopicResponse:
    topic: str = wire(STRING, "0-12", ignorable=True)
    partitions: list[PartitionData] = wire(ArrayOf(PartitionData))


@dataclass(slots=True)
class FetchResponse(Message):
    api_key = 1
    min_version = 4
    max_version = 12
    flexible_from = 12

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: list[FetchableTopicResponse] = wire(ArrayOf(FetchableTopicResponse))


@dataclass(slots=True)
class FetchPartition:
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)


@dataclass(slots=True)
class FetchTopic:
    topic: str = wire(STRING, "0-12", ignorable=True)
    partitions: list[FetchPartition] = wire(ArrayOf(FetchPartition))


@dataclass(slots=True)
class ForgottenTopic:
    topic: str = wire(STRING, "7-12", ignorable=True)
    partitions: list[int] = wire(ArrayOf(INT32), "7+")


@dataclass(slots=True)
class FetchRequest(Request):
    """Fetch (1): record batches from the leaders of their partitions. Versions 4-12.

    Version 4 brought record batches v2 and isolation levels (KIP-98), 7 fetch sessions (KIP-227), 9
    leader epochs (KIP-320), 10 zstd (KIP-110), 11 followers to read from (KIP-392), 12 tagged
    fields. Version 13 names topics by id (KIP-516), which a reader of single topics can do without.

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
