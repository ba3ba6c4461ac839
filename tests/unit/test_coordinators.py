"""Coordinators of transactions: what they are asked and what their answers mean; and a broker that is
cut off from the others and answers: it takes itself for the coordinator of ids that another one
coordinates now, and does not know their latest transactions.
"""

import contextlib
import random
import re
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import (
    ERRORS,
    BrokerError,
    TransactionError,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.coordinators import (
    _LOOK_MS,
    VERDICTS,
    CoordinatorRequest,
    Coordinators,
    Verdict,
    add_partitions_request,
    decisive_error,
    find_requests,
    parse_coordinators,
    parse_results,
    verdict_on,
)
from spark_kafka_sink.protocol.api import BrokerApiVersions, VersionRange
from spark_kafka_sink.protocol.messages import topics as topic_api
from spark_kafka_sink.protocol.messages.client import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
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
    TopicData,
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
from tests.tables import each_row
from tests.unit.batches import NODES, T0, T1
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork

IDS = ["q.0", "q.1"]
NONE, NOT_AVAILABLE = error_named("NONE"), error_named("COORDINATOR_NOT_AVAILABLE")
U0 = TopicPartition("u", 0)


def versions(last):
    return BrokerApiVersions({FindCoordinatorRequest.api_key: VersionRange(0, last)})


def test_without_a_rule_the_brokers_say_whether_it_passes():
    for error in ERRORS.values():
        expected = Verdict.RETRY if error.retriable else Verdict.FATAL
        assert verdict_on(error) is VERDICTS.get(error.name, expected)
    assert verdict_on(error_for_code(32_000)) is Verdict.FATAL  # an error from the future


class TestFindCoordinator:
    def test_one_request_for_all_or_from_old_brokers_one_for_each(self):
        each = [FindCoordinatorRequest(name, 1, []) for name in IDS]
        assert find_requests(IDS, versions(3)) == each
        assert find_requests(IDS, versions(4)) == [FindCoordinatorRequest("", 1, IDS)]

    def test_answers_for_several(self):
        """An id that the answer leaves out has no coordinator yet."""
        code = error_named("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").code
        response = FindCoordinatorResponse(
            coordinators=[
                Coordinator("q.1", -1, "", -1, code, "no"),
                Coordinator("q.0", 3, "host3", 9092),
                Coordinator("another's", 1, "host1", 9092),
            ]
        )
        request = FindCoordinatorRequest("", 1, [*IDS, "q.2"])
        first, second, third = parse_coordinators(request, response)
        assert first == ("q.0", Node(3, "host3", 9092), NONE, None)
        assert (second.transactional_id, second.error.code, second.detail) == ("q.1", code, "no")
        assert (third.transactional_id, third.error) == ("q.2", NOT_AVAILABLE)

    @pytest.mark.parametrize(
        ("code", "detail", "address", "error"),
        [
            (0, None, (3, "host3", 9092), NONE),
            (15, "later", (-1, "", -1), NOT_AVAILABLE),
            (0, None, (-1, "", -1), NOT_AVAILABLE),
        ],
    )
    def test_the_answer_of_an_old_broker(self, code, detail, address, error):
        request = FindCoordinatorRequest("q.0", 1, [])
        response = FindCoordinatorResponse(0, code, detail, *address)
        [found] = parse_coordinators(request, response)
        assert (found.transactional_id, found.error) == ("q.0", error)
        assert detail is None or found.detail == detail
        assert error is not NONE or found.coordinator == Node(*address)


def added(errors):
    """The answer to AddPartitionsToTxn, with an error by partition."""

    def result(partition, error):
        return [AddPartitionsToTxnPartitionResult(partition, error_named(error).code)]

    topics = [
        AddPartitionsToTxnTopicResult(t, result(p, error)) for (t, p), error in errors.items()
    ]
    return AddPartitionsToTxnResponse(0, topics)


REQUEST = add_partitions_request("q.0", ProducerIdAndEpoch(7, 1), [T0, U0, T1])


def test_partitions_are_added_by_topic_and_what_the_answer_leaves_out_was_not_attempted():
    topics = [(t.name, t.partitions) for t in REQUEST.v3_and_below_topics]
    assert topics == [("t", [0, 1]), ("u", [0])]
    response = added({T0: "NONE", TopicPartition("other", 0): "INVALID_TXN_STATE"})
    names = {tp: error.name for tp, error in parse_results(REQUEST, response).items()}
    assert names == {T0: "NONE", T1: "OPERATION_NOT_ATTEMPTED", U0: "OPERATION_NOT_ATTEMPTED"}


@each_row(
    ("errors", "worst"),
    [
        (("NONE", "NONE", "NONE"), 0),
        (("NONE", "OPERATION_NOT_ATTEMPTED", "NONE"), 1),
        (("OPERATION_NOT_ATTEMPTED", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"), 2),
        (("UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED", "NONE"), 1),
    ],
)
def test_what_will_not_pass_comes_first(errors, worst):
    response = added(dict(zip((T0, T1, U0), errors)))
    assert decisive_error(parse_results(REQUEST, response))[1].name == errors[worst]


# --- several coordinators -------------------------------------------------------------------------

FORMER, MOVED = Node(1, "broker.example", 9092), Node(1, "other.example", 9092)


class Asking:
    """Stands in for the client that asks coordinators: what each node answers.

    A node that is asked for the coordinator names ``coordinator``. deadlines_ms: of such requests
    """

    def __init__(self, answers, coordinator=None, error="NONE"):
        self._answers = answers
        self._coordinator = coordinator and Coordinator(
            "i", *coordinator[:3], error_named(error).code
        )
        self.asked = []
        self.deadlines_ms = []

    def request_all(self, calls, *_):
        self.asked += [call.node for call in calls]
        return [self._answers[call.node] for call in calls]

    def learn_cluster(self, deadline_ms): ...

    def any_node(self, deadline_ms):
        return FORMER

    def api_versions(self, node):
        return versions(6)

    def request(self, node, request, deadline_ms):
        self.deadlines_ms.append(deadline_ms)
        return FindCoordinatorResponse(coordinators=[self._coordinator])

    def deadline_in(self, duration_ms):
        return duration_ms

    def now_ms(self):
        return 0

    def pause(self, attempts, deadline_ms):
        return attempts < 3


def test_each_coordinator_is_asked_once_and_one_that_fails_tells_no_version():
    """Version 0 of one that does not tell would leave transactions open."""
    failing, telling = Node(1, "a", 1), Node(2, "b", 1)
    told = ApiVersionsResponse(finalized_features=[FinalizedFeatureKey("transaction.version", 2)])
    told.finalized_features[0].max_version_level = 2
    admin = Asking({failing: ApiVersionsResponse(error_code=35), telling: told})
    coordinators = Coordinators(admin)
    coordinators._nodes.update({"i": failing, "j": telling, "k": telling})
    assert coordinators.transaction_versions(["i", "j", "k"], 0) == {telling: 2}
    assert sorted(admin.asked) == [failing, telling]


def test_a_coordinator_that_is_none_any_more_is_found_again():
    refused = EndTxnResponse(error_code=error_named("NOT_COORDINATOR").code)
    admin = Asking({FORMER: refused, MOVED: EndTxnResponse()}, MOVED)
    coordinators = Coordinators(admin)
    coordinators._nodes["i"] = FORMER
    questions = [CoordinatorRequest(("i",), EndTxnRequest("i"))]
    answers = coordinators.ask(questions, lambda answer: answer.error_code, 1_000)
    assert [ids for ids, _ in answers] == [("i",)]
    assert admin.asked == [FORMER, MOVED]


@pytest.mark.parametrize(
    ("error", "known", "moved"),
    [("NONE", FORMER, {"i"}), ("NONE", MOVED, {"i"}), ("COORDINATOR_NOT_AVAILABLE", None, set())],
)
def test_whether_a_coordinator_has_moved_is_looked_at_for_a_while(error, known, moved):
    admin = Asking({}, MOVED, error)
    coordinators = Coordinators(admin)
    if known is not None:
        coordinators._nodes["i"] = known
    assert coordinators._have_moved({"i": FORMER}, 10**9) == moved
    assert admin.deadlines_ms == [_LOOK_MS]


# --- a broker that is cut off ---------------------------------------------------------------------

OFFERED = {
    topic_api.MetadataRequest: (0, 12),
    FindCoordinatorRequest: (0, 6),
    EndTxnRequest: (0, 5),
    AddPartitionsToTxnRequest: (0, 3),
    DescribeTransactionsRequest: (0, 0),
}
CUT_OFF, COORDINATOR, OTHER = 1, 2, 3


@pytest.mark.parametrize(
    ("newest", "checks", "asked"),
    [
        (5, True, [topic_api.MetadataRequest, FindCoordinatorRequest, FindCoordinatorRequest]),
        (5, False, [FindCoordinatorRequest, FindCoordinatorRequest]),
        (4, True, [FindCoordinatorRequest, FindCoordinatorRequest]),
    ],
)
def test_the_cluster_is_known_before_a_coordinator_is_connected_to(newest, checks, asked):
    """Else a misrouted connection would reach another cluster's coordinator (KIP-1242)."""

    def script(request):
        if isinstance(request.request, topic_api.MetadataRequest):
            return topic_api.MetadataResponse(brokers=[], cluster_id="mine")
        node = NODES[1]
        ids = request.request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[Coordinator(i, node.node_id, node.host, node.port) for i in ids]
        )

    clock = SimClock(0)
    offered = {topic_api.MetadataRequest: (0, 13), FindCoordinatorRequest: (0, 6)}
    network = ScriptedNetwork(NODES, clock, script, offered)
    network.offered[ApiVersionsRequest] = (0, newest)
    settings = DEFAULT_SETTINGS._replace(checks_cluster=checks)
    bootstrap = [(NODES[1].host, NODES[1].port)]
    with AdminClient(bootstrap, settings, network, clock, random.Random(1)) as admin:
        coordinators = Coordinators(admin)
        for name in IDS:
            coordinators.find([name], admin.deadline_in(MINUTE_MS))
    assert [type(one.request) for one in network.asked] == asked


LOG = TopicPartition("decisions", 0)
NOT_COORDINATOR, FENCED, UNKNOWN_PRODUCER, NOT_FOUND = 16, 90, 49, 105
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 47, 48
COORDINATOR_LOAD_IN_PROGRESS = 14
UNKNOWN_SERVER_ERROR, AUTHORIZATION_FAILED = -1, 53
TOPIC_AUTHORIZATION_FAILED = 29
MINUTE_MS = 60_000
WRITTEN = TaskTransaction("q.0123456789ab.0", 4_000, 7, 2, 0, 300, "rows")
ID, PRODUCER, EPOCH = WRITTEN.transactional_id, WRITTEN.producer, WRITTEN.producer_epoch


def state_of(name="", epoch=-1, error_code=0, producer_id=WRITTEN.producer_id):
    if error_code:  # as brokers fill in what they do not know
        producer_id = epoch = 0
    return TransactionState(error_code, ID, name, 60_000, 0, producer_id, epoch, [])


def client_of(network, clock):
    bootstrap = [(node.host, node.port) for node in NODES.values()]
    admin = AdminClient(bootstrap, DEFAULT_SETTINGS, network, clock, random.Random(1))
    return TransactionClient(admin)


class World:
    """The broker that is cut off is the first of the bootstrap list.

    refusal: what it says to EndTxn; known: what it knows of the id; state, epoch: what the
    coordinator knows of the transaction; lost: how many of the coordinator's descriptions are lost
    on the way, or are the error instead
    """

    def __init__(self, refusal, known, **settings):
        self.clock = SimClock(0)
        self.refusal, self.known = refusal, known
        self.state, self.epoch = "Ongoing", EPOCH
        self.lost, self.error_instead = 0, None
        self.is_silent_about_id = 0
        self.listed_by_cut_off = tuple(NODES)
        for name, value in settings.items():
            setattr(self, name, value)
        self.network = ScriptedNetwork(NODES, self.clock, self.answer, OFFERED)
        self.network.features["transaction.version"] = 2
        self.client = client_of(self.network, self.clock)

    def answer(self, asked):
        is_cut_off = asked.node_id == CUT_OFF
        if isinstance(asked.request, topic_api.MetadataRequest):
            listed = self.listed_by_cut_off if is_cut_off else NODES
            brokers = [topic_api.MetadataResponseBroker(*NODES[node_id][:3]) for node_id in listed]
            return topic_api.MetadataResponse(brokers=brokers)
        if isinstance(asked.request, FindCoordinatorRequest):
            named = NODES[CUT_OFF if is_cut_off else COORDINATOR]
            keys = asked.request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(k, *named[:3]) for k in keys])
        if isinstance(asked.request, DescribeTransactionsRequest):
            return DescribeTransactionsResponse(transaction_states=self._described(asked.node_id))
        if isinstance(asked.request, AddPartitionsToTxnRequest):
            epoch = asked.request.v3_and_below_producer_epoch
            is_ours = not is_cut_off and epoch == self.epoch
            return added({LOG: error_for_code(0 if is_ours else self.refusal).name})
        if is_cut_off:
            return EndTxnResponse(error_code=self.refusal)
        self.state = "CompleteCommit"
        return EndTxnResponse(producer_id=WRITTEN.producer_id, producer_epoch=8)

    def _described(self, node_id):
        if node_id == OTHER:
            return [state_of(error_code=NOT_COORDINATOR)]
        if node_id == CUT_OFF:
            return [state_of(error_code=NOT_FOUND) if self.known is None else self.known]
        if self.is_silent_about_id:
            self.is_silent_about_id -= 1
            return []
        if not self.lost:
            return [state_of(self.state, self.epoch)]
        self.lost -= 1
        if self.error_instead is None:
            raise LoseConnection
        return [state_of(error_code=self.error_instead)]

    def commit(self):
        return self.client.commit_all([WRITTEN], MINUTE_MS)[ID]

    def commit_of_driver(self):
        version = WRITTEN.transaction_version
        return self.client.commit_driver_transaction(ID, PRODUCER, version, MINUTE_MS)

    def add_partition(self):
        def act():
            return self.client.add_partition(ID, PRODUCER, LOG, MINUTE_MS)

        retry_unless_fenced(self.client, ID, PRODUCER, MINUTE_MS, act)

    def check_not_fenced(self, producer=PRODUCER):
        check_not_fenced(self.client, ID, producer, MINUTE_MS)


