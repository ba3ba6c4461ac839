"""Which versions are spoken with a broker, by what the broker says of itself.

Real answers come from ``tests/unit/data``, where ``record_api_versions`` puts them; those of brokers
that are too old to be started here are built by hand. Their ranges are facts of the message
definitions, read off Apache Kafka's tags 2.1.1, 2.4.0 and 0.10.2.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import BootstrapError, UnsupportedVersionError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    NetworkEvent,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.messages.topics import (
    CreateTopicsRequest,
    MetadataRequest,
    ProduceRequest,
)
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from spark_kafka_sink.protocol.schema import Request
from spark_kafka_sink.protocol.types import Buffer
from tests.simulation.time import SimClock
from tests.unit.record_api_versions import FUTURE_VERSION, recorded

PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 3, 18, 19, 22
REQUESTS: dict[int, type[Request]] = {
    PRODUCE: ProduceRequest,
    METADATA: MetadataRequest,
    API_VERSIONS: ApiVersionsRequest,
    CREATE_TOPICS: CreateTopicsRequest,
    INIT_PRODUCER_ID: InitProducerIdRequest,
}
NEWEST_API_VERSIONS = 4
UNSUPPORTED_VERSION, CLUSTER_AUTHORIZATION_FAILED = 35, 31
BROKER = Node(7, "kafka7.example", 9092)

Ranges = Mapping[int, tuple[int, int]]
KAFKA_2_1 = {
    PRODUCE: (0, 7),
    METADATA: (0, 7),
    API_VERSIONS: (0, 2),
    CREATE_TOPICS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
}
KAFKA_2_4 = {
    PRODUCE: (0, 8),
    METADATA: (0, 9),
    API_VERSIONS: (0, 3),
    CREATE_TOPICS: (0, 5),
    INIT_PRODUCER_ID: (0, 2),
}
KAFKA_0_10_2 = {PRODUCE: (0, 2), METADATA: (0, 2), API_VERSIONS: (0, 0), CREATE_TOPICS: (0, 1)}
# One that has dropped what this client knows, as Kafka 4 dropped what old clients knew (KIP-896).
KAFKA_OF_THE_FUTURE = {**KAFKA_2_1, API_VERSIONS: (0, 9), PRODUCE: (14, 20)}


def body_v0(ranges: Ranges, error_code: int = 0) -> bytes:
    """An ApiVersions answer in version 0."""
    entries = b"".join(struct.pack(">hhh", key, *its) for key, its in ranges.items())
    return struct.pack(">hi", error_code, len(ranges)) + entries


def body(ranges: Ranges, version: int) -> bytes:
    """An ApiVersions answer in any version: throttled for no time, without features and tags."""
    if version < 3:
        return body_v0(ranges) + (struct.pack(">i", 0) if version else b"")
    entries = b"".join(struct.pack(">hhhB", key, *its, 0) for key, its in ranges.items())
    return struct.pack(">hB", 0, len(ranges) + 1) + entries + struct.pack(">iB", 0, 0)


def parse_v0(frame: bytes) -> dict[int, tuple[int, int]]:
    """The ranges of an answer in version 0; reads nothing else."""
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, len(frame)) == (0, 0, 10 + 6 * count)
    return {key: (first, last) for key, first, last in struct.iter_unpack(">hhh", frame[10:])}


class NoJitter:
    def random(self) -> float:
        return 0.5


Answer = Callable[[int], bytes]


class OneBroker:
    """A Network with one broker behind it, which answers ApiVersions and nothing else.

    ``answer``: the body of the answer, by version of the request. ``asked``: API key and version of
    each request that came. Time passes only while there is nothing to tell.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._events: list[NetworkEvent] = []
        self.clock = SimClock(0)
        self.asked: list[tuple[int, int]] = []

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        self._events.append(Resolved(channel_id, [Address(0, (host, port))]))

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        self._events.append(Connected(channel_id))

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> None:
        api_key, version, correlation_id = struct.unpack_from(">4xhhi", b"".join(buffers))
        self.asked.append((api_key, version))
        self._events.append(SendCompleted(channel_id))
        if api_key == API_VERSIONS:
            answer = self._answer(version)
            frame = struct.pack(">ii", 4 + len(answer), correlation_id) + answer
            self._events.append(Received(channel_id, frame))

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        events, self._events = self._events, []
        if not events:
            self.clock.ms += timeout_ms
        return events

    def disconnect(self, channel_id: int) -> None:
        self._events.clear()

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass


