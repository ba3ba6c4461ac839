"""Connections to real brokers: addresses and names, brokers that hang or come back, rows that wait for replicas."""

import logging
import socket

import pytest

from spark_kafka_sink.base.errors import (
    DeliveryError,
)
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network import transport
from spark_kafka_sink.network.admin import AdminClient
from tests.broker.conftest import IPV6_LOOPBACK
from tests.broker.producing import (
    Topics,
    append,
    batch_of,
    plan_of,
    producer_for,
    why_unreachable,
)
from tests.patience import (
    AN_HOUR_MS,
    NO_OTHER_TIMEOUT,
    PATIENCE_MS,
    eventually,
)
from tests.proxy import TcpProxy
from tests.reading import read_topic, read_values

# Nothing that these wait for is ended by a timeout.
NO_TIMEOUT = {
    "socket_connection_setup_timeout_ms": str(AN_HOUR_MS),
    "socket_connection_setup_timeout_max_ms": str(AN_HOUR_MS),
    **NO_OTHER_TIMEOUT,
}


class TestBrokersThatHang:
    """Broker 2 accepts connections, and never answers: its forwarder holds everything back."""

    @pytest.fixture
    def topic(self, pair, request):
        name = f"ad-{request.node.name.replace('_', '-')}"
        pair.create_topic(name, 2, 1)
        return name

    def test_do_not_hold_up_others(self, pair, topic):
        with producer_for(pair.forwarders[1].address, **NO_TIMEOUT) as producer:
            append_to(pair, producer, topic, [1], b"before")
            producer.flush()
            with pair.forwarders[2].held_back():
                for n in range(3):
                    append_to(pair, producer, topic, [1, 2], b"%d" % n)
                # Not flushed: that waits for both.
                expected = [b"before", b"0", b"1", b"2"]
                assert eventually(lambda: written(pair, topic, 1) == expected)
                assert written(pair, topic, 2) == []
            producer.flush()
        assert written(pair, topic, 2) == [b"0", b"1", b"2"]

    def test_for_too_long_are_named(self, pair, topic):
        # It must be long enough for the first record.
        options = {"delivery_timeout_ms": "10000", "request_timeout_ms": "5000"}
        with producer_for(pair.forwarders[1].address, **options) as producer:
            append_to(pair, producer, topic, [1], b"before")
            producer.flush()
            with pair.forwarders[2].held_back():
                append_to(pair, producer, topic, [1, 2], b"v")
                with pytest.raises(DeliveryError) as raised:
                    producer.flush()
        node = Node(2, pair.forwarders[2].host, pair.forwarders[2].port)
        for words in (str(node), f"{topic}-{led_by(pair, topic, 2)}", "kafka.delivery.timeout.ms"):
            assert words in str(raised.value)
        assert written(pair, topic, 1) == [b"before", b"v"]


def test_rows_that_wait_for_replicas_are_told_while_they_wait(pair, caplog):
    """One of two brokers is away, and the leader, which is healthy, takes nothing without it."""
    pair.create_topic("ad-replicas", 2, 2, {"min.insync.replicas": "2"})
    logger = "spark_kafka_sink.producer.waits"

    def lines(level):
        records = [record for record in caplog.records if record.name == logger]
        return [record.getMessage() for record in records if record.levelno == level]

    with (
        caplog.at_level(logging.INFO, logger),
        producer_for(pair.bootstrap_servers, **NO_TIMEOUT) as producer,
    ):
        partition = led_by(pair, "ad-replicas", 1)

        def append_value(value):
            batch = batch_of(value=[value], partition=[partition])
            producer.append(batch, plan_of(batch, "ad-replicas"))

        append_value(b"before")
        producer.flush()
        healthy = [*lines(logging.WARNING)]
        pair.stop(2)
        try:
            append_value(b"during")
            is_told = eventually(lambda: lines(logging.WARNING))
        finally:
            pair.restart(2)
            pair.await_in_sync()
        producer.flush()
        assert eventually(lambda: lines(logging.INFO))
        longest = producer.longest_wait
    assert (healthy, is_told) == ([], True)
    (line,) = [line for line in lines(logging.WARNING) if "NOT_ENOUGH_REPLICAS (19)" in line][:1]
    assert "1 partition of topic ad-replicas have waited for 5 s" in line
    assert "from broker 1: fewer in-sync replicas than min.insync.replicas" in line
    assert "no longer wait, after" in lines(logging.INFO)[-1]
    assert longest.ms >= 5_000
    assert read_values(pair.bootstrap_servers, "ad-replicas") == [b"before", b"during"]


