"""The client that asks and waits, against scripted brokers: what it retries, how long it waits for
whom, and brokers that take requests and never answer: they cost seconds, whichever they are.

No sockets, and time moves only when nothing happens.
"""

import random
from types import SimpleNamespace

import pytest

from spark_kafka_sink.base.errors import BootstrapError, BrokerError, TopicError, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.network import blocking
from spark_kafka_sink.network.admin import (
    DEFAULT_SETTINGS,
    AdminClient,
    configs_or_reason,
    create_missing,
)
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.protocol.messages import topics as topic_api
from spark_kafka_sink.protocol.messages.client import ApiVersionsResponse
from spark_kafka_sink.protocol.messages.transactions import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.transactions.client import TransactionClient
from tests.simulation.time import SimClock
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork, Silence

BOOT, BOOT_2 = Node(-1, "boot", 100), Node(-2, "boot", 99)
CLUSTER = {node.node_id: node for node in (BOOT, BOOT_2, Node(1, "b", 101), Node(2, "b", 102))}
MINUTE_MS, LONG_MAX = 60_000, 2**63 - 1
OFFERED = {
    topic_api.MetadataRequest: (0, 13),
    topic_api.CreateTopicsRequest: (2, 7),
    topic_api.DescribeConfigsRequest: (1, 4),
    FindCoordinatorRequest: (0, 6),
    InitProducerIdRequest: (0, 5),
}


class Waiting(ScriptedNetwork):
    """Of a client that must not poll in a loop where nothing happens."""

    idle_polls = 0

    def poll(self, timeout_ms):
        events = super().poll(timeout_ms)
        if not events:
            self.idle_polls = 0 if timeout_ms else self.idle_polls + 1
            assert self.idle_polls < 3, "the client does not wait"
        return events


class World:
    """A client, and brokers that answer in turn, each with a message or an exception, or None for
    silence; or as a function of node and request does.
    """

    def __init__(self, *answers, by=None, down=(), bootstrap=(BOOT,), settings=DEFAULT_SETTINGS):
        self.clock = SimClock(0)
        self.answers, self.by = list(answers), by
        self.network = Waiting(CLUSTER, self.clock, self._answer, OFFERED)
        self.network.down |= set(down)
        addresses = [(node.host, node.port) for node in bootstrap]
        self.admin = AdminClient(addresses, settings, self.network, self.clock, random.Random(1))

    def _answer(self, asked):
        found = self.by(asked.node_id, asked.request) if self.by else self.answers.pop(0)
        if found is None or isinstance(found, type):
            raise found or Silence
        return found

    def asked(self, request_type=topic_api.MetadataRequest):
        """The nodes that were asked."""
        return [a.node_id for a in self.network.asked if isinstance(a.request, request_type)]

    def metadata(self, topics=(), may_create=False, deadline_ms=10_000):
        return self.admin.metadata(list(topics), may_create, deadline_ms)


def cluster(controller_id=1, topics=()):
    brokers = [topic_api.MetadataResponseBroker(*CLUSTER[node_id][:3]) for node_id in (1, 2)]
    return topic_api.MetadataResponse(
        brokers=brokers, cluster_id="c", controller_id=controller_id, topics=list(topics)
    )


def topic(error):
    return topic_api.MetadataResponseTopic(error_named(error).code, "t")


class TestMetadata:
    def test_topic_without_leader_is_waited_for(self):
        errors = ["LEADER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NONE"]
        world = World(*(cluster(topics=[topic(error)]) for error in errors))
        assert world.metadata("t").topics == [topic("NONE")]
        assert len(world.asked()) == 3

    @pytest.mark.parametrize(("may_create", "least_ms"), [(False, 0), (True, 9_000)])
    def test_missing_topic_is_waited_for_only_if_it_may_be_created(self, may_create, least_ms):
        missing = topic("UNKNOWN_TOPIC_OR_PARTITION")
        world = World(by=lambda *_: cluster(topics=[missing]))
        assert world.metadata("t", may_create).topics == [missing]
        assert least_ms <= world.clock.ms <= 10_000

    def test_a_broker_that_knows_of_nobody_yet_is_asked_again(self):
        """It is still starting. A client that takes its word asks nobody, and finds nothing."""
        world = World(topic_api.MetadataResponse(), topic_api.MetadataResponse(), cluster())
        assert [node.node_id for node in world.admin.nodes(10_000)] == [1, 2]
        world = World(by=lambda *_: topic_api.MetadataResponse())
        with pytest.raises(BootstrapError, match="knows of no broker, itself included: it is"):
            world.admin.nodes(10_000)
        assert 9_000 <= world.clock.ms <= 10_000

    def test_error_of_the_whole_request(self):
        code = error_named("REBOOTSTRAP_REQUIRED").code
        world = World(topic_api.MetadataResponse(error_code=code))
        with pytest.raises(BrokerError, match="metadata: REBOOTSTRAP_REQUIRED"):
            world.metadata()
        assert world.clock.ms == 0

    def test_silence_ends_at_the_deadline(self):
        world = World(by=lambda *_: None)
        with pytest.raises(BrokerError, match="Metadata: no answer of boot:100: REQUEST_TIMED_OUT"):
            world.metadata(deadline_ms=7_000)
        assert world.clock.ms == 7_000

    def test_silence_is_tried_again_after_some_seconds_although_the_deadline_is_far(self):
        world = World(None, LoseConnection, LoseConnection, cluster())
        assert len(world.admin.nodes(LONG_MAX)) == 2
        assert 3_000 <= world.clock.ms < 4_000

    @pytest.mark.parametrize("name", [n for n in ClientSettings._fields if n.endswith("_ms")])
    def test_with_the_longest_of_each_wait(self, name):
        world = World(cluster(), settings=DEFAULT_SETTINGS._replace(**{name: LONG_MAX}))
        assert len(world.admin.nodes(world.admin.deadline_in(LONG_MAX))) == 2
        world.admin.close()