class Negotiated(NamedTuple):
    client: NetworkClient
    network: OneBroker

    def highest(self, api_key: int, at_most: int | None = None) -> int:
        versions = self.client.api_versions(BROKER)
        assert versions is not None, self.client.last_failure(BROKER)
        return versions.latest_usable_version(REQUESTS[api_key], at_most)

    def send(self, request: Request) -> None:
        self.client.send(BROKER, request, self.network.clock.ms, lambda answer, now_ms: None)


def negotiate(answer: Answer) -> Negotiated:
    """Connect, and poll until the broker's versions are known or the connection is lost."""
    network = OneBroker(answer)
    client = NetworkClient(DEFAULT_SETTINGS, network, network.clock, NoJitter())
    client.ready(BROKER, network.clock.ms)
    for _ in range(20):
        if client.is_ready(BROKER, network.clock.ms) or client.last_failure(BROKER) is not None:
            break
        client.poll(0, network.clock.ms)
    return Negotiated(client, network)


def broker_of(ranges: Ranges, unsupported: Ranges | None = None) -> Answer:
    """A broker that offers ``ranges``, and tells ``unsupported`` to who asks beyond them."""

    def answer(version: int) -> bytes:
        if version > ranges[API_VERSIONS][1]:
            return body_v0(unsupported or {}, UNSUPPORTED_VERSION)
        return body(ranges, version)

    return answer


class TestRecordedBrokers:
    """What real brokers of Kafka 3.9.1 and 4.3.0 answered."""

    EXPECTED: Mapping[str, Mapping[int, int]] = {
        "3.9.1": {
            PRODUCE: 11,
            METADATA: 12,
            API_VERSIONS: 4,
            CREATE_TOPICS: 7,
            INIT_PRODUCER_ID: 5,
        },
        "4.3.0": {
            PRODUCE: 13,
            METADATA: 13,
            API_VERSIONS: 4,
            CREATE_TOPICS: 7,
            INIT_PRODUCER_ID: 5,
        },
    }

    @pytest.mark.parametrize("kafka", EXPECTED)
    def test_the_highest_common_versions(self, kafka: str) -> None:
        frames = recorded(kafka)
        negotiated = negotiate(lambda version: frames[version][4:])
        for api_key, version in self.EXPECTED[kafka].items():
            assert negotiated.highest(api_key) == version
        assert negotiated.network.asked == [(API_VERSIONS, NEWEST_API_VERSIONS)]

    @pytest.mark.parametrize("kafka", EXPECTED)
    def test_requests_go_out_in_them(self, kafka: str) -> None:
        frames = recorded(kafka)
        negotiated = negotiate(lambda version: frames[version][4:])
        negotiated.send(MetadataRequest([]))
        assert negotiated.network.asked[-1] == (METADATA, self.EXPECTED[kafka][METADATA])

    @pytest.mark.parametrize("version", range(NEWEST_API_VERSIONS + 1))
    @pytest.mark.parametrize("kafka", EXPECTED)
    def test_every_version_of_the_answer_says_the_same(self, kafka: str, version: int) -> None:
        frames = recorded(kafka)
        response = api.decode_response(ApiVersionsRequest(), version, frames[version])
        assert isinstance(response, ApiVersionsResponse)
        ranges = {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
        assert ranges == parse_v0(frames[0])
        assert len(ranges) > 50
        features = {f.name for f in response.finalized_features}
        assert ("metadata.version" in features) == (version >= 3)

    @pytest.mark.parametrize("kafka", EXPECTED)
    def test_refusal_of_a_version_that_is_not_known(self, kafka: str) -> None:
        """A real refusal is in version 0, and offers the versions of ApiVersions alone."""
        frame = recorded(kafka)[FUTURE_VERSION]
        assert frame[4:] == body_v0({API_VERSIONS: (0, 4)}, UNSUPPORTED_VERSION)
        response = api.decode_response(ApiVersionsRequest(), NEWEST_API_VERSIONS, frame)
        assert isinstance(response, ApiVersionsResponse)
        assert response.error_code == UNSUPPORTED_VERSION
        [offered] = response.api_keys
        assert (offered.api_key, offered.min_version, offered.max_version) == (API_VERSIONS, 0, 4)

    def test_topics_without_an_id_are_produced_to_by_name(self) -> None:
        """Produce 13 knows topics by id alone."""
        frames = recorded("4.3.0")
        assert negotiate(lambda version: frames[version][4:]).highest(PRODUCE, 12) == 12
        frames = recorded("3.9.1")
        assert negotiate(lambda version: frames[version][4:]).highest(PRODUCE, 12) == 11


class TestOlderBrokers:
    def test_kafka_2_1_offers_nothing_when_it_refuses(self) -> None:
        """Before KIP-511 a refusal was empty: version 0 is what every broker has."""
        negotiated = negotiate(broker_of(KAFKA_2_1))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 0)]
        for api_key, (_, last) in KAFKA_2_1.items():
            assert negotiated.highest(api_key) == last
        negotiated.send(MetadataRequest([]))
        assert negotiated.network.asked[-1] == (METADATA, 7)

    def test_kafka_2_4_says_what_to_ask_with(self) -> None:
        negotiated = negotiate(broker_of(KAFKA_2_4, {API_VERSIONS: (0, 3)}))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 3)]
        for api_key, (_, last) in KAFKA_2_4.items():
            assert negotiated.highest(api_key) == last

    def test_a_refusal_that_offers_other_apis_alone(self) -> None:
        negotiated = negotiate(broker_of(KAFKA_2_1, {PRODUCE: (0, 7)}))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 0)]
        assert negotiated.highest(PRODUCE) == 7

    def test_a_broker_that_refuses_what_it_offers(self) -> None:
        """Asked with a lower version each time, so that it comes to an end."""
        refusal = body_v0({API_VERSIONS: (0, 4)}, UNSUPPORTED_VERSION)
        negotiated = negotiate(lambda version: refusal)
        assert "UNSUPPORTED_VERSION" in (negotiated.client.last_failure(BROKER) or "")
        versions = [version for _, version in negotiated.network.asked]
        assert versions == sorted(set(versions), reverse=True)

    def test_a_broker_that_refuses_version_0(self) -> None:
        negotiated = negotiate(lambda version: body_v0({}, UNSUPPORTED_VERSION))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 0)]
        assert negotiated.client.last_failure(BROKER) == "ApiVersions: UNSUPPORTED_VERSION (35)"

    def test_another_error(self) -> None:
        error = struct.pack(">hBiB", CLUSTER_AUTHORIZATION_FAILED, 1, 0, 0)
        negotiated = negotiate(lambda version: error)
        assert negotiated.network.asked == [(API_VERSIONS, 4)]
        failure = negotiated.client.last_failure(BROKER)
        assert failure == "ApiVersions: CLUSTER_AUTHORIZATION_FAILED (31)"


