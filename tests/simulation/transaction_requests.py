"""Requests to transaction coordinators: from messages to the state machine and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages import transactions
from tests.simulation.coordinator import TransactionCoordinator
from tests.simulation.coordinator_checks import CoordinatorError
from tests.simulation.transaction_log import (
    ONGOING,
    STATES,
    TRANSACTION_STATE_TOPIC,
    TransactionMetadata,
)

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import Reply, SimCluster
    from tests.simulation.transactions import Transactions

_FENCED_FROM = {22: 4, 24: 2, 26: 2}
"""API key -> first version whose client knows PRODUCER_FENCED."""


def _code(api_key: int, version: int, name: str) -> int:
    if name == "PRODUCER_FENCED" and version < _FENCED_FROM[api_key]:
        name = "INVALID_PRODUCER_EPOCH"
    return error_named(name).code


class TransactionRequests:
    """Handlers by request class."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._handlers: dict[type[schema.Request], Any] = {
            transactions.FindCoordinatorRequest: self._find_coordinator,
            transactions.InitProducerIdRequest: self._init_producer_id,
            transactions.AddPartitionsToTxnRequest: self._add_partitions,
            transactions.EndTxnRequest: self._end_txn,
            transactions.DescribeTransactionsRequest: self._describe,
            transactions.ListTransactionsRequest: self._list,
        }

    @property
    def _transactions(self) -> Transactions:
        assert self._cluster.transactions is not None, "this cluster has no transactions"
        return self._cluster.transactions

    def _coordinator(self, broker: SimBroker) -> TransactionCoordinator:
        return self._transactions.coordinators[broker.node_id]

    def handle(
        self, broker: SimBroker, request: schema.Request, version: int, reply: Reply
    ) -> None:
        """Answer ``request``; at once, or when what it asks for is durable."""
        self._handlers[type(request)](broker, request, version, reply)

    # --- FindCoordinator -----------------------------------------------------------------------

    def _find_coordinator(
        self,
        broker: SimBroker,
        request: transactions.FindCoordinatorRequest,
        version: int,
        reply: Reply,
    ) -> None:
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

    def _found(self, broker: SimBroker, key: str) -> transactions.Coordinator:
        index = self._transactions.log.partition_for(key)
        view = broker.view.get((TRANSACTION_STATE_TOPIC, index))
        if view is None or view.leader_id not in broker.alive:
            error_code = error_named("COORDINATOR_NOT_AVAILABLE").code
            return transactions.Coordinator(key, -1, "", -1, error_code)
        leader = self._cluster.brokers[view.leader_id]
        return transactions.Coordinator(key, leader.node_id, leader.host, leader.port)

    # --- what changes a transaction ------------------------------------------------------------

    def _init_producer_id(
        self,
        broker: SimBroker,
        request: transactions.InitProducerIdRequest,
        version: int,
        reply: Reply,
    ) -> None:
        def answer(error: str, producer: ProducerIdAndEpoch) -> None:
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
        assert request.transactional_id is not None
        self._coordinator(broker).init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected, answer
        )

    def _add_partitions(
        self,
        broker: SimBroker,
        request: transactions.AddPartitionsToTxnRequest,
        version: int,
        reply: Reply,
    ) -> None:
        keys = [
            TopicPartition(topic.name, index)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        unknown = [key for key in keys if (key.topic, key.partition) not in broker.view]

        def answer(error: str) -> None:
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

    def _end_txn(
        self, broker: SimBroker, request: transactions.EndTxnRequest, version: int, reply: Reply
    ) -> None:
        def answer(error: str, producer: ProducerIdAndEpoch) -> None:
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

    def _describe(
        self,
        broker: SimBroker,
        request: transactions.DescribeTransactionsRequest,
        version: int,
        reply: Reply,
    ) -> None:
        coordinator = self._coordinator(broker)
        states = []
        for transactional_id in request.transactional_ids:
            try:
                states.append(_described(coordinator.describe(transactional_id)))
            except CoordinatorError as error:
                error_code = error_named(error.name).code
                states.append(transactions.TransactionState(error_code, transactional_id))
        reply(transactions.DescribeTransactionsResponse(0, states))

    def _list(
        self,
        broker: SimBroker,
        request: transactions.ListTransactionsRequest,
        version: int,
        reply: Reply,
    ) -> None:
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

    def _passes(
        self, metadata: TransactionMetadata, request: transactions.ListTransactionsRequest
    ) -> bool:
        age_ms = self._transactions.timestamp_ms() - metadata.start_ms
        if request.state_filters and metadata.state not in request.state_filters:
            return False
        if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
            return False
        return request.duration_filter < 0 or age_ms > request.duration_filter


def _described(metadata: TransactionMetadata) -> transactions.TransactionState:
    topics: dict[str, list[int]] = {}
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


def _java_pattern(text: str | None) -> re.Pattern[str] | None:
    """A Java regular expression, as far as quoting goes. Raises re.error for what is none."""
    if not text:
        return None
    quoted = re.sub(
        r"\\Q(.*?)(?:\\E|\Z)", lambda match: re.escape(match.group(1)), text, flags=re.DOTALL
    )
    return re.compile(quoted)
