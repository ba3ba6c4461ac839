"""Replicas' logs with the checks of Kafka's ProducerStateManager, replicated partitions, and produce requests.

Transactions: which are open and since which offset, which were aborted, and what a reader of
committed records therefore sees. All of it follows from the batches, so that a replica that copies
them knows it too.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import ZERO_UUID, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.protocol.messages import topics
from spark_kafka_sink.record.record_batch import TRANSACTIONAL_FLAG, BatchHeader, write_header
from tests import twin

_REMEMBERED_BATCHES = 5
_LAST_SEQUENCE = 2**31 - 1
_CONTROL_FLAG = 0x20
_NO_SEQUENCE = -1
_ABORT, _COMMIT = 0, 1
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


@dataclass
class AppendedBatch:
    """First and last sequence of a batch, and where it is."""

    first_sequence: int
    last_sequence: int
    base_offset: int


def _remembered():
    return deque(maxlen=_REMEMBERED_BATCHES)


@dataclass
class ProducerEntry:
    """What the broker remembers of one producer id."""

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=_remembered)
    coordinator_epoch: int = -1


@dataclass(frozen=True)
class EndedTransaction:
    """A transaction with its marker: ``first_offset`` of its records, offset of the marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_committed: bool


class PartitionLog:
    """Record batches in order of their offset."""

    def __init__(self):
        self._clear()
        # Whoever asks the coordinator before an append holds the object that is here (KIP-890): it
        # goes away with the next marker, and the append that comes too late is refused.
        self.verifications = {}

    def _clear(self):
        # Of how many batches there are snapshots of the producers' state: of each producer its last.
        self._snapshots = [0]
        self.batches = []
        self.data = []
        self.base_offsets = []
        self.producers = {}
        self.open_transactions = {}
        self.ended = []
        self.end_offset = 0

    def records(self):
        """What a reader of uncommitted records sees."""
        return self._records(self.end_offset, frozenset())

    def committed(self, high_watermark):
        """What a reader of committed records sees."""
        end = self.last_stable_offset(high_watermark)
        aborted = frozenset(
            base
            for base, batch in zip(self.base_offsets, self.batches)
            for ended in self.ended
            if not ended.is_committed
            and is_transactional(batch.header)
            and ended.producer_id == batch.header.producer_id
            and ended.first_offset <= base < ended.marker_offset
        )
        return self._records(end, aborted)

    def _records(self, end, left_out):
        return [
            record._replace(offset=base + index)
            for base, batch in zip(self.base_offsets, self.batches)
            if base < end and base not in left_out and not is_control(batch.header)
            for index, record in enumerate(batch.records)
        ]

    def last_stable_offset(self, high_watermark):
        """First offset of the oldest transaction whose end the in-sync replicas do not have."""
        unstable = [
            ended.first_offset for ended in self.ended if ended.marker_offset >= high_watermark
        ]
        return min([high_watermark, *unstable, *self.open_transactions.values()])

    def check(self, header, rejects_unknown=False):
        """(error name, base offset of the batch if it is a known duplicate or -1).

        A producer that is not known may begin with any sequence on newer brokers; older ones
        (``rejects_unknown``) want 0.
        """
        if header.producer_id < 0:
            return "NONE", -1
        entry = self.producers.get(header.producer_id)
        if entry is None:
            is_refused = rejects_unknown and header.base_sequence > 0
            return ("UNKNOWN_PRODUCER_ID" if is_refused else "NONE"), -1
        if header.producer_epoch < entry.epoch:
            return "INVALID_PRODUCER_EPOCH", -1
        last_sequence = (header.base_sequence + header.records_count - 1) % 2**31
        if header.producer_epoch > entry.epoch:
            return ("NONE" if header.base_sequence == 0 else "OUT_OF_ORDER_SEQUENCE_NUMBER"), -1
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return "NONE", batch.base_offset
        # A marker with a new epoch leaves no batches: the next one begins anew.
        expected = entry.batches[-1].last_sequence if entry.batches else _NO_SEQUENCE
        follows = header.base_sequence == (0 if expected == _LAST_SEQUENCE else expected + 1)
        return ("NONE" if follows else "OUT_OF_ORDER_SEQUENCE_NUMBER"), -1

    def is_in_transaction(self, header):
        """Whether the batch's producer has an open transaction here, in the same epoch."""
        entry = self.producers.get(header.producer_id)
        is_open = header.producer_id in self.open_transactions
        return is_open and entry is not None and entry.epoch == header.producer_epoch

    def append(self, batch, data):
        """Append a batch, whose bytes are ``data``. Returns its base offset."""
        header = batch.header
        base_offset = self.end_offset
        if header.producer_id >= 0:
            self._note_producer(header, base_offset)
        if is_control(header):
            self._end_transaction(batch, base_offset)
        elif is_transactional(header):
            self.open_transactions.setdefault(header.producer_id, base_offset)
        self.batches.append(batch)
        self.data.append(data)
        self.base_offsets.append(base_offset)
        self.end_offset += len(batch.records)
        return base_offset

    def _note_producer(self, header, base_offset):
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
            entry = ProducerEntry(header.producer_epoch, coordinator_epoch=coordinator_epoch)
            self.producers[header.producer_id] = entry
        if not is_control(header):
            last_sequence = (header.base_sequence + header.records_count - 1) % 2**31
            entry.batches.append(AppendedBatch(header.base_sequence, last_sequence, base_offset))

    def _end_transaction(self, batch, offset):
        producer_id = batch.header.producer_id
        value = batch.records[0].value
        self.producers[producer_id].coordinator_epoch = _MARKER_VALUE.unpack(value)[1]
        self.verifications.pop(producer_id, None)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None:
            key = batch.records[0].key
            is_committed = _MARKER_KEY.unpack(key)[1] == _COMMIT
            self.ended.append(EndedTransaction(producer_id, first_offset, offset, is_committed))

    def append_marker(self, producer, is_commit, coordinator_epoch, timestamp_ms):
        """Write the end of a transaction, open here or not.

        Returns the marker's offset; None for a coordinator that another one has replaced.
        """
        entry = self.producers.get(producer.producer_id)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            return None
        # A coordinator that has markers to write lets nobody begin with a newer epoch.
        assert entry is None or producer.producer_epoch >= entry.epoch
        data = encode_marker(producer, is_commit, coordinator_epoch, timestamp_ms)
        return self.append(twin.decode_batch(data), data)

    def read(self, offset, end, max_bytes):
        """Whole batches from the one that holds ``offset``, before ``end``; at least one."""
        out = b""
        for base, batch, data in zip(self.base_offsets, self.batches, self.data):
            if base + len(batch.records) <= offset:
                continue
            if base >= end or (out and len(out) + len(data) > max_bytes):
                break
            # The base offset is not covered by the CRC: the broker writes it.
            out += struct.pack(">q", base) + data[8:]
        return out

    def aborted_between(self, first, end):
        """Aborted transactions with records among these offsets."""
        return [
            ended
            for ended in self.ended
            if not ended.is_committed and ended.first_offset < end and ended.marker_offset >= first
        ]

    def drop_last_batch(self):
        """Forget the last batch, and what followed from it."""
        self._keep(len(self.batches) - 1)

    def _keep(self, count):
        """Truncate: the state is the last snapshot's, and that of the batches after it."""
        kept = list(zip(self.batches, self.data))[:count]
        snapshots = [taken for taken in self._snapshots if taken <= count]
        self._clear()
        for taken in snapshots:
            for batch, data in kept[len(self.batches) : taken]:
                self.append(batch, data)
            self._load_snapshot()
        for batch, data in kept[len(self.batches) :]:
            self.append(batch, data)
        self._snapshots = [*snapshots, count]

    def restart(self):
        """The broker is back: its snapshot, of a clean shutdown or of its recovery, is of the end.

        Source: ``ProducerStateManager.writeSnapshot``, ``LogLoader.recoverSegment``.
        """
        self._snapshots.append(len(self.batches))
        self._load_snapshot()

    def _load_snapshot(self):
        for entry in self.producers.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()

    def _common(self, other):
        """How many batches both begin with."""
        shorter = min(len(self.batches), len(other.batches))
        # A batch is copied together with all that is before it.
        if shorter and self.batches[shorter - 1] is other.batches[shorter - 1]:
            return shorter
        common = 0
        for mine, theirs in zip(self.batches, other.batches):
            if mine is not theirs:
                break
            common += 1
        return common

    def follow(self, leader):
        """Become a copy of ``leader``: cut what it does not have, fetch what it has more."""
        common = self._common(leader)
        if common < len(self.batches):
            self._keep(common)
        for batch, data in zip(leader.batches[common:], leader.data[common:]):
            self.append(batch, data)


