"""What is there under the prefixes of a decision log: their records, and what is open.

For operators; changes nothing. Coordinators leave out what this principal may not DESCRIBE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spark_kafka_sink.base.errors import BrokerError, TopicError, error_for_code
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.protocol.messages.transactions import TransactionState
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.decision_log import LOG_PARTITION
from spark_kafka_sink.transactions.ids import driver_transactional_id, is_task_id, task_id_pattern
from spark_kafka_sink.transactions.log_partition import LogPartition
from spark_kafka_sink.transactions.model import Decision, Phase, TaskTransaction
from spark_kafka_sink.transactions.read_positions import ReadPosition, read_positions

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States in which a transaction holds back readers: the latter two while markers are written."""

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

    decision: its record in the decision log, None if there is none
    problem: why the record cannot be read; empty if it can
    transactions: the open ones, of its tasks and its driver
    """

    prefix: str
    decision: Decision | None
    problem: str
    transactions: tuple[TransactionDetails, ...]


class Part(NamedTuple):
    """One Spark partition's transaction in the record of a unit.

    recorded: what the record says of it
    now: what its coordinator says of it
    """

    transaction: TaskTransaction
    recorded: str
    now: str


class PrefixDescription(NamedTuple):
    """All of one prefix, and what readers of the partitions that it touches wait for."""

    overview: PrefixOverview
    parts: tuple[Part, ...]
    positions: tuple[ReadPosition, ...]


class Inspection:
    """Questions about the sink's transactions in a cluster. Each ends within ``patience_ms``.

    Errors: TopicError without a decision log, or without a topic that was asked for; otherwise the
    client's.
    """

    def __init__(self, client: TransactionClient, log_topic: str, patience_ms: int) -> None:
        self._client = client
        self._log = TopicPartition(log_topic, LOG_PARTITION)
        self._patience_ms = patience_ms

    def overview(self, prefix: str | None) -> list[PrefixOverview]:
        """This prefix; None: all in the decision log, and those of tasks that it does not know."""
        deadline_ms = self._client.admin.deadline_in(self._patience_ms)
        records = self._records(deadline_ms)
        by_prefix: dict[str, list[TransactionDetails]] = {name: [] for name in records}
        if prefix is not None:
            by_prefix = {prefix: []}
        for details in self._open(set(by_prefix), prefix is None, deadline_ms):
            owner = _prefix_of(details.transactional_id)
            by_prefix.setdefault(owner, []).append(details)
        return [
            _overview(name, records.get(name), found) for name, found in sorted(by_prefix.items())
        ]

    def describe(self, prefix: str, topics: Iterable[str]) -> PrefixDescription:
        """topics: to tell of too, besides the partitions of open transactions."""
        (overview,) = self.overview(prefix)
        deadline_ms = self._client.admin.deadline_in(self._patience_ms)
        touched = {p for t in overview.transactions for p in t.partitions if p != self._log}
        wanted = touched | self._partitions_of(list(topics), deadline_ms)
        positions = read_positions(self._client.admin, wanted, deadline_ms)
        names = self._names_of_producers(positions, deadline_ms)
        return PrefixDescription(
            overview,
            tuple(self._parts(overview.decision, deadline_ms)),
            tuple(position.named(names) for position in positions),
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
                "what the query has as transaction.log.topic"
            ) from error

    def _records(self, deadline_ms: int) -> dict[str, bytes]:
        """The latest committed record of every prefix that has one."""
        self.check_log()
        log = LogPartition(self._client.admin, self._log)
        end = log.end_offset(deadline_ms)
        open_records: dict[int, dict[bytes, bytes]] = {}
        latest: dict[bytes, bytes] = {}
        for batch in log.read(log.first_offset(deadline_ms), end, deadline_ms):
            if batch.marker is not None:
                written = open_records.pop(batch.producer_id, {})
                latest.update(written if batch.marker.is_commit else {})
            elif batch.is_transactional:
                written = open_records.setdefault(batch.producer_id, {})
                written.update({r.key: r.value or b"" for r in batch.records if r.key is not None})
        return {key.decode(errors="replace"): value for key, value in latest.items() if value}

    # --- transactions --------------------------------------------------------------------------

    def _open(
        self, prefixes: set[str], with_others: bool, deadline_ms: int
    ) -> list[TransactionDetails]:
        """Open transactions of tasks and drivers; ``with_others``: of any prefix's tasks."""

        def is_wanted(name: str) -> bool:
            owner = _prefix_of(name)
            if owner in prefixes:
                return is_task_id(owner, name) or name == driver_transactional_id(owner)
            return with_others and is_task_id(owner, name)

        listed = self._client.list_transactions(_ANY_ID, OPEN_STATES, deadline_ms)
        names = sorted(t.transactional_id for t in listed if is_wanted(t.transactional_id))
        states = self._client.describe(names, deadline_ms)
        found = [states[name] for name in names]
        return [
            _details(state)
            for state in found
            if state is not None and state.transaction_state in OPEN_STATES
        ]

    def _parts(self, decision: Decision | None, deadline_ms: int) -> Iterator[Part]:
        if decision is None:
            return
        recorded = _RECORDED.get(decision.phase, "")
        parts = [(t, recorded) for t in decision.transactions]
        parts += [(t, "committed") for t in decision.committed]
        parts.sort(key=lambda part: part[0].partition_id)
        states = self._client.describe([t.transactional_id for t, _ in parts], deadline_ms)
        for transaction, what in parts:
            now = _now(transaction, states[transaction.transactional_id])
            yield Part(transaction, what, now)

    # --- partitions ----------------------------------------------------------------------------

    def _partitions_of(self, topics: list[str], deadline_ms: int) -> set[TopicPartition]:
        if not topics:
            return set()
        found = set()
        for topic in self._client.admin.metadata(topics, False, deadline_ms).topics:
            error = error_for_code(topic.error_code)
            if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                raise TopicError(f"topic '{topic.name}' does not exist")
            if topic.error_code:
                raise BrokerError(error, f"topic '{topic.name}'")
            found |= {TopicPartition(topic.name or "", p.partition_index) for p in topic.partitions}
        return found

    def _names_of_producers(
        self, positions: Iterable[ReadPosition], deadline_ms: int
    ) -> dict[int, str]:
        """Transactional ids by producer id; of all applications: each may hold readers back."""
        if not any(position.producers for position in positions):
            return {}
        listed = self._client.list_transactions(".*", OPEN_STATES, deadline_ms)
        return {t.producer_id: t.transactional_id for t in listed}


