"""``LocalKafka.create_topic`` against a scripted broker that answers late."""

import random
from pathlib import Path

import pytest

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.localkafka import (
    LocalKafka,
    LocalKafkaError,
    LocalRegistry,
    LocalSecurity,
    cluster,
)
from spark_kafka_sink.localkafka.cluster import PORTS_VARIABLE, free_ports
from spark_kafka_sink.localkafka.security import listeners_of
from spark_kafka_sink.localkafka.settings import (
    BrokerPorts,
    render_properties,
    server_properties,
)
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.answering import SameAnswer
from tests.simulation.time import SimClock
from tests.unit.scripted_network import ScriptedNetwork


def properties(brokers):
    ports = {
        i: BrokerPorts(200 + i, {"PLAINTEXT": 100 + i, "S": 300 + i}) for i in range(1, brokers + 1)
    }
    protocols = {"PLAINTEXT": "PLAINTEXT", "S": "SASL_SSL"}
    return server_properties(1, ports, protocols, Path("/data"))


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_replication_of_internal_topics(brokers, replicas, in_sync):
    found = properties(brokers)
    assert found["offsets.topic.replication.factor"] == replicas
    assert found["transaction.state.log.replication.factor"] == replicas
    assert found["transaction.state.log.min.isr"] == in_sync


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain=text: #!", "plain=text: #!"),
        (" leading", "\\ leading"),
        ("#no comment", "\\#no comment"),
        ("C:\\dir", "C:\\\\dir"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("é🚀", "\\u00e9\\ud83d\\ude80"),
        ("", ""),
    ],
)
def test_properties_file(value, written):
    assert render_properties({"a.b": value, "c": "1"}) == f"a.b={written}\nc=1\n"


def test_ports_are_chosen_from_those_that_are_given(monkeypatch):
    monkeypatch.setenv(PORTS_VARIABLE, "20000-20099")
    ports = free_ports(20, "127.0.0.1")
    assert all(20_000 <= port < 20_100 for port in ports)
    assert len(set(ports)) == 20


@pytest.mark.parametrize("given", ["", "15000", "a-b", "2000-1000", "1-2-3"])
def test_ports_that_are_no_range(monkeypatch, given):
    monkeypatch.setenv(PORTS_VARIABLE, given)
    with pytest.raises(LocalKafkaError, match=f"{PORTS_VARIABLE} is '{given}', not a range"):
        free_ports(1, "127.0.0.1")


def seen(leader=1, isr=(1, 2), error=0):
    partition = MetadataResponsePartition(0, 0, leader, 0, [1, 2], list(isr))
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, "h", 1), MetadataResponseBroker(2, "h", 2)],
        controller_id=1,
        topics=[MetadataResponseTopic(error, "t", partitions=[partition])],
    )


class TestReadiness:
    def test_serving(self):
        assert cluster.is_serving([1, 2])(seen()) is None
        assert cluster.is_serving([1, 2])(seen(leader=-1)) == "t-0 has no leader"
        assert cluster.is_serving([1])(seen(leader=-1)) is None, "a replica is not running"
        assert cluster.is_serving([1, 2, 3])(seen()) == "it knows brokers [1, 2], not [3]"
        headless = seen()
        headless.controller_id = -1
        assert cluster.is_serving([1, 2])(headless) == "it knows no controller"

    def test_in_sync(self):
        assert cluster.is_serving([1, 2], in_sync=True)(seen()) is None
        problem = cluster.is_serving([1, 2], in_sync=True)(seen(isr=(1,)))
        assert problem == "t-0 has replicas [1, 2], in sync are [1]"
        assert cluster.is_serving([1], in_sync=True)(seen(isr=(1,))) is None
        unknown = cluster.is_serving([1, 3], in_sync=True)(seen())
        assert unknown == "it knows brokers [1, 2], not [3]"

    def test_has_topic(self):
        assert cluster.has_topic("t", 1)(seen()) is None
        assert cluster.has_topic("t", 2)(seen()) == "1 of 2 have a leader"
        assert cluster.has_topic("t", 1)(seen(leader=-1)) == "0 of 1 have a leader"
        assert cluster.has_topic("u", 1)(seen()) == "topic u is unknown"
        assert "LEADER_NOT_AVAILABLE" in str(cluster.has_topic("t", 1)(seen(error=5)))


NODE = Node(1, "broker", 9092)
OFFERED = {
    request: (request.min_version, request.max_version)
    for request in (MetadataRequest, CreateTopicsRequest)
}
LATE_MS = 8_000
UNKNOWN_TOPIC = 3