class TestUnreachable:
    @pytest.mark.parametrize(
        ("down", "told"),
        [
            ([-1, -2], "boot:100 (Connection refused), boot:99 (Connection refused)"),
            # Unlike reasons have the code of unreachable brokers.
            ([-2], "boot:100 (ApiVersions: INVALID_REQUEST (42)), boot:99 (Connection refused)"),
        ],
    )
    def test_dead_addresses_are_told_at_the_deadline(self, down, told):
        world = World(down=down, bootstrap=(BOOT, BOOT_2))
        world.network._api_versions = lambda: ApiVersionsResponse(42)
        with pytest.raises(BootstrapError) as raised:
            world.metadata(deadline_ms=5_000)
        assert str(raised.value) == f"no broker reachable: {told} [PKS-CONNECT-001]"
        assert world.clock.ms == 5_000

    def test_one_living_address_is_enough(self):
        world = World(cluster(), down=[-1], bootstrap=(BOOT, BOOT_2))
        world.metadata()
        assert world.clock.ms == 0

    def test_nodes_that_cannot_be_reached_are_waited_for_some_seconds_only(self):
        world = World()
        world.network.unreachable.add(-1)
        nodes = world.admin.bootstrap_nodes
        assert world.admin.await_all(nodes, world.admin.deadline_in(600_000)) == []
        assert world.clock.ms <= 2 * blocking._UNREACHABLE_PATIENCE_MS
        calls = [blocking.Call(node, topic_api.MetadataRequest()) for node in nodes]
        assert world.admin.request_all(calls, world.admin.deadline_in(600_000)) == [None]
        assert world.clock.ms <= 4 * blocking._UNREACHABLE_PATIENCE_MS

    def test_disconnect_completes_requests_without_waiting(self):
        world = World(None)
        client = NetworkClient(DEFAULT_SETTINGS, world.network, world.clock, random.Random(1))
        node, failures = CLUSTER[1], []
        while not client.ready(node, 0):
            client.poll(1, 0)
        client.send(node, topic_api.MetadataRequest(), 0, lambda r, _: failures.append(r.failure))
        client.poll(1_000, 0)  # sent
        client.disconnect(node, "enough")
        before_ms = world.clock.ms
        client.poll(1_000, before_ms)
        assert failures == ["enough"]
        assert world.clock.ms == before_ms