OLDER = {
    "it knows an older transaction": state_of("CompleteCommit", 5),
    "it knows an older epoch": state_of("Empty", 6),
}
WORLDS = pytest.mark.parametrize(
    ("refusal", "known"),
    [(UNKNOWN_PRODUCER, None), *((FENCED, state) for state in OLDER.values())],
    ids=["it does not know the id", *OLDER],
)


@WORLDS
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({}, id="none"),
        pytest.param({"lost": 3}, id="not heard"),
        pytest.param({"lost": 3, "error_instead": COORDINATOR_LOAD_IN_PROGRESS}, id="loads"),
        pytest.param({"is_silent_about_id": 1}, id="an answer without the id"),
        # The broker that is cut off does not name it.
        pytest.param({"listed_by_cut_off": (CUT_OFF, OTHER)}, id="joined since"),
    ],
)
def test_nothing_is_concluded_before_the_true_coordinator_has_said_it(refusal, known, trouble):
    """Else what is decided counts as unknown, the query stops, and the next plan aborts the rest."""
    world = World(refusal, known, **trouble)
    assert world.commit() is Outcome.COMMITTED
    assert world.state == "CompleteCommit"
    assert world.lost == world.is_silent_about_id == 0


@WORLDS
@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, AUTHORIZATION_FAILED])
def test_an_error_of_the_true_coordinator_is_no_answer(refusal, known, code):
    world = World(refusal, known, lost=1, error_instead=code)
    with contextlib.suppress(BrokerError):  # also an end without a wrong conclusion
        assert world.commit() is Outcome.COMMITTED


