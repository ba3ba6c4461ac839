"""Second checks, forgetting and limits of connections and of who waits for answers."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest

from spark_kafka_sink.base.errors import BrokerError, TopicError, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.client.admin import (
    DEFAULT_SETTINGS,
    AdminClient,
    configs_or_reason,
    create_missing,
)
from spark_kafka_sink.client.blocking import (
    _ANSWER_MS,
    _MAX_DOUBLINGS,
    _UNREACHABLE_PATIENCE_MS,
    Call,
    PendingCalls,
    SentCall,
)
from spark_kafka_sink.client.coordinators import _LOOK_MS, CoordinatorRequest, Coordinators
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.network.channels import PlaintextChannel, RefusedError
from spark_kafka_sink.network.client import NetworkClient, ThrottleTimes, sasl_hint
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    NetworkEvent,
    Received,
    Resolved,
)
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.network.resolver import Resolver, Take, look_up
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.protocol.api import BrokerApiVersions, VersionRange
from spark_kafka_sink.protocol.connection import Authentication
from spark_kafka_sink.protocol.messages.client import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from spark_kafka_sink.protocol.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
    MetadataResponse,
)
from spark_kafka_sink.protocol.messages.transactions import (
    Coordinator,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.security.mechanisms import PlainSaslClient
from tests.patience import PATIENCE_MS
from tests.simulation.time import SimClock
from tests.unit.scripted_network import Asked, ScriptedNetwork

NODE = Node(1, "broker.example", 9092)
MOVED = Node(1, "other.example", 9092)
OFFERED = {MetadataRequest: (0, 12), DescribeConfigsRequest: (1, 4)}


class World:
    """A client, and one broker whose name has several addresses."""

    def __init__(self) -> None:
        self.clock = SimClock(0)
        self.network = ScriptedNetwork({1: NODE}, self.clock, self._answer, OFFERED)
        self.network.resolve = self._resolve  # type: ignore[method-assign]
        self.network.connect = self._connect  # type: ignore[method-assign]
        self.resolved: list[str] = []
        self.connected: list[str] = []
        self.client = NetworkClient(DEFAULT_SETTINGS, self.network, self.clock, random.Random(1))

    def _resolve(self, channel_id: int, host: str, port: int) -> None:
        self.resolved.append(host)
        found = [Address(0, (f"{host}/{number}", port)) for number in range(3)]
        self.network._events.append(Resolved(channel_id, found))

    def _connect(self, channel_id: int, address: Address, host: str) -> None:
        self.connected.append(str(address))
        ScriptedNetwork.connect(self.network, channel_id, Address(0, NODE[1:3]), host)

    def _answer(self, asked: Asked) -> Message:
        return MetadataResponse()

    def become_ready(self, node: Node = NODE) -> None:
        while not self.client.ready(node, self.clock.now_ms()):
            self.client.poll(10_000, self.clock.now_ms())

    def lose(self) -> None:
        (channel_id,) = self.client._by_channel
        self.network._events.append(Disconnected(channel_id, "reset"))
        self.client.poll(0, self.clock.now_ms())


def test_after_a_connection_that_was_good_the_name_is_looked_up_again() -> None:
    """KAFKA-12193: what stood behind it may have moved."""
    world = World()
    world.become_ready()
    world.lose()
    world.become_ready()
    assert world.resolved == [NODE.host] * 2
    assert world.connected == [f"{NODE.host}/0"] * 2


def test_a_broker_that_advertises_another_name_is_not_looked_for_at_the_former_addresses() -> None:
    world = World()
    world.network.down.add(1)
    while not world.connected:
        world.client.ready(NODE, world.clock.now_ms())
        world.client.poll(0, world.clock.now_ms())
    world.client.poll(0, world.clock.now_ms())
    world.network.down.clear()
    world.become_ready(MOVED)
    assert world.connected == [f"{NODE.host}/0", f"{MOVED.host}/0"]


def test_of_a_lost_connection_only_requests_of_others_are_completed() -> None:
    """Its own, ApiVersions, have nobody who waits for them."""
    world = World()
    world.network.hung.add(1)
    while not world.client._connection(NODE).in_flight:
        world.client.ready(NODE, world.clock.now_ms())
        world.client.poll(0, world.clock.now_ms())
    world.lose()
    assert world.client.last_failure(NODE) is not None
    assert world.client.in_flight_count() == 0


@pytest.mark.parametrize("throttle_time_ms", [0, 5000])
def test_an_answer_before_the_request_is_sent_loses_the_connection(throttle_time_ms: int) -> None:
    """Its memory may be used again as soon as it is completed, and it is still being written."""
    world = World()
    world.become_ready()
    answer = MetadataResponse(throttle_time_ms=throttle_time_ms)
    world.network._script = lambda asked: answer
    done: list[ClientResponse] = []
    world.client.send(NODE, MetadataRequest([]), 0, lambda response, now_ms: done.append(response))
    world.network._events = [e for e in world.network._events if isinstance(e, Received)]
    world.client.poll(0, 0)
    assert [r.failure for r in done] == [
        "the answer to MetadataRequest came before all of it was sent"
    ]
    world.client.renew_connections()
    world.client.poll(0, 0)
    assert not world.client._by_channel


def test_only_who_is_not_authenticated_and_was_never_answered_is_asked_about_sasl() -> None:
    """Else a broker that restarts would have users look at their options."""
    world = World()
    world.become_ready()
    connection = world.client._connection(NODE)
    world.network.hung.add(1)
    world.client.send(NODE, MetadataRequest(), 0, lambda *_: None)
    assert "kafka.security.protocol" in sasl_hint(connection)
    connection.has_answered = True
    assert sasl_hint(connection) == ""
    connection.has_answered = False
    protocol = connection.protocol
    assert protocol is not None
    protocol._authentication = Authentication(lambda: PlainSaslClient("a", Secret("p")), Middle())
    assert sasl_hint(connection) == ""


class Middle:
    def random(self) -> float:
        return 0.5


def test_an_address_is_tried_once_however_often_the_name_server_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 9092))] * 2
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: twice)
    found = look_up("b.example", 9092)
    assert isinstance(found, list)
    assert len(found) == 1


def test_names_are_looked_up_for_as_long_as_a_client_lives() -> None:
    """Threads that have ended make room for others: there are 8 at most at a time."""
    found: list[object] = []

    def begin(take: Take) -> None:
        while (asked := take()) is not None:
            asked.on_found(OSError("no such name"))

    resolver = Resolver(begin)
    for number in range(20):
        resolver.resolve(f"b{number}.example", 9092, found.append)
    assert len(found) == 20


def test_a_socket_that_cannot_be_secured_is_closed() -> None:
    made: list[socket.socket] = []

    def refuse(channel_id: int, sock: socket.socket, host: str) -> PlaintextChannel:
        made.append(sock)
        raise RefusedError("no certificate")

    network = SelectorNetwork(open_channel=refuse)
    network.connect(1, Address(socket.AF_INET, ("127.0.0.1", 1)), "b")
    assert network.poll(0) == [Disconnected(1, "no certificate", is_refused=True)]
    assert made[0].fileno() == -1
    network.close()


class EndsWithItsHandshake(PlaintextChannel):
    """As a broker that refuses a certificate after the handshake of TLS 1.3, with bytes before."""

    def finish_connect(self) -> bytes:
        self.is_connected = True
        self.failure = RefusedError("bad certificate")
        return b"bytes"


def test_what_ends_a_connection_with_its_handshake_is_told_at_once() -> None:
    network = SelectorNetwork(open_channel=EndsWithItsHandshake)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        network.connect(1, Address(socket.AF_INET, listener.getsockname()), "b")
        events: list[NetworkEvent] = []
        while not events:
            events = network.poll(PATIENCE_MS)
    network.close()
    assert events == [
        Connected(1),
        Received(1, b"bytes"),
        Disconnected(1, "bad certificate", is_refused=True),
    ]


def test_pauses_that_overlap_are_one_and_those_of_the_past_are_forgotten() -> None:
    """Else time would be counted twice, and a query of weeks would remember each."""
    pauses = ThrottleTimes()
    for from_ms, until_ms in ((0, 100), (50, 80), (100, 120), (500, 600)):
        pauses.note(1, from_ms, until_ms)
    assert pauses.between(1, 0, 1_000) == [(0, 120), (500, 600)]
    pauses.note(2, 0, 10)
    assert pauses.latest_end_ms == 600
    pauses.forget_before(130)
    assert pauses.between(1, 0, 1_000) == [(500, 600)]
    assert pauses.between(2, 0, 1_000) == []


# --- who waits for several nodes -------------------------------------------------------------------


def test_of_a_round_those_that_are_left_are_neither_sent_nor_awaited() -> None:
    calls = [Call(NODE, MetadataRequest()) for _ in range(3)]
    asked = PendingCalls(calls, 0)
    asked.waiting[NODE].popleft()
    asked.sent[0] = SentCall(calls[0], 1_000)
    asked.leave([0, 1])
    assert asked.open == []
    assert list(asked.waiting[NODE]) == [2]
    asked.leave([2])
    assert asked.waiting == {}


def test_a_node_that_answers_some_of_its_calls_is_not_silent() -> None:
    other = Node(2, "b", 1)
    calls = [Call(node, MetadataRequest()) for node in (NODE, NODE, other)]
    asked = PendingCalls(calls, 0)
    asked.waiting.clear()
    asked.sent = {position: SentCall(call, 1_000) for position, call in enumerate(calls)}
    asked.sent[0].is_open = False
    assert asked.silent() == [2]
    assert asked.silent() == [1, 2]


class Admin(World):
    """A client that asks and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Message] = []
        parts = self.network, self.clock, random.Random(1)
        self.admin = AdminClient([NODE[1:3]], DEFAULT_SETTINGS, *parts)

    def _answer(self, asked: Asked) -> Message:
        return self.answers.pop(0)

    def configs(self) -> tuple[dict[str, str], str]:
        node = self.admin.bootstrap_nodes[0]
        return configs_or_reason(self.admin, node, 2, "t", ["k"], self.admin.deadline_in(60_000))


