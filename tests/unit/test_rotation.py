"""Connections when keys, trust stores or passwords are replaced, and when certificates expire."""

import logging
import random
from datetime import datetime, timezone

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.security_config import SecurityConfig
from spark_kafka_sink.localkafka import certificates
from spark_kafka_sink.localkafka.certificates import Authority, write_private
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.interface import Connected, Received
from spark_kafka_sink.producer.pool import ProducerPool
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, MetadataResponse
from spark_kafka_sink.security.key_formats import expires_at_ms
from spark_kafka_sink.security.security import Security
from tests.simulation.time import SimClock
from tests.unit.frames import answer_frame
from tests.unit.scripted_network import ScriptedNetwork, Silence

NODE = Node(1, "broker.example", 9092)
AUTHORITY = Authority()


class World:
    """A client and one broker, which keeps its answers back while ``is_silent``."""

    def __init__(self, expires_after_ms=None):
        self.clock = SimClock(0)
        self.is_silent = False
        self.network = ScriptedNetwork(
            {1: NODE}, self.clock, self._answer, {MetadataRequest: (0, 12)}
        )
        self._connect = self.network.connect
        self.network.connect = self._connect_with_certificate
        self.expires_after_ms = expires_after_ms
        settings = DEFAULT_SETTINGS._replace(max_in_flight_requests_per_connection=5)
        self.client = NetworkClient(settings, self.network, self.clock, random.Random(1))
        self.answered = []

    def _connect_with_certificate(self, channel_id, address, host):
        self._connect(channel_id, address, host)
        if self.expires_after_ms is not None:
            at_ms = self.clock.timestamp_ms() + self.expires_after_ms
            events = self.network._events
            events[-1] = Connected(channel_id, at_ms)

    def _answer(self, asked):
        if self.is_silent:
            raise Silence
        return MetadataResponse()

    def is_ready(self):
        return self.client.ready(NODE, self.clock.now_ms())

    def become_ready(self):
        while not self.is_ready():
            self.client.poll(0, self.clock.now_ms())

    def send(self):
        now_ms = self.clock.now_ms()
        self.client.send(NODE, MetadataRequest(), now_ms, lambda r, _: self.answered.append(r))
        self.client.poll(0, now_ms)

    def answer_what_waits(self):
        protocol = self.client._connections[NODE.node_id].protocol
        assert protocol is not None
        (sent,) = protocol.in_flight
        frame = answer_frame(sent.request, sent.version, sent.correlation_id, MetadataResponse())
        (channel_id,) = self.client._by_channel
        self.network._events.append(Received(channel_id, frame))

    @property
    def connects(self):
        return len(self.network.connects)


def test_no_request_is_sent_on_a_connection_of_before():
    world = World()
    world.become_ready()
    world.send()
    world.client.renew_connections()
    assert not world.is_ready()
    world.become_ready()
    assert (world.connects, len(world.answered)) == (2, 1)
    assert world.client.last_failure(NODE) is None, "nothing went wrong: there is no back-off"
    assert world.clock.now_ms() == 0
    world.send()
    assert world.connects == 2


def test_what_is_in_flight_is_answered_first():
    world = World()
    world.become_ready()
    world.is_silent = True
    world.send()
    waiting = world.client._connections[NODE.node_id].in_flight
    world.client.renew_connections()
    for _ in range(3):
        world.client.poll(0, world.clock.now_ms())
        assert not world.is_ready()
    assert world.connects == 1
    assert len(waiting) == 1
    world.answer_what_waits()
    world.become_ready()
    assert (world.connects, len(world.answered)) == (2, 1)


def test_a_connection_that_nobody_uses_any_more_is_closed_too():
    world = World()
    world.become_ready()
    world.client.renew_connections()
    world.client.poll(0, world.clock.now_ms())
    assert not world.client._by_channel
    assert world.connects == 1


def test_one_that_is_being_made_with_the_former_key_takes_no_request():
    world = World()
    while not world.connects:
        world.is_ready()
        world.client.poll(0, world.clock.now_ms())
    assert not world.is_ready()
    world.client.renew_connections()
    world.become_ready()
    assert world.connects == 2


def test_no_connection_outlives_its_certificate():
    world = World(expires_after_ms=60_000)
    world.become_ready()
    world.clock.ms = 59_999
    assert world.is_ready()
    world.clock.ms = 60_000
    assert not world.is_ready()
    world.become_ready()
    assert world.connects == 2
    world.clock.ms = 119_999
    assert world.is_ready()
    world.client.poll(1_000_000, world.clock.now_ms())
    world.client.poll(0, world.clock.now_ms())
    assert not world.client._by_channel, "an idle one ends with it, too"


