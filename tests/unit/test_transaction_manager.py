"""How a transaction of the producer begins: coordinator, producer id, partitions, the check of its
token; what its batches carry, and which errors pass.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_kafka_sink.base import model
from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    BrokerError,
    SupersededError,
    TransactionError,
    UnsupportedVersionError,
    error_named,
    transaction_advice_for,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.network.node_connection import HEAD_START_MS
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    Backoffs,
    CheckedTransaction,
    ProducerIdentities,
    ProducerIdRequester,
    RequestRetrier,
    TokenCheck,
    TransactionManager,
    TransactionSettings,
)
from spark_kafka_sink.protocol.messages.transactions import (
    BATCHED_VERSION,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionState,
)
from tests.simulation.time import SimClock
from tests.tables import each_row
from tests.unit.batches import NODES, T0, T1, T2, answer_of_all_nodes, make_batch
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork, Silence
from tests.unit.simulated_time import NO_JITTER

NAME, TIMEOUT_MS = "flights.0", 60_000
RETRY_BACKOFF_MS = 100
OFFERED = {
    FindCoordinatorRequest: (0, 6),
    InitProducerIdRequest: (0, 5),
    AddPartitionsToTxnRequest: (0, 5),
    DescribeTransactionsRequest: (0, 0),
}
LOST = "the connection is lost"
OUT_OF_ORDER = error_named("OUT_OF_ORDER_SEQUENCE_NUMBER")


class World:
    """A manager with its client, and brokers of which the script of each API is a list of errors.

    ``scripts``: what the next requests of a kind meet, ``NONE`` when used up. ``coordinator``: the
    one that brokers name. ``queued``: partitions of the accumulator.
    """

    def __init__(self, transaction_version=2, queued=()):
        self.clock = SimClock()
        self.scripts = {}
        self.partition_errors = iter(())
        self.coordinator = 2
        self.queued = list(queued)
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, OFFERED)
        if transaction_version:
            self.network.features["transaction.version"] = transaction_version
        settings = ClientSettings("test", 30_000, 5, 50, 1_000, 10_000, 30_000, 540_000)
        self.client = NetworkClient(settings, self.network, self.clock, random.Random(1))
        backoff = ExponentialBackoff(RETRY_BACKOFF_MS, 1_000, NO_JITTER)
        addresses = [(node.host, node.port) for node in NODES.values()]
        ages = MetadataSettings(300_000, 300_000, True, 300_000)
        self.metadata = Metadata(addresses, ages, backoff)
        self.metadata.update(answer_of_all_nodes(), self.clock.ms, True)
        concurrent = ExponentialBackoff(CONCURRENT_TRANSACTIONS_BACKOFF_MS, 1_000, NO_JITTER)
        self._backoffs = Backoffs(backoff, concurrent)
        self.manager = TransactionManager(
            TransactionSettings(NAME, TIMEOUT_MS),
            self.client,
            self.metadata,
            lambda: self.queued,
            self.asking(),
            self._backoffs,
        )

    def asking(self):
        return RequestRetrier(self.client, self._backoffs, transaction_advice_for)

    @property
    def failures(self):
        return [] if self.manager.failure is None else [self.manager.failure]

    @property
    def state(self):
        return self.manager.state

    def script(self, request_type, *errors):
        self.scripts[request_type] = iter(errors)

    def run(self, rounds=60):
        """As the sender does: ask, then wait for the network, until nothing is to be done."""
        for _ in range(rounds):
            if self.failures or not self.is_needed:
                return self
            self.poll(self.manager.maybe_request(self.clock.ms))
        return self

    def poll(self, wait_ms):
        self.client.poll(1_000 if wait_ms is None else wait_ms, self.clock.ms)

    @property
    def is_needed(self):
        missing = set(self.queued) - self.state.partitions
        return not self.state.has_producer_id or bool(self.state.adds_partitions and missing)

    def asked(self, request_type):
        return [a for a in self.network.asked if isinstance(a.request, request_type)]

    def _answer(self, asked):
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

    def _answer_other(self, asked, code):
        raise AssertionError(f"nobody asks {asked.request}")

    def _found(self, asked, code):
        node = NODES[self.coordinator]
        address = (-1, "", -1) if code else (node.node_id, node.host, node.port)
        if asked.version >= BATCHED_VERSION:
            (key,) = asked.request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(key, *address, code)])
        return FindCoordinatorResponse(0, code, None, *address)

    def _added(self, request, error):
        errors = next(self.partition_errors, {})
        other = "OPERATION_NOT_ATTEMPTED" if errors else error

        def result(name, index):
            found = errors.get(model.TopicPartition(name, index), other)
            return AddPartitionsToTxnPartitionResult(index, error_named(found).code)

        topics = [
            AddPartitionsToTxnTopicResult(t.name, [result(t.name, n) for n in t.partitions])
            for t in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(0, topics)


def numbered(world, topic_partition=T0):
    batch = make_batch(topic_partition)
    world.state.assign_sequence(batch)
    return batch


# --- the straight way -----------------------------------------------------------------------------


def test_the_coordinator_gives_the_id_a_producer_id():
    world = World()
    assert world.state.transaction is None
    assert world.state.must_wait(make_batch())
    world.run()
    [begun] = world.asked(InitProducerIdRequest)
    assert (begun.node_id, begun.request) == (2, InitProducerIdRequest(NAME, TIMEOUT_MS, -1, -1))
    assert world.state.transaction == model.PreparedTransaction(NAME, 4000, 1, 2)
    assert not world.state.must_wait(make_batch())
    assert world.manager.maybe_request(world.clock.ms) is None


def test_a_producer_id_whose_epochs_could_run_out_is_exchanged():
    """With a transaction open at the last epoch, some brokers can never end it."""
    world = World()
    given = iter([model.ProducerIdAndEpoch(4000, 32_766), model.ProducerIdAndEpoch(4001, 0)])
    answer = world.network._script

    def script(asked):
        if isinstance(asked.request, InitProducerIdRequest):
            return InitProducerIdResponse(0, 0, *next(given))
        return answer(asked)

    world.network._script = script
    assert world.run().state.producer == model.ProducerIdAndEpoch(4001, 0)


def test_brokers_without_transactions_are_refused():
    world = World()
    world.network.offered[FindCoordinatorRequest] = (0, 0)
    [failure] = world.run().failures
    assert isinstance(failure, UnsupportedVersionError)
    assert "FindCoordinator" in str(failure)


# --- partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", ["UNKNOWN_TOPIC_OR_PARTITION", "CONCURRENT_TRANSACTIONS", "OPERATION_NOT_ATTEMPTED"]
)
def test_one_partition_that_is_not_ready_keeps_all_waiting_and_is_asked_for_again(error):
    world = World(1, [T0, T1, T2])
    world.partition_errors = iter([{T1: error}] * 2)
    world.run()
    assert len(world.asked(AddPartitionsToTxnRequest)) == 3
    assert (world.state.partitions, world.failures) == ({T0, T1, T2}, [])
    # A topic that is not known there may not be as it was.
    is_looked_at = world.metadata.time_to_next_update_ms(world.clock.ms) == 0
    assert is_looked_at is (error == "UNKNOWN_TOPIC_OR_PARTITION")
    assert world.manager.last_failure is None
    assert world.manager.maybe_request(world.clock.ms) is None  # what is added stays so
    world.client.poll(0, world.clock.ms)
    assert len(world.asked(AddPartitionsToTxnRequest)) == 3


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "log_start_offset", "expected"),
    [
        ("UNKNOWN_PRODUCER_ID", -1, True),
        ("UNKNOWN_PRODUCER_ID", 0, False),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 0, False),
        ("NOT_LEADER_OR_FOLLOWER", 0, True),
        ("TRANSACTION_ABORTABLE", 0, False),
    ],
)
def test_nothing_that_needs_a_new_epoch_is_retried(error, log_start_offset, expected):
    world = World().run()
    batch, transaction = numbered(world), world.state.transaction
    assert world.state.can_retry(batch, error_named(error), log_start_offset) is expected
    assert world.state.can_retry(numbered(world), OUT_OF_ORDER, 0)  # behind one that failed
    world.state.bump_epoch_if_needed()
    assert world.state.transaction == transaction


# --- errors that pass -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", LOST],
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
    assert asked == [2, 2 if request_type is InitProducerIdRequest else 3]
    assert len(world.asked(FindCoordinatorRequest)) == 2
    assert not world.failures


def test_a_coordinator_that_loads_is_asked_again():
    world = World()
    world.script(InitProducerIdRequest, *["COORDINATOR_LOAD_IN_PROGRESS"] * 2)
    world.run()
    assert [a.node_id for a in world.asked(InitProducerIdRequest)] == [2, 2, 2]
    assert len(world.asked(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(("count", "least_ms", "most_ms"), [(2, 60, 99), (30, 20_001, 60_000)])
def test_a_previous_transaction_that_is_being_ended_is_asked_about_less_and_less_often(
    count, least_ms, most_ms
):
    world = World()
    world.script(InitProducerIdRequest, *["CONCURRENT_TRANSACTIONS"] * count)
    started_ms = world.clock.ms
    world.run(rounds=200)
    assert world.state.transaction == model.PreparedTransaction(NAME, 4000, count + 1, 2)
    assert least_ms <= world.clock.ms - started_ms <= most_ms


def test_pauses_grow_and_are_short_again_after_a_success():
    for error in map(error_named, ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS")):
        asking, pauses = World().asking(), []
        for count in range(4):
            if count == 3:
                asking.succeed()
                assert asking.last_failure is None
            asking.handle_error("no answer", error, None, 0)
            pauses.append(asking.pause_ms(0))
        assert pauses[0] < pauses[1] < pauses[2]
        assert pauses[3] == pauses[0]


def test_a_coordinator_that_cannot_be_reached_is_looked_for_after_the_pause():
    world = World()
    world.network.down.add(2)
    wait_ms = None
    while world.manager.last_failure is None:
        wait_ms = world.manager.maybe_request(world.clock.ms)
        world.poll(wait_ms)
    assert "cannot be reached" in world.manager.last_failure
    assert wait_ms is not None
    assert 0 < wait_ms <= 2 * RETRY_BACKOFF_MS


def test_a_coordinator_that_asks_for_a_pause_is_not_lost():
    world = World()
    found = world._found

    def with_pause(asked, code):
        world.coordinator = asked.node_id
        return replace(found(asked, code), throttle_time_ms=500)

    world._found = with_pause
    world.run()
    assert world.state.has_producer_id
    assert len(world.asked(FindCoordinatorRequest)) == 1


# --- errors that do not pass ----------------------------------------------------------------------


@each_row(
    ("request_type", "error", "advice"),
    [
        (FindCoordinatorRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant the principal"),
        (FindCoordinatorRequest, "INVALID_REQUEST", ""),
        (InitProducerIdRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional.id.prefix"),
        (InitProducerIdRequest, "CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE"),
        (InitProducerIdRequest, "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"),
        (InitProducerIdRequest, "PRODUCER_FENCED", "another driver"),
        (InitProducerIdRequest, "INVALID_PRODUCER_EPOCH", "another driver"),
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
    world = World(1, [T0])
    world.script(request_type, error)
    [failure] = world.run().failures
    assert isinstance(failure, BrokerError)
    assert failure.error is error_named(error)
    for part in (f"transaction {NAME}", error, "broker ", advice):
        assert part in str(failure)
    assert len(world.asked(request_type)) == 1


# --- whether a transaction has begun in time: the check of its token ------------------------------

TOKEN = model.UnusedProducerIdentity("flights.driver", model.ProducerIdAndEpoch(77, 5))


class Checked(World):
    """A transaction with its check. ``held_by``, ``token_state``: of the token's id."""

    def __init__(self, token=TOKEN):
        super().__init__()
        self.held_by = TOKEN.producer
        self.token_state = "Empty"
        self.done_count = 0
        check = TokenCheck(token, self.client, self.metadata, self.asking(), self._note_done)
        self.identity = CheckedTransaction(self.manager, check)

    def _note_done(self):
        self.done_count += 1

    @property
    def failures(self):
        return [] if self.identity.failure is None else [self.identity.failure]

    def run(self, rounds=60):
        for _ in range(rounds):
            if self.failures:
                break
            self.poll(self.identity.maybe_request(self.clock.ms))
        return self

    def begin_and_run(self, rounds=60):
        """The first batch is acknowledged."""
        self.state.handle_completed_batch(numbered(self), 0)
        return self.run(rounds)

    def described(self):
        return self.asked(DescribeTransactionsRequest)

    def looked_for(self):
        """How often the coordinator of the token's id was."""
        found = [a.request.coordinator_keys for a in self.asked(FindCoordinatorRequest)]
        return found.count([TOKEN.transactional_id])

    def _answer_other(self, asked, code):
        assert asked.request.transactional_ids == [TOKEN.transactional_id]
        state = TransactionState(
            code, TOKEN.transactional_id, self.token_state, 60_000, -1, *self.held_by, []
        )
        return DescribeTransactionsResponse(0, [state])