def is_transactional(header):
    return header.producer_id >= 0 and bool(header.attributes & TRANSACTIONAL_FLAG)


def is_control(header):
    return bool(header.attributes & _CONTROL_FLAG)


def encode_marker(producer, is_commit, coordinator_epoch, timestamp_ms):
    """A control batch with one record. Source: ``EndTransactionMarker``."""
    key = _MARKER_KEY.pack(0, _COMMIT if is_commit else _ABORT)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    data = bytearray(61) + twin.encode_record(0, 0, key, value)
    attributes = TRANSACTIONAL_FLAG | _CONTROL_FLAG
    header = BatchHeader(attributes, timestamp_ms, timestamp_ms, producer, _NO_SEQUENCE, 1)
    write_header(header, [memoryview(data)], len(data))
    return bytes(data)


# --- partitions ---------------------------------------------------------------------------------

NO_LEADER = -1


@dataclass
class Waiter:
    """An acks=all append that is answered when the high watermark has passed it."""

    leader_id: int
    leader_epoch: int
    end_offset: int
    answer: Callable[[str], None]


class Partition:
    """The controller's view, and one log per replica."""

    def __init__(self, replicas, min_insync=1):
        self.replicas = replicas
        self.leader_id = replicas[0]
        self.leader_epoch = 0
        self.isr = set(replicas)
        self.min_insync = min_insync
        # What is before has been deleted, for whoever reads.
        self.log_start_offset = 0
        self.logs = {broker_id: PartitionLog() for broker_id in replicas}
        self.waiters = []
        # What each follower has last heard, and what a new leader goes by until they have fetched.
        self.heard_high_watermarks = {}
        self._lagging_high_watermark = None
        # What leaders that were replaced go on telling until they hear of it.
        self.deposed_high_watermarks = {}
        # Committed records were given up by an unclean election: loss is the cluster's doing.
        self.is_tainted = False
        # Newer brokers have lost what they knew of producers, and take any sequence.
        self.takes_any_sequence = False

    @property
    def log(self):
        """The leader's log; the longest one while there is no leader."""
        if self.leader_id != NO_LEADER:
            return self.logs[self.leader_id]
        return max(self.logs.values(), key=lambda log: log.end_offset)

    @property
    def high_watermark(self):
        return min(self.logs[broker_id].end_offset for broker_id in self.isr)

    @property
    def told_high_watermark(self):
        """What the leader tells consumers: a new one's may lag behind the true one (KIP-207)."""
        if self._lagging_high_watermark is None or self.isr == {self.leader_id}:
            return self.high_watermark
        return min(self._lagging_high_watermark, self.high_watermark)

    @property
    def last_stable_offset(self):
        return self.log.last_stable_offset(self.told_high_watermark)

    def high_watermark_of(self, broker_id):
        """What ``broker_id``, which leads or does not know yet that it was deposed, tells."""
        if broker_id == self.leader_id:
            return self.told_high_watermark
        return min(self.deposed_high_watermarks[broker_id], self.logs[broker_id].end_offset)

    def replicate(self, follower_id):
        """The follower fetches everything that the leader has."""
        if self.leader_id not in (NO_LEADER, follower_id):
            self.heard_high_watermarks[follower_id] = self.told_high_watermark
            self.logs[follower_id].follow(self.logs[self.leader_id])
            self.answer_waiters()

    def forget_producers(self):
        for log in self.logs.values():
            log.producers.clear()

    def elect(self, leader_id, is_clean=True):
        self.is_tainted = self.is_tainted or not is_clean
        if self.leader_id not in (NO_LEADER, leader_id):
            self.deposed_high_watermarks[self.leader_id] = self.told_high_watermark
        self.deposed_high_watermarks.pop(leader_id, None)
        self.leader_id = leader_id
        self.leader_epoch += 1
        self._lagging_high_watermark = self.heard_high_watermarks.get(leader_id, 0)
        if not is_clean:
            self.isr = {leader_id}

    def drop_last_batch(self):
        """An unclean election: the leader's log ends one batch earlier. Whether it had two."""
        if len(self.log.batches) < 2:
            return False
        self.log.drop_last_batch()
        for log in self.logs.values():
            if log is not self.log:
                log.follow(self.log)
        self.isr &= {self.leader_id}
        self.is_tainted = True
        return True

    def hear_from_followers(self):
        """They have fetched from the new leader: its high watermark is the true one."""
        self._lagging_high_watermark = None

    def shrink_isr(self, broker_id):
        if len(self.isr) > 1 and broker_id != self.leader_id:
            self.isr.discard(broker_id)
            self.answer_waiters()

    def expand_isr(self, broker_id):
        """A replica that has caught up is in sync again."""
        if self.leader_id != NO_LEADER:
            self.replicate(broker_id)
            self.isr.add(broker_id)

    def answer_waiters(self):
        """Tell those whose records all in-sync replicas have."""
        waiting, self.waiters = self.waiters, []
        for waiter in waiting:
            is_current = (waiter.leader_id, waiter.leader_epoch) == (
                self.leader_id,
                self.leader_epoch,
            )
            if not is_current or self.high_watermark < waiter.end_offset:
                self.waiters.append(waiter)
            elif len(self.isr) < self.min_insync:
                waiter.answer("NOT_ENOUGH_REPLICAS_AFTER_APPEND")
            else:
                waiter.answer("NONE")

    def forget_deposed(self, broker_id):
        """It has died: when it is back, it leads nothing until the controller says so."""
        self.deposed_high_watermarks.pop(broker_id, None)

    def drop_waiters_of(self, broker_id, error):
        """The broker is no longer leader: tell those who wait, or with None forget them."""
        mine = [waiter for waiter in self.waiters if waiter.leader_id == broker_id]
        self.waiters = [waiter for waiter in self.waiters if waiter.leader_id != broker_id]
        if error is not None:
            for waiter in mine:
                waiter.answer(error)