class TestNoCommonVersion:
    @pytest.mark.parametrize(
        ("ranges", "request_", "said"),
        [
            (KAFKA_0_10_2, ProduceRequest(), ["Produce:", "3 to 13", "0 to 2"]),
            (KAFKA_0_10_2, InitProducerIdRequest(), ["InitProducerId:", "0 to 5", "not offered"]),
            (KAFKA_0_10_2, CreateTopicsRequest(), ["CreateTopics:", "2 to 7", "0 to 1"]),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Request) else None,
    )
    def test_the_error_names_api_ranges_and_broker(
        self, ranges: Ranges, request_: Request, said: list[str]
    ) -> None:
        negotiated = negotiate(broker_of(ranges))
        with pytest.raises(UnsupportedVersionError) as raised:
            negotiated.send(request_)
        for words in (*said, "Kafka 2.1 or newer is needed", "broker 7 (kafka7.example:9092)"):
            assert words in str(raised.value)
        # Nothing was sent, and the connection is as good as before.
        assert negotiated.network.asked[-1] == (API_VERSIONS, 0)
        assert negotiated.highest(METADATA) == 2

    def test_a_broker_that_is_too_new_is_not_called_old(self) -> None:
        negotiated = negotiate(broker_of(KAFKA_OF_THE_FUTURE))
        with pytest.raises(UnsupportedVersionError) as raised:
            negotiated.send(ProduceRequest())
        assert "3 to 13" in str(raised.value)
        assert "14 to 20" in str(raised.value)
        assert "Kafka 2.1 or newer is needed" not in str(raised.value)

    def test_of_api_versions_itself(self) -> None:
        """The connection is useless then: its reason stands beside the address."""
        refusal = body_v0({API_VERSIONS: (5, 9)}, UNSUPPORTED_VERSION)
        with pytest.raises(BootstrapError) as raised:
            metadata_of(lambda version: refusal)
        for words in ("old.example:9092", "ApiVersions:", "0 to 4", "5 to 9"):
            assert words in str(raised.value)

    def test_of_metadata(self) -> None:
        """What a user is told who tries such a broker."""
        with pytest.raises(UnsupportedVersionError) as raised:
            metadata_of(broker_of({**KAFKA_0_10_2, METADATA: (0, 0)}))
        for words in ("old.example:9092", "Metadata:", "1 to 13", "0 to 0"):
            assert words in str(raised.value)


def metadata_of(answer: Answer) -> None:
    network = OneBroker(answer)
    servers = [("old.example", 9092)]
    with AdminClient(servers, DEFAULT_SETTINGS, network, network.clock, NoJitter()) as admin:
        admin.metadata([], False, admin.deadline_in(5_000))