@pytest.fixture
def checked():
    """A transaction that has its producer id, and nothing written."""
    checked = Checked().run()
    assert checked.state.has_producer_id
    return checked


def test_a_task_measures_from_the_first_acknowledgement_on(checked):
    """Before that, brokers may not know the transaction: its age is not overestimated."""
    assert checked.identity.begun_at_ms is None
    at_ms = checked.clock.ms
    checked.begin_and_run(1)
    checked.clock.ms += 5_000
    checked.run()
    assert checked.identity.begun_at_ms == at_ms


def test_it_is_asked_after_the_transaction_has_begun_and_once(checked):
    assert checked.identity.pending_check is None
    assert checked.described() == []
    assert checked.looked_for()  # so that the question itself costs one round trip
    checked.begin_and_run(0)
    assert checked.identity.pending_check is not None
    checked.run()
    assert checked.identity.pending_check is None
    assert (len(checked.described()), checked.done_count) == (1, 1)


@pytest.mark.parametrize("why", ["there", "moved", "away"])
def test_a_coordinator_that_the_token_names_is_looked_for_only_if_it_is_none_any_more(why):
    checked = Checked(TOKEN._replace(coordinator=NODES[3 if why == "away" else 2]))
    if why == "moved":
        checked.script(DescribeTransactionsRequest, "NOT_COORDINATOR")
    if why == "away":
        checked.network.down.add(3)
    checked.run().begin_and_run()
    assert checked.identity.pending_check is None
    assert {asked.node_id for asked in checked.described()} == {2}
    assert bool(checked.looked_for()) == (why != "there")