class TestCreateTopics:
    def world(self, *answers, controllers=(1,) * 99, **more):
        """Brokers that name these controllers in turn, and answer CreateTopics so."""
        controllers, results = iter(controllers), iter(answers)

        def answer(node_id, request):
            if isinstance(request, topic_api.MetadataRequest):
                return cluster(next(controllers))
            error = next(results)
            if not isinstance(error, str):
                return error
            result = topic_api.CreatableTopicResult("t", error_code=error_named(error).code)
            return topic_api.CreateTopicsResponse(topics=[result])

        return World(by=answer, **more)

    def create(self, world):
        return world.admin.create_topics([topic_api.CreatableTopic("t", 1, 1)], 10_000)["t"]

    @pytest.mark.parametrize(
        ("controllers", "answers", "down", "asked"),
        [
            pytest.param([2], ["NONE"], [], [2], id="goes to the controller"),
            pytest.param([1, 2], ["NOT_CONTROLLER", "NONE"], [], [1, 2], id="one that moved"),
            pytest.param([1, 2], ["NONE"], [1], [2], id="one that is dead"),
            pytest.param([1, 1], [LoseConnection, "NONE"], [], [1, 1], id="a lost connection"),
        ],
    )
    def test_is_asked_of_the_controller(self, controllers, answers, down, asked):
        world = self.world(*answers, controllers=controllers, down=down)
        assert self.create(world) is None
        assert world.asked(topic_api.CreateTopicsRequest) == asked

    def test_retriable_error_that_stays_is_the_result(self):
        world = self.world(*["THROTTLING_QUOTA_EXCEEDED"] * 99)
        assert self.create(world).error.name == "THROTTLING_QUOTA_EXCEEDED"
        assert len(world.asked(topic_api.CreateTopicsRequest)) > 3
        assert world.clock.ms <= 10_000

    def test_topic_that_the_answer_leaves_out(self):
        told = str(self.create(self.world(topic_api.CreateTopicsResponse())))
        assert "the broker did not say" in told

    def test_remaining_time_is_what_the_broker_gets(self):
        world = self.world("NOT_CONTROLLER", "NONE")
        self.create(world)
        asked = [a.request for a in world.network.asked]
        first, second = (r for r in asked if isinstance(r, topic_api.CreateTopicsRequest))
        assert first.timeout_ms == 10_000 > second.timeout_ms > 0

    def test_a_topic_that_somebody_else_has_created_meanwhile_is_there(self):
        def create(error):
            failed = BrokerError(error_named(error), "create topic b")
            admin = SimpleNamespace(create_topics=lambda *_: {"a": None, "b": failed})
            create_missing(admin, ["a", "b"], TopicCreation())

        create("TOPIC_ALREADY_EXISTS")
        with pytest.raises(TopicError, match="topic 'b' cannot be created"):
            create("POLICY_VIOLATION")


class TestConfigs:
    def answer(self, error, *values):
        configs = [
            topic_api.DescribeConfigsResourceResult(f"k{n}", value)
            for n, value in enumerate(values)
        ]
        code = error_named(error).code
        result = topic_api.DescribeConfigsResult(code, resource_name="t", configs=configs)
        return topic_api.DescribeConfigsResponse(results=[result])

    def ask(self, *answers):
        world = World(*answers)
        self.world = world
        node = world.admin.bootstrap_nodes[0]
        return configs_or_reason(world.admin, node, 2, "t", ["k"], world.admin.deadline_in(60_000))

    def test_settings_without_a_value_are_left_out(self):
        assert self.ask(self.answer("NONE", "a", None, "")) == ({"k0": "a", "k2": ""}, "")

    def test_a_topic_that_not_every_broker_knows_yet_is_asked_for_again(self):
        answers = self.answer("UNKNOWN_TOPIC_OR_PARTITION"), self.answer("NONE", "a")
        assert self.ask(*answers) == ({"k0": "a"}, "")

    def test_other_errors_than_a_missing_right_are_raised(self):
        with pytest.raises(BrokerError, match="DescribeConfigs of t"):
            self.ask(self.answer("INVALID_REQUEST"))

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            ([topic_api.DescribeConfigsResponse()], "reports no such setting"),
            (["NONE"], "reports no such setting"),
            (["TOPIC_AUTHORIZATION_FAILED"], "(29): it needs DESCRIBE_CONFIGS on the topic"),
        ],
        ids=["no result", "no settings", "not allowed"],
    )
    def test_a_missing_right_is_only_told_where_brokers_say_so(self, answers, reason):
        """Services answer with nothing, too."""
        answers = [self.answer(a) if isinstance(a, str) else a for a in answers]
        found, told = self.ask(*answers)
        assert (found, reason in told) == ({}, True)

    def test_a_service_that_does_not_offer_them(self):
        world = World()
        del world.network.offered[topic_api.DescribeConfigsRequest]
        node = world.admin.any_node(MINUTE_MS)
        found, told = configs_or_reason(world.admin, node, 2, "t", ["k"], MINUTE_MS)
        assert (found, "does not offer DescribeConfigs" in told) == ({}, True)

    def test_what_a_node_speaks_is_known_while_it_is_away(self):
        self.ask(self.answer("NONE", "a"))
        node = self.world.admin.bootstrap_nodes[0]
        self.world.admin._client.disconnect(node, "lost")
        assert self.world.admin.api_versions(node).supports(topic_api.MetadataRequest)