def test_what_has_expired_by_this_clock_is_the_brokers_to_judge():
    """Else the connection would be made again and again."""
    world = World(expires_after_ms=-1)
    world.become_ready()
    world.clock.ms = 60_000
    assert world.is_ready()
    assert world.connects == 1


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9998, 9999])
def test_when_a_certificate_expires(year, monkeypatch):
    """Two kinds of time: with two digits of the year until 2049, and with four."""
    at = datetime(year, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    begin = datetime(1990, 1, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(certificates, "_validity", lambda *_: (begin, at))
    data = AUTHORITY.issue("client").certificate.public_bytes(Encoding.DER)
    expected = None if year == 9999 else int(at.timestamp() * 1000)
    assert expires_at_ms(data) == expected
    for size in range(0, len(data), 37):
        assert expires_at_ms(data[:size]) is None
    assert expires_at_ms(bytes.fromhex("300430020500")) is None, "too few parts"


# --- what has been replaced ------------------------------------------------------------------------


def secured(folder, **options):
    files = {
        "ssl.keystore.location": str(folder / "client.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.username": "alice",
        "sasl.password": f"${{file:{folder / 'secrets'}:password}}",
    }
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **files, **options}
    config = ProducerConfig.parse({"bootstrap.servers": "b:9092", **given})
    assert isinstance(config.security, SecurityConfig)
    return Security.of(config.security)


def write_all(folder):
    write_private(folder / "client.pem", AUTHORITY.issue("alice").pem())
    write_private(folder / "ca.pem", AUTHORITY.pem)
    (folder / "secrets").write_text("password=before\n")


def test_each_replaced_file_is_noticed_once(tmp_path):
    write_all(tmp_path)
    have_changed = secured(tmp_path).credentials_watcher()
    assert not have_changed()
    write_private(tmp_path / "client.pem", AUTHORITY.issue("alice").pem())
    assert (have_changed(), have_changed()) == (True, False)
    write_private(tmp_path / "ca.pem", AUTHORITY.pem + Authority("new").pem)
    assert (have_changed(), have_changed()) == (True, False)
    (tmp_path / "secrets").write_text("password=after\n")
    assert (have_changed(), have_changed()) == (True, False)


@pytest.mark.parametrize("name", ["client.pem", "ca.pem", "secrets"])
@pytest.mark.parametrize("content", ["", None], ids=["empty", "gone"])
def test_a_half_written_file_leaves_the_former_in_use(name, content, tmp_path, caplog):
    write_all(tmp_path)
    security = secured(tmp_path)
    have_changed = security.credentials_watcher()
    path = tmp_path / name
    whole = path.read_text()
    path.unlink()
    if content is not None:
        path.write_text(content)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        assert [have_changed() for _ in range(3)] == [False] * 3
    (record,) = caplog.records
    assert "What was read before stays in use" in record.getMessage()
    assert security.tls is not None
    assert security.create_sasl_client is not None
    security.tls.context()
    assert security.create_sasl_client("b").initial_response() == b"\0alice\0before"
    write_private(path, whole.replace("before", "after") if name == "secrets" else whole)
    assert have_changed()


def test_two_producers_each_notice_it(tmp_path):
    write_all(tmp_path)
    security = secured(tmp_path)
    first, second = security.credentials_watcher(), security.credentials_watcher()
    (tmp_path / "secrets").write_text("password=after\n")
    assert (first(), second(), first(), second()) == (True, True, False, False)


def test_a_producer_that_is_kept_notices_it_before_the_next_task(tmp_path):
    write_all(tmp_path)
    config = ProducerConfig.parse(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SSL",
            "ssl.keystore.location": str(tmp_path / "client.pem"),
        }
    )
    asked = []
    pool = ProducerPool()
    producer = pool.acquire(config, [])
    try:
        producer.client.renew_connections = lambda: asked.append(True)
        for expected in (0, 1, 1):
            pool.release(config, producer)
            assert pool.acquire(config, []) is producer
            assert len(asked) == expected
            if not asked:
                write_private(tmp_path / "client.pem", AUTHORITY.issue("alice").pem())
    finally:
        producer.close()


def test_the_drivers_client_that_is_kept_notices_it(tmp_path):
    write_all(tmp_path)
    given = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "client.pem"),
    }
    asked = []
    with AdminClient.of(ProducerConfig.parse(given)) as admin:
        admin._client.renew_connections = lambda: asked.append(True)
        admin.renew_if_credentials_changed()
        assert asked == []
        write_private(tmp_path / "client.pem", AUTHORITY.issue("alice").pem())
        admin.renew_if_credentials_changed()
        admin.renew_if_credentials_changed()
        assert asked == [True]