@pytest.mark.parametrize(
    ("held_by", "state"),
    [
        pytest.param(model.ProducerIdAndEpoch(77, 6), "Empty", id="taken over"),
        pytest.param(model.ProducerIdAndEpoch(78, 0), "Empty", id="another producer id"),
        pytest.param(TOKEN.producer, "Ongoing", id="a decision is being written"),
        pytest.param(TOKEN.producer, "PrepareCommit", id="a decision is written"),
        pytest.param(TOKEN.producer, "CompleteCommit", id="decided, before transaction.version 2"),
    ],
)
def test_a_token_that_is_used_ends_the_task(checked, held_by, state):
    checked.held_by, checked.token_state = held_by, state
    [failure] = checked.begin_and_run().failures
    assert isinstance(failure, SupersededError)
    for part in ("too late", "its transaction is aborted", TOKEN.transactional_id):
        assert part in str(failure)
    assert checked.identity.pending_check is not None  # nothing may be handed over


def test_a_coordinator_of_the_past_is_not_believed(checked):
    """A broker that is cut off knows the producer before; else a task in time would fail."""
    checked.held_by = model.ProducerIdAndEpoch(77, 4)
    assert checked.begin_and_run(8).failures == []
    assert checked.identity.pending_check is not None
    assert "it knows an older state" in checked.identity.pending_check.last_failure
    checked.held_by = TOKEN.producer
    checked.run()
    assert checked.identity.pending_check is None
    assert checked.looked_for() > 1  # to begin with, and again because of that answer


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_another_number_of_ids_is_not_believed(checked, count):
    def answer(asked, code):
        response = Checked._answer_other(checked, asked, code)
        if len(checked.described()) == 1:
            response.transaction_states *= count
        return response

    checked._answer_other = answer
    assert checked.begin_and_run().failures == []
    assert checked.identity.pending_check is None
    assert len(checked.described()) == 2