def told(error_name: str, *values: str | None) -> DescribeConfigsResponse:
    configs = [DescribeConfigsResourceResult(f"k{n}", value) for n, value in enumerate(values)]
    code = error_named(error_name).code
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(code, resource_name="t", configs=configs)]
    )


def test_settings_without_a_value_are_left_out() -> None:
    world = Admin()
    world.answers = [told("NONE", "a", None, "")]
    assert world.configs() == ({"k0": "a", "k2": ""}, "")


def test_a_topic_that_not_every_broker_knows_yet_is_asked_for_again() -> None:
    world = Admin()
    world.answers = [told("UNKNOWN_TOPIC_OR_PARTITION"), told("NONE", "a")]
    assert world.configs() == ({"k0": "a"}, "")


def test_settings_that_may_not_be_seen_are_no_error_and_others_are() -> None:
    world = Admin()
    world.answers = [told("TOPIC_AUTHORIZATION_FAILED")]
    found, reason = world.configs()
    assert (found, "TOPIC_AUTHORIZATION_FAILED" in reason) == ({}, True)
    world.answers = [told("INVALID_REQUEST")]
    with pytest.raises(BrokerError, match="DescribeConfigs of t"):
        world.configs()


def test_nodes_that_cannot_be_reached_are_waited_for_some_seconds_only() -> None:
    world = Admin()
    world.network.unreachable.add(1)
    nodes = world.admin.bootstrap_nodes
    assert world.admin.await_all(nodes, world.admin.deadline_in(600_000)) == []
    assert world.clock.now_ms() <= 2 * _UNREACHABLE_PATIENCE_MS
    calls = [Call(node, MetadataRequest()) for node in nodes]
    assert world.admin.request_all(calls, world.admin.deadline_in(600_000)) == [None]
    assert world.clock.now_ms() <= 4 * _UNREACHABLE_PATIENCE_MS