# --- produce requests ---------------------------------------------------------------------------

_FOLLOWERS_POLL_MS = 50
_IMPLICIT_ADD_VERSION = 12
_ABORTABLE_VERSION = 11


class Replication:
    """A leader's appends reach its followers; whoever waits for them is told."""

    def __init__(self, cluster):
        self._cluster = cluster

    def begin(self, broker, partition):
        """Followers fetch what ``broker`` has just appended, each a little later."""
        for follower_id in partition.isr - {broker.node_id}:
            delay_ms = self._cluster.rng.randint(*self._cluster.replication_delay_ms)
            self._cluster.scheduler.after(delay_ms, lambda f=follower_id: self._fetch(partition, f))

    def await_replicas(self, broker, key, end_offset, timeout_ms, finish):
        """Tell ``finish`` once, when the in-sync replicas have everything before ``end_offset``."""
        partition = self._cluster.partition(key)
        epoch = broker.view[key.topic, key.partition].leader_epoch
        is_answered = False

        def answer_once(error):
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                finish(error)

        partition.waiters.append(Waiter(broker.node_id, epoch, end_offset, answer_once))
        partition.answer_waiters()
        if not is_answered:
            scheduler = self._cluster.scheduler
            scheduler.after(timeout_ms, lambda: answer_once("REQUEST_TIMED_OUT"))
            # A follower that was away when the append happened fetches when it is back.
            self._poll_followers(broker, partition, lambda: is_answered)

    def _fetch(self, partition, follower_id):
        follower = self._cluster.brokers[follower_id]
        leader = self._cluster.brokers.get(partition.leader_id)
        if follower.is_up and not follower.is_paused and leader is not None and leader.is_up:
            partition.replicate(follower_id)

    def _poll_followers(self, broker, partition, is_done):
        if is_done() or not broker.is_up:
            return
        for follower_id in list(partition.isr):
            if follower_id != partition.leader_id:
                self._fetch(partition, follower_id)
        self._cluster.scheduler.after(
            _FOLLOWERS_POLL_MS, lambda: self._poll_followers(broker, partition, is_done)
        )


