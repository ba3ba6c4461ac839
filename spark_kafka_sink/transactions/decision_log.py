"""The decision log: a compacted topic in which each prefix has one record, its latest decision.

Each record is written in a transaction of ``{prefix}.driver``, so that a superseded driver cannot
write. All prefixes share partition 0, because a partition by key would change when an operator adds
partitions.

The log is read beyond the last stable offset, and control records show which records are committed:
another prefix's open transaction must not hide this prefix's decision.

A leader that was replaced, and does not know it yet, serves an old end of the log. Before it
writes, aborts or decides, a client therefore appends a barrier and reads up to it: only the true
leader can have a record acknowledged by all in-sync replicas. A barrier's key cannot be a prefix,
and a barrier belongs to no transaction, so it replaces nothing.

:class:`LogPartition` makes blocking requests for one partition: offsets, batches, an append. They
serve the few records of the decision log; the producer writes everything else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    KafkaErrorCode,
    KafkaSinkError,
    RemoteProtocolError,
    TopicError,
    TransactionError,
    error_for_code,
    error_named,
    sentence,
    warn,
)
from spark_kafka_sink.base.model import NO_PRODUCER, Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.base.text import bounded_json
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import CREATION_TIMEOUT_MS, AdminClient, configs_of
from spark_kafka_sink.network.blocking import Call, FindMoved
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.protocol.messages.topics import (
    ADDS_PARTITIONS_VERSION,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    CreatableTopic,
    CreatableTopicConfig,
    MetadataResponseTopic,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import (
    NewRecord,
    ReadBatch,
    encode_batch,
    read_batches,
)
from spark_kafka_sink.transactions.client import TransactionClient, raise_if_fenced
from spark_kafka_sink.transactions.crash_points import reached
from spark_kafka_sink.transactions.fencing import retry_unless_fenced
from spark_kafka_sink.transactions.model import (
    Decision,
    DriverToken,
    FencedError,
    Phase,
    StoredRecord,
    UnreadableRecordError,
    driver_transactional_id,
)

# --- requests for the partition ------------------------------------------------------------------

_FETCH_BYTES = 16 * 1024 * 1024
_FETCH_WAIT_MS = 100
# A leader cut off from its replicas waits this long for them; then the client looks it up again.
_APPEND_TIMEOUT_MS = 10_000
# A topic that all brokers do not know for this long is deleted, not new or just moving.
_MISSING_TOPIC_MS = 10_000
# Timeout for the question whether another broker leads now.
_LEADER_LOOKUP_MS = 10_000
_ALSO_RETRIABLE = {"CONCURRENT_TRANSACTIONS"}
_MISSING = "UNKNOWN_TOPIC_OR_PARTITION"

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

        Raises BrokerError if the leader, or the reader, does not reach ``end`` in time.
        """
        attempts = 0
        while first < end:
            found = self._fetch(first, deadline_ms)
            before = first
            for batch in read_batches(bytes_of(found.records)):
                # The writer of a batch determines what it costs to read.
                if first > before and self._admin.now_ms() >= deadline_ms:
                    where = f"{self._topic_partition}: read to {first}, not to {end}, in time"
                    raise BrokerError(error_named("REQUEST_TIMED_OUT"), where)
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
        known_at_ms = self._admin.now_ms()
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
            if error.name != _MISSING:
                known_at_ms = self._admin.now_ms()
            elif self._admin.now_ms() - known_at_ms >= _MISSING_TOPIC_MS:
                raise _deleted_log(self._topic_partition.topic)
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


def _deleted_log(topic: str) -> TransactionError:
    return TransactionError(
        f"the cluster has had no topic '{topic}' for {_MISSING_TOPIC_MS // 1000} s: the decision "
        "log was deleted while it was in use. A decision that it had is lost with it, so nothing "
        "is committed or aborted any more. Stop all queries that use it, and restore the topic; if "
        "it is lost for good, start each query once with transaction.accept=missing-record",
        code="TXN-031",
    )


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


# --- the records ---------------------------------------------------------------------------------

