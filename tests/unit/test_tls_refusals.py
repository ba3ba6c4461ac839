"""Who is let in by TLS, and how it is told that somebody is not."""

import socket

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.network.channels import RefusedError
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
)
from spark_kafka_sink.network.tls import TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork
from tests.unit.tls_client import CHANNEL, Client, explain, limited
from tests.unit.tls_server import (
    HOST,
    authority,
    client_context,
    load_identity,
    other_authority,
    server_context,
    serving,
)

VERSIONS = pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])


@pytest.fixture
def client():
    client = Client()
    yield client
    client.network.close()


def client_of(context):
    client = Client(context)
    yield client
    client.network.close()


# --- who is let in ---------------------------------------------------------------------------------


def nothing(channel):
    channel.recv(1)


@VERSIONS
def test_an_authority_that_is_not_trusted(version):
    for client in client_of(client_context(other_authority())):
        with serving(nothing, limited(server_context(), version)) as server:
            event = client.connect(server)
            server.join()
    assert isinstance(event, Disconnected)
    assert event.is_refused
    assert "certificate verify failed" in event.reason
    assert "alert" in str(server.failure), "the broker is not told why"


def test_a_certificate_of_another_host(client):
    with serving(nothing) as server:
        event = client.connect(server, "kafka.example")
    assert isinstance(event, Disconnected)
    assert event.is_refused
    assert "kafka.example" in event.reason


def test_a_name_with_a_dot_at_its_end_is_the_same_name(client):
    with serving(nothing) as server:
        assert client.connect(server, "localhost.") == Connected(CHANNEL)


def test_an_address_in_the_certificate(client):
    with serving(nothing) as server:
        assert client.connect(server, "127.0.0.1") == Connected(CHANNEL)


@pytest.mark.parametrize("host", [".", "a..b", "x" * 64 + ".example"])
def test_what_is_no_host_name(client, host):
    with serving(nothing) as server:
        event = client.connect(server, host)
    assert isinstance(event, Disconnected)
    assert event.is_refused


@VERSIONS
def test_no_client_certificate(client, version):
    """With TLS 1.3 the handshake succeeds, and the refusal is what is read first."""
    context = limited(server_context(wants_client=True), version)
    with serving(nothing, context) as server:
        first = client.connect(server)
        if isinstance(first, Connected):
            client.network.send(CHANNEL, [b"request"])
            first = client.until_lost()
    assert isinstance(first, Disconnected)
    assert first.is_refused
    assert "alert" in first.reason.lower()


def test_an_alert_is_told_although_writing_fails_first(client):
    """The broker has hung up when the first request is written: what it said before counts."""
    context = limited(server_context(wants_client=True), "TLSv1_3")
    with serving(nothing, context) as server:
        assert client.connect(server) == Connected(CHANNEL)
        server.join()
        client.network.send(CHANNEL, [b"request"])
        event = client.until_lost()
    assert event.is_refused
    assert "alert" in event.reason.lower()


def test_a_client_certificate():
    context = client_context()
    load_identity(context, authority().issue("client"))
    seen = []

    def look(channel):
        seen.append(channel.getpeercert())
        channel.sendall(b"welcome")

    for client in client_of(context):
        with serving(look, server_context(wants_client=True)) as server:
            assert client.connect(server) == Connected(CHANNEL)
            assert client.until_received(7) == b"welcome"
    assert "client" in str(seen)


def test_certificates_that_cannot_be_read():
    """Before anything is sent; the message is that of whoever reads them."""

    def context():
        raise AuthenticationError("kafka.ssl.truststore.location: no such file")

    network = SelectorNetwork(open_channel=TlsChannels(context, explain))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        network.connect(CHANNEL, Address(socket.AF_INET, listener.getsockname()), HOST)
        [event] = network.poll(0)
    network.close()
    reason = "kafka.ssl.truststore.location: no such file"
    assert event == Disconnected(CHANNEL, reason, is_refused=True)


def test_a_refusal_has_its_cause():
    def context():
        raise AuthenticationError("no key")

    with socket.socket() as sock, pytest.raises(RefusedError) as raised:
        TlsChannels(context, explain)(CHANNEL, sock, HOST)
    assert isinstance(raised.value.__cause__, AuthenticationError)