@pytest.mark.parametrize("known", OLDER.values(), ids=OLDER)
def test_nothing_is_concluded_while_only_an_older_epoch_is_known(known):
    assert World(FENCED, known, lost=3, error_instead=NOT_COORDINATOR).commit() is Outcome.COMMITTED


@WORLDS
@pytest.mark.parametrize("lost", [0, 3])
def test_a_driver_is_not_fenced_by_it_nor_while_the_true_coordinator_is_not_heard(
    refusal, known, lost
):
    world = World(refusal, known, lost=lost)
    assert world.commit_of_driver() == (WRITTEN.producer_id, 8)
    assert world.state == "CompleteCommit"


@WORLDS
def test_what_is_not_heard_until_the_deadline_stays_decided(refusal, known):
    """The next plan commits it. As an unknown outcome, its rest would be aborted."""
    world = World(refusal, known, lost=10**9)
    with pytest.raises(TransactionError, match="does not answer"):
        world.commit()
    assert MINUTE_MS // 2 < world.clock.now_ms() < 2 * MINUTE_MS


def test_what_the_true_coordinator_knows_is_known():
    world = World(FENCED, state_of("Empty", 6), state="CompleteAbort")
    found = world.client.describe_with_fallback([WRITTEN], MINUTE_MS)
    assert found[ID].transaction_state == "CompleteAbort"


