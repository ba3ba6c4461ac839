"""A broker is cut off from the others and answers: it takes itself for the coordinator of ids that
another one coordinates now, and does not know their latest transactions.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import BrokerError, TransactionError
from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.transactions.client import (
    Outcome,
    TransactionClient,
    describe_on_all_brokers,
    is_fenced,
)
from spark_kafka_sink.transactions.fencing import check_not_fenced, retry_unless_fenced
from spark_kafka_sink.transactions.model import FencedError, TaskTransaction
from tests.simulation.time import SimClock
from tests.unit.batches import NODES
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork

OFFERED = {
    MetadataRequest: (0, 12),
    FindCoordinatorRequest: (0, 6),
    EndTxnRequest: (0, 5),
    AddPartitionsToTxnRequest: (0, 3),
    DescribeTransactionsRequest: (0, 0),
}
CUT_OFF, COORDINATOR, OTHER = 1, 2, 3
LOG = TopicPartition("decisions", 0)
NOT_COORDINATOR, FENCED, UNKNOWN_PRODUCER, NOT_FOUND = 16, 90, 49, 105
COORDINATOR_LOAD_IN_PROGRESS = 14
UNKNOWN_SERVER_ERROR, AUTHORIZATION_FAILED = -1, 53
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 47, 48
TOPIC_AUTHORIZATION_FAILED = 29
MINUTE_MS = 60_000
WRITTEN = TaskTransaction("q.0123456789ab.0", 4_000, 7, 2, 0, 300, "rows")


class World:
    """The broker that is cut off is the first of the bootstrap list.

    refusal: what it says to EndTxn; known: what it knows of the id; state: what the coordinator
    knows of the transaction; lost: how many of the coordinator's descriptions are lost on the way,
    or are the error instead
    """

    def __init__(self, refusal: int, known: TransactionState | None) -> None:
        self.clock = SimClock(0)
        self.refusal, self.known = refusal, known
        self.state = "Ongoing"
        self.epoch = WRITTEN.producer_epoch
        self.lost = 0
        self.error_instead: int | None = None
        self.is_silent_about_id = 0
        self.listed_by_cut_off = tuple(NODES)
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, OFFERED)
        self.network.features["transaction.version"] = 2
        bootstrap = [(node.host, node.port) for node in NODES.values()]
        admin = AdminClient(bootstrap, DEFAULT_SETTINGS, self.network, self.clock, random.Random(1))
        self.client = TransactionClient(admin)

    def _answer(self, asked: Asked) -> schema.Message:
        if isinstance(asked.request, MetadataRequest):
            listed = self.listed_by_cut_off if asked.node_id == CUT_OFF else NODES
            brokers = [MetadataResponseBroker(*NODES[node_id][:3]) for node_id in listed]
            return MetadataResponse(brokers=brokers)
        if isinstance(asked.request, FindCoordinatorRequest):
            named = NODES[CUT_OFF if asked.node_id == CUT_OFF else COORDINATOR]
            keys = asked.request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(k, *named[:3]) for k in keys])
        if isinstance(asked.request, DescribeTransactionsRequest):
            if asked.node_id == COORDINATOR and self.is_silent_about_id:
                self.is_silent_about_id -= 1
                return DescribeTransactionsResponse(transaction_states=[])
            if asked.node_id == COORDINATOR and self.lost:
                self.lost -= 1
                if self.error_instead is None:
                    raise LoseConnection
                error = state_of(error_code=self.error_instead)
                return DescribeTransactionsResponse(transaction_states=[error])
            known = self._known_to(asked.node_id)
            return DescribeTransactionsResponse(transaction_states=[known])
        if isinstance(asked.request, AddPartitionsToTxnRequest):
            is_ours = (
                asked.node_id != CUT_OFF and asked.request.v3_and_below_producer_epoch == self.epoch
            )
            return _added(0 if is_ours else self.refusal)
        if asked.node_id == CUT_OFF:
            return EndTxnResponse(error_code=self.refusal)
        self.state = "CompleteCommit"
        return EndTxnResponse(producer_id=WRITTEN.producer_id, producer_epoch=8)

    def _known_to(self, node_id: int) -> TransactionState:
        if node_id == OTHER:
            return state_of(error_code=NOT_COORDINATOR)
        if node_id == COORDINATOR:
            return state_of(self.state, self.epoch)
        return state_of(error_code=NOT_FOUND) if self.known is None else self.known


def _added(code: int) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnPartitionResult(LOG.partition, code)
    topic = AddPartitionsToTxnTopicResult(LOG.topic, [result])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def state_of(
    name: str = "", epoch: int = -1, error_code: int = 0, producer_id: int = WRITTEN.producer_id
) -> TransactionState:
    if error_code:  # as brokers fill in what they do not know
        producer_id = epoch = 0
    return TransactionState(
        error_code, WRITTEN.transactional_id, name, 60_000, 0, producer_id, epoch, []
    )


WORLDS = pytest.mark.parametrize(
    ("refusal", "known"),
    [
        (UNKNOWN_PRODUCER, None),
        (FENCED, state_of("CompleteCommit", 5)),
        (FENCED, state_of("Empty", 6)),
    ],
    ids=["it does not know the id", "it knows an older transaction", "it knows an older epoch"],
)


@WORLDS
def test_its_refusal_to_end_a_transaction_is_not_believed(refusal, known):
    """Else what is decided counts as unknown, and the query stops until somebody settles it."""
    world = World(refusal, known)
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}
    assert world.state == "CompleteCommit"


@WORLDS
def test_nothing_is_concluded_while_the_true_coordinator_is_not_heard(refusal, known):
    """Else an open transaction counts as unknown, and the next plan aborts it."""
    world = World(refusal, known)
    world.lost = 3
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}
    assert world.lost == 0


@WORLDS
def test_nothing_is_concluded_while_the_true_coordinator_loads(refusal, known):
    world = World(refusal, known)
    world.lost, world.error_instead = 3, COORDINATOR_LOAD_IN_PROGRESS
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}


@WORLDS
@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, AUTHORIZATION_FAILED])
def test_an_error_of_the_true_coordinator_is_no_answer(refusal, known, code):
    world = World(refusal, known)
    world.lost, world.error_instead = 1, code
    with contextlib.suppress(BrokerError):  # also an end without a wrong conclusion
        outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
        assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}


@WORLDS
def test_an_answer_without_the_id_is_no_answer(refusal, known):
    world = World(refusal, known)
    world.is_silent_about_id = 1
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}
    assert world.is_silent_about_id == 0


@WORLDS
def test_a_coordinator_that_joined_since_is_asked_too(refusal, known):
    """The broker that is cut off does not name it."""
    world = World(refusal, known)
    world.listed_by_cut_off = (CUT_OFF, OTHER)
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}


def error_of_driver(state: str, epoch: int, refusal: int, version: int) -> TransactionError:
    world = World(refusal, None)
    world.state, world.epoch = state, epoch
    name, producer = WRITTEN.transactional_id, WRITTEN.producer
    with pytest.raises(TransactionError) as raised:
        world.client.commit_driver_transaction(name, producer, version, MINUTE_MS)
    return raised.value


@pytest.mark.parametrize("refusal", [FENCED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE])
@pytest.mark.parametrize(
    ("state", "epoch", "version"),
    [
        ("CompleteCommit", 8, 2),
        ("PrepareCommit", 8, 2),
        ("PrepareCommit", 7, 2),
        ("CompleteCommit", 7, 1),
        ("PrepareCommit", 7, 0),
    ],
)
def test_a_commit_whose_answer_was_lost_is_no_fencing(refusal, state, epoch, version):
    """The repetition meets the cut-off broker. No other driver has taken over."""
    error = error_of_driver(state, epoch, refusal, version)
    assert not isinstance(error, FencedError)
    assert f"report {state}: an earlier request may have been accepted" in str(error)


@pytest.mark.parametrize(
    ("state", "epoch", "version"),
    [("CompleteCommit", 8, 1), ("Empty", 8, 1), ("Empty", 8, 2), ("CompleteCommit", 9, 2)],
)
def test_a_later_epoch_is_another_drivers(state, epoch, version):
    assert isinstance(error_of_driver(state, epoch, FENCED, version), FencedError)


@pytest.mark.parametrize(
    "known", [state_of("CompleteCommit", 5), state_of("Empty", 6)], ids=["ended", "empty"]
)
def test_nothing_is_concluded_while_only_an_older_epoch_is_known(known):
    """No broker has become the coordinator yet."""
    world = World(FENCED, known)
    world.lost, world.error_instead = 3, NOT_COORDINATOR
    outcomes = world.client.commit_all([WRITTEN], MINUTE_MS)
    assert outcomes == {WRITTEN.transactional_id: Outcome.COMMITTED}


@WORLDS
def test_a_driver_is_not_fenced_while_the_true_coordinator_is_not_heard(refusal, known):
    world = World(refusal, known)
    world.lost = 3
    name, producer = WRITTEN.transactional_id, WRITTEN.producer
    ended = world.client.commit_driver_transaction(
        name, producer, WRITTEN.transaction_version, MINUTE_MS
    )
    assert ended == (WRITTEN.producer_id, 8)


@WORLDS
def test_what_is_not_heard_until_the_deadline_stays_decided(refusal, known):
    """The next plan commits it. As an unknown outcome, its rest would be aborted."""
    world = World(refusal, known)
    world.lost = 10**9
    with pytest.raises(TransactionError, match="does not answer"):
        world.client.commit_all([WRITTEN], MINUTE_MS)
    assert MINUTE_MS // 2 < world.clock.now_ms() < 2 * MINUTE_MS


@WORLDS
@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
def test_what_the_true_coordinator_has_ended_is_known(refusal, known, state):
    world = World(refusal, known)
    world.state = state
    told = world.client.describe_with_fallback([WRITTEN], MINUTE_MS)
    assert told[WRITTEN.transactional_id].transaction_state == state


@WORLDS
def test_a_transaction_that_it_does_not_know_may_be_open(refusal, known):
    """Else a commit is refused although nothing is in its way."""
    told = World(refusal, known).client.describe_with_fallback([WRITTEN], MINUTE_MS)
    assert told[WRITTEN.transactional_id].transaction_state == "Ongoing"


def test_what_nobody_knows_is_unknown():
    world = World(UNKNOWN_PRODUCER, None)
    world.state = "Empty"
    assert world.client.commit_all([WRITTEN], MINUTE_MS) == {
        WRITTEN.transactional_id: Outcome.UNKNOWN
    }


@WORLDS
def test_a_driver_is_not_fenced_by_it(refusal, known):
    """Else the query stops, and names another driver that there is not."""
    world = World(refusal, known)
    name, producer = WRITTEN.transactional_id, WRITTEN.producer
    ended = world.client.commit_driver_transaction(
        name, producer, WRITTEN.transaction_version, MINUTE_MS
    )
    assert ended == (WRITTEN.producer_id, 8)
    assert world.state == "CompleteCommit"


def add_partition(world: World) -> None:
    name, producer = WRITTEN.transactional_id, WRITTEN.producer
    act = lambda: world.client.add_partition(name, producer, LOG, MINUTE_MS)  # noqa: E731
    retry_unless_fenced(world.client, name, producer, MINUTE_MS, act)


@WORLDS
def test_its_refusal_to_begin_a_transaction_is_not_believed(refusal, known):
    """Else the query stops, and names another driver that there is not."""
    world = World(refusal, known)
    world.state = "Empty"
    add_partition(world)
    assert world.clock.now_ms() < MINUTE_MS


@pytest.mark.parametrize(
    ("refusal", "error"), [(FENCED, FencedError), (UNKNOWN_PRODUCER, BrokerError)]
)
def test_who_was_fenced_is_told_at_once(refusal, error):
    world = World(refusal, state_of("Empty", 6))
    world.state, world.epoch = "Empty", WRITTEN.producer_epoch + 1
    with pytest.raises(error):
        add_partition(world)
    assert world.clock.now_ms() < MINUTE_MS // 10


def test_other_refusals_are_told_at_once():
    world = World(TOPIC_AUTHORIZATION_FAILED, None)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        add_partition(world)


@WORLDS
def test_a_driver_that_it_does_not_know_may_hold_the_id(refusal, known):
    world = World(refusal, known)
    world.state = "Empty"
    check_not_fenced(world.client, WRITTEN.transactional_id, WRITTEN.producer, MINUTE_MS)


def test_a_driver_that_it_takes_for_the_holder_may_be_fenced():
    """Else it aborts what a newer driver has decided."""
    world = World(FENCED, state_of("Empty", WRITTEN.producer_epoch))
    world.state, world.epoch = "Empty", WRITTEN.producer_epoch + 1
    with pytest.raises(FencedError):
        check_not_fenced(world.client, WRITTEN.transactional_id, WRITTEN.producer, MINUTE_MS)
    assert world.clock.now_ms() < MINUTE_MS // 10


def test_nobody_holds_an_id_that_has_another_producer_id():
    world = World(FENCED, None)
    world.state = "Empty"
    other = ProducerIdAndEpoch(WRITTEN.producer_id + 1, 0)
    with pytest.raises(FencedError):
        check_not_fenced(world.client, WRITTEN.transactional_id, other, MINUTE_MS)


@pytest.mark.parametrize("end", ["CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize("is_cut_off_behind", [True, False])
def test_of_two_brokers_that_know_a_transaction_its_end_counts(is_cut_off_behind, end):
    """Whoever answers last."""
    behind, ahead = state_of("Ongoing", WRITTEN.producer_epoch), end
    world = World(FENCED, behind if is_cut_off_behind else state_of(end, WRITTEN.producer_epoch))
    world.state = ahead if is_cut_off_behind else "Ongoing"
    told = describe_on_all_brokers(world.client.admin, [WRITTEN], MINUTE_MS)
    assert told.states[WRITTEN.transactional_id].transaction_state == end


@pytest.mark.parametrize(
    ("known", "epoch", "is_it"),
    [
        (None, WRITTEN.producer_epoch, False),
        (None, WRITTEN.producer_epoch + 1, True),
        (None, WRITTEN.producer_epoch - 1, None),
        (state_of("Empty", 9, producer_id=WRITTEN.producer_id - 1), WRITTEN.producer_epoch, True),
        (state_of("Empty", 0, producer_id=WRITTEN.producer_id + 1), WRITTEN.producer_epoch, True),
    ],
    ids=["held", "a later epoch", "nobody knows it", "a lower producer id", "a higher producer id"],
)
def test_whether_somebody_has_taken_an_id(known, epoch, is_it):
    """Of two producer ids it is not known which is the later: it counts as taken."""
    world = World(FENCED, known)
    world.state, world.epoch = "Empty", epoch
    name = WRITTEN.transactional_id
    assert is_fenced(world.client.admin, name, WRITTEN.producer, MINUTE_MS) is is_it


def listing(answer_list: Callable[[Asked], ListTransactionsResponse]) -> TransactionClient:
    """Brokers that are asked what is open, the first version of that request alone."""
    world = World(FENCED, None)

    def answer(asked: Asked) -> schema.Message:
        is_listing = isinstance(asked.request, ListTransactionsRequest)
        return answer_list(asked) if is_listing else world._answer(asked)

    offered = {**OFFERED, ListTransactionsRequest: (0, 0)}
    network = ScriptedNetwork(NODES, world.clock, answer, offered)
    bootstrap = [(node.host, node.port) for node in NODES.values()]
    admin = AdminClient(bootstrap, DEFAULT_SETTINGS, network, world.clock, random.Random(1))
    return TransactionClient(admin)


def test_a_coordinator_that_still_loads_is_asked_again_what_is_open():
    """Else what it coordinates is not swept."""
    codes = iter([COORDINATOR_LOAD_IN_PROGRESS] + [0] * 100)
    listed = ListedTransaction(WRITTEN.transactional_id, WRITTEN.producer_id, "Ongoing")

    def answer(asked: Asked) -> ListTransactionsResponse:
        is_coordinator = asked.node_id == COORDINATOR
        code = next(codes) if is_coordinator else 0
        states = [listed] if is_coordinator and not code else []
        return ListTransactionsResponse(error_code=code, transaction_states=states)

    found = listing(answer).open_task_transactions("q", MINUTE_MS)
    assert [t.transactional_id for t in found] == [WRITTEN.transactional_id]


def test_a_listing_that_is_lost_is_asked_for_again():
    """Else what is open there is said to be aborted, and readers wait for it."""
    lost = iter([True])
    listed = ListedTransaction(WRITTEN.transactional_id, WRITTEN.producer_id, "Ongoing")

    def answer(asked: Asked) -> ListTransactionsResponse:
        if asked.node_id == COORDINATOR and next(lost, False):
            raise LoseConnection
        is_coordinator = asked.node_id == COORDINATOR
        return ListTransactionsResponse(transaction_states=[listed] if is_coordinator else [])

    found = listing(answer).open_task_transactions("q", MINUTE_MS)
    assert [t.transactional_id for t in found] == [WRITTEN.transactional_id]


def test_a_broker_that_lists_nothing_is_named(caplog):
    def answer(asked: Asked) -> ListTransactionsResponse:
        if asked.node_id == COORDINATOR:
            raise LoseConnection
        return ListTransactionsResponse()

    assert listing(answer).open_task_transactions("q", MINUTE_MS) == []
    (message,) = caplog.messages
    assert message.startswith(f"broker(s) {COORDINATOR} did not list their open transactions")


def test_only_tasks_of_the_prefix_are_swept_where_brokers_filter_nothing():
    """Kafka before 4.1 has no pattern in ListTransactions."""
    names = (WRITTEN.transactional_id, "q.driver", "q.0", "other", f"p.{WRITTEN.transactional_id}")
    listed = [ListedTransaction(name, n, "Ongoing") for n, name in enumerate(names)]
    answer = ListTransactionsResponse(transaction_states=listed)
    found = listing(lambda asked: answer).open_task_transactions("q", MINUTE_MS)
    assert {t.transactional_id for t in found} == {WRITTEN.transactional_id}


def test_a_transaction_that_is_being_completed_is_waited_for():
    """Its epoch is the one before or after."""
    known = state_of("PrepareCommit", WRITTEN.producer_epoch)
    world = World(FENCED, known)
    pause = world.client.admin.pause

    def complete(attempts: int, deadline_ms: int) -> bool:
        known.transaction_state = "CompleteCommit"
        return pause(attempts, deadline_ms)

    with mock.patch.object(world.client.admin, "pause", complete):
        state = world.client.describe_when_complete(WRITTEN.transactional_id, MINUTE_MS)
    assert state is not None
    assert state.transaction_state == "CompleteCommit"
