"""Read for operators: decisions and transactions under the prefixes of a log, readers' positions.

This module changes nothing. Coordinators omit transactions that this principal may not DESCRIBE.

Source: ``GetOffsetShell``, ``TransactionsCommand.DescribeProducersCommand``; KIP-98, KIP-664.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    TopicError,
    TransactionError,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import NO_OFFSET, Node, TopicPartition
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.network.blocking import Call
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.protocol.messages.inspection import READ_COMMITTED, READ_UNCOMMITTED
from spark_kafka_sink.protocol.messages.transactions import TransactionState
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.record.record_batch import ReadBatch
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.decision_log import (
    LOG_PARTITION,
    MOST_DECISION_BYTES,
    LogPartition,
)
from spark_kafka_sink.transactions.model import (
    Decision,
    Phase,
    TaskTransaction,
    driver_transactional_id,
    is_task_id,
    task_id_pattern,
)

# One partition without a leader must not prevent the answer about the others.
_PATIENCE_MS = 5_000
# Any client with write access to the log chooses how many prefixes there are, and their names.
MOST_NAME_BYTES = 8 << 20
_BYTES_BESIDE_NAME = 256
MOST_SHOWN_BYTES = 64 << 20
"""Limit of the decisions of all prefixes: those of 400,000 tasks."""


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition.

    first_offset: of the transaction
    last_write_ms: since 1970, -1 if the leader does not know it
    transactional_id: None if no coordinator has an open transaction of this producer
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_write_ms: int
    transactional_id: str | None = None


class ReadPosition(NamedTuple):
    """The position of readers in one partition.

    producers: those with open transactions; the one that holds readers back comes first
    problem: why a part is unknown; empty if all is known
    """

    topic_partition: TopicPartition
    last_stable_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    producers: tuple[OpenProducer, ...] = ()
    problem: str = ""

    @property
    def readers_lag(self) -> int:
        """Number of offsets that readers of committed records cannot see yet."""
        return self.high_watermark - self.last_stable_offset

    def with_transactional_ids(self, transactional_ids: Mapping[int, str]) -> ReadPosition:
        """Return a copy with transactional ids by producer id."""
        producers = (
            p._replace(transactional_id=transactional_ids.get(p.producer_id))
            for p in self.producers
        )
        return self._replace(producers=tuple(producers))


def read_positions(
    admin: AdminClient, partitions: Iterable[TopicPartition], deadline_ms: int
) -> list[ReadPosition]:
    """Return the positions of all ``partitions``, sorted; unreachable ones with the reason."""
    deadline_ms = min(deadline_ms, admin.deadline_in(_PATIENCE_MS))
    found: dict[TopicPartition, ReadPosition] = {}
    missing = sorted(set(partitions))
    problems: dict[TopicPartition, KafkaErrorCode] = {}
    attempts = 0
    while missing:
        for answer in _request_leaders(admin, missing, deadline_ms):
            partition, error = answer.position.topic_partition, answer.error
            if error.retriable:
                problems[partition] = error
            else:
                problem = "" if error.code == 0 else str(error)
                found[partition] = answer.position._replace(problem=problem)
        missing = [p for p in missing if p not in found]
        if missing and not admin.pause(attempts, deadline_ms):
            break
        attempts += 1
    no_leader = error_named("LEADER_NOT_AVAILABLE")
    found.update({p: ReadPosition(p, problem=str(problems.get(p, no_leader))) for p in missing})
    return [found[partition] for partition in sorted(found)]


class _Answer(NamedTuple):
    position: ReadPosition
    error: KafkaErrorCode


def _request_leaders(
    admin: AdminClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> list[_Answer]:
    by_leader: dict[Node, list[TopicPartition]] = {}
    for partition, leader in _leaders(admin, partitions, deadline_ms).items():
        by_leader.setdefault(leader, []).append(partition)
    calls: list[Call] = []
    for leader, led in by_leader.items():
        # A leader answers in this order, so the high watermark is not behind the stable offset.
        calls.append(Call(leader, _offsets_request(led, READ_COMMITTED)))
        calls.append(Call(leader, _offsets_request(led, READ_UNCOMMITTED)))
        calls.append(Call(leader, _producers_request(led)))
    answers = admin.request_all(calls, deadline_ms)
    merged: list[_Answer] = []
    for index, led in enumerate(by_leader.values()):
        merged += _merge_answers(led, *answers[3 * index : 3 * index + 3])
    return merged


def _leaders(
    admin: AdminClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> dict[TopicPartition, Node]:
    response = admin.metadata(sorted({p.topic for p in partitions}), False, deadline_ms)
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in response.topics
        for partition in topic.partitions
    }
    return {p: nodes[leaders[p]] for p in partitions if leaders.get(p) in nodes}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _offsets_request(
    partitions: Iterable[TopicPartition], isolation_level: int
) -> inspection.ListOffsetsRequest:
    latest = inspection.LATEST_TIMESTAMP
    topics = [
        inspection.ListOffsetsTopic(
            topic, [inspection.ListOffsetsPartition(i, timestamp=latest) for i in indexes]
        )
        for topic, indexes in _by_topic(partitions).items()
    ]
    return inspection.ListOffsetsRequest(isolation_level=isolation_level, topics=topics)


def _producers_request(
    partitions: Iterable[TopicPartition],
) -> inspection.DescribeProducersRequest:
    topics = _by_topic(partitions).items()
    return inspection.DescribeProducersRequest(
        [inspection.TopicRequest(topic, indexes) for topic, indexes in topics]
    )


def _merge_answers(
    partitions: Iterable[TopicPartition],
    stable: Message | None,
    latest: Message | None,
    producers: Message | None,
) -> list[_Answer]:
    """Merge the answers of one leader about its partitions."""
    lost = error_named("NETWORK_EXCEPTION")
    stable_offsets, end_offsets = _offsets(stable), _offsets(latest)
    by_partition = _producers(producers)
    answers = []
    for partition in partitions:
        stable_offset, stable_error = stable_offsets.get(partition, (NO_OFFSET, lost))
        end_offset, end_error = end_offsets.get(partition, (NO_OFFSET, lost))
        open_producers, producers_error = by_partition.get(partition, ((), lost))
        position = ReadPosition(partition, stable_offset, end_offset, open_producers)
        errors = [e for e in (stable_error, end_error, producers_error) if e.code]
        answers.append(_Answer(position, errors[0] if errors else error_named("NONE")))
    return answers


def _offsets(answer: Message | None) -> dict[TopicPartition, tuple[int, KafkaErrorCode]]:
    if not isinstance(answer, inspection.ListOffsetsResponse):
        return {}
    return {
        TopicPartition(topic.name, p.partition_index): (p.offset, error_for_code(p.error_code))
        for topic in answer.topics
        for p in topic.partitions
    }


def _producers(
    answer: Message | None,
) -> dict[TopicPartition, tuple[tuple[OpenProducer, ...], KafkaErrorCode]]:
    if not isinstance(answer, inspection.DescribeProducersResponse):
        return {}
    return {
        TopicPartition(topic.name, p.partition_index): (
            _open_producers_in(p),
            error_for_code(p.error_code),
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def _open_producers_in(partition: inspection.PartitionResponse) -> tuple[OpenProducer, ...]:
    found = [
        OpenProducer(
            state.producer_id,
            state.producer_epoch,
            state.current_txn_start_offset,
            state.last_timestamp,
        )
        for state in partition.active_producers
        if state.current_txn_start_offset >= 0
    ]
    return tuple(sorted(found, key=lambda producer: producer.first_offset))


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States in which a transaction holds back readers: the Prepare states while
markers are written."""