def append_to(pair, producer, topic, broker_ids, value):
    """One record for the partition of each of the brokers."""
    partitions = [led_by(pair, topic, broker_id) for broker_id in broker_ids]
    batch = batch_of(value=[value] * len(partitions), partition=partitions)
    producer.append(batch, plan_of(batch, topic))


def written(pair, topic, broker_id):
    """What is in the broker's partition."""
    partition = led_by(pair, topic, broker_id)
    records = read_topic(pair.bootstrap_servers, topic)
    return [r.value for r in records if r.partition == partition]


def led_by(pair, topic, broker_id):
    """The partition that the broker leads, one of the topic's two."""
    leaders = Topics(pair.bootstrap_servers).leaders(topic)
    [partition] = [index for index, leader in leaders.items() if leader == broker_id]
    return partition


def test_a_broker_that_comes_back_at_the_same_port(kafka_3_9):
    kafka_3_9.create_topic("ad-back")
    address = kafka_3_9.address(1)
    with producer_for(kafka_3_9.bootstrap_servers) as producer:
        append(producer, "ad-back", [b"%d" % n for n in range(10)])
        producer.flush()
        kafka_3_9.stop(1)
        append(producer, "ad-back", [b"%d" % n for n in range(10, 20)])
        # It knows of the loss, and tries to connect again and again.
        node = Node(1, *address)
        assert eventually(lambda: producer.client.last_failure(node) == "Connection refused")
        kafka_3_9.restart(1)
        assert kafka_3_9.address(1) == address
        producer.flush()
        assert producer.is_healthy
    written_values = read_values(kafka_3_9.bootstrap_servers, "ad-back")
    assert written_values == [b"%d" % n for n in range(20)]


HOST = "127.0.0.1"
# Also this machine, but no broker listens there.
OTHER_HOST, THIRD_HOST = "127.0.0.2", "127.0.0.3"
# What Python refuses to look up: its labels are empty, or longer than 63 characters.
EMPTY_LABEL, LONG_LABEL = "kafka..example", f"{'k' * 64}.example"


def _is_local(host):
    try:
        socket.create_server((host, 0)).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(IPV6_LOOPBACK is None, reason="this machine has no IPv6")
needs_loopback_network = pytest.mark.skipif(
    not _is_local(OTHER_HOST), reason="127.0.0.1 is this machine's only loopback address"
)


class Names:
    """Host names that resolve, forwards and backwards, as the test says; all others as ever."""

    def __init__(self, monkeypatch):
        self._getaddrinfo, self._getnameinfo = socket.getaddrinfo, socket.getnameinfo
        self._addresses = {}
        self.canonical = {}
        self.asked = []
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(socket, "getnameinfo", self._name)

    def set(self, name, *addresses):
        self._addresses[name] = addresses

    def _resolve(self, host, port, *args, **kwargs):
        if host not in self._addresses:
            return self._getaddrinfo(host, port, *args, **kwargs)
        if kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        self.asked.append(host)
        addresses = self._addresses[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in addresses]

    def _name(self, sockaddr, flags):
        host, port = sockaddr
        if host not in self.canonical:
            return self._getnameinfo(sockaddr, flags)
        return self.canonical[host], str(port)


@pytest.fixture
def names(monkeypatch):
    return Names(monkeypatch)


def write(kafka, bootstrap_servers, topic, **options):
    """Write one record to a new topic, and read it back."""
    kafka.create_topic(topic)
    with producer_for(bootstrap_servers, **options) as producer:
        append(producer, topic, [b"v"])
        producer.flush()
    assert read_values(kafka.bootstrap_servers, topic) == [b"v"]