def error_of_driver(refusal, state, epoch, version):
    world = World(refusal, None, state=state, epoch=epoch)
    with pytest.raises(TransactionError) as raised:
        world.client.commit_driver_transaction(ID, PRODUCER, version, MINUTE_MS)
    return raised.value


@each_row("refusal", [FENCED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE])
@each_row(
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
    error = error_of_driver(refusal, state, epoch, version)
    assert not isinstance(error, FencedError)
    assert f"report {state}: an earlier request may have been accepted" in str(error)


@pytest.mark.parametrize(
    ("state", "epoch", "version"),
    [("CompleteCommit", 8, 1), ("Empty", 8, 1), ("Empty", 8, 2), ("CompleteCommit", 9, 2)],
)
def test_a_later_epoch_is_another_drivers(state, epoch, version):
    assert isinstance(error_of_driver(FENCED, state, epoch, version), FencedError)


def test_what_no_broker_knows_is_unknown():
    assert World(UNKNOWN_PRODUCER, None, state="Empty").commit() is Outcome.UNKNOWN


@WORLDS
def test_its_refusal_to_begin_a_transaction_is_not_believed(refusal, known):
    """Else the query stops, and names another driver that does not exist."""
    world = World(refusal, known, state="Empty")
    world.add_partition()
    assert world.clock.now_ms() < MINUTE_MS
    world.check_not_fenced()


@pytest.mark.parametrize(
    ("refusal", "error"), [(FENCED, FencedError), (UNKNOWN_PRODUCER, BrokerError)]
)
def test_a_fenced_driver_learns_it_at_once(refusal, error):
    world = World(refusal, state_of("Empty", 6), state="Empty", epoch=EPOCH + 1)
    with pytest.raises(error):
        world.add_partition()
    assert world.clock.now_ms() < MINUTE_MS // 10


def test_other_refusals_are_told_at_once():
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        World(TOPIC_AUTHORIZATION_FAILED, None).add_partition()


def test_a_driver_that_it_takes_for_the_holder_may_be_fenced():
    """Else it aborts what a newer driver has decided."""
    world = World(FENCED, state_of("Empty", EPOCH), state="Empty", epoch=EPOCH + 1)
    with pytest.raises(FencedError):
        world.check_not_fenced()
    assert world.clock.now_ms() < MINUTE_MS // 10


def test_nobody_holds_an_id_that_has_another_producer_id():
    with pytest.raises(FencedError):
        World(FENCED, None, state="Empty").check_not_fenced(PRODUCER._replace(producer_id=4_001))


@pytest.mark.parametrize("end", ["CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize("is_cut_off_behind", [True, False])
def test_of_two_brokers_that_know_a_transaction_its_end_counts(is_cut_off_behind, end):
    behind, ahead = ("Ongoing", end) if is_cut_off_behind else (end, "Ongoing")
    world = World(FENCED, state_of(behind, EPOCH), state=ahead)
    found = describe_on_all_brokers(world.client.admin, [WRITTEN], MINUTE_MS)
    assert found.states[ID].transaction_state == end


@pytest.mark.parametrize(
    ("known", "epoch", "is_it"),
    [
        pytest.param(None, EPOCH, False, id="held"),
        pytest.param(None, EPOCH + 1, True, id="a later epoch"),
        pytest.param(None, EPOCH - 1, None, id="nobody knows it"),
        pytest.param(
            state_of("Empty", 9, producer_id=3_999), EPOCH, True, id="a lower producer id"
        ),
        pytest.param(
            state_of("Empty", 0, producer_id=4_001), EPOCH, True, id="a higher producer id"
        ),
    ],
)
def test_whether_somebody_has_taken_an_id(known, epoch, is_it):
    """Of two producer ids it is not known which is the later: it counts as taken."""
    world = World(FENCED, known, state="Empty", epoch=epoch)
    assert is_fenced(world.client.admin, ID, PRODUCER, MINUTE_MS) is is_it


def test_a_transaction_that_is_being_completed_is_waited_for():
    """Its epoch is the one before or after."""
    known = state_of("PrepareCommit", EPOCH)
    world = World(FENCED, known)
    pause = world.client.admin.pause

    def complete(attempts, deadline_ms):
        known.transaction_state = "CompleteCommit"
        return pause(attempts, deadline_ms)

    with mock.patch.object(world.client.admin, "pause", complete):
        state = world.client.describe_when_complete(ID, MINUTE_MS)
    assert state.transaction_state == "CompleteCommit"


# --- what is open ---------------------------------------------------------------------------------

OPEN = ListedTransaction(ID, WRITTEN.producer_id, "Ongoing")


def open_transactions(answer_list):
    """What is found where brokers answer so, and know the first version of that request alone."""
    world = World(FENCED, None)

    def answer(asked):
        is_listing = isinstance(asked.request, ListTransactionsRequest)
        return answer_list(asked) if is_listing else world.answer(asked)

    offered = {**OFFERED, ListTransactionsRequest: (0, 0)}
    client = client_of(ScriptedNetwork(NODES, world.clock, answer, offered), world.clock)
    return [t.transactional_id for t in client.open_task_transactions("q", MINUTE_MS)]


@pytest.mark.parametrize("trouble", ["loads", "lost"])
def test_a_listing_that_is_lost_or_too_early_is_asked_for_again(trouble):
    """Else what is open there is not swept, or said to be aborted, and readers wait for it."""
    troubles = iter([trouble])

    def answer(asked):
        if asked.node_id != COORDINATOR:
            return ListTransactionsResponse()
        now = next(troubles, None)
        if now == "lost":
            raise LoseConnection
        if now == "loads":
            return ListTransactionsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
        return ListTransactionsResponse(transaction_states=[OPEN])

    assert open_transactions(answer) == [ID]


def test_a_broker_that_lists_nothing_is_named(caplog):
    def answer(asked):
        if asked.node_id == COORDINATOR:
            raise LoseConnection
        return ListTransactionsResponse()

    assert open_transactions(answer) == []
    (message,) = caplog.messages
    assert message.startswith(f"broker(s) {COORDINATOR} did not list their open transactions")


def test_only_tasks_of_the_prefix_are_swept_where_brokers_filter_nothing():
    """Kafka before 4.1 has no pattern in ListTransactions."""
    names = (ID, "q.driver", "q.0", "other", f"p.{ID}")
    listed = [ListedTransaction(name, n, "Ongoing") for n, name in enumerate(names)]
    answer = ListTransactionsResponse(transaction_states=listed)
    assert set(open_transactions(lambda asked: answer)) == {ID}


# --- markers that cannot be written -----------------------------------------------------------------

CONCURRENT_TRANSACTIONS = 51


class Stuck(World):
    """Whoever coordinates has the commit; the leaders of ``rows`` do not take its markers."""

    def __init__(self, state="PrepareCommit"):
        super().__init__(CONCURRENT_TRANSACTIONS, None)
        self.state = state

    def answer(self, asked):
        if isinstance(asked.request, EndTxnRequest):
            return EndTxnResponse(error_code=CONCURRENT_TRANSACTIONS)
        return super().answer(asked)

    def _described(self, node_id):
        described = state_of(self.state, EPOCH)
        described.topics = [TopicData("rows", [1, 2])]
        return [described]


MARKERS = (
    "the brokers have not written the markers that end its transaction to rows-1, rows-2: look at "
    "the leaders, the in-sync replicas and min.insync.replicas of rows"
)


def test_the_topics_whose_markers_are_missing_are_told_after_5_s_and_at_the_end(caplog):
    with pytest.raises(TransactionError) as raised:
        Stuck().commit()
    (line,) = caplog.messages
    why = rf"CONCURRENT_TRANSACTIONS \(51\) from broker \d \(.*?\): {re.escape(MARKERS)}"
    waited = rf"the driver has waited for [5-7] s for the coordinator of {ID}: {why}"
    assert re.fullmatch(rf"{waited} \[PKS-TXN-047\]", line), line
    failed = rf"1 transactional id\(s\) held by their coordinator, e\.g\. {ID}\. Last: {why}"
    assert re.search(rf"{failed} \[PKS-TXN-004\]", str(raised.value))


def test_no_markers_are_missing_of_a_transaction_that_nobody_ends():
    with pytest.raises(TransactionError) as raised:
        Stuck("Ongoing").commit()
    assert "markers" not in str(raised.value)


def test_a_driver_that_waits_for_its_own_markers_says_so(caplog):
    state = Stuck().client.describe_when_complete(ID, MINUTE_MS)
    assert state.transaction_state == "PrepareCommit"
    (line,) = caplog.messages
    assert f"s for the coordinator of {ID}: {MARKERS} [PKS-TXN-047]" in line