@pytest.mark.parametrize(
    "error",
    ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "TRANSACTIONAL_ID_NOT_FOUND", LOST],
)
def test_what_passes_is_asked_again(checked, error):
    checked.script(DescribeTransactionsRequest, error, error)
    assert checked.begin_and_run().failures == []
    assert checked.identity.pending_check is None
    assert len(checked.described()) == 3


def test_an_id_that_has_expired_ends_the_task_with_what_to_do(checked):
    """Brokers of more than one address have named the one that does not know it."""
    checked.script(DescribeTransactionsRequest, *["TRANSACTIONAL_ID_NOT_FOUND"] * 9)
    [failure] = checked.begin_and_run().failures
    assert isinstance(failure, TransactionError)
    assert failure.code == "TXN-042"
    assert "transactional.id.expiration.ms" in str(failure)
    assert len(checked.described()) == 3
    assert checked.identity.pending_check is not None


def test_a_principal_that_may_not_ask_gets_that_advice(checked):
    checked.script(DescribeTransactionsRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    [failure] = checked.begin_and_run().failures
    assert isinstance(failure, BrokerError)
    assert failure.error is error_named("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert "WRITE on all ids that begin with transactional.id.prefix" in str(failure)


# --- one question at a time -----------------------------------------------------------------------


def silent(asked):
    raise Silence


def requester_of(world, is_wanted=lambda: True):
    parts = world.client, world.metadata, ProducerState(), world.asking()
    return ProducerIdRequester(*parts, is_wanted)


def test_one_question_is_asked_at_a_time():
    world = World()
    world.network._script = silent
    check = TokenCheck(TOKEN, world.client, world.metadata, world.asking(), lambda: None)
    requester = requester_of(world)
    for _ in range(20):
        world.manager.maybe_request(world.clock.ms)
        check.maybe_request(True, world.clock.ms)
        requester.maybe_request(world.clock.ms)
        world.client.poll(0, world.clock.ms)
    assert len(world.asked(FindCoordinatorRequest)) == 2
    assert len(world.asked(InitProducerIdRequest)) == 1


def test_the_pause_before_another_producer_id_is_kept():
    world = World()
    world.script(InitProducerIdRequest, "COORDINATOR_LOAD_IN_PROGRESS")
    is_wanted = [False]
    requester = requester_of(world, lambda: is_wanted[0])
    assert requester.maybe_request(world.clock.ms) is None
    is_wanted[0] = True
    while requester.last_failure is None:
        assert requester.maybe_request(world.clock.ms) in (None, HEAD_START_MS)
        world.client.poll(0, world.clock.ms)
    wait_ms = requester.maybe_request(world.clock.ms)
    assert wait_ms is not None
    assert 0 < wait_ms <= 2 * RETRY_BACKOFF_MS
    world.client.poll(0, world.clock.ms)
    assert len(world.asked(InitProducerIdRequest)) == 1


def test_a_task_that_waits_for_the_check_of_its_token_is_woken(monkeypatch):
    world, monitor, notified = World(), ThreadMonitor(), []
    monkeypatch.setattr(monitor, "notify_all", lambda: notified.append(True))
    config = ProducerConfig.parse({"bootstrap.servers": "a:1"})
    accumulator = SimpleNamespace(monitor=monitor, queued_partitions=tuple)
    backoff = ExponentialBackoff(100, 1_000, NO_JITTER)
    parts = config, world.client, world.metadata, accumulator, backoff, NO_JITTER
    transaction = ProducerIdentities(*parts).transactional(
        TransactionSettings("flights.0", 1_000), TOKEN
    )
    transaction._check._on_done()
    assert notified == [True]