def test_what_a_silent_node_is_given_does_not_grow_for_ever() -> None:
    world = Admin()
    node = world.admin.bootstrap_nodes[0]
    world.admin._unanswered[node] = 50
    assert world.admin._answer_ms(node) == _ANSWER_MS << _MAX_DOUBLINGS


def test_what_a_node_speaks_is_known_while_it_is_away() -> None:
    world = Admin()
    world.answers = [told("NONE", "a")]
    world.configs()
    node = world.admin.bootstrap_nodes[0]
    world.admin._client.disconnect(node, "lost")
    versions = world.admin.api_versions(node)
    assert versions is not None
    assert versions.supports(MetadataRequest)


class Creating:
    """Stands in for the admin client: each topic has an error, or none."""

    def __init__(self, errors: dict[str, str | None]) -> None:
        self._errors = errors

    def create_topics(self, topics: Any, timeout_ms: int) -> dict[str, BrokerError | None]:
        return {
            name: None if error is None else BrokerError(error_named(error), f"create topic {name}")
            for name, error in self._errors.items()
        }


def test_a_topic_that_somebody_else_has_created_meanwhile_is_there() -> None:
    creation = TopicCreation()
    create_missing(Creating({"a": None, "b": "TOPIC_ALREADY_EXISTS"}), ["a", "b"], creation)  # type: ignore[arg-type]
    with pytest.raises(TopicError, match="topic 'b' cannot be created"):
        create_missing(Creating({"a": None, "b": "POLICY_VIOLATION"}), ["a", "b"], creation)  # type: ignore[arg-type]