_ANY_ID = rf".*({task_id_pattern('')}|{re.escape(driver_transactional_id(''))})"
_TASK_OF_ANY_PREFIX = re.compile(f"(.*){task_id_pattern('')}", re.DOTALL)


class TransactionDetails(NamedTuple):
    """An open transaction, as its coordinator describes it. Times in ms, since 1970 in UTC."""

    transactional_id: str
    state: str
    started_ms: int
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class PrefixOverview(NamedTuple):
    """One ``transactional.id.prefix``.

    decision: its record in the decision log; None if there is none
    problem: why the record cannot be read; empty if it can
    transactions: the open ones, of its tasks and its driver
    """

    prefix: str
    decision: Decision | None
    problem: str
    transactions: tuple[TransactionDetails, ...]


class RecordedTransaction(NamedTuple):
    """One Spark partition's transaction in the record of a unit.

    recorded: its state by the record
    now: its state by its coordinator
    """

    transaction: TaskTransaction
    recorded: str
    now: str


class PrefixDescription(NamedTuple):
    """One prefix, and what readers of its partitions wait for."""

    overview: PrefixOverview
    parts: tuple[RecordedTransaction, ...]
    positions: tuple[ReadPosition, ...]


class Inspection:
    """Queries about the sink's transactions in a cluster. Each ends within ``patience_ms``.

    Errors: TopicError if the decision log or a requested topic does not exist; otherwise the
    client's.
    """

    def __init__(self, client: TransactionClient, log_topic: str, patience_ms: int) -> None:
        self._client = client
        self._log = TopicPartition(log_topic, LOG_PARTITION)
        self._patience_ms = patience_ms

    def overview(self, prefix: str | None) -> list[PrefixOverview]:
        """Return this prefix; for None, all in the decision log and all others with tasks."""
        deadline_ms = self._client.admin.deadline_in(self._patience_ms)
        records = self._records(prefix, deadline_ms)
        by_prefix: dict[str, list[TransactionDetails]] = {name: [] for name in records}
        if prefix is not None:
            by_prefix = {prefix: []}
        for details in self._open_transactions(set(by_prefix), prefix is None, deadline_ms):
            owner = _prefix_of_id(details.transactional_id)
            by_prefix.setdefault(owner, []).append(details)
        decisions = _decisions(records)
        return [
            PrefixOverview(name, *decisions.get(name, (None, "")), tuple(found))
            for name, found in sorted(by_prefix.items())
        ]

    def describe(self, prefix: str, topics: Iterable[str]) -> PrefixDescription:
        """Describe a prefix.

        topics: to include, besides the partitions of open transactions
        """
        (overview,) = self.overview(prefix)
        deadline_ms = self._client.admin.deadline_in(self._patience_ms)
        open_partitions = {p for t in overview.transactions for p in t.partitions if p != self._log}
        wanted = open_partitions | self._partitions_of(list(topics), deadline_ms)
        positions = read_positions(self._client.admin, wanted, deadline_ms)
        names = self._transactional_ids_by_producer(positions, deadline_ms)
        return PrefixDescription(
            overview,
            tuple(self._recorded_transactions(overview.decision, deadline_ms)),
            tuple(position.with_transactional_ids(names) for position in positions),
        )

    # --- the decision log ----------------------------------------------------------------------

    def check_log(self) -> None:
        """Raise TopicError if there is no decision log under this name."""
        deadline_ms = self._client.admin.deadline_in(self._patience_ms)
        try:
            self._partitions_of([self._log.topic], deadline_ms)
        except TopicError as error:
            raise TopicError(
                f"there is no decision log '{self._log.topic}' in this cluster: --log-topic is "
                "what the query has as transaction.log.topic",
                code="TXN-031",
            ) from error

    def _records(self, prefix: str | None, deadline_ms: int) -> dict[str, ReadBatch]:
        """Return the batches of the latest committed record of ``prefix``; for None, of each.

        The records stay compressed, because any client with write access may have written them.
        """
        self.check_log()
        log = LogPartition(self._client.admin, self._log)
        end = log.end_offset(deadline_ms)
        key = None if prefix is None else prefix.encode()
        found = _LatestRecords()
        for batch in log.read(log.log_start_offset(deadline_ms), end, deadline_ms):
            found.add(batch, key)
        return found.by_prefix()

    # --- transactions --------------------------------------------------------------------------

    def _open_transactions(
        self, prefixes: set[str], include_others: bool, deadline_ms: int
    ) -> list[TransactionDetails]:
        """Return open transactions of tasks and drivers.

        include_others: include tasks of any other prefix
        """

        def is_wanted(name: str) -> bool:
            owner = _prefix_of_id(name)
            if owner in prefixes:
                return is_task_id(owner, name) or name == driver_transactional_id(owner)
            return include_others and is_task_id(owner, name)

        listed = self._client.list_transactions(_ANY_ID, OPEN_STATES, deadline_ms)
        names = sorted(t.transactional_id for t in listed if is_wanted(t.transactional_id))
        states = self._client.describe(names, deadline_ms)
        found = [states[name] for name in names]
        return [
            _transaction_details(state)
            for state in found
            if state is not None and state.transaction_state in OPEN_STATES
        ]

    def _recorded_transactions(
        self, decision: Decision | None, deadline_ms: int
    ) -> Iterator[RecordedTransaction]:
        if decision is None:
            return
        recorded = _RECORDED.get(decision.phase, "")
        parts = [(t, recorded) for t in decision.transactions]
        parts += [(t, "committed") for t in decision.committed]
        parts.sort(key=lambda part: part[0].partition_id)
        states = self._client.describe([t.transactional_id for t, _ in parts], deadline_ms)
        for transaction, what in parts:
            now = _current_state(transaction, states[transaction.transactional_id])
            yield RecordedTransaction(transaction, what, now)

    # --- partitions ----------------------------------------------------------------------------

    def _partitions_of(self, topics: list[str], deadline_ms: int) -> set[TopicPartition]:
        if not topics:
            return set()
        found = set()
        for topic in self._client.admin.metadata(topics, False, deadline_ms).topics:
            error = error_for_code(topic.error_code)
            if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                raise TopicError(f"topic '{topic.name}' does not exist", code="TOPIC-001")
            if topic.error_code:
                raise BrokerError(error, f"topic '{topic.name}'")
            found |= {TopicPartition(topic.name or "", p.partition_index) for p in topic.partitions}
        return found

    def _transactional_ids_by_producer(
        self, positions: Iterable[ReadPosition], deadline_ms: int
    ) -> dict[int, str]:
        """Return transactional ids by producer id: any application may hold readers back."""
        if not any(position.producers for position in positions):
            return {}
        listed = self._client.list_transactions(".*", OPEN_STATES, deadline_ms)
        return {t.producer_id: t.transactional_id for t in listed}