class Produce:
    """One produce request: its partitions are answered together when the last one is decided."""

    def __init__(self, cluster, broker, request, version, reply):
        self._cluster = cluster
        self._broker = broker
        self._request = request
        self._version = version
        self._reply = reply
        self._open = 1
        self._answers = []

    def run(self):
        self._broker.produce_requests += 1
        for data in self._request.topic_data:
            name = data.name or self._name_of(data.topic_id)
            topic_id = data.topic_id if not data.name else ZERO_UUID
            answer = topics.TopicProduceResponse(data.name, topic_id, [])
            self._answers.append(answer)
            for partition in data.partition_data:
                records = b"".join(bytes(b) for b in partition.records.buffers)
                partition_answer = topics.PartitionProduceResponse(
                    partition.index, base_offset=-1, log_start_offset=0
                )
                answer.partition_responses.append(partition_answer)
                self._open += 1
                _Append(
                    self, TopicPartition(name, partition.index), records, partition_answer
                ).run()
        self.decided()

    def decided(self):
        self._open -= 1
        if self._open:
            return
        if self._request.acks == 0:
            self._reply(None)
            return
        self._omit_some()
        brokers = self._cluster.brokers.values()
        endpoints = [topics.NodeEndpoint(b.node_id, b.host, b.port) for b in brokers]
        nodes = endpoints if self._cluster.reports_new_leader else []
        self._reply(topics.ProduceResponse(self._answers, self._cluster.throttle_time_ms, nodes))

    def _omit_some(self):
        """No Kafka does so. What is not mentioned is not acknowledged."""
        if self._cluster.repeat_answers:
            self._answers += self._answers
        if (
            not self._cluster.omit_answers
            or self._cluster.rng.random() >= self._cluster.omit_answers
        ):
            return
        answer = self._cluster.rng.choice(self._answers)
        omitted = answer.partition_responses.pop()
        name = answer.name or self._name_of(answer.topic_id)
        self._cluster.omitted.add(TopicPartition(name, omitted.index))

    def _name_of(self, topic_id):
        return next((n for n, t in self._cluster.topics.items() if t.topic_id == topic_id), "")


