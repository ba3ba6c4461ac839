"""The way into a transaction: coordinator, producer id, partitions, and what stands in it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    BrokerError,
    UnsupportedVersionError,
    error_named,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import PreparedTransaction, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.settings import ClientSettings
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings
from spark_kafka_sink.producer.repeated_request import Backoffs, RepeatedRequest
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    TransactionManager,
    TransactionSettings,
)
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from spark_kafka_sink.protocol.messages.find_coordinator import (
    BATCHED_VERSION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.simulation.time import SimClock
from tests.unit.batches import NODES, T0, T1, T2, make_batch
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork

NAME, TIMEOUT_MS = "flights.0", 60_000
RETRY_BACKOFF_MS = 100
OFFERED = {
    FindCoordinatorRequest: (0, 6),
    InitProducerIdRequest: (0, 5),
    AddPartitionsToTxnRequest: (0, 5),
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
        self.failures: list[Exception] = []
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
        backoffs = Backoffs(backoff, concurrent)
        self.manager = TransactionManager(
            TransactionSettings(NAME, TIMEOUT_MS),
            self.client,
            self.metadata,
            lambda: self.queued,
            RepeatedRequest(self.client, backoffs, self.failures.append, transaction_advice_for),
            backoffs,
        )

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
        assert isinstance(asked.request, AddPartitionsToTxnRequest)
        return self._added(asked.request, error)

    def _found(self, asked: Asked, code: int) -> FindCoordinatorResponse:
        node = NODES[self.coordinator]
        address = (-1, "", -1) if code else (node.node_id, node.host, node.port)
        if asked.version >= BATCHED_VERSION:
            return FindCoordinatorResponse(coordinators=[Coordinator(NAME, *address, code)])
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


# --- the straight way -----------------------------------------------------------------------------


def test_the_coordinator_gives_the_id_a_producer_id():
    world = World()
    assert world.state.transaction is None
    assert world.state.must_wait(make_batch())
    world.run()
    [found] = world.asked(FindCoordinatorRequest)
    assert (found.version, found.request) == (6, FindCoordinatorRequest("", 1, [NAME]))
    [begun] = world.asked(InitProducerIdRequest)
    assert (begun.node_id, begun.version) == (2, 5)
    assert begun.request == InitProducerIdRequest(NAME, TIMEOUT_MS, -1, -1)
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 1, 2)
    assert world.state.producer == ProducerIdAndEpoch(4000, 1)
    assert not world.state.must_wait(make_batch())
    assert world.manager.maybe_request(world.clock.ms) is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_brokers_are_asked_for_one_coordinator(version):
    world = World(transaction_version=0)
    world.network.offered[FindCoordinatorRequest] = (0, version)
    world.run()
    [found] = world.asked(FindCoordinatorRequest)
    assert (found.version, found.request) == (version, FindCoordinatorRequest(NAME, 1, []))
    assert world.state.has_producer_id


def test_brokers_without_transactions_are_refused():
    world = World()
    world.network.offered[FindCoordinatorRequest] = (0, 0)
    world.run()
    [failure] = world.failures
    assert isinstance(failure, UnsupportedVersionError)
    assert "FindCoordinator" in str(failure)


# --- partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_partitions_are_added_before_their_first_batch(transaction_version):
    """What brokers offer does not count: they offer version 5 of AddPartitionsToTxn as well."""
    world = World(transaction_version)
    world.queued = [T0, T2]
    world.run()
    [added] = world.asked(AddPartitionsToTxnRequest)
    assert (added.node_id, added.version) == (2, 3)
    request = added.request
    assert isinstance(request, AddPartitionsToTxnRequest)
    assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id) == (NAME, 4000)
    assert request.v3_and_below_producer_epoch == 1
    assert [(t.name, t.partitions) for t in request.v3_and_below_topics] == [("t", [0, 2])]
    assert not world.state.must_wait(make_batch(T0))
    assert world.state.must_wait(make_batch(T1))
    world.queued = [T0, T1]
    world.run()
    assert len(world.asked(AddPartitionsToTxnRequest)) == 2
    assert world.state.partitions == {T0, T1, T2}
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 1, transaction_version)


def test_produce_requests_add_partitions_by_themselves_from_transaction_version_2_on():
    world = World(transaction_version=2)
    world.queued = [T0, T1]
    world.run()
    assert not world.asked(AddPartitionsToTxnRequest)
    assert not world.state.must_wait(make_batch(T1))


@pytest.mark.parametrize(
    "error", ["UNKNOWN_TOPIC_OR_PARTITION", "CONCURRENT_TRANSACTIONS", "OPERATION_NOT_ATTEMPTED"]
)
def test_one_partition_that_is_not_ready_keeps_all_waiting_and_is_asked_for_again(error):
    world = World(transaction_version=1)
    world.queued = [T0, T1, T2]
    world.partition_errors = iter([{T1: error}] * 2)
    world.run()
    assert len(world.asked(AddPartitionsToTxnRequest)) == 3
    assert world.state.partitions == {T0, T1, T2}
    assert not world.failures
    assert world.manager.last_failure is None


def test_a_partition_that_may_not_be_written_to_fails_the_task():
    """Even if another one's error would pass."""
    world = World(transaction_version=1)
    world.queued = [T0, T1, T2]
    errors = {T0: "UNKNOWN_TOPIC_OR_PARTITION", T2: "TOPIC_AUTHORIZATION_FAILED"}
    world.partition_errors = iter([errors])
    world.run()
    [failure] = world.failures
    for part in (NAME, "t-2", "TOPIC_AUTHORIZATION_FAILED", "grant the principal"):
        assert part in str(failure)
    assert not world.state.partitions