_RECORDED = {
    Phase.DECIDED: "to be committed",
    Phase.PARTIAL: "lost",
    Phase.UNKNOWN: "lost or unknown",
}


def _prefix_of_id(transactional_id: str) -> str:
    found = _TASK_OF_ANY_PREFIX.fullmatch(transactional_id)
    return found[1] if found else transactional_id.rpartition(".")[0]


class _LatestRecords:
    """The batches of the latest committed record of each prefix, one copy of each batch."""

    def __init__(self) -> None:
        self._open: dict[int, dict[bytes, ReadBatch | None]] = {}
        self._latest: dict[bytes, ReadBatch] = {}
        self._bytes = 0

    def add(self, batch: ReadBatch, key: bytes | None) -> None:
        """Add the records of the next batch; of those only this key, None for all.

        Raises TransactionError if the names of the prefixes are beyond the limit.
        """
        if batch.marker is not None:
            self._end(self._open.pop(batch.producer_id, {}), batch.marker.is_commit)
        elif batch.is_transactional:
            kept = None
            for own_key, value in batch.keyed_records(key, most_bytes=0):
                written = self._open.setdefault(batch.producer_id, {})
                self._bytes += 0 if own_key in written else _weight(own_key)
                if value and kept is None:
                    kept = batch._replace(compressed=bytes(batch.compressed))
                written[own_key] = kept if value else None
                self._check()

    def by_prefix(self) -> dict[str, ReadBatch]:
        return {key.decode(errors="replace"): batch for key, batch in self._latest.items()}

    def _end(self, written: dict[bytes, ReadBatch | None], is_commit: bool) -> None:
        for key, batch in written.items():
            self._bytes -= _weight(key)
            if is_commit:
                self._bytes -= _weight(key) if self._latest.pop(key, None) else 0
                if batch is not None:
                    self._latest[key] = batch
                    self._bytes += _weight(key)

    def _check(self) -> None:
        if self._bytes > MOST_NAME_BYTES:
            count = len(self._latest) + sum(map(len, self._open.values()))
            raise TransactionError(
                f"the decision log has records of {count} prefixes or more, which are too many for "
                "one list. Name one with --prefix. If they are no queries', see who may write to "
                "the topic",
                code="TXN-045",
            )