class Asking:
    """Stands in for the client that asks coordinators: what each node answers."""

    def __init__(self, answers: dict[Node, Message]) -> None:
        self._answers = answers
        self.asked: list[Node] = []

    def request_all(self, calls: list[Call], *_: object) -> list[Message]:
        self.asked += [call.node for call in calls]
        return [self._answers[call.node] for call in calls]


def test_each_coordinator_is_asked_once_and_one_that_fails_tells_no_version() -> None:
    """Version 0 of one that does not tell would leave transactions open."""
    failing, telling = Node(1, "a", 1), Node(2, "b", 1)
    told = ApiVersionsResponse(finalized_features=[FinalizedFeatureKey("transaction.version", 2)])
    told.finalized_features[0].max_version_level = 2
    admin = Asking({failing: ApiVersionsResponse(error_code=35), telling: told})
    coordinators = Coordinators(admin)  # type: ignore[arg-type]
    coordinators._nodes.update({"i": failing, "j": telling, "k": telling})
    assert coordinators.transaction_versions(["i", "j", "k"], 0) == {telling: 2}
    assert sorted(admin.asked) == [failing, telling]


class Finding(Asking):
    """Whoever is asked names ``coordinator``. deadlines_ms: of the requests for that"""

    def __init__(self, answers: dict[Node, Message], coordinator: Node, error_code: int = 0):
        super().__init__(answers)
        self._told = Coordinator("i", *coordinator[:3], error_code)
        self.deadlines_ms: list[int] = []

    def any_node(self, deadline_ms: int) -> Node:
        return NODE

    def api_versions(self, node: Node) -> BrokerApiVersions:
        return BrokerApiVersions({FindCoordinatorRequest.api_key: VersionRange(0, 6)})

    def request(self, node: None, request: Message, deadline_ms: int) -> Message:
        self.deadlines_ms.append(deadline_ms)
        return FindCoordinatorResponse(coordinators=[self._told])

    def deadline_in(self, duration_ms: int) -> int:
        return duration_ms

    def pause(self, attempts: int, deadline_ms: int) -> bool:
        return attempts < 3


def test_a_coordinator_that_is_none_any_more_is_found_again() -> None:
    not_coordinator = error_named("NOT_COORDINATOR").code
    admin = Finding({NODE: EndTxnResponse(error_code=not_coordinator), MOVED: EndTxnResponse()}, MOVED)  # fmt: skip
    coordinators = Coordinators(admin)  # type: ignore[arg-type]
    coordinators._nodes["i"] = NODE
    questions = [CoordinatorRequest(("i",), EndTxnRequest("i"))]
    answers = coordinators.ask(questions, lambda answer: answer.error_code, 1_000)  # type: ignore[attr-defined]
    assert [ids for ids, _ in answers] == [("i",)]
    assert admin.asked == [NODE, MOVED]


@pytest.mark.parametrize(
    ("error", "known", "moved"),
    [("NONE", NODE, {"i"}), ("NONE", MOVED, {"i"}), ("COORDINATOR_NOT_AVAILABLE", None, set())],
)
def test_whether_a_coordinator_has_moved_is_looked_at_for_a_while(
    error: str, known: Node | None, moved: set[str]
) -> None:
    """It is not told to have moved where nobody is told to coordinate."""
    admin = Finding({}, MOVED, error_named(error).code)
    coordinators = Coordinators(admin)  # type: ignore[arg-type]
    if known is not None:
        coordinators._nodes["i"] = known
    assert coordinators._have_moved({"i": NODE}, 10**9) == moved
    assert admin.deadlines_ms == [_LOOK_MS]