LOG_PARTITION = 0
_FIRST_WINDOW = 50
_MIN_BYTES_TO_COMPRESS = 4096
MOST_DECISION_BYTES = 32 << 20
"""Limit of a decision. A task takes 150 bytes, so this is enough for 200,000."""
_WINDOW_GROWTH = 8
# No prefix begins with these bytes, because prefixes are UTF-8.
_MOST_MARK_BYTES = 4096
_BARRIER_KEY = b"\xff"
_MARK_KEY = b"\xfe"

_Value = TypeVar("_Value")


def is_decision_log(admin: AdminClient, topic: str, deadline_ms: int) -> bool:
    """Return True if the latest records of ``topic`` are a decision log's.

    False if this principal may not read the topic. Raises BrokerError for other errors.
    """
    partition = LogPartition(admin, TopicPartition(topic, LOG_PARTITION))
    try:
        end = partition.end_offset(deadline_ms)
        first = max(partition.log_start_offset(deadline_ms), end - _FIRST_WINDOW * _WINDOW_GROWTH)
        found = partition.read(first, end, deadline_ms)
        return any(
            _is_log_record(*record)
            for batch in found
            for record in batch.keyed_records(None, MOST_DECISION_BYTES)
        )
    except BrokerError as error:
        if error.error.name != "TOPIC_AUTHORIZATION_FAILED":
            raise
        return False


def _is_log_record(key: bytes, value: bytes | None) -> bool:
    """Return True for a decision or a mark; other programs' keys may look like a barrier's."""
    if value is None:
        return False
    try:
        if key.startswith(_MARK_KEY):
            return {"log", "released"} <= set(bounded_json(value))
        Decision.from_json(value)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return True


class PrefixMark(NamedTuple):
    """Notes that this log knows the prefix, even without a record.

    is_released: an operator has removed the record; otherwise no driver has written one yet
    """

    is_released: bool


class _StoredPrefixMark(NamedTuple):
    """A mark and its log.

    log: id of the topic it was written to, in hexadecimal digits
    """

    log: str
    mark: PrefixMark


def _parse_mark(value: bytes | None) -> _StoredPrefixMark | None:
    """Parse a mark; None if no version of this sink has written ``value``."""
    try:
        body = bounded_json(value or b"")
        return _StoredPrefixMark(body["log"], PrefixMark(is_released=body["released"] is True))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