def _weight(key: bytes) -> int:
    return _BYTES_BESIDE_NAME + len(key)


def _decisions(records: Mapping[str, ReadBatch]) -> dict[str, tuple[Decision | None, str]]:
    """Return by prefix the decision, and why it cannot be shown. Each batch is read once."""
    found: dict[str, tuple[Decision | None, str]] = {}
    left = MOST_SHOWN_BYTES
    for batch in {id(batch): batch for batch in records.values()}.values():
        for key, value in batch.keyed_records(None, MOST_DECISION_BYTES):
            name = key.decode(errors="replace")
            if records.get(name) is not batch:
                continue
            left -= len(value or b"")
            try:
                if left < 0:
                    raise ValueError("too much for one list: --prefix shows it alone")
                found[name] = Decision.from_json(value or b""), ""
            except ValueError as error:
                found[name] = None, str(error)
    return found


def _transaction_details(state: TransactionState) -> TransactionDetails:
    partitions = sorted(TopicPartition(t.topic, p) for t in state.topics for p in t.partitions)
    return TransactionDetails(
        state.transactional_id,
        state.transaction_state,
        state.transaction_start_time_ms,
        state.transaction_timeout_ms,
        state.producer_id,
        state.producer_epoch,
        tuple(partitions),
    )


def _current_state(transaction: TaskTransaction, state: TransactionState | None) -> str:
    """Return the state of exactly this transaction; another transaction may use its id now."""
    if state is None:
        return "forgotten"
    is_same = state.producer_epoch == transaction.producer_epoch
    # EndTxn v5 or a timeout leaves the id with the next epoch.
    is_ended = state.producer_epoch == transaction.producer_epoch + 1
    if is_ended and state.transaction_state in ("Empty", "Ongoing"):
        is_ended = False
    if state.producer_id == transaction.producer_id and (is_same or is_ended):
        return state.transaction_state
    return "id used again"
