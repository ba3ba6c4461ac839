"""Transaction coordinators: Kafka's state machine and checks, as measured on 4.3, the topic
``__transaction_state``, and the markers that end transactions.

A write is durable a little before it is answered: a coordinator that dies in between has done what
its client gets no answer to. Source: ``TransactionCoordinator``, ``TransactionStateManager``,
``TransactionMetadata``, ``TransactionMarkerChannelManager``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from tests.simulation.broker import LeaderView
from tests.simulation.logs import NO_LEADER

TRANSACTION_STATE_TOPIC = "__transaction_state"

EMPTY = "Empty"
ONGOING = "Ongoing"
PREPARE_COMMIT = "PrepareCommit"
PREPARE_ABORT = "PrepareAbort"
COMPLETE_COMMIT = "CompleteCommit"
COMPLETE_ABORT = "CompleteAbort"
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)

_LAST_EPOCH = 2**15 - 1
_REPLICA_POLL_MS = 20


def is_exhausted(epoch):
    """The last epoch is never a client's: there must be one more to fence it with."""
    return epoch >= _LAST_EPOCH - 1


@dataclass(frozen=True)
class TransactionMetadata:
    """One transactional id. ``start_ms``: wall clock.

    ``last_producer_epoch``: what the epoch was before its owner raised it, -1 if somebody else did.
    ``next_producer_id``: the one after completion, when epochs ran out with the transaction's end.
    ``bumps_epoch``: the transaction was ended as with transaction.version 2.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = -1
    last_producer_id: int = -1
    last_producer_epoch: int = -1
    next_producer_id: int = -1
    state: str = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    bumps_epoch: bool = False

    @property
    def producer(self):
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_prepared(self):
        return self.state in (PREPARE_COMMIT, PREPARE_ABORT)


@dataclass
class StatePartition:
    """One partition of the topic; every broker is a replica in sync."""

    leader_id: int
    leader_epoch: int = 0
    durable: dict[str, TransactionMetadata] = field(default_factory=dict)

    def elect(self, leader_id):
        self.leader_id = leader_id
        self.leader_epoch += 1


class TransactionLog:
    """The partitions, and how long a write to one of them takes."""

    def __init__(self, brokers, partitions, scheduler, rng):
        ids = list(brokers)
        self._brokers = brokers
        self._scheduler = scheduler
        self._rng = rng
        self.partitions = [StatePartition(ids[i % len(ids)]) for i in range(partitions)]
        self.write_delay_ms = (0, 3)
        # A replica in sync hangs: nothing becomes durable until the controller gives it up.
        self.awaits_replica = False

    def partition_for(self, transactional_id):
        """Source: ``TransactionStateManager.partitionFor``, which is Java's ``String.hashCode``."""
        code = 0
        for character in transactional_id:
            code = (31 * code + ord(character)) & 0xFFFFFFFF
        signed = code - (1 << 32) if code >= 1 << 31 else code
        return abs(signed) % len(self.partitions)

    def get(self, transactional_id):
        """What is durable, whoever leads."""
        partition = self.partitions[self.partition_for(transactional_id)]
        return partition.durable.get(transactional_id)

    def all(self):
        return [m for partition in self.partitions for m in partition.durable.values()]

    def write(self, broker, index, leader_epoch, metadata, answer):
        """Make ``metadata`` durable; ``broker`` hears of it, unless it dies meanwhile."""
        partition = self.partitions[index]

        def is_leader():
            leader = (partition.leader_id, partition.leader_epoch)
            return broker.is_up and leader == (broker.node_id, leader_epoch)

        def become_durable():
            if self.awaits_replica:
                self._scheduler.after(_REPLICA_POLL_MS, become_durable)
            elif is_leader():
                partition.durable[metadata.transactional_id] = metadata
                self._scheduler.after(self._rng.randint(*self.write_delay_ms), tell)
            elif broker.is_up:
                answer("NOT_COORDINATOR")

        def tell():
            if broker.is_up:
                answer("NONE" if is_leader() else "NOT_COORDINATOR")

        self._scheduler.after(self._rng.randint(*self.write_delay_ms), become_durable)

    # --- who leads -----------------------------------------------------------------------------

    def lose(self, node_id):
        """The broker is gone: others lead from now on, as far as there are any."""
        for partition in self.partitions:
            if partition.leader_id == node_id:
                partition.elect(NO_LEADER)
        self.elect_where_missing()

    def elect_where_missing(self):
        alive = [b.node_id for b in self._brokers.values() if b.is_up and not b.is_paused]
        for index, partition in enumerate(self.partitions):
            if partition.leader_id == NO_LEADER and alive:
                partition.elect(alive[index % len(alive)])

    def restart(self, node_id):
        """The broker is back before anybody was elected in its place: it loads all anew."""
        for partition in self.partitions:
            if partition.leader_id == node_id:
                partition.elect(node_id)
        self.elect_where_missing()


