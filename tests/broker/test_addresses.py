"""Where brokers are found: IPv6, names with several addresses, canonical names, no names."""

import socket

import pytest

from spark_kafka_sink.base.errors import ConfigError, TopicError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network import resolver
from tests.broker.conftest import IPV6_LOOPBACK
from tests.broker.creating import append, producer_for
from tests.broker.producing import batch_of, open_producer, plan_of
from tests.broker.unreachable import why_unreachable
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_MS, reason_given_time
from tests.proxy import TcpProxy
from tests.reading import read_topic, values

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
    assert values(read_topic(kafka.bootstrap_servers, topic)) == [b"v"]


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
        assert values(read_topic(pair.bootstrap_servers, "ad-ipv6")) == [b"0", b"1"]

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

    def test_the_first_is_silent(self, kafka, names):
        """It costs socket.connection.setup.timeout.ms, no more."""
        names.set("kafka.example", OTHER_HOST, HOST)
        port = kafka.address(1)[1]
        with socket.create_server((OTHER_HOST, port)):
            silence = {"socket_connection_setup_timeout_ms": "300", "request_timeout_ms": "3000"}
            write(kafka, f"kafka.example:{port}", "ad-silent", **{**NO_OTHER_TIMEOUT, **silence})

    def test_the_first_is_of_a_family_that_this_machine_has_not(self, kafka, monkeypatch):
        """A resolver gives IPv6 addresses also where the kernel has no IPv6."""
        addresses_of = resolver._addresses

        def both_addresses_of(host, port, flags=0):
            [address] = addresses_of(host, port, flags)
            return [address._replace(family=socket.AF_APPLETALK), address]

        with pytest.raises(OSError):
            socket.socket(socket.AF_APPLETALK, socket.SOCK_STREAM)
        monkeypatch.setattr(resolver, "_addresses", both_addresses_of)
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

    def test_a_producer_says_it_after_max_block(self):
        def block(timeout_ms):
            with producer_for("nohost.invalid:9092", max_block_ms=str(timeout_ms)) as producer:
                append(producer, "t", [b"v"])

        reason = "nohost.invalid:9092 (host name: "
        assert reason in reason_given_time(block, TopicError, 1_000, reason)


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

    def test_errors_name_the_canonical_names(self, names):
        names.set("alias.example", OTHER_HOST, THIRD_HOST)
        names.canonical = {OTHER_HOST: "one.example", THIRD_HOST: "two.example"}
        names.set("one.example", HOST)
        names.set("two.example", HOST)
        values = {"bootstrap.servers": "alias.example:1", "client.dns.lookup": self.CANONICAL}
        config = ProducerConfig.parse(values)
        expected = (
            "no broker reachable: one.example:1 (Connection refused), "
            "two.example:1 (Connection refused)"
        )
        with AdminClient.of(config) as admin:
            assert why_unreachable(admin, expected) == expected

    @pytest.mark.parametrize("host", ["nohost.invalid", EMPTY_LABEL])
    def test_a_name_that_is_none_is_told_by_its_own(self, host):
        values = {"bootstrap.servers": f"{host}:9092", "client.dns.lookup": self.CANONICAL}
        reason = f"{host}:9092 (host name: "
        with AdminClient.of(ProducerConfig.parse(values)) as admin:
            assert reason in why_unreachable(admin, reason)

    def test_another_value(self):
        with pytest.raises(ConfigError, match=r"client\.dns\.lookup.*use_all_dns_ips"):
            open_producer("localhost:9092", client_dns_lookup="default")