class TestIpv6:
    @needs_ipv6
    def test_bootstrap_and_advertised_addresses(self, pair):
        """Brokers that are only to be had at [::1]."""
        pair.create_topic("ad-ipv6", 2, 1)
        assert pair.forwarded_servers.startswith("[::1]:")
        before = [forwarder.accepted_count for forwarder in pair.forwarders.values()]
        with producer_for(pair.forwarded_servers) as producer:
            batch = batch_of(value=[b"0", b"1"], partition=[0, 1])
            producer.append(batch, plan_of(batch, "ad-ipv6"))
            producer.flush()
        after = [forwarder.accepted_count for forwarder in pair.forwarders.values()]
        assert all(earlier < later for earlier, later in zip(before, after))
        assert read_values(pair.bootstrap_servers, "ad-ipv6") == [b"0", b"1"]

    @needs_ipv6
    def test_errors_have_the_address_in_brackets(self):
        expected = "no broker reachable: [::1]:1 (Connection refused)"
        with AdminClient.connect("[::1]:1") as admin:
            assert why_unreachable(admin, expected) == expected


@needs_loopback_network
class TestNamesWithSeveralAddresses:
    def test_the_first_refuses(self, kafka, names):
        names.set("kafka.example", OTHER_HOST, HOST)
        write(kafka, f"kafka.example:{kafka.address(1)[1]}", "ad-refused")
        # The second address is out of the same answer.
        assert names.asked == ["kafka.example"]

    def test_the_first_is_of_a_family_that_this_machine_has_not(self, kafka, monkeypatch):
        """A resolver gives IPv6 addresses also where the kernel has no IPv6."""
        addresses_of = transport._addresses

        def both_addresses_of(host, port, flags=0):
            [address] = addresses_of(host, port, flags)
            return [address._replace(family=socket.AF_APPLETALK), address]

        with pytest.raises(OSError):
            socket.socket(socket.AF_APPLETALK, socket.SOCK_STREAM)
        monkeypatch.setattr(transport, "_addresses", both_addresses_of)
        write(kafka, kafka.bootstrap_servers, "ad-family")

    def test_the_name_is_asked_again_after_a_good_connection(self, kafka, names):
        """All addresses may have changed since. Source: KAFKA-12193."""
        host, port = kafka.address(1)
        names.set("kafka.example", OTHER_HOST, THIRD_HOST)
        with (
            socket.create_server((THIRD_HOST, port)),  # would hold us up for 10 s
            TcpProxy(lambda: (host, port), OTHER_HOST, port) as first,
            AdminClient.connect(f"kafka.example:{port}") as admin,
        ):
            admin.metadata([], False, admin.deadline_in(PATIENCE_MS))
            first.close()
            names.set("kafka.example", HOST)
            admin.metadata([], False, admin.deadline_in(PATIENCE_MS))
        assert names.asked == ["kafka.example", "kafka.example"]


class TestNamesThatAreNone:
    @pytest.mark.parametrize(
        "host",
        ["nohost.invalid", EMPTY_LABEL, LONG_LABEL],
        ids=["unknown", "empty-label", "long-label"],
    )
    def test_the_address_and_the_reason_are_told(self, host):
        reason = f"{host}:9092 (host name: "
        with AdminClient.connect(f"{host}:9092") as admin:
            assert reason in why_unreachable(admin, reason)

    @pytest.mark.parametrize("host", ["nohost.invalid", EMPTY_LABEL])
    def test_they_do_no_harm_beside_a_good_one(self, kafka, host):
        topic = f"ad-beside-{host.replace('..', '-')}"
        write(kafka, f"{host}:9092,{kafka.bootstrap_servers}", topic)


class TestClientDnsLookup:
    CANONICAL = "resolve_canonical_bootstrap_servers_only"

    @needs_loopback_network
    def test_canonical_names_take_the_place_of_the_bootstrap_name(self, kafka, names):
        names.set("alias.example", OTHER_HOST, HOST)
        names.canonical = {OTHER_HOST: "one.example", HOST: "two.example"}
        names.set("one.example", OTHER_HOST)
        names.set("two.example", HOST)
        servers = f"alias.example:{kafka.address(1)[1]}"
        write(kafka, servers, "ad-canonical", client_dns_lookup=self.CANONICAL)
        assert names.asked[0] == "alias.example"
        assert "two.example" in names.asked
        assert names.asked.count("alias.example") == 1
