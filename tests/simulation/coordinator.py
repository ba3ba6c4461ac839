"""The transaction coordinator of one simulated broker: Kafka's state machine, as measured on 4.3.

Source: ``TransactionCoordinator``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from tests.simulation.coordinator_checks import (
    CoordinatorError,
    Entry,
    Loaded,
    check_with_bump,
    check_without_bump,
    completed,
    retry_later,
)
from tests.simulation.markers import MarkerWriter
from tests.simulation.transaction_log import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    is_exhausted,
)

if TYPE_CHECKING:
    from tests.simulation.broker import LeaderView, SimBroker
    from tests.simulation.transactions import Transactions

Answer = Callable[[str], None]
ProducerAnswer = Callable[[str, ProducerIdAndEpoch], None]


class TransactionCoordinator:
    """One broker's coordinator: memory, which a crash loses, and the log, which it does not."""

    def __init__(self, broker: SimBroker, transactions: Transactions) -> None:
        self._broker = broker
        self._transactions = transactions
        self._log = transactions.log
        self._loaded: dict[int, Loaded] = {}
        self._loading: dict[int, int] = {}
        self._markers = MarkerWriter(broker, transactions, self._complete)

    # --- leadership ----------------------------------------------------------------------------

    def crash(self) -> None:
        self._loaded.clear()
        self._loading.clear()

    def learn(self, index: int, old: LeaderView | None, new: LeaderView) -> None:
        """The broker hears who leads a partition of the transaction log."""
        if new.leader_id != self._broker.node_id:
            self._loaded.pop(index, None)
            self._loading.pop(index, None)
        elif old != new:
            self._loaded.pop(index, None)
            self._loading[index] = new.leader_epoch
            transactions = self._transactions
            delay_ms = transactions.rng.randint(*transactions.load_delay_ms)
            transactions.scheduler.after(delay_ms, lambda: self._load(index, new.leader_epoch))

    def _load(self, index: int, leader_epoch: int) -> None:
        partition = self._log.partitions[index]
        is_wanted = self._loading.get(index) == leader_epoch
        if not is_wanted or not self._broker.is_up or partition.leader_epoch != leader_epoch:
            return
        del self._loading[index]
        entries = {name: Entry(metadata) for name, metadata in partition.durable.items()}
        self._loaded[index] = Loaded(leader_epoch, entries)
        for entry in entries.values():
            if entry.metadata.is_prepared:
                self._markers.begin(index, leader_epoch, entry.metadata)

    def is_coordinating(self, index: int, leader_epoch: int) -> bool:
        """Whether this broker still believes to lead the partition, in that epoch."""
        loaded = self._loaded.get(index)
        is_same = loaded is not None and loaded.leader_epoch == leader_epoch
        return is_same and self._broker.is_up

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def entries(self) -> list[Entry]:
        return [entry for loaded in self._loaded.values() for entry in loaded.entries.values()]

    def forget(self, transactional_id: str) -> None:
        index = self._log.partition_for(transactional_id)
        if index in self._loaded:
            self._loaded[index].entries.pop(transactional_id, None)

    def _partition(self, transactional_id: str) -> tuple[int, Loaded]:
        if not transactional_id:
            raise CoordinatorError("INVALID_REQUEST")
        index = self._log.partition_for(transactional_id)
        if index in self._loading:
            raise CoordinatorError("COORDINATOR_LOAD_IN_PROGRESS")
        if index not in self._loaded:
            raise CoordinatorError("NOT_COORDINATOR")
        return index, self._loaded[index]

    def _existing(self, transactional_id: str, producer_id: int | None = None) -> Entry:
        _, loaded = self._partition(transactional_id)
        entry = loaded.entries.get(transactional_id)
        if entry is None:
            raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
        if producer_id is not None and entry.metadata.producer_id != producer_id:
            raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
        return entry

    def _write(self, entry: Entry, new: TransactionMetadata, then: Answer) -> None:
        """Write ``new``; while that lasts, the id is busy."""
        index, loaded = self._partition(new.transactional_id)
        entry.pending = new.state

        def written(error: str) -> None:
            entry.pending = None
            if error == "NONE":
                entry.metadata = new
            then(error)

        self._log.write(self._broker, index, loaded.leader_epoch, new, written)

    # --- InitProducerId ------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch,
        answer: ProducerAnswer,
    ) -> None:
        """``expected``: what the client believes to have; NO_PRODUCER for one that has nothing."""
        try:
            _, loaded = self._partition(transactional_id)
            if not 0 < timeout_ms <= self._transactions.max_timeout_ms:
                raise CoordinatorError("INVALID_TRANSACTION_TIMEOUT")
            entry = loaded.entries.get(transactional_id)
            if entry is None:
                producer_id = self._transactions.new_producer_id()
                before = self._transactions.first_epoch - 1
                metadata = TransactionMetadata(transactional_id, producer_id, timeout_ms, before)
                entry = loaded.entries[transactional_id] = Entry(metadata)
            new = self._next_producer(entry, timeout_ms, expected)
        except CoordinatorError as error:
            answer(error.name, NO_PRODUCER)
            return
        if new is None:
            self._fence(entry, lambda error: answer(retry_later(error), NO_PRODUCER))
            return
        producer = new.producer
        self._write(
            entry, new, lambda error: answer(error, producer if error == "NONE" else NO_PRODUCER)
        )

    def _next_producer(
        self, entry: Entry, timeout_ms: int, expected: ProducerIdAndEpoch
    ) -> TransactionMetadata | None:
        """What to write; None for an open transaction, which is aborted first."""
        metadata = entry.metadata
        if entry.pending is not None:
            raise CoordinatorError("CONCURRENT_TRANSACTIONS")
        is_rotated = metadata.last_producer_id == expected.producer_id and is_exhausted(
            expected.producer_epoch
        )
        is_known = metadata.producer_epoch == -1 or metadata.producer_id == expected.producer_id
        # A right producer id is enough: the epoch beside an open transaction is not looked at.
        if expected.is_valid and not is_known and not is_rotated:
            raise CoordinatorError("PRODUCER_FENCED")
        if metadata.is_prepared:
            raise CoordinatorError("CONCURRENT_TRANSACTIONS")
        if metadata.state == ONGOING:
            return None
        return self._raise_epoch(metadata, timeout_ms, expected)

    def _raise_epoch(
        self, metadata: TransactionMetadata, timeout_ms: int, expected: ProducerIdAndEpoch
    ) -> TransactionMetadata:
        current = metadata.producer_epoch
        is_current = expected.producer_epoch == current
        begun = replace(
            metadata,
            state=EMPTY,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            next_producer_id=-1,
            bumps_epoch=False,
        )
        if is_exhausted(current) and (is_current or not expected.is_valid):
            last_epoch = current if expected.is_valid else -1
            producer_id = self._transactions.new_producer_id()
            return replace(
                begun,
                producer_id=producer_id,
                producer_epoch=0,
                last_producer_id=metadata.producer_id,
                last_producer_epoch=last_epoch,
            )
        if not expected.is_valid:
            return replace(begun, producer_epoch=current + 1, last_producer_epoch=-1)
        if current == -1 or is_current:
            return replace(begun, producer_epoch=current + 1, last_producer_epoch=current)
        if expected.producer_epoch == metadata.last_producer_epoch:
            return begun  # the repetition of a call that was answered
        raise CoordinatorError("PRODUCER_FENCED")

    def _fence(self, entry: Entry, then: Answer) -> None:
        """Abort an open transaction under the next epoch: its writer is shut out.

        With transaction.version 2 brokers before 4.1 raise the epoch once more, which fails at the
        last one: the transaction stays open for good (KAFKA-19367).
        """
        metadata = entry.metadata
        raises_twice = self._transactions.aborts_raise_twice
        if raises_twice and is_exhausted(metadata.producer_epoch):
            self._wedge(entry, PREPARE_ABORT, lambda _: then("UNKNOWN_SERVER_ERROR"))
            return
        fenced = replace(
            metadata,
            state=PREPARE_ABORT,
            producer_epoch=metadata.producer_epoch + 1,
            last_producer_epoch=-1,
            bumps_epoch=self._transactions.transaction_version >= 2,
        )
        self._end(entry, fenced, then)

    # --- partitions ----------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        answer: Answer,
        is_implicit: bool = False,
    ) -> None:
        """``is_implicit``: asked for by a produce request, as with transaction.version 2."""
        try:
            entry = self._of_producer(transactional_id, producer)
        except CoordinatorError as error:
            answer(error.name)
            return
        metadata = entry.metadata
        if entry.pending is not None or metadata.is_prepared:
            answer("CONCURRENT_TRANSACTIONS")
        elif metadata.state == ONGOING and partitions <= metadata.partitions:
            answer("NONE")
        elif is_implicit and self._transactions.transaction_version == 0:
            self._wedge(entry, ONGOING, answer)
        else:
            now_ms = self._transactions.timestamp_ms()
            new = replace(
                metadata,
                state=ONGOING,
                partitions=metadata.partitions | partitions,
                start_ms=metadata.start_ms if metadata.state == ONGOING else now_ms,
                bumps_epoch=False,
            )
            self._write(entry, new, answer)

    def verify_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> str:
        """Whether the transaction has the partition. An error's name, or NONE."""
        try:
            metadata = self._of_producer(transactional_id, producer).metadata
        except CoordinatorError as error:
            return error.name
        if metadata.is_prepared:
            return "CONCURRENT_TRANSACTIONS"
        return "NONE" if partition in metadata.partitions else "TRANSACTION_ABORTABLE"

    def _of_producer(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Entry:
        entry = self._existing(transactional_id, producer.producer_id)
        if entry.metadata.producer_epoch != producer.producer_epoch:
            raise CoordinatorError("PRODUCER_FENCED")
        return entry

    # --- the end of a transaction --------------------------------------------------------------

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        bumps_epoch: bool,
        answer: ProducerAnswer,
    ) -> None:
        """``bumps_epoch``: EndTxn v5, which leaves the next transaction with the next epoch."""
        try:
            entry = self._existing(transactional_id)
            check = check_with_bump if bumps_epoch else check_without_bump
            is_ended = check(entry, producer, is_commit)
        except CoordinatorError as error:
            answer(error.name, NO_PRODUCER)
            return
        if is_ended:
            answer("NONE", entry.metadata.producer)
        elif bumps_epoch and self._transactions.transaction_version == 0:
            self._wedge(entry, ONGOING, lambda error: answer(error, NO_PRODUCER))
        else:
            new = self._prepared(entry.metadata, is_commit, bumps_epoch)
            ended = completed(new).producer
            self._end(
                entry, new, lambda error: answer(error, ended if error == "NONE" else NO_PRODUCER)
            )

    def _prepared(
        self, metadata: TransactionMetadata, is_commit: bool, bumps_epoch: bool
    ) -> TransactionMetadata:
        state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
        if not bumps_epoch:
            return replace(metadata, state=state, bumps_epoch=False)
        epoch = metadata.producer_epoch
        next_producer_id = self._transactions.new_producer_id() if is_exhausted(epoch) else -1
        return replace(
            metadata,
            state=state,
            producer_epoch=epoch + 1,
            last_producer_epoch=epoch,
            next_producer_id=next_producer_id,
            bumps_epoch=True,
        )

    def _end(self, entry: Entry, prepared: TransactionMetadata, then: Answer) -> None:
        """Answer as soon as the decision is durable; the markers follow."""
        index, loaded = self._partition(prepared.transactional_id)

        def written(error: str) -> None:
            then(error)
            if error == "NONE":
                self._markers.begin(index, loaded.leader_epoch, prepared)

        self._write(entry, prepared, written)

    def _complete(self, index: int, leader_epoch: int, prepared: TransactionMetadata) -> None:
        """All markers are written."""
        if not self.is_coordinating(index, leader_epoch):
            return
        entry = self._loaded[index].entries[prepared.transactional_id]
        assert entry.metadata == prepared
        assert entry.pending is None
        self._write(entry, completed(prepared), lambda error: None)

    def _wedge(self, entry: Entry, state: str, answer: Answer) -> None:
        """Brokers of transaction.version 0 offer what they cannot write, and never recover."""
        entry.pending = state
        answer("UNSUPPORTED_VERSION")

    def abort_timed_out(self) -> None:
        """Source: ``TransactionCoordinator.abortTimedOutTransactions``, every 10 s."""
        now_ms = self._transactions.timestamp_ms()
        for entry in self.entries():
            metadata = entry.metadata
            is_open = metadata.state == ONGOING and entry.pending is None
            if is_open and metadata.start_ms + metadata.timeout_ms < now_ms:
                self._transactions.timed_out.add((metadata.transactional_id, *metadata.producer))
                self._fence(entry, lambda error: None)

    # --- questions -----------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Raises CoordinatorError."""
        _, loaded = self._partition(transactional_id)
        entry = loaded.entries.get(transactional_id)
        if entry is None:
            raise CoordinatorError("TRANSACTIONAL_ID_NOT_FOUND")
        return entry.metadata