def test_an_answer_that_leaves_a_partition_out_does_not_count_for_it():
    world = World(transaction_version=1)
    world.queued = [T0]
    answers = iter([AddPartitionsToTxnResponse()])
    added = world._added
    world._added = lambda request, error: next(answers, None) or added(request, error)
    world.run(rounds=7)
    started_ms = world.clock.ms
    assert world.state.must_wait(make_batch(T0))
    world.run()
    assert world.state.partitions == {T0}
    assert world.clock.ms > started_ms


# --- what passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT", LOST],
)
def test_finding_the_coordinator_is_tried_again(error):
    world = World()
    world.script(FindCoordinatorRequest, *[error] * 3)
    started_ms = world.clock.ms
    world.run()
    assert len(world.asked(FindCoordinatorRequest)) == 4
    assert world.clock.ms - started_ms >= 100 + 200 + 400
    assert world.state.has_producer_id


@pytest.mark.parametrize("request_type", [InitProducerIdRequest, AddPartitionsToTxnRequest])
@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", LOST])
def test_a_coordinator_that_moved_is_looked_up_again(request_type, error):
    world = World(transaction_version=1)
    world.script(request_type, error)
    world.run()
    if request_type is AddPartitionsToTxnRequest:
        world.queued = [T0]
    world.coordinator = 3
    world.run()
    asked = [a.node_id for a in world.asked(request_type)]
    assert asked[0] == 2
    assert asked[-1] == (2 if request_type is InitProducerIdRequest else 3)
    assert len(asked) == 2
    assert len(world.asked(FindCoordinatorRequest)) == 2
    assert not world.failures


def test_a_coordinator_that_loads_is_asked_again():
    world = World()
    world.script(InitProducerIdRequest, *["COORDINATOR_LOAD_IN_PROGRESS"] * 2)
    world.run()
    assert [a.node_id for a in world.asked(InitProducerIdRequest)] == [2, 2, 2]
    assert len(world.asked(FindCoordinatorRequest)) == 1


def test_a_coordinator_that_died_is_looked_up_again_until_another_takes_over():
    world = World(transaction_version=1)
    world.run()
    world.network.lose(2)
    world.queued = [T0]
    world.run(rounds=30)
    assert world.state.must_wait(make_batch(T0))
    assert not world.failures
    failure = world.manager.last_failure or ""
    for part in (NAME, "coordinator", "broker 2", "Connection refused"):
        assert part in failure
    world.coordinator = 1
    world.run()
    assert [a.node_id for a in world.asked(AddPartitionsToTxnRequest)] == [1]
    assert world.state.partitions == {T0}
    assert world.manager.last_failure is None


