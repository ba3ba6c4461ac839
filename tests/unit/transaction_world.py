"""A transaction manager, and brokers that answer it as a test says."""

from __future__ import annotations

import random
from collections.abc import Iterator

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    error_named,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    Backoffs,
    RequestRetrier,
    TransactionManager,
    TransactionSettings,
)
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.topics import MetadataResponse, MetadataResponseBroker
from spark_kafka_sink.protocol.messages.transactions import (
    BATCHED_VERSION,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.time import SimClock
from tests.unit.batches import NODES
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork

NAME, TIMEOUT_MS = "flights.0", 60_000
RETRY_BACKOFF_MS = 100
OFFERED = {
    FindCoordinatorRequest: (0, 6),
    InitProducerIdRequest: (0, 5),
    AddPartitionsToTxnRequest: (0, 5),
    DescribeTransactionsRequest: (0, 0),
}
LOST = "the connection is lost"


class NoJitter:
    def random(self) -> float:
        return 0.5


class World:
    """A manager with its client, and brokers of which the script of each API is a list of errors.

    ``scripts``: what the next requests of a kind meet, ``NONE`` when used up. ``coordinator``: who
    brokers say it is.
    """

    def __init__(self, transaction_version: int = 2) -> None:
        self.clock = SimClock()
        self.scripts: dict[type[schema.Request], Iterator[str]] = {}
        self.partition_errors: Iterator[dict[TopicPartition, str]] = iter(())
        self.coordinator = 2
        self.queued: list[TopicPartition] = []
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, OFFERED)
        if transaction_version:
            self.network.features["transaction.version"] = transaction_version
        settings = ClientSettings("test", 30_000, 5, 50, 1_000, 10_000, 30_000, 540_000)
        self.client = NetworkClient(settings, self.network, self.clock, random.Random(1))
        backoff = ExponentialBackoff(RETRY_BACKOFF_MS, 1_000, NoJitter())
        brokers = [MetadataResponseBroker(*node[:3]) for node in NODES.values()]
        self.metadata = Metadata(
            [(node.host, node.port) for node in NODES.values()],
            MetadataSettings(300_000, 300_000, True, 300_000),
            backoff,
        )
        self.metadata.update(MetadataResponse(brokers=brokers), self.clock.ms, True)
        concurrent = ExponentialBackoff(CONCURRENT_TRANSACTIONS_BACKOFF_MS, 1_000, NoJitter())
        self._backoffs = backoffs = Backoffs(backoff, concurrent)
        self.manager = TransactionManager(
            TransactionSettings(NAME, TIMEOUT_MS),
            self.client,
            self.metadata,
            lambda: self.queued,
            self.asking(),
            backoffs,
        )

    def asking(self) -> RequestRetrier:
        return RequestRetrier(self.client, self._backoffs, transaction_advice_for)

    @property
    def failures(self) -> list[Exception]:
        return [] if self.manager.failure is None else [self.manager.failure]

    @property
    def state(self):
        return self.manager.state

    def script(self, request_type: type[schema.Request], *errors: str) -> None:
        self.scripts[request_type] = iter(errors)

    def run(self, rounds: int = 60) -> None:
        """As the sender does: ask, then wait for the network, until nothing is to be done."""
        for _ in range(rounds):
            if self.failures or not self.is_needed:
                return
            wait_ms = self.manager.maybe_request(self.clock.ms)
            self.client.poll(1_000 if wait_ms is None else wait_ms, self.clock.ms)

    @property
    def is_needed(self) -> bool:
        missing = set(self.queued) - self.state.partitions
        return not self.state.has_producer_id or bool(self.state.adds_partitions and missing)

    def asked(self, request_type: type[schema.Request]) -> list[Asked]:
        return [a for a in self.network.asked if isinstance(a.request, request_type)]

    def _answer(self, asked: Asked) -> schema.Message:
        error = next(self.scripts.get(type(asked.request), iter(())), "NONE")
        if error == LOST:
            raise LoseConnection
        code = error_named(error).code
        if isinstance(asked.request, FindCoordinatorRequest):
            return self._found(asked, code)
        if isinstance(asked.request, InitProducerIdRequest):
            epoch = len(self.asked(InitProducerIdRequest))
            return InitProducerIdResponse(0, code, -1 if code else 4000, -1 if code else epoch)
        if isinstance(asked.request, AddPartitionsToTxnRequest):
            return self._added(asked.request, error)
        return self._answer_other(asked, code)

    def _answer_other(self, asked: Asked, code: int) -> schema.Message:
        raise AssertionError(f"nobody asks {asked.request}")

    def _found(self, asked: Asked, code: int) -> FindCoordinatorResponse:
        node = NODES[self.coordinator]
        address = (-1, "", -1) if code else (node.node_id, node.host, node.port)
        if asked.version >= BATCHED_VERSION:
            (key,) = asked.request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(key, *address, code)])
        return FindCoordinatorResponse(0, code, None, *address)

    def _added(self, request: AddPartitionsToTxnRequest, error: str) -> AddPartitionsToTxnResponse:
        errors = next(self.partition_errors, {})
        other = "OPERATION_NOT_ATTEMPTED" if errors else error
        return AddPartitionsToTxnResponse(
            0,
            [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [
                        AddPartitionsToTxnPartitionResult(
                            index,
                            error_named(errors.get(TopicPartition(topic.name, index), other)).code,
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ],
        )