class TestPendingCalls:
    def test_of_a_round_those_that_are_left_are_neither_sent_nor_awaited(self):
        calls = [blocking.Call(BOOT, topic_api.MetadataRequest()) for _ in range(3)]
        pending = blocking.PendingCalls(calls, 0)
        pending.waiting[BOOT].popleft()
        pending.sent[0] = blocking.SentCall(calls[0], 1_000)
        pending.leave([0, 1])
        assert pending.open == []
        assert list(pending.waiting[BOOT]) == [2]
        pending.leave([2])
        assert pending.waiting == {}

    def test_a_node_that_answers_some_of_its_calls_is_not_silent(self):
        calls = [blocking.Call(node, topic_api.MetadataRequest()) for node in (BOOT, BOOT, BOOT_2)]
        pending = blocking.PendingCalls(calls, 0)
        pending.waiting.clear()
        pending.sent = {
            position: blocking.SentCall(call, 1_000) for position, call in enumerate(calls)
        }
        pending.sent[0].is_open = False
        assert pending.silent() == [2]
        assert pending.silent() == [1, 2]


# --- brokers that hang ----------------------------------------------------------------------------

BEGUN = InitProducerIdResponse(producer_id=4_000, producer_epoch=1)


def named(node_id, request):
    node = CLUSTER[node_id]
    keys = request.coordinator_keys
    return FindCoordinatorResponse(coordinators=[Coordinator(key, *node[:3]) for key in keys])


def begin(world, name="q.0"):
    begun = TransactionClient(world.admin).init_producer_id(name, 60_000, MINUTE_MS)
    assert begun.producer == (4_000, 1)
    return begun


def ask(world, *node_ids):
    calls = [blocking.Call(CLUSTER[node_id], InitProducerIdRequest()) for node_id in node_ids]
    return world.admin.request_all(calls, MINUTE_MS)


def test_a_broker_that_is_cut_off_from_the_others_and_names_itself():
    """It is the first of the list, answers, and does not know that another one coordinates now:
    what it is asked to write waits for replicas that do not hear it.
    """

    def answer(node_id, request):
        if isinstance(request, topic_api.MetadataRequest):
            return cluster()
        if isinstance(request, FindCoordinatorRequest):
            return named(1 if node_id == 1 else 2, request)
        return BEGUN if node_id == 2 else None

    world = World(by=answer, bootstrap=(CLUSTER[1], CLUSTER[2], BOOT))
    begin(world)
    assert world.asked(InitProducerIdRequest) == [1, 2]
    assert world.clock.ms <= 10_000


def test_a_slow_broker_has_twice_the_time_for_its_next_answer():
    """A request that takes its time must not be cut off for ever: not before its own timeout."""
    started_ms = []
    world = World(by=lambda *_: started_ms.append(world.clock.ms))
    with pytest.raises(BrokerError, match="InitProducerId: no answer of"):
        world.admin.request(CLUSTER[1], InitProducerIdRequest(), 100_000)
    pauses = [b - a for a, b in zip(started_ms, started_ms[1:])]
    assert [round(pause / 1_000) for pause in pauses] == [3, 6, 12, 24, 30]
    assert world.clock.ms == 100_000


def test_a_broker_that_stays_slow_keeps_its_longer_time_until_it_is_quick_again():
    """Else each of its answers would be waited for in vain first."""
    given_up_ms, world = [], World()
    # One request each; its attempts are answered after so many ms, or never.
    for answers_after_ms in ((None, 4_000), (4_000,), (None, 100), (None, 100)):
        attempts = iter(answers_after_ms)

        def answer(node_id, request, attempts=attempts):
            if (after_ms := next(attempts)) is None:
                return None
            world.clock.ms += after_ms
            return InitProducerIdResponse()

        world.by, started_ms = answer, world.clock.ms
        world.admin.request(CLUSTER[1], InitProducerIdRequest(), started_ms + MINUTE_MS)
        answered_ms = sum(ms or 0 for ms in answers_after_ms)
        given_up_ms.append(world.clock.ms - started_ms - answered_ms)
    assert [round(ms / 1_000) for ms in given_up_ms] == [3, 0, 6, 3]


def test_one_broker_that_hangs_neither_holds_up_others_nor_gives_them_more_time():
    world = World(by=lambda *_: BEGUN)
    ask(world, 1, 2)  # both are connected
    world.network.hung.add(1)
    for _ in range(3):
        assert [answer is None for answer in ask(world, 1, 2)] == [True, False]
    world.network.hung.add(2)
    started_ms = world.clock.ms
    ask(world, 2)
    assert world.clock.ms - started_ms <= 3_500


@pytest.mark.parametrize("failure", [None, LoseConnection])
def test_the_version_of_a_transaction_is_that_of_its_answer(failure):
    """Even if the connection is gone when it is looked at: a wrong one ends it the wrong way."""
    begun = iter([BEGUN, failure, BEGUN])

    def answer(node_id, request):
        if isinstance(request, topic_api.MetadataRequest):
            return cluster()
        is_init = isinstance(request, InitProducerIdRequest)
        return next(begun) if is_init else named(2, request)

    world = World(by=answer)
    world.network.features["transaction.version"] = 2
    assert [begin(world, name).transaction_version for name in ("q.0", "q.1")] == [2, 2]