# --- what a coordinator has of an id, and what it refuses ---------------------------------------

_COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)


@dataclass
class Entry:
    """A transactional id in a coordinator's memory. ``pending``: the state that is being written."""

    metadata: TransactionMetadata
    pending: str | None = None


@dataclass
class Loaded:
    """One partition of the transaction log in memory, as its leader of that epoch."""

    leader_epoch: int
    entries: dict[str, Entry] = field(default_factory=dict)


class CoordinatorError(Exception):
    """A request is refused; ``name`` is Kafka's name of the error."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name


def retry_later(error):
    return "CONCURRENT_TRANSACTIONS" if error == "NONE" else error


def completed(prepared):
    state = COMPLETE_COMMIT if prepared.state == PREPARE_COMMIT else COMPLETE_ABORT
    completed = replace(prepared, state=state, partitions=frozenset(), next_producer_id=-1)
    if prepared.next_producer_id == -1:
        return completed
    return replace(
        completed,
        producer_id=prepared.next_producer_id,
        producer_epoch=0,
        last_producer_id=prepared.producer_id,
    )


def check_without_bump(entry, producer, is_commit):
    """EndTxn up to v4: whether the transaction has ended so already. Raises CoordinatorError."""
    metadata = entry.metadata
    if metadata.producer_id != producer.producer_id:
        raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
    if metadata.producer_epoch != producer.producer_epoch:
        raise CoordinatorError("PRODUCER_FENCED")
    _refuse_while_busy(entry, is_commit)
    if metadata.state == ONGOING:
        return False
    if metadata.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return True
    raise CoordinatorError("INVALID_TXN_STATE")


def check_with_bump(entry, producer, is_commit):
    """EndTxn v5: as above; here the epoch tells a repetition from the next transaction."""
    metadata = entry.metadata
    is_overflow = (
        metadata.last_producer_id == producer.producer_id
        and is_exhausted(producer.producer_epoch)
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer.producer_id and not is_overflow:
        raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
    is_current = metadata.producer_epoch == producer.producer_epoch
    is_retry = metadata.producer_epoch == producer.producer_epoch + 1 or is_overflow
    is_valid = is_current if metadata.state in (ONGOING, EMPTY) else is_retry
    if metadata.state in _COMPLETE:
        is_valid = is_retry or is_current
    if not is_valid:
        raise CoordinatorError("PRODUCER_FENCED")
    _refuse_while_busy(entry, is_commit)
    if metadata.state == ONGOING:
        return False
    if not is_retry:
        # Nothing was written since the last end; an abort only takes the next epoch.
        if is_commit:
            raise CoordinatorError("INVALID_TXN_STATE")
        return False
    if metadata.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return True
    raise CoordinatorError("INVALID_TXN_STATE")


def _refuse_while_busy(entry, is_commit):
    """Raises CoordinatorError while another transition, or the end itself, is under way."""
    if entry.pending is not None:
        raise CoordinatorError("CONCURRENT_TRANSACTIONS")
    if entry.metadata.is_prepared:
        is_same = entry.metadata.state == (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
        raise CoordinatorError("CONCURRENT_TRANSACTIONS" if is_same else "INVALID_TXN_STATE")


# --- markers ------------------------------------------------------------------------------------

_RETRY_MS = 20
_ANSWER_TIMEOUT_MS = 2000


class _Markers:
    """The markers that a coordinator has to write for one transaction."""

    def __init__(self, coordinator, index, leader_epoch, prepared):
        self._coordinator = coordinator
        self._transactions = coordinator._transactions
        self._index = index
        self._leader_epoch = leader_epoch
        self._prepared = prepared
        self._missing = set(prepared.partitions)

    def begin(self):
        """Write each after a delay; then the transaction is complete."""
        if not self._missing:
            self._after(0, self._finish)
        for partition in sorted(self._missing):
            delay_ms = self._transactions.rng.randint(*self._transactions.marker_delay_ms)
            self._after(delay_ms, lambda p=partition: self._write(p))

    def _after(self, delay_ms, action):
        """Go on later, if this broker is the coordinator then; a broker that hangs does nothing."""

        def go_on():
            if self._coordinator.is_coordinating(self._index, self._leader_epoch):
                if self._coordinator._broker.is_paused:
                    self._after(_RETRY_MS, action)
                else:
                    action()

        self._transactions.scheduler.after(delay_ms, go_on)

    def _finish(self):
        self._coordinator._complete(self._index, self._leader_epoch, self._prepared)

    def _write(self, key):
        if key not in self._missing:
            return
        cluster = self._transactions.cluster
        if key.topic not in cluster.topics:
            self._written(key)
            return
        partition = cluster.partition(key)
        leader = cluster.brokers.get(partition.leader_id)
        if leader is not None and leader.is_up and leader.is_paused:
            self._await_hung(key)
            return
        if leader is None or not leader.is_up:
            self._retry(key)
            return
        view = leader.view.get((key.topic, key.partition))
        knows_it = view == LeaderView(leader.node_id, partition.leader_epoch)
        if not knows_it or len(partition.isr) < partition.min_insync:
            self._retry(key)
            return
        offset = partition.log.append_marker(
            self._prepared.producer,
            self._prepared.state == PREPARE_COMMIT,
            self._leader_epoch,
            self._transactions.timestamp_ms(),
        )
        if offset is None:
            return  # another coordinator writes them
        cluster.replication.begin(leader, partition)
        cluster.replication.await_replicas(
            leader, key, offset + 1, _ANSWER_TIMEOUT_MS, lambda error: self._answered(key, error)
        )

    def _await_hung(self, key):
        """The request was sent, and nobody answers: it is not asked again before it times out."""
        transactions = self._transactions
        timeout_ms = transactions.marker_timeout_ms
        transactions.markers_held_until_ms = transactions.scheduler.clock.ms + timeout_ms
        self._after(timeout_ms, lambda: self._write(key))

    def _answered(self, key, error):
        delay_ms = self._transactions.rng.randint(*self._transactions.hop_delay_ms)
        if error == "NONE":
            self._after(delay_ms, lambda: self._written(key))
        else:
            self._retry(key)

    def _retry(self, key):
        self._after(_RETRY_MS, lambda: self._write(key))

    def _written(self, key):
        if key in self._missing:
            self._missing.discard(key)
            if not self._missing:
                self._finish()


# --- the state machine --------------------------------------------------------------------------


class TransactionCoordinator:
    """One broker's coordinator: memory, which a crash loses, and the log, which it does not."""

    def __init__(self, broker, transactions):
        self._broker = broker
        self._transactions = transactions
        self._log = transactions.log
        self._loaded = {}
        self._loading = {}

    # --- leadership ----------------------------------------------------------------------------

    def crash(self):
        self._loaded.clear()
        self._loading.clear()

    def learn(self, index, old, new):
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

    def _load(self, index, leader_epoch):
        partition = self._log.partitions[index]
        is_wanted = self._loading.get(index) == leader_epoch
        if not is_wanted or not self._broker.is_up or partition.leader_epoch != leader_epoch:
            return
        del self._loading[index]
        entries = {name: Entry(metadata) for name, metadata in partition.durable.items()}
        self._loaded[index] = Loaded(leader_epoch, entries)
        for entry in entries.values():
            if entry.metadata.is_prepared:
                _Markers(self, index, leader_epoch, entry.metadata).begin()

    def is_coordinating(self, index, leader_epoch):
        """Whether this broker still believes to lead the partition, in that epoch."""
        loaded = self._loaded.get(index)
        is_same = loaded is not None and loaded.leader_epoch == leader_epoch
        return is_same and self._broker.is_up

    @property
    def is_loading(self):
        return bool(self._loading)

    def entries(self):
        return [entry for loaded in self._loaded.values() for entry in loaded.entries.values()]

    def forget(self, transactional_id):
        index = self._log.partition_for(transactional_id)
        if index in self._loaded:
            self._loaded[index].entries.pop(transactional_id, None)

    def _partition(self, transactional_id):
        if not transactional_id:
            raise CoordinatorError("INVALID_REQUEST")
        index = self._log.partition_for(transactional_id)
        if index in self._loading:
            raise CoordinatorError("COORDINATOR_LOAD_IN_PROGRESS")
        if index not in self._loaded:
            raise CoordinatorError("NOT_COORDINATOR")
        return index, self._loaded[index]

    def _existing(self, transactional_id, producer_id=None):
        _, loaded = self._partition(transactional_id)
        entry = loaded.entries.get(transactional_id)
        if entry is None:
            raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
        if producer_id is not None and entry.metadata.producer_id != producer_id:
            raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
        return entry

    def _write(self, entry, new, then):
        """Write ``new``; while that lasts, the id is busy."""
        index, loaded = self._partition(new.transactional_id)
        entry.pending = new.state

        def written(error):
            entry.pending = None
            if error == "NONE":
                entry.metadata = new
            then(error)

        self._log.write(self._broker, index, loaded.leader_epoch, new, written)

    # --- InitProducerId ------------------------------------------------------------------------

    def init_producer_id(self, transactional_id, timeout_ms, expected, answer):
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

    def _next_producer(self, entry, timeout_ms, expected):
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

    def _raise_epoch(self, metadata, timeout_ms, expected):
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

    def _fence(self, entry, then):
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

    def add_partitions(self, transactional_id, producer, partitions, answer, is_implicit=False):
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

    def verify_partition(self, transactional_id, producer, partition):
        """Whether the transaction has the partition. An error's name, or NONE."""
        try:
            metadata = self._of_producer(transactional_id, producer).metadata
        except CoordinatorError as error:
            return error.name
        if metadata.is_prepared:
            return "CONCURRENT_TRANSACTIONS"
        return "NONE" if partition in metadata.partitions else "TRANSACTION_ABORTABLE"

    def _of_producer(self, transactional_id, producer):
        entry = self._existing(transactional_id, producer.producer_id)
        if entry.metadata.producer_epoch != producer.producer_epoch:
            raise CoordinatorError("PRODUCER_FENCED")
        return entry

    # --- the end of a transaction --------------------------------------------------------------

    def end_transaction(self, transactional_id, producer, is_commit, bumps_epoch, answer):
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

    def _prepared(self, metadata, is_commit, bumps_epoch):
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

    def _end(self, entry, prepared, then):
        """Answer as soon as the decision is durable; the markers follow."""
        index, loaded = self._partition(prepared.transactional_id)

        def written(error):
            then(error)
            if error == "NONE":
                _Markers(self, index, loaded.leader_epoch, prepared).begin()

        self._write(entry, prepared, written)

    def _complete(self, index, leader_epoch, prepared):
        """All markers are written."""
        if not self.is_coordinating(index, leader_epoch):
            return
        entry = self._loaded[index].entries[prepared.transactional_id]
        assert entry.metadata == prepared
        assert entry.pending is None
        self._write(entry, completed(prepared), lambda error: None)

    def _wedge(self, entry, state, answer):
        """Brokers of transaction.version 0 offer what they cannot write, and never recover."""
        entry.pending = state
        answer("UNSUPPORTED_VERSION")

    def abort_timed_out(self):
        """Source: ``TransactionCoordinator.abortTimedOutTransactions``, every 10 s."""
        now_ms = self._transactions.timestamp_ms()
        for entry in self.entries():
            metadata = entry.metadata
            is_open = metadata.state == ONGOING and entry.pending is None
            if is_open and metadata.start_ms + metadata.timeout_ms < now_ms:
                self._transactions.timed_out.add((metadata.transactional_id, *metadata.producer))
                self._fence(entry, lambda error: None)

    # --- questions -----------------------------------------------------------------------------

    def describe(self, transactional_id):
        """Raises CoordinatorError."""
        _, loaded = self._partition(transactional_id)
        entry = loaded.entries.get(transactional_id)
        if entry is None:
            raise CoordinatorError("TRANSACTIONAL_ID_NOT_FOUND")
        return entry.metadata