class LateKafka(LocalKafka):
    """Needs 8 s to describe the topic and 8 s to create it, and never shows it."""

    def __init__(self, log_file, down=frozenset()):
        super().__init__()
        self._down = down
        self.clock = SimClock(0)
        self._clock = self.clock
        self._log_file = log_file

    def _answer(self, asked):
        request = asked.request
        if isinstance(request, CreateTopicsRequest):
            self.clock.ms += LATE_MS
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
        brokers = [MetadataResponseBroker(*NODE[:3])]
        if not request.topics:
            return MetadataResponse(brokers=brokers)
        self.clock.ms += LATE_MS
        topics = [MetadataResponseTopic(UNKNOWN_TOPIC, topic.name) for topic in request.topics]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _running(self):
        return [1]

    def _admin(self, broker_ids, request_timeout_ms=2_000):
        network = ScriptedNetwork({1: NODE}, self.clock, self._answer, OFFERED)
        network.down.update(self._down)
        settings = DEFAULT_SETTINGS._replace(request_timeout_ms=60_000)
        rng = random.Random(1)
        return AdminClient([(NODE.host, NODE.port)], settings, network, self.clock, rng)

    def log_file(self, broker_id):
        return self._log_file

    def await_failure(self, timeout_ms):
        self.clock.ms += timeout_ms
        return None


def test_one_timeout_for_all_requests(tmp_path):
    """Asking for the topic takes 8 s and creating it too: 4 s are left until all brokers know it."""
    kafka = LateKafka(tmp_path / "broker.log")
    with pytest.raises(LocalKafkaError, match="topic t not ready within 20000 ms"):
        kafka.create_topic("t", timeout_ms=20_000)
    assert 20_000 <= kafka.clock.ms <= 20_100


def test_a_broker_that_never_answers_has_the_code_of_local_brokers(tmp_path):
    """Not that of an unreachable broker, whose remedies are for the options of a query."""
    kafka = LateKafka(tmp_path / "broker.log", down={1})
    with pytest.raises(LocalKafkaError, match="no broker reachable") as raised:
        kafka._await(lambda answer: None, "Kafka", 20_000)
    assert str(raised.value).endswith(" [PKS-LOCAL-010]")


def test_a_protocol_is_enough():
    assert listeners_of(None) == {}
    one = LocalSecurity()
    assert one.users["alice"] not in repr(one)
    assert one.users != LocalSecurity().users, "passwords are made on the fly"
    (name, security), *others = listeners_of("sasl_plaintext").items()
    assert not others
    assert (name, security.protocol) == ("SECURED", "SASL_PLAINTEXT")
    assert security.mechanisms == ("SCRAM-SHA-512",)
    assert set(security.users) == {"alice"}
    assert not security.has_tls
    assert security.has_sasl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocol": "TLS"}, "protocol 'TLS' is none of SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"mechanisms": ["SCRAM"]}, "mechanism 'SCRAM' is none of PLAIN"),
        ({"client_auth": "yes"}, "client_auth 'yes' is none of none, requested, required"),
        ({"users": {"a b": "x"}}, "'a b' is not a user's name"),
        ({"mechanisms": ["OAUTHBEARER"]}, "OAUTHBEARER needs oauth=LocalOAuth"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocalSecurity(**arguments)
    with pytest.raises(ValueError, match="protocol 'PLAINTEXT' is none of"):
        LocalKafka(security="plaintext")


def test_a_local_registry_is_not_asked_through_a_proxy(monkeypatch):
    (closed,) = free_ports(1, "127.0.0.1")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    registry = LocalRegistry()
    with SameAnswer(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}') as server:
        registry.url = f"http://{server.address}"
        assert registry.ask("GET", "/config") == {"a": 1}


def test_nobody_else_may_read_what_is_written(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text("before")
    path.chmod(0o644)
    assert write_private(path, "after").read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "taken", "secret")
    assert set(tmp_path.iterdir()) == {path, tmp_path / "taken"}, "a failure leaves no file"


def test_a_link_that_another_user_plants_is_not_followed(tmp_path):
    other, path = tmp_path / "other", tmp_path / "key.pem"
    other.write_text("precious")
    path.with_name("key.pem.part").symlink_to(other)
    path.symlink_to(other)
    assert write_private(path, "after").read_text() == "after"
    assert not path.is_symlink()
    assert other.read_text() == "precious"