class DecisionLog:
    """The record of ``prefix`` in ``topic``."""

    def __init__(self, client: TransactionClient, topic: str, prefix: str, clock: Clock) -> None:
        self._client = client
        self._topic_partition = TopicPartition(topic, LOG_PARTITION)
        self._partition = LogPartition(client.admin, self._topic_partition)
        self._prefix = prefix
        self._key = prefix.encode()
        self._clock = clock

    def read(self, deadline_ms: int) -> Decision | None:
        """Return the latest committed record, which may be outdated; None if there is none.

        A record whose transaction is still open counts as not written: if that matters, initialize
        the driver's transactional id first.
        """
        end = self._partition.end_offset(deadline_ms)
        return self.decode(self._read_before(end, deadline_ms))

    def read_current(self, deadline_ms: int) -> Decision | None:
        """Return the last record whose marker was written before the call, whichever broker leads.

        Brokers write a marker after the answer to EndTxn, so wait for that transaction first.
        """
        return self.decode(self.read_stored(deadline_ms))

    def read_stored(self, deadline_ms: int) -> StoredRecord | None:
        """Return the record as ``read_current`` does, without decoding it."""
        return self._read_before(self._append_barrier(deadline_ms), deadline_ms)

    def _append_barrier(self, deadline_ms: int) -> int:
        """Append a barrier and return its offset. A second one after a retry is harmless."""
        return self._append_outside_transaction(
            NewRecord(_BARRIER_KEY + self._key, None), deadline_ms
        )

    def _append_outside_transaction(self, record: NewRecord, deadline_ms: int) -> int:
        """Append a record outside of any transaction and return its offset."""
        now_ms = self._clock.timestamp_ms()
        batch = encode_batch([record], now_ms, NO_PRODUCER, -1, is_transactional=False)
        answer = self._partition.append(None, batch, ADDS_PARTITIONS_VERSION, deadline_ms)
        if answer.error_code:
            raise BrokerError(
                error_for_code(answer.error_code), f"decision log {self._topic_partition}"
            )
        return answer.base_offset

    # --- the mark ------------------------------------------------------------------------------

    def read_mark(self, deadline_ms: int) -> PrefixMark | None:
        """Return the mark of this prefix; None if this log has never known the prefix."""
        first = self._partition.log_start_offset(deadline_ms)
        end = self._partition.end_offset(deadline_ms)
        stored = self._search_backwards(self._latest_mark, first, end, deadline_ms)
        if stored is None or stored.log != self._partition.topic_id(deadline_ms).hex:
            return None
        return stored.mark

    def write_mark(self, mark: PrefixMark, deadline_ms: int) -> None:
        """Note that this log knows the prefix, even while it has no record of the prefix.

        The mark has the topic's id, because a log restored from a copy is another log.
        """
        topic_id = self._partition.topic_id(deadline_ms)
        value = json.dumps({"log": topic_id.hex, "released": mark.is_released}).encode()
        self._append_outside_transaction(NewRecord(_MARK_KEY + self._key, value), deadline_ms)

    def _latest_mark(self, start: int, end: int, deadline_ms: int) -> _StoredPrefixMark | None:
        """Return the latest mark; other content under its key is ignored."""
        key, latest = _MARK_KEY + self._key, None
        for batch in self._partition.read(start, end, deadline_ms):
            if batch.is_transactional:
                continue
            for _, value in batch.keyed_records(key, _MOST_MARK_BYTES):
                latest = _parse_mark(value) or latest
        return latest

    # --- reading -------------------------------------------------------------------------------

    def _read_before(self, end: int, deadline_ms: int) -> StoredRecord | None:
        try:
            # Compaction does not move the log's start.
            return self._search_backwards(self._latest_committed, 0, end, deadline_ms)
        except BrokerError as error:
            if error.error.name != "OFFSET_OUT_OF_RANGE":
                raise
            # DeleteRecords has moved the log's start.
            first = self._partition.log_start_offset(deadline_ms)
            return self._search_backwards(self._latest_committed, first, end, deadline_ms)

    def _search_backwards(
        self,
        latest: Callable[[int, int, int], _Value | None],
        first: int,
        end: int,
        deadline_ms: int,
    ) -> _Value | None:
        """Search backwards from ``end`` to ``first``, in growing steps."""
        window = _FIRST_WINDOW
        while True:
            start = max(first, end - window)
            found = latest(start, end, deadline_ms)
            if found is not None or start == first:
                return found
            window *= _WINDOW_GROWTH

    def _latest_committed(self, start: int, end: int, deadline_ms: int) -> StoredRecord | None:
        """Return the last committed record from ``start`` on; None if there is none."""
        uncommitted: dict[int, StoredRecord] = {}
        latest = None
        for batch in self._partition.read(start, end, deadline_ms):
            if batch.marker is not None:
                stored = uncommitted.pop(batch.producer_id, None)
                if stored is not None and batch.marker.is_commit:
                    latest = stored
            elif batch.is_transactional:
                for _, value in batch.keyed_records(self._key, MOST_DECISION_BYTES):
                    stored = StoredRecord(batch.base_offset, value or b"")
                    uncommitted[batch.producer_id] = stored
        return latest

    def decode(self, stored: StoredRecord | None) -> Decision | None:
        """Decode a record. Raises UnreadableRecordError."""
        if stored is None or not stored.value:
            return None  # never written, or an operator has released the prefix
        try:
            return Decision.from_json(stored.value)
        except ValueError as error:
            raise UnreadableRecordError(
                f"the record of '{self._prefix}' in the decision log {self._topic_partition} "
                f"cannot be read: {error}. If a newer version of this sink wrote it, use that one; "
                f"otherwise pykafka-sink transactions resolve --prefix {self._prefix} shows the "
                "record, and replaces it",
                stored,
            ) from error

    def write(self, decision: Decision | None, token: DriverToken, deadline_ms: int) -> DriverToken:
        """Replace the record, or remove it for None, and return the next token.

        Raises FencedError if the token is no longer valid; then nothing is written. After any other
        error the record may be written or not: initialize the driver's id and read.
        """
        try:
            return self._write(decision, token, deadline_ms)
        except FencedError as error:
            raise self.with_current_owner(error, deadline_ms) from error

    def with_current_owner(self, error: FencedError, deadline_ms: int) -> FencedError:
        """Return ``error`` with the present owner; unchanged if the record cannot be read."""
        try:
            # The new owner may be writing its record at this moment.
            self._client.describe_when_complete(driver_transactional_id(self._prefix), deadline_ms)
            decision = self.read(deadline_ms)
        except KafkaSinkError:
            return error
        if decision is None:
            return error
        return FencedError(f"{error}. The decision log names {decision.owner.since()}")

    def _write(
        self, decision: Decision | None, token: DriverToken, deadline_ms: int
    ) -> DriverToken:
        if decision is None:
            self.write_mark(PrefixMark(is_released=True), deadline_ms)
        transactional_id = driver_transactional_id(self._prefix)
        producer = token.producer
        # The feature may have been downgraded since the token was issued.
        now = self._client.transaction_version(transactional_id, deadline_ms)
        is_implicit = min(token.transaction_version, now) >= IMPLICIT_PARTITIONS_VERSION
        value = None if decision is None else decision.to_json().encode()
        if value is not None and len(value) > MOST_DECISION_BYTES:
            raise self._too_large(len(value))
        batch = encode_batch(
            [NewRecord(self._key, value)],
            self._clock.timestamp_ms(),
            producer,
            token.next_sequence,
            codec="zstd" if value is not None and len(value) > _MIN_BYTES_TO_COMPRESS else "none",
        )

        def append() -> None:
            self._append_in_transaction(transactional_id, producer, batch, is_implicit, deadline_ms)

        retry_unless_fenced(self._client, transactional_id, producer, deadline_ms, append)
        if decision is not None and decision.phase is Phase.DECIDED:
            reached("commit.deciding")
        ended = self._client.commit_driver_transaction(
            transactional_id, producer, token.transaction_version, deadline_ms
        )
        sequence = token.next_sequence + 1 if ended == producer else 0
        return DriverToken(*ended, sequence, token.transaction_version)

    def _append_in_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        batch: bytes,
        is_implicit: bool,
        deadline_ms: int,
    ) -> None:
        """Append the batch in a transaction, which the batch itself begins if ``is_implicit``."""
        if not is_implicit:
            self._client.add_partition(
                transactional_id, producer, self._topic_partition, deadline_ms
            )
        # Never version 13, which names topics by id.
        version = ADDS_PARTITIONS_VERSION if is_implicit else ADDS_PARTITIONS_VERSION - 1
        answer = self._partition.append(transactional_id, batch, version, deadline_ms)
        self._check_appended(answer.error_code, transactional_id, len(batch))

    def _check_appended(self, code: int, transactional_id: str, size_bytes: int) -> None:
        error = error_for_code(code)
        if error.name in ("NONE", "DUPLICATE_SEQUENCE_NUMBER"):
            return
        self._partition.forget_leader()
        raise_if_fenced(error, transactional_id)
        if error.name == "MESSAGE_TOO_LARGE":
            raise self._too_large(size_bytes)
        raise BrokerError(error, f"decision log {self._topic_partition}")

    def _too_large(self, size_bytes: int) -> BrokerError:
        error, detail = error_named("MESSAGE_TOO_LARGE"), f"the record has {size_bytes} bytes"
        return BrokerError(error, f"decision log {self._topic_partition}", detail)