class _Append:
    """One batch of a produce request: its checks, one after the other, then the append."""

    def __init__(self, whole, key, data, answer):
        self._whole = whole
        self._cluster = whole._cluster
        self._broker = whole._broker
        self._request = whole._request
        self._key = key
        self._data = data
        self._answer = answer
        self._guard = None

    def _finish(self, error):
        self._answer.error_code = error_named(error).code
        if error != "NONE":
            self._answer.base_offset = -1
        self._whole.decided()

    def run(self):
        if self._is_leader():
            self._append_as_leader()

    def _is_leader(self):
        """Whether this broker believes that it leads the partition; answered if it does not."""
        name, index = self._key
        if name not in self._cluster.topics:
            self._finish("UNKNOWN_TOPIC_OR_PARTITION" if name else "UNKNOWN_TOPIC_ID")
            return False
        view = self._broker.view.get((name, index))
        if view is None or view.leader_id != self._broker.node_id:
            if view is not None and self._cluster.reports_new_leader and view.leader_id >= 0:
                leader = topics.LeaderIdAndEpoch(view.leader_id, view.leader_epoch)
                self._answer.current_leader = leader
            self._finish("NOT_LEADER_OR_FOLLOWER")
            return False
        return True

    def _append_as_leader(self):
        name, index = self._key
        partition = self._cluster.partition(self._key)
        batch = twin.decode_batch(self._data)
        hook = self._cluster.on_produce
        error = hook(self._broker, name, index, batch) if hook is not None else None
        is_short = len(partition.isr) < partition.min_insync
        if error is None and self._request.acks == -1 and is_short:
            error = "NOT_ENOUGH_REPLICAS"
        # Before sequence numbers are looked at, as in UnifiedLog.append.
        if error is None and len(self._data) > self._max_message_bytes:
            error = "MESSAGE_TOO_LARGE"
        if error is not None:
            self._finish(error)
        elif is_transactional(batch.header) and self._request.transactional_id is None:
            self._finish("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        elif self._needs_transaction(partition, batch):
            self._ask_coordinator(partition, batch)
        else:
            self._append(partition, batch)

    @property
    def _max_message_bytes(self):
        own = self._broker.max_message_bytes
        return self._cluster.topics[self._key.topic].max_message_bytes if own is None else own

    def _append(self, partition, batch):
        refusal = None
        if self._cluster.on_validate is not None:
            refusal = self._cluster.on_validate(self._key.topic, batch)
        if refusal is not None:
            # Before sequence numbers are looked at, as LogValidator comes before ProducerAppendInfo.
            self._answer.record_errors = [
                topics.BatchIndexAndErrorMessage(row, text) for row, text in refusal.rows.items()
            ]
            self._answer.error_message = refusal.message
            self._finish(refusal.error)
            return
        log = partition.logs[self._broker.node_id]
        error, base_offset = log.check(batch.header, self._cluster.rejects_unknown_producers)
        if error != "NONE":
            self._finish(error)
            return
        if base_offset < 0:
            base_offset = log.append(batch, self._data)
            self._cluster.replication.begin(self._broker, partition)
        self._answer.base_offset = base_offset
        if self._request.acks != -1:
            self._finish("NONE")
            return
        end_offset = base_offset + len(batch.records)
        self._cluster.replication.await_replicas(
            self._broker, self._key, end_offset, self._request.timeout_ms, self._finish
        )

    # --- transactions --------------------------------------------------------------------------

    def _needs_transaction(self, partition, batch):
        """Whether the coordinator is asked: a producer's first batch of a transaction here."""
        transactions = self._cluster.transactions
        if transactions is None or not is_transactional(batch.header):
            return False
        log = partition.logs[self._broker.node_id]
        _, known_offset = log.check(batch.header)
        is_known = known_offset >= 0 or log.is_in_transaction(batch.header)
        return transactions.verifies_partitions and not is_known

    def _ask_coordinator(self, partition, batch):
        """The transaction must have the partition, or from Produce v12 on gets it (KIP-890)."""
        transactions = self._cluster.transactions
        log = partition.logs[self._broker.node_id]
        producer_id = batch.header.producer_id
        self._guard = log.verifications.setdefault(producer_id, object())

        def answered(error):
            if not self._broker.is_up:
                return
            if error != "NONE":
                self._finish(self._as_produce_error(error))
            elif self._is_leader():
                if log.verifications.get(producer_id) is self._guard:
                    self._append(partition, batch)
                else:
                    self._finish("INVALID_TXN_STATE")

        producer = ProducerIdAndEpoch(producer_id, batch.header.producer_epoch)
        transactions.ask_for_partition(
            self._request.transactional_id,
            producer,
            self._key,
            self._whole._version >= _IMPLICIT_ADD_VERSION,
            answered,
        )

    def _as_produce_error(self, error):
        """Source: ``AddPartitionsToTxnManager``, ``ReplicaManager``."""
        version = self._whole._version
        if error == "PRODUCER_FENCED":
            return "INVALID_PRODUCER_EPOCH"
        if error == "TRANSACTION_ABORTABLE":
            return error if version >= _ABORTABLE_VERSION else "INVALID_TXN_STATE"
        is_retriable = error_named(error).retriable
        is_told = error == "CONCURRENT_TRANSACTIONS" and version >= _IMPLICIT_ADD_VERSION
        return "NOT_ENOUGH_REPLICAS" if is_retriable and not is_told else error
