"""How a simulated broker appends: produce requests, transactions among them, and replication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import ZERO_UUID, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.protocol.messages import topics
from tests import twin
from tests.simulation.partition import Partition, Waiter
from tests.simulation.partition_log import is_transactional

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import Reply, SimCluster

_FOLLOWERS_POLL_MS = 50
_IMPLICIT_ADD_VERSION = 12
_ABORTABLE_VERSION = 11

Finish = Callable[[str], None]


class Replication:
    """A leader's appends reach its followers; whoever waits for them is told."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def begin(self, broker: SimBroker, partition: Partition) -> None:
        """Followers fetch what ``broker`` has just appended, each a little later."""
        for follower_id in partition.isr - {broker.node_id}:
            delay_ms = self._cluster.rng.randint(*self._cluster.replication_delay_ms)
            self._cluster.scheduler.after(delay_ms, lambda f=follower_id: self._fetch(partition, f))

    def await_replicas(
        self,
        broker: SimBroker,
        key: TopicPartition,
        end_offset: int,
        timeout_ms: int,
        finish: Finish,
    ) -> None:
        """Tell ``finish`` once, when the in-sync replicas have everything before ``end_offset``."""
        partition = self._cluster.partition(key)
        epoch = broker.view[key.topic, key.partition].leader_epoch
        is_answered = False

        def answer_once(error: str) -> None:
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

    def _fetch(self, partition: Partition, follower_id: int) -> None:
        follower = self._cluster.brokers[follower_id]
        leader = self._cluster.brokers.get(partition.leader_id)
        if follower.is_up and not follower.is_paused and leader is not None and leader.is_up:
            partition.replicate(follower_id)

    def _poll_followers(
        self, broker: SimBroker, partition: Partition, is_done: Callable[[], bool]
    ) -> None:
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

    def __init__(
        self,
        cluster: SimCluster,
        broker: SimBroker,
        request: topics.ProduceRequest,
        version: int,
        reply: Reply,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._request = request
        self._version = version
        self._reply = reply
        self._open = 1
        self._answers: list[topics.TopicProduceResponse] = []

    def run(self) -> None:
        self._broker.produce_requests += 1
        for data in self._request.topic_data:
            name = data.name or self._name_of(data.topic_id)
            topic_id = data.topic_id if not data.name else ZERO_UUID
            answer = topics.TopicProduceResponse(data.name, topic_id, [])
            self._answers.append(answer)
            for partition in data.partition_data:
                assert partition.records is not None
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

    def decided(self) -> None:
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

    def _omit_some(self) -> None:
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

    def _name_of(self, topic_id: UUID) -> str:
        return next((n for n, t in self._cluster.topics.items() if t.topic_id == topic_id), "")


class _Append:
    """One batch of a produce request: its checks, one after the other, then the append."""

    def __init__(
        self,
        whole: Produce,
        key: TopicPartition,
        data: bytes,
        answer: topics.PartitionProduceResponse,
    ) -> None:
        self._whole = whole
        self._cluster = whole._cluster
        self._broker = whole._broker
        self._request = whole._request
        self._key = key
        self._data = data
        self._answer = answer
        self._guard: object | None = None

    def _finish(self, error: str) -> None:
        self._answer.error_code = error_named(error).code
        if error != "NONE":
            self._answer.base_offset = -1
        self._whole.decided()

    def run(self) -> None:
        if self._is_leader():
            self._append_as_leader()

    def _is_leader(self) -> bool:
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

    def _append_as_leader(self) -> None:
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
    def _max_message_bytes(self) -> int:
        own = self._broker.max_message_bytes
        return self._cluster.topics[self._key.topic].max_message_bytes if own is None else own

    def _append(self, partition: Partition, batch: twin.RecordBatch) -> None:
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

    def _needs_transaction(self, partition: Partition, batch: twin.RecordBatch) -> bool:
        """Whether the coordinator is asked: a producer's first batch of a transaction here."""
        transactions = self._cluster.transactions
        if transactions is None or not is_transactional(batch.header):
            return False
        log = partition.logs[self._broker.node_id]
        _, known_offset = log.check(batch.header)
        is_known = known_offset >= 0 or log.is_in_transaction(batch.header)
        return transactions.verifies_partitions and not is_known

    def _ask_coordinator(self, partition: Partition, batch: twin.RecordBatch) -> None:
        """The transaction must have the partition, or from Produce v12 on gets it (KIP-890)."""
        transactions = self._cluster.transactions
        assert transactions is not None
        assert self._request.transactional_id is not None
        log = partition.logs[self._broker.node_id]
        producer_id = batch.header.producer_id
        self._guard = log.verifications.setdefault(producer_id, object())

        def answered(error: str) -> None:
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

    def _as_produce_error(self, error: str) -> str:
        """Source: ``AddPartitionsToTxnManager``, ``ReplicaManager``."""
        version = self._whole._version
        if error == "PRODUCER_FENCED":
            return "INVALID_PRODUCER_EPOCH"
        if error == "TRANSACTION_ABORTABLE":
            return error if version >= _ABORTABLE_VERSION else "INVALID_TXN_STATE"
        is_retriable = error_named(error).retriable
        is_told = error == "CONCURRENT_TRANSACTIONS" and version >= _IMPLICIT_ADD_VERSION
        return "NOT_ENOUGH_REPLICAS" if is_retriable and not is_told else error