def test_a_previous_transaction_that_is_being_ended_is_waited_for_shortly():
    world = World()
    world.script(InitProducerIdRequest, *["CONCURRENT_TRANSACTIONS"] * 2)
    started_ms = world.clock.ms
    world.run()
    assert 20 + 40 <= world.clock.ms - started_ms < 100
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 3, 2)


def test_a_conflict_that_lasts_is_asked_about_less_and_less_often():
    world = World()
    world.script(InitProducerIdRequest, *["CONCURRENT_TRANSACTIONS"] * 30)
    started_ms = world.clock.ms
    world.run(rounds=200)
    assert world.state.has_producer_id
    assert world.clock.ms - started_ms > 20_000


# --- what does not pass ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_type", "error", "advice"),
    [
        (FindCoordinatorRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant the principal"),
        (FindCoordinatorRequest, "INVALID_REQUEST", ""),
        (InitProducerIdRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional id"),
        (InitProducerIdRequest, "CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE"),
        (InitProducerIdRequest, "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"),
        (InitProducerIdRequest, "PRODUCER_FENCED", "somebody else"),
        (InitProducerIdRequest, "INVALID_PRODUCER_EPOCH", "somebody else"),
        (InitProducerIdRequest, "UNSUPPORTED_VERSION", "upgrade"),
        (AddPartitionsToTxnRequest, "PRODUCER_FENCED", "transactional.id.prefix"),
        (AddPartitionsToTxnRequest, "INVALID_PRODUCER_EPOCH", "kafka.transaction.timeout.ms"),
        (AddPartitionsToTxnRequest, "INVALID_TXN_STATE", "Let the batch run again"),
        (AddPartitionsToTxnRequest, "INVALID_PRODUCER_ID_MAPPING", "has forgotten it"),
        (AddPartitionsToTxnRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant"),
        (AddPartitionsToTxnRequest, "TRANSACTION_ABORTABLE", "aborted"),
    ],
)
def test_errors_that_do_not_pass_fail_the_task_and_say_what_to_do(request_type, error, advice):
    world = World(transaction_version=1)
    world.queued = [T0]
    world.script(request_type, error)
    world.run()
    [failure] = world.failures
    assert isinstance(failure, BrokerError)
    assert failure.error is error_named(error)
    for part in (f"transaction {NAME}", error, "broker ", advice):
        assert part in str(failure)
    assert len(world.asked(request_type)) == 1


# --- batches --------------------------------------------------------------------------------------


def test_batches_carry_the_transaction():
    world = World()
    world.run()
    batch = make_batch(T0, 3)
    world.state.assign_sequence(batch)
    assert (batch.transactional_id, batch.producer) == (NAME, world.state.producer)
    batch.seal()
    assert batch.buffers[0][22] & 0x10


@pytest.mark.parametrize(
    ("error", "log_start_offset", "expected"),
    [
        ("UNKNOWN_PRODUCER_ID", -1, True),
        ("UNKNOWN_PRODUCER_ID", 0, False),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 0, False),
        ("CONCURRENT_TRANSACTIONS", 0, True),
        ("NOT_LEADER_OR_FOLLOWER", 0, True),
        ("INVALID_PRODUCER_EPOCH", 0, False),
        ("PRODUCER_FENCED", 0, False),
        ("INVALID_TXN_STATE", 0, False),
        ("TRANSACTION_ABORTABLE", 0, False),
    ],
)
def test_nothing_that_needs_a_new_epoch_is_retried(error, log_start_offset, expected):
    world = World()
    world.run()
    batch = make_batch(T0)
    world.state.assign_sequence(batch)
    transaction = world.state.transaction
    assert world.state.can_retry(batch, error_named(error), log_start_offset) is expected
    world.state.bump_epoch_if_needed()
    assert world.state.transaction == transaction
    assert world.state.producer == ProducerIdAndEpoch(4000, 1)


def test_a_batch_behind_one_that_failed_is_retried():
    world = World()
    world.run()
    first, second = make_batch(T0), make_batch(T0)
    world.state.assign_sequence(first)
    world.state.assign_sequence(second)
    assert world.state.can_retry(second, error_named("OUT_OF_ORDER_SEQUENCE_NUMBER"), 0)
