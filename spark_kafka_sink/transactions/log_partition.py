"""Blocking requests for one partition of a topic: its offsets, its batches, and one batch appended.

They serve the few records of the decision log; the producer writes everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    KafkaSinkError,
    RemoteProtocolError,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.blocking import Call, FindMoved
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.protocol.messages.topics import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import ReadBatch, read_batches

_FETCH_BYTES = 16 * 1024 * 1024
_FETCH_WAIT_MS = 100
# A leader cut off from its replicas waits this long for them; then the client looks it up again.
_APPEND_TIMEOUT_MS = 10_000
# Timeout for the question whether another broker leads now.
_LEADER_LOOKUP_MS = 10_000
_ALSO_RETRIABLE = {"CONCURRENT_TRANSACTIONS"}

_Partition = TypeVar("_Partition")


class LogPartition:
    """Sends requests to the leader of ``topic_partition`` until it answers or time is up.

    isolation_level: of ``end_offset`` and of reading, ``inspection.READ_UNCOMMITTED`` or
        ``READ_COMMITTED``

    Errors: BrokerError for an answer that a retry does not change, or when time is up.
    """

    isolation_level = inspection.READ_UNCOMMITTED

    def __init__(self, admin: AdminClient, topic_partition: TopicPartition) -> None:
        self._admin = admin
        self._topic_partition = topic_partition
        self._leader: Node | None = None

    def forget_leader(self) -> None:
        """Look up the leader again before the next request."""
        self._leader = None

    def log_start_offset(self, deadline_ms: int) -> int:
        """Return the log start offset."""
        return self._offset(inspection.EARLIEST_TIMESTAMP, deadline_ms)

    def end_offset(self, deadline_ms: int) -> int:
        """Return the high watermark, or the last stable offset."""
        return self._offset(inspection.LATEST_TIMESTAMP, deadline_ms)

    def _offset(self, timestamp: int, deadline_ms: int) -> int:
        topic, partition = self._topic_partition
        requested = inspection.ListOffsetsPartition(partition, timestamp=timestamp)
        request = inspection.ListOffsetsRequest(
            isolation_level=self.isolation_level,
            topics=[inspection.ListOffsetsTopic(topic, [requested])],
        )
        found = _list_offsets_response(
            self._request_leader(request, _list_offsets_response, deadline_ms)
        )
        self._raise_error(found.error_code, "ListOffsets")
        return found.offset

    def _raise_error(self, code: int, what: str) -> None:
        if code:
            raise BrokerError(error_for_code(code), f"{what} of {self._topic_partition}")

    def read(self, first: int, end: int, deadline_ms: int) -> Iterator[ReadBatch]:
        """Yield all batches with offsets from ``first`` to before ``end``, committed or not.

        Raises BrokerError if the leader does not reach ``end`` in time.
        """
        attempts = 0
        while first < end:
            found = self._fetch(first, deadline_ms)
            before = first
            for batch in read_batches(bytes_of(found.records)):
                first = batch.last_offset + 1
                yield batch
            if first > before:
                attempts = 0
            elif found.high_watermark >= end:
                return  # compaction has removed everything up to the end
            elif not self._admin.pause(attempts, deadline_ms):
                # A new leader's high watermark may lag behind the former leader's (KIP-207).
                raise BrokerError(
                    error_named("OFFSET_NOT_AVAILABLE"),
                    f"{self._topic_partition}: readable to {found.high_watermark}, not to {end}",
                )
            else:
                attempts += 1

    def _fetch(self, first: int, deadline_ms: int) -> inspection.PartitionData:
        topic, partition = self._topic_partition
        requested = inspection.FetchPartition(
            partition, fetch_offset=first, partition_max_bytes=_FETCH_BYTES
        )
        request = inspection.FetchRequest(
            # Wait less than the remaining time: the leader's answer says more than a timeout.
            max_wait_ms=min(_FETCH_WAIT_MS, max(0, deadline_ms - self._admin.now_ms()) // 2),
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=self.isolation_level,
            topics=[inspection.FetchTopic(topic, [requested])],
        )
        found = _fetch_response(self._request_leader(request, _fetch_response, deadline_ms))
        self._raise_error(found.error_code, "Fetch")
        return found

    def append(
        self, transactional_id: str | None, batch: bytes, at_most_version: int, deadline_ms: int
    ) -> PartitionProduceResponse:
        """Append one batch with acks=all; the answer may carry an error about the producer.

        transactional_id: None for a batch outside of any transaction
        """
        topic, partition = self._topic_partition
        data = PartitionProduceData(partition, Records([batch], len(batch)))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=max(1, min(_APPEND_TIMEOUT_MS, deadline_ms - self._admin.now_ms())),
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        return _produce_response(
            self._request_leader(request, _produce_response, deadline_ms, at_most_version)
        )

    def _request_leader(
        self,
        request: Request,
        partition_response_of: Callable[[Message], _WithErrorCode],
        deadline_ms: int,
        at_most_version: int | None = None,
    ) -> Message:
        attempts = 0
        while True:
            error = error_named("LEADER_NOT_AVAILABLE")
            leader = self._leader
            if leader is None:
                leader, error = self._find_leader(deadline_ms)
            if leader is not None:
                call = Call(leader, request, at_most_version)
                (answer,) = self._admin.request_all(
                    [call], deadline_ms, self._have_moved(leader, deadline_ms)
                )
                error = error_named("NETWORK_EXCEPTION")
                if answer is not None:
                    error = error_for_code(partition_response_of(answer).error_code)
                    if not (error.retriable or error.name in _ALSO_RETRIABLE):
                        self._leader = leader
                        return answer
            self._leader = None
            if not self._admin.pause(attempts, deadline_ms):
                name = type(request).__name__.removesuffix("Request")
                raise BrokerError(error, f"{name} of {self._topic_partition} at {leader}")
            attempts += 1

    def _have_moved(self, leader: Node, deadline_ms: int) -> FindMoved:
        def have_moved(positions: Sequence[int]) -> Sequence[int]:
            lookup_deadline_ms = min(deadline_ms, self._admin.deadline_in(_LEADER_LOOKUP_MS))
            try:
                now, _ = self._find_leader(lookup_deadline_ms)
            except KafkaSinkError:
                return ()  # no broker answers: keep waiting
            return () if now in (None, leader) else positions

        return have_moved

    def topic_id(self, deadline_ms: int) -> UUID:
        """Return the id of the present topic; a later topic of the same name has another id.

        Zero if brokers have no topic ids (KIP-516).
        """
        attempts = 0
        while True:
            response = self._admin.metadata([self._topic_partition.topic], False, deadline_ms)
            (described,) = response.topics
            # Not every broker knows a new topic yet.
            is_retriable = error_for_code(described.error_code).retriable
            if not is_retriable or not self._admin.pause(attempts, deadline_ms):
                break
            attempts += 1
        self._raise_error(described.error_code, "Metadata")
        return described.topic_id

    def _find_leader(self, deadline_ms: int) -> tuple[Node | None, KafkaErrorCode]:
        """Return the leader, or the error if there is none yet."""
        topic, index = self._topic_partition
        response = self._admin.metadata([topic], False, deadline_ms)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        error = error_named("LEADER_NOT_AVAILABLE")
        for described in response.topics:
            if described.error_code:
                error = error_for_code(described.error_code)
                if not error.retriable:
                    raise BrokerError(error, f"topic {topic}")
            for partition in described.partitions:
                if partition.partition_index == index:
                    return nodes.get(partition.leader_id), error
        return None, error


class _WithErrorCode(Protocol):
    @property
    def error_code(self) -> int: ...


def _list_offsets_response(answer: Message) -> inspection.ListOffsetsPartitionResponse:
    assert isinstance(answer, inspection.ListOffsetsResponse)
    return _single([p for topic in answer.topics for p in topic.partitions])


def _fetch_response(answer: Message) -> inspection.PartitionData:
    assert isinstance(answer, inspection.FetchResponse)
    return _single([p for topic in answer.responses for p in topic.partitions])


def _produce_response(answer: Message) -> PartitionProduceResponse:
    assert isinstance(answer, ProduceResponse)
    return _single([p for topic in answer.responses for p in topic.partition_responses])


def _single(parts: Sequence[_Partition]) -> _Partition:
    if len(parts) != 1:
        raise RemoteProtocolError(f"one partition was asked for, {len(parts)} are in the answer")
    return parts[0]


def bytes_of(records: Records | None) -> bytes:
    """Return the records of a partition in a fetch response as one buffer."""
    return b"" if records is None else b"".join(bytes(buffer) for buffer in records.buffers)