_RECORDED = {
    Phase.DECIDED: "to be committed",
    Phase.PARTIAL: "lost",
    Phase.UNKNOWN: "lost or unknown",
}


def _prefix_of(transactional_id: str) -> str:
    found = _TASK_OF_ANY_PREFIX.fullmatch(transactional_id)
    return found[1] if found else transactional_id.rpartition(".")[0]


def _overview(
    prefix: str, record: bytes | None, transactions: list[TransactionDetails]
) -> PrefixOverview:
    decision, problem = None, ""
    if record is not None:
        try:
            decision = Decision.from_json(record)
        except ValueError as error:
            problem = str(error)
    return PrefixOverview(prefix, decision, problem, tuple(transactions))


def _details(state: TransactionState) -> TransactionDetails:
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


def _now(transaction: TaskTransaction, state: TransactionState | None) -> str:
    """The state of exactly this transaction; its id may have gone on to others."""
    if state is None:
        return "forgotten"
    is_same = state.producer_epoch == transaction.producer_epoch
    # Ended by EndTxn v5 or by a timeout, a transaction leaves its id with the next epoch.
    is_ended = state.producer_epoch == transaction.producer_epoch + 1
    if is_ended and state.transaction_state in ("Empty", "Ongoing"):
        is_ended = False
    if state.producer_id == transaction.producer_id and (is_same or is_ended):
        return state.transaction_state
    return "id used again"
