"""Transactions of a simulated cluster: requests to coordinators, from messages to the state machine and
back; the coordinators of all its brokers; and what tests ask.
"""

from __future__ import annotations

import random
import re

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.protocol.messages import transactions
from tests.simulation.broker import LeaderView
from tests.simulation.coordinators import (
    ONGOING,
    STATES,
    TRANSACTION_STATE_TOPIC,
    CoordinatorError,
    TransactionCoordinator,
    TransactionLog,
)

_FENCED_FROM = {22: 4, 24: 2, 26: 2}
"""API key -> first version whose client knows PRODUCER_FENCED."""


def _code(api_key, version, name):
    if name == "PRODUCER_FENCED" and version < _FENCED_FROM[api_key]:
        name = "INVALID_PRODUCER_EPOCH"
    return error_named(name).code


class TransactionRequests:
    """Handlers by request class."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._handlers = {
            transactions.FindCoordinatorRequest: self._find_coordinator,
            transactions.InitProducerIdRequest: self._init_producer_id,
            transactions.AddPartitionsToTxnRequest: self._add_partitions,
            transactions.EndTxnRequest: self._end_txn,
            transactions.DescribeTransactionsRequest: self._describe,
            transactions.ListTransactionsRequest: self._list,
        }

    @property
    def _transactions(self):
        assert self._cluster.transactions is not None, "this cluster has no transactions"
        return self._cluster.transactions

    def _coordinator(self, broker):
        return self._transactions.coordinators[broker.node_id]

    def handle(self, broker, request, version, reply):
        """Answer ``request``; at once, or when what it asks for is durable."""
        self._handlers[type(request)](broker, request, version, reply)

    # --- FindCoordinator -----------------------------------------------------------------------

    def _find_coordinator(self, broker, request, version, reply):
        assert request.key_type == transactions.TRANSACTION_KEY_TYPE
        if version >= transactions.BATCHED_VERSION:
            found = [self._found(broker, key) for key in request.coordinator_keys]
            reply(transactions.FindCoordinatorResponse(coordinators=found))
            return
        one = self._found(broker, request.key)
        reply(
            transactions.FindCoordinatorResponse(
                error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port
            )
        )

    def _found(self, broker, key):
        index = self._transactions.log.partition_for(key)
        view = broker.view.get((TRANSACTION_STATE_TOPIC, index))
        if view is None or view.leader_id not in broker.alive:
            error_code = error_named("COORDINATOR_NOT_AVAILABLE").code
            return transactions.Coordinator(key, -1, "", -1, error_code)
        leader = self._cluster.brokers[view.leader_id]
        return transactions.Coordinator(key, leader.node_id, leader.host, leader.port)

    # --- what changes a transaction ------------------------------------------------------------

    def _init_producer_id(self, broker, request, version, reply):
        def answer(error, producer):
            error_code = _code(request.api_key, version, error)
            reply(
                transactions.InitProducerIdResponse(
                    0, error_code, producer.producer_id, producer.producer_epoch
                )
            )

        error = self._cluster.on_init_producer_id()
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        if error != "NONE":
            answer(error, ProducerIdAndEpoch(-1, -1))
            return
        self._coordinator(broker).init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected, answer
        )

    def _add_partitions(self, broker, request, version, reply):
        keys = [
            TopicPartition(topic.name, index)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        unknown = [key for key in keys if (key.topic, key.partition) not in broker.view]

        def answer(error):
            topics = []
            for topic in request.v3_and_below_topics:
                results = []
                for index in topic.partitions:
                    is_unknown = TopicPartition(topic.name, index) in unknown
                    name = "UNKNOWN_TOPIC_OR_PARTITION" if is_unknown else error
                    error_code = _code(request.api_key, version, name)
                    result = transactions.AddPartitionsToTxnPartitionResult(index, error_code)
                    results.append(result)
                topics.append(transactions.AddPartitionsToTxnTopicResult(topic.name, results))
            reply(transactions.AddPartitionsToTxnResponse(0, topics))

        if unknown:
            answer("OPERATION_NOT_ATTEMPTED")
            return
        producer = ProducerIdAndEpoch(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        self._coordinator(broker).add_partitions(
            request.v3_and_below_transactional_id, producer, frozenset(keys), answer
        )

    def _end_txn(self, broker, request, version, reply):
        def answer(error, producer):
            error_code = _code(request.api_key, version, error)
            reply(
                transactions.EndTxnResponse(
                    0, error_code, producer.producer_id, producer.producer_epoch
                )
            )

        error = self._cluster.on_end_txn(request.transactional_id)
        if error != "NONE":
            answer(error, ProducerIdAndEpoch(-1, -1))
            return
        self._coordinator(broker).end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            request.committed,
            version >= transactions.EPOCH_BUMP_VERSION,
            answer,
        )

    # --- questions -----------------------------------------------------------------------------

    def _describe(self, broker, request, version, reply):
        coordinator = self._coordinator(broker)
        states = []
        for transactional_id in request.transactional_ids:
            try:
                states.append(_described(coordinator.describe(transactional_id)))
            except CoordinatorError as error:
                error_code = error_named(error.name).code
                states.append(transactions.TransactionState(error_code, transactional_id))
        reply(transactions.DescribeTransactionsResponse(0, states))

    def _list(self, broker, request, version, reply):
        coordinator = self._coordinator(broker)
        response = transactions.ListTransactionsResponse(
            unknown_state_filters=[s for s in request.state_filters if s not in STATES]
        )
        try:
            pattern = _java_pattern(request.transactional_id_pattern)
        except re.error:
            response.error_code = error_named("INVALID_REGULAR_EXPRESSION").code
            reply(response)
            return
        if coordinator.is_loading:
            response.error_code = error_named("COORDINATOR_LOAD_IN_PROGRESS").code
            reply(response)
            return
        response.transaction_states = [
            transactions.ListedTransaction(m.transactional_id, m.producer_id, m.state)
            for m in (entry.metadata for entry in coordinator.entries())
            if self._passes(m, request)
            and (pattern is None or pattern.fullmatch(m.transactional_id))
        ]
        reply(response)

    def _passes(self, metadata, request):
        age_ms = self._transactions.timestamp_ms() - metadata.start_ms
        if request.state_filters and metadata.state not in request.state_filters:
            return False
        if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
            return False
        return request.duration_filter < 0 or age_ms > request.duration_filter


def _described(metadata):
    topics = {}
    for topic, index in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(index)
    return transactions.TransactionState(
        0,
        metadata.transactional_id,
        metadata.state,
        metadata.timeout_ms,
        metadata.start_ms if metadata.state == ONGOING or metadata.is_prepared else -1,
        metadata.producer_id,
        metadata.producer_epoch,
        [transactions.TopicData(topic, indexes) for topic, indexes in topics.items()],
    )


def _java_pattern(text):
    """A Java regular expression, as far as quoting goes. Raises re.error for what is none."""
    if not text:
        return None
    quoted = re.sub(
        r"\\Q(.*?)(?:\\E|\Z)", lambda match: re.escape(match.group(1)), text, flags=re.DOTALL
    )
    return re.compile(quoted)


# --- the coordinators of all brokers ------------------------------------------------------------

_SCAN_MS = 10_000


def versions(text):
    """API key -> first and last version."""
    return {
        int(key): (int(first), int(last))
        for key, first, last in re.findall(r"(\d+):(\d+)-(\d+)", text)
    }


KAFKA_4_3 = versions("1:4-18 2:1-11 10:0-6 19:2-7 24:0-5 26:0-5 32:1-4 61:0-0 65:0-0 66:0-2")
"""API key -> versions that transactions and reading need, on brokers of today."""
KAFKA_3_9 = versions(
    "0:0-11 1:0-17 2:0-9 10:0-6 19:0-7 22:0-5 24:0-5 26:0-4 32:0-4 61:0-0 65:0-0 66:0-1"
)
KAFKA_2_1 = versions("0:0-7 1:0-10 2:0-4 3:0-7 10:0-2 18:0-2 19:0-3 22:0-1 24:0-1 26:0-1 32:0-2")


class Transactions:
    """Switched on by :meth:`SimCluster.enable_transactions`.

    ``verifies_partitions``: leaders ask the coordinator before a transaction's first batch; brokers
    before 3.6 do not.
    """

    def __init__(self, cluster, transaction_version, partitions):
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.rng = random.Random(cluster.rng.random())
        self.transaction_version = transaction_version
        self.verifies_partitions = True
        self.max_timeout_ms = 900_000
        # What brokers say; tests let ids expire.
        self.expiration_ms = 7 * 86_400_000
        # Of ids that nobody has used yet.
        self.first_epoch = 0
        self.aborts_raise_twice = False
        # (id, producer id, epoch) of transactions that took too long.
        self.timed_out = set()
        self.load_delay_ms = (0, 50)
        self.marker_delay_ms = (0, 10)
        self.hop_delay_ms = (0, 2)
        # How long a coordinator waits for a partition leader that hangs with a marker.
        self.marker_timeout_ms = 20
        # Until when one is known to wait.
        self.markers_held_until_ms = 0
        # How long a partition leader waits for the coordinator.
        self.partition_patience_ms = 1000
        self.log = TransactionLog(cluster.brokers, partitions, cluster.scheduler, self.rng)
        self.coordinators = {
            node_id: TransactionCoordinator(broker, self)
            for node_id, broker in cluster.brokers.items()
        }
        for broker in cluster.brokers.values():
            self._scan_later(broker, self.rng.randint(0, _SCAN_MS))

    def new_producer_id(self):
        self.cluster.next_producer_id += 1
        return self.cluster.next_producer_id

    def timestamp_ms(self):
        """The brokers' wall clock, which does not jump."""
        return 1_700_000_000_000 + self.scheduler.clock.ms

    def _scan_later(self, broker, delay_ms):
        def scan():
            if broker.is_up and not broker.is_paused:
                self.coordinators[broker.node_id].abort_timed_out()
            self._scan_later(broker, _SCAN_MS)

        self.scheduler.after(delay_ms, scan)

    # --- leadership ----------------------------------------------------------------------------

    def views(self):
        """Leaders of the transaction log, for the brokers to learn of."""
        return {
            (TRANSACTION_STATE_TOPIC, index): LeaderView(p.leader_id, p.leader_epoch)
            for index, p in enumerate(self.log.partitions)
        }

    def move_coordinator(self, transactional_id, to):
        """Another broker leads the id's partition of the transaction log."""
        self.log.partitions[self.log.partition_for(transactional_id)].elect(to)
        self.cluster.publish()

    def coordinator_id(self, transactional_id):
        """Node id of the id's coordinator, NO_LEADER while there is none."""
        return self.log.partitions[self.log.partition_for(transactional_id)].leader_id

    # --- what partition leaders ask ------------------------------------------------------------

    def ask_for_partition(self, transactional_id, producer, key, is_implicit, answered):
        """Whether the transaction has the partition; ``is_implicit``: add it where it has not."""
        is_done = False

        def answer_once(error):
            nonlocal is_done
            if not is_done:
                is_done = True
                self._hop(lambda: answered(error))

        def ask():
            broker = self.cluster.brokers.get(self.coordinator_id(transactional_id))
            if broker is None or not broker.is_up or broker.is_paused:
                return  # nobody answers: see below
            coordinator = self.coordinators[broker.node_id]
            if is_implicit:
                partitions = frozenset((key,))
                coordinator.add_partitions(
                    transactional_id, producer, partitions, answer_once, is_implicit=True
                )
            else:
                answer_once(coordinator.verify_partition(transactional_id, producer, key))

        def give_up():
            answer_once("COORDINATOR_NOT_AVAILABLE")

        self._hop(ask)
        self.scheduler.after(self.partition_patience_ms, give_up)

    def _hop(self, action):
        """From one broker to another."""
        self.scheduler.after(self.rng.randint(*self.hop_delay_ms), action)

    # --- what tests ask ------------------------------------------------------------------------

    def metadata(self, transactional_id):
        """What is durable of a transactional id."""
        return self.log.get(transactional_id)

    def open_ids(self):
        """Transactional ids whose transaction is not complete."""
        return sorted(
            m.transactional_id for m in self.log.all() if m.state == ONGOING or m.is_prepared
        )

    def open_in_logs(self):
        """Partition -> producer id -> first offset of its open transaction."""
        return {
            TopicPartition(name, index): dict(partition.log.open_transactions)
            for name, topic in self.cluster.topics.items()
            for index, partition in enumerate(topic.partitions)
            if partition.log.open_transactions
        }

    def committed(self, topic):
        """What a reader of committed records sees of each partition."""
        partitions = self.cluster.topics[topic].partitions
        return {i: p.log.committed(p.high_watermark) for i, p in enumerate(partitions)}

    def expire(self, transactional_id):
        """The id was not used for ``transactional.id.expiration.ms``: all memory of it is gone."""
        partition = self.log.partitions[self.log.partition_for(transactional_id)]
        partition.durable.pop(transactional_id, None)
        for coordinator in self.coordinators.values():
            coordinator.forget(transactional_id)

    def expire_idle(self, is_wanted=lambda transactional_id: True):
        """Forget the ids without a transaction that nobody is writing to; return their names."""
        entries = [e for c in self.coordinators.values() for e in c.entries()]
        busy = {e.metadata.transactional_id for e in entries if e.pending is not None}
        found = (m for m in self.log.all() if m.state != ONGOING and not m.is_prepared)
        idle = [m.transactional_id for m in found if m.transactional_id not in busy]
        expired = [i for i in idle if is_wanted(i)]
        for transactional_id in expired:
            self.expire(transactional_id)
        return expired