# --- the topic, and the brokers' settings --------------------------------------------------------

logger = logging.getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_MIN_REPLICAS_TO_CHECK = 2
_UNCLEAN = "unclean.leader.election.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_EXPIRATION = "transactional.id.expiration.ms"
_LEAST_EXPIRATION_MS = 3_600_000
_NEEDED = (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)


def check_brokers(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    """Raise ConfigError if the cluster cannot deliver exactly once with these options."""
    node = admin.any_node(deadline_ms)
    versions = admin.api_versions(node)
    missing = [
        request.__name__.removesuffix("Request")
        for request in _NEEDED
        if versions is not None and not versions.offers(request, request.min_version)
    ]
    if missing:
        raise ConfigError(
            f"{node} does not offer {', '.join(missing)}, which delivery.guarantee=exactly-once "
            "needs to write transactions, and to repair them after a crash: it is older than Kafka "
            "3.0, or a service without them. Use at-least-once with these brokers",
            code="TXN-035",
        )
    _check_timeout(admin, config, deadline_ms)


def max_transaction_timeout_ms(admin: AdminClient, deadline_ms: int) -> int | None:
    """Return the brokers' transaction.max.timeout.ms; None if this principal may not read it."""
    broker = admin.nodes(deadline_ms)[0]
    configs = configs_of(
        admin, broker, BROKER_RESOURCE, str(broker.node_id), [_MAX_TIMEOUT], deadline_ms
    )
    limit_ms = configs.get(_MAX_TIMEOUT)
    return None if limit_ms is None else int(limit_ms)


def _check_timeout(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    limit_ms = max_transaction_timeout_ms(admin, deadline_ms)
    if limit_ms is not None and limit_ms < config.transaction_timeout_ms:
        raise ConfigError(
            f"kafka.transaction.timeout.ms = {config.transaction_timeout_ms} is more than the "
            f"brokers' {_MAX_TIMEOUT} = {limit_ms}: set it to {limit_ms} or less, or raise the "
            "brokers' limit",
            code="TXN-036",
        )


def prepare_log_topic(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    """Create the topic if it is missing, and check that it is compacted and replicated.

    Raises TopicError if it cannot be created, ConfigError if its settings are unsuitable.
    """
    described = _describe_topic(admin, config.log_topic, deadline_ms)
    if described is None:
        _create_topic(admin, config, deadline_ms)
        described = _await_topic(admin, config.log_topic, deadline_ms)
    _check_topic(admin, config, described, deadline_ms)


def log_topic_exists(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> bool:
    """Check the topic as ``prepare_log_topic`` does, but return False if it is missing."""
    described = _describe_topic(admin, config.log_topic, deadline_ms)
    if described is not None:
        _check_topic(admin, config, described, deadline_ms)
    return described is not None


def _check_topic(
    admin: AdminClient,
    config: ExactlyOnceConfig,
    described: MetadataResponseTopic,
    deadline_ms: int,
) -> None:
    (log,) = (p for p in described.partitions if p.partition_index == LOG_PARTITION)
    replicas = len(log.replica_nodes)
    if replicas < config.log_replication_factor:
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has {replicas} replica(s), less than "
            f"transaction.log.replication.factor = {config.log_replication_factor}: with their "
            "brokers its decisions would be lost. Add replicas, or lower the option",
            code="TXN-010",
        )
    _check_configs(admin, config, deadline_ms)


def _check_configs(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    names = ["cleanup.policy", "min.insync.replicas", _UNCLEAN]
    node = admin.any_node(deadline_ms)
    configs = configs_of(admin, node, TOPIC_RESOURCE, config.log_topic, names, deadline_ms)
    policy = configs.get("cleanup.policy", "compact")
    if policy != "compact":
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has cleanup.policy={policy}: it must "
            "be compact, or decisions disappear. Alter the topic, or name another one in "
            "transaction.log.topic",
            code="TXN-010",
        )
    in_sync = int(configs.get("min.insync.replicas", config.log_min_isr))
    if in_sync < config.log_min_isr:
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has min.insync.replicas={in_sync}, "
            f"less than {config.log_min_isr}: decisions would be lost with one broker. Alter the "
            "topic, or set transaction.log.replication.factor=1 if that may happen",
            code="TXN-010",
        )
    if configs.get(_UNCLEAN) == "true":
        warn(
            logger,
            "TXN-011",
            f"the decision log, topic '{config.log_topic}', has {_UNCLEAN}=true: a broker that is "
            "behind may become its leader, and decisions are lost. Alter the topic",
        )


def warn_of_short_expiration(admin: AdminClient, deadline_ms: int) -> None:
    """Warn if brokers may forget the driver's id before the first row of a slow write."""
    broker = admin.nodes(deadline_ms)[0]
    name = str(broker.node_id)
    configs = configs_of(admin, broker, BROKER_RESOURCE, name, [_EXPIRATION], deadline_ms)
    if _EXPIRATION in configs and int(configs[_EXPIRATION]) < _LEAST_EXPIRATION_MS:
        warn(
            logger,
            "TXN-043",
            f"the brokers have transactional.id.expiration.ms = {configs[_EXPIRATION]}, less than "
            "an hour: a write whose first row comes later than that fails, and the outcome of a "
            "commit that was interrupted is forgotten. Raise it; Kafka's default is 7 days",
        )


def warn_of_low_min_isr(admin: AdminClient, topic: str, deadline_ms: int) -> None:
    """Warn if the loss of one broker may lose committed records although there are more replicas.

    If the check fails, only log it: the topic may not exist yet.
    """
    try:
        (described,) = admin.metadata([topic], False, deadline_ms).topics
        replicas = min((len(p.replica_nodes) for p in described.partitions), default=1)
        if replicas < _MIN_REPLICAS_TO_CHECK:
            return
        node = admin.any_node(deadline_ms)
        configs = configs_of(admin, node, TOPIC_RESOURCE, topic, [_MIN_ISR], deadline_ms)
    except KafkaSinkError as error:
        logger.info(f"{_MIN_ISR} of topic {topic} not checked: {error}")
        return
    if configs.get(_MIN_ISR) == "1":
        warn(
            logger,
            "TXN-011",
            f"topic '{topic}' has {replicas} replicas and {_MIN_ISR}=1: when only its leader is in "
            "sync, records are acknowledged and committed that are lost with that broker. With "
            f"delivery.guarantee=exactly-once, alter the topic: {_MIN_ISR}=2",
        )


def _describe_topic(
    admin: AdminClient, topic: str, deadline_ms: int
) -> MetadataResponseTopic | None:
    (described,) = admin.metadata([topic], False, deadline_ms).topics
    error = error_for_code(described.error_code)
    if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        return None
    if described.error_code:
        raise BrokerError(error, f"topic '{topic}', the decision log")
    # A broker may know a new topic before it knows the topic's partitions.
    exists = any(p.partition_index == LOG_PARTITION for p in described.partitions)
    return described if exists else None


def _await_topic(admin: AdminClient, topic: str, deadline_ms: int) -> MetadataResponseTopic:
    """Wait until the brokers know a topic that was just created."""
    attempts = 0
    while True:
        described = _describe_topic(admin, topic, deadline_ms)
        if described is not None:
            return described
        if not admin.pause(attempts, deadline_ms):
            raise TopicError(
                f"topic '{topic}', the decision log, was created, and the brokers do not report it",
                code="TXN-009",
            )
        attempts += 1


def _create_topic(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.insync.replicas": str(config.log_min_isr),
        # Override the brokers' default, because an acknowledged decision must never be lost.
        "unclean.leader.election.enable": "false",
        # Every start reads from the end, so the uncompacted part has to stay small.
        "segment.bytes": str(16 * 1024 * 1024),
        "min.cleanable.dirty.ratio": "0.1",
    }
    topic = CreatableTopic(
        config.log_topic,
        1,
        config.log_replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in configs.items()],
    )
    timeout_ms = min(CREATION_TIMEOUT_MS, deadline_ms - admin.now_ms())
    error = admin.create_topics([topic], timeout_ms)[config.log_topic]
    if error is None or error.error.name == "TOPIC_ALREADY_EXISTS":
        return
    hint = ""
    if error.error.name == "INVALID_REPLICATION_FACTOR":
        hint = (
            ". Set transaction.log.replication.factor to the number of brokers at most: to 1 for a "
            "cluster of one broker, where decisions are lost with its disk"
        )
    raise TopicError(
        f"the decision log, topic '{config.log_topic}', cannot be created with "
        f"transaction.log.replication.factor = {config.log_replication_factor}: "
        f"{sentence(error)}{hint}",
        code="TXN-009",
    )
