"""AdminClient against scripted brokers: no sockets, and time moves only when nothing happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from spark_kafka_sink.base.errors import BootstrapError, BrokerError, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    NetworkEvent,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.protocol import types
from spark_kafka_sink.protocol.messages.client import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.schema import Message, Request
from tests.simulation.time import SimClock
from tests.unit.frames import answer_frame, read_request

BOOTSTRAP_PORT = 100
REQUESTS: dict[int, type[Request]] = {
    request.api_key: request
    for request in (ApiVersionsRequest, MetadataRequest, CreateTopicsRequest)
}
Answer = Callable[[int, Request], "Message | str | None"]


class ScriptedBrokers:
    """A Network whose brokers, one per port, answer as a function says.

    The function gets the port and the request and returns a response, None for silence, or a
    reason why the connection is lost.
    """

    def __init__(self, clock: SimClock, answer: Answer, dead_ports: Sequence[int] = ()) -> None:
        self._clock = clock
        self._answer = answer
        self.dead_ports = set(dead_ports)
        self._ports: dict[int, int] = {}
        self._events: list[NetworkEvent] = []
        self.asked: list[tuple[int, Request]] = []
        self.api_versions: ApiVersionsResponse | None = None
        self._idle_polls = 0

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        self._events.append(Resolved(channel_id, [Address(0, (host, port))]))

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        port = address.sockaddr[1]
        assert isinstance(port, int)
        self._ports[channel_id] = port
        if port in self.dead_ports:
            self._events.append(Disconnected(channel_id, "Connection refused"))
        else:
            self._events.append(Connected(channel_id))

    def send(self, channel_id: int, buffers: Sequence[types.Buffer]) -> None:
        request, version, correlation_id = read_request(buffers, REQUESTS.values())
        self._events.append(SendCompleted(channel_id))
        answer = self._answer_of(self._ports[channel_id], request)
        if isinstance(answer, ApiVersionsResponse) and answer.error_code:
            version = 0  # the one version that every client can read
        if isinstance(answer, str):
            self._events.append(Disconnected(channel_id, answer))
        elif answer is not None:
            data = answer_frame(request, version, correlation_id, answer)
            self._events.append(Received(channel_id, data))

    def _answer_of(self, port: int, request: Request) -> Message | str | None:
        if isinstance(request, ApiVersionsRequest) and self.api_versions is not None:
            return self.api_versions
        if isinstance(request, ApiVersionsRequest):
            ranges = [
                ApiVersion(r.api_key, r.min_version, r.max_version) for r in REQUESTS.values()
            ]
            return ApiVersionsResponse(0, ranges)
        self.asked.append((port, request))
        return self._answer(port, request)

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        events, self._events = self._events, []
        if not events:
            self._idle_polls = 0 if timeout_ms else self._idle_polls + 1
            assert self._idle_polls < 3, "the client does not wait"
            self._clock.ms += timeout_ms
        return events

    def disconnect(self, channel_id: int) -> None:
        self._ports.pop(channel_id, None)

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass


def cluster(controller_id: int = 1, topics: Sequence[MetadataResponseTopic] = ()) -> Message:
    brokers = [MetadataResponseBroker(i, "broker", BOOTSTRAP_PORT + i) for i in (1, 2)]
    return MetadataResponse(
        brokers=brokers, cluster_id="c", controller_id=controller_id, topics=list(topics)
    )


def topic(name: str, error: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_named(error).code, name)


def created(error: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult("t", error_code=error_named(error).code)]
    )


def script(
    answer: Answer, dead_ports: Sequence[int] = (), addresses: int = 1
) -> tuple[AdminClient, ScriptedBrokers, SimClock]:
    clock = SimClock(0)
    brokers = ScriptedBrokers(clock, answer, dead_ports)
    bootstrap = [("boot", BOOTSTRAP_PORT - index) for index in range(addresses)]
    admin = AdminClient(bootstrap, DEFAULT_SETTINGS, brokers, clock, random.Random(1))
    return admin, brokers, clock


class TestMetadata:
    def test_lost_connection_is_made_again(self) -> None:
        answers: list[Message | str] = ["reset", "reset", cluster()]
        admin, brokers, clock = script(lambda port, request: answers.pop(0))
        assert admin.metadata([], False, 10_000) == cluster()
        assert len(brokers.asked) == 3
        assert 0 < clock.ms < 1_000

    def test_topic_without_leader_is_waited_for(self) -> None:
        errors = ["LEADER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NONE"]
        admin, brokers, _ = script(
            lambda port, request: cluster(topics=[topic("t", errors.pop(0))])
        )
        assert admin.metadata(["t"], False, 10_000).topics == [topic("t", "NONE")]
        assert len(brokers.asked) == 3

    @pytest.mark.parametrize(("may_create", "expected_ms"), [(False, 0), (True, 9_000)])
    def test_missing_topic_is_waited_for_only_if_it_may_be_created(
        self, may_create: bool, expected_ms: int
    ) -> None:
        missing = topic("t", "UNKNOWN_TOPIC_OR_PARTITION")
        admin, _, clock = script(lambda port, request: cluster(topics=[missing]))
        assert admin.metadata(["t"], may_create, 10_000).topics == [missing]
        assert expected_ms <= clock.ms <= 10_000

    def test_a_broker_that_knows_of_nobody_yet_is_asked_again(self) -> None:
        """It is still starting. Who takes its word asks nobody, and finds nothing."""
        answers = [MetadataResponse(), MetadataResponse(), cluster()]
        admin, brokers, _ = script(lambda port, request: answers.pop(0))
        assert [node.node_id for node in admin.nodes(10_000)] == [1, 2]
        assert len(brokers.asked) == 3

    def test_a_broker_that_knows_of_nobody_for_good(self) -> None:
        admin, _, clock = script(lambda port, request: MetadataResponse())
        with pytest.raises(
            BootstrapError, match="knows of no broker, itself included: it is still"
        ):
            admin.nodes(10_000)
        assert 9_000 <= clock.ms <= 10_000

    def test_error_of_the_whole_request(self) -> None:
        error = MetadataResponse(error_code=error_named("REBOOTSTRAP_REQUIRED").code)
        admin, _, clock = script(lambda port, request: error)
        with pytest.raises(BrokerError, match="metadata: REBOOTSTRAP_REQUIRED"):
            admin.metadata([], False, 10_000)
        assert clock.ms == 0

    def test_silence_ends_at_the_deadline(self) -> None:
        admin, _, clock = script(lambda port, request: None)
        with pytest.raises(BrokerError, match="Metadata: no answer of boot:100: REQUEST_TIMED_OUT"):
            admin.metadata([], False, 7_000)
        assert clock.ms == 7_000

    def test_silence_is_tried_again_after_some_seconds(self) -> None:
        answers: list[Message | None] = [None, cluster()]
        admin, _, clock = script(lambda port, request: answers.pop(0))
        admin.metadata([], False, 60_000)
        assert 3_000 <= clock.ms < 4_000


class TestUnreachable:
    def test_dead_addresses_are_told_at_the_deadline(self) -> None:
        admin, _, clock = script(lambda port, request: None, dead_ports=[99, 100], addresses=2)
        with pytest.raises(BootstrapError) as raised:
            admin.metadata([], False, 5_000)
        assert str(raised.value) == (
            "no broker reachable: boot:100 (Connection refused), boot:99 (Connection refused)"
        )
        assert clock.ms == 5_000

    def test_one_living_address_is_enough(self) -> None:
        admin, _, clock = script(lambda port, request: cluster(), dead_ports=[100], addresses=2)
        admin.metadata([], False, 5_000)
        assert clock.ms == 0

    def test_connection_lost_for_good(self) -> None:
        def answer(port: int, request: Request) -> str:
            brokers.dead_ports.add(port)
            return "reset"

        admin, brokers, _ = script(answer)
        with pytest.raises(BootstrapError, match="Connection refused"):
            admin.metadata([], False, 5_000)


class TestCreateTopics:
    def create(self, admin: AdminClient) -> BrokerError | None:
        return admin.create_topics([CreatableTopic("t", 1, 1)], 10_000)["t"]

    def ports(self, brokers: ScriptedBrokers) -> list[int]:
        return [port for port, request in brokers.asked if isinstance(request, CreateTopicsRequest)]

    def test_goes_to_the_controller(self) -> None:
        admin, brokers, _ = script(
            lambda port, request: (
                cluster(2) if isinstance(request, MetadataRequest) else created("NONE")
            )
        )
        assert self.create(admin) is None
        assert self.ports(brokers) == [BOOTSTRAP_PORT + 2]

    def test_follows_a_controller_that_moved(self) -> None:
        controllers = [1, 2]
        admin, brokers, _ = script(
            lambda port, request: (
                cluster(controllers.pop(0))
                if isinstance(request, MetadataRequest)
                else created("NONE" if port == BOOTSTRAP_PORT + 2 else "NOT_CONTROLLER")
            )
        )
        assert self.create(admin) is None
        assert self.ports(brokers) == [BOOTSTRAP_PORT + 1, BOOTSTRAP_PORT + 2]

    def test_asks_again_when_the_controller_is_dead(self) -> None:
        controllers = [1, 2]
        admin, brokers, _ = script(
            lambda port, request: (
                cluster(controllers.pop(0))
                if isinstance(request, MetadataRequest)
                else created("NONE")
            ),
            dead_ports=[BOOTSTRAP_PORT + 1],
        )
        assert self.create(admin) is None
        assert self.ports(brokers) == [BOOTSTRAP_PORT + 2]

    def test_asks_again_when_the_connection_is_lost(self) -> None:
        answers: list[Message | str] = ["reset", created("NONE")]
        admin, brokers, _ = script(
            lambda port, request: (
                cluster() if isinstance(request, MetadataRequest) else answers.pop(0)
            )
        )
        assert self.create(admin) is None
        assert len(self.ports(brokers)) == 2

    def test_retriable_error_that_stays_is_the_result(self) -> None:
        admin, brokers, clock = script(
            lambda port, request: (
                cluster()
                if isinstance(request, MetadataRequest)
                else created("THROTTLING_QUOTA_EXCEEDED")
            )
        )
        error = self.create(admin)
        assert error is not None
        assert error.error.name == "THROTTLING_QUOTA_EXCEEDED"
        assert len(self.ports(brokers)) > 3
        assert clock.ms <= 10_000

    def test_topic_that_the_answer_leaves_out(self) -> None:
        admin, _, _ = script(
            lambda port, request: (
                cluster() if isinstance(request, MetadataRequest) else CreateTopicsResponse()
            )
        )
        assert "the broker did not say" in str(self.create(admin))

    def test_remaining_time_is_what_the_broker_gets(self) -> None:
        errors = ["NOT_CONTROLLER", "NONE"]
        admin, brokers, _ = script(
            lambda port, request: (
                cluster() if isinstance(request, MetadataRequest) else created(errors.pop(0))
            )
        )
        self.create(admin)
        timeouts = [r.timeout_ms for _, r in brokers.asked if isinstance(r, CreateTopicsRequest)]
        assert timeouts[0] == 10_000
        assert 0 < timeouts[1] < 10_000


class TestNetworkClient:
    def test_disconnect_completes_requests_without_waiting(self) -> None:
        clock = SimClock(0)
        brokers = ScriptedBrokers(clock, lambda port, request: None)
        client = NetworkClient(DEFAULT_SETTINGS, brokers, clock, random.Random(1))
        node = Node(1, "broker", 101)
        while not client.ready(node, clock.ms):
            client.poll(1, clock.ms)
        failures: list[str | None] = []
        client.send(node, MetadataRequest(), clock.ms, lambda r, _: failures.append(r.failure))
        client.poll(1_000, clock.ms)  # sent
        client.disconnect(node, "enough")
        before_ms = clock.ms
        client.poll(1_000, clock.ms)
        assert failures == ["enough"]
        assert clock.ms == before_ms

    def test_broker_without_a_common_version_of_api_versions(self) -> None:
        """From some far future: the reason is told, and nothing breaks."""
        admin, brokers, _ = script(lambda port, request: None)
        code = error_named("UNSUPPORTED_VERSION").code
        brokers.api_versions = ApiVersionsResponse(code, [ApiVersion(18, 90, 91)])
        with pytest.raises(BootstrapError, match="ApiVersions: this client speaks versions 0 to 4"):
            admin.metadata([], False, 5_000)
