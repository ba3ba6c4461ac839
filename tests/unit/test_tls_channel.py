"""TLS over real sockets: chunks, large sends, pending data, ends of all kinds."""

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.network.channels import RefusedError
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    Received,
    SendCompleted,
)
from spark_kafka_sink.network.tls import TlsChannel, TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork
from tests.unit.security.tls_ends import (
    CHANNEL,
    DEADLINE_S,
    HOST,
    Client,
    authority,
    broker,
    client_context,
    explain,
    load_identity,
    other_authority,
    read_exactly,
    received,
    server_context,
    serving,
)

MIB = 1024 * 1024
VERSIONS = pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])


@pytest.fixture
def client():
    client = Client()
    yield client
    client.network.close()


# --- bytes -----------------------------------------------------------------------------------------


@VERSIONS
def test_bytes_there_and_back(client, version):
    def echo(channel):
        assert channel.version() == version.replace("_", ".")
        channel.sendall(read_exactly(channel, 13).upper())

    with serving(echo, server_context(version=ssl.TLSVersion[version])) as server:
        assert client.connect(server) == Connected(CHANNEL)
        client.network.send(CHANNEL, [b"size", bytearray(b"header"), memoryview(b"records")[:3]])
        events = client.until(lambda events: len(received(events)) == 13)
        assert events == [SendCompleted(CHANNEL), Received(CHANNEL, b"SIZEHEADERREC")]
        server.join()
        assert server.failure is None


@pytest.mark.parametrize(
    "sizes",
    [[8 * MIB], [100] * 5_000 + [4 * MIB], [1] * 3_000, [65_536] * 200, [4_095, 4_096] * 300],
    ids=["one buffer", "many small ones and a large one", "small ones", "pages", "mixed"],
)
def test_a_request_larger_than_the_sockets_buffers(client, sizes):
    """The server reads only what it must for the rest to be written: every write is partial."""
    buffers = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    arrived = bytearray()

    def read_slowly(channel):
        arrived.extend(read_exactly(channel, sum(sizes)))
        channel.sendall(b"all")

    with serving(read_slowly) as server:
        client.connect(server)
        client.network.send(CHANNEL, buffers)
        events = client.until(lambda events: received(events) == b"all")
        assert events.count(SendCompleted(CHANNEL)) == 1
        assert bytes(arrived) == b"".join(buffers)


def test_large_buffers_are_not_copied_and_small_ones_share_a_record():
    """What is given to TLS at once: pages as they are, and headers together."""
    context = client_context()
    channel = TlsChannel(CHANNEL, socket.socket(), HOST, context, explain)
    page = bytearray(32_768)
    channel.queue([b"a" * 20, b"b" * 20, page, b"", b"c" * 20, page, b"d" * 20])
    pieces = []
    while channel._plain:
        pieces.append(channel._next_piece())
    channel.socket.close()
    assert [len(piece) for piece in pieces] == [40, 32_768, 20, 32_768, 20]
    is_page = [isinstance(p, memoryview) and p.obj is page for p in pieces]
    assert is_page == [False, True, False, True, False]


def test_an_answer_of_many_records_is_handed_over_whole(client):
    """What is decrypted cannot be seen by a selector: none of it may wait for more bytes."""
    expected = bytes(range(256)) * 4_000
    go_on = threading.Event()

    def answer(channel):
        channel.sendall(expected)
        assert go_on.wait(DEADLINE_S)

    with serving(answer) as server:
        client.connect(server)
        assert client.until_received(len(expected)) == expected
        go_on.set()


def test_byte_by_byte(client):
    """Each byte in a record of its own."""
    go_on = threading.Semaphore(0)

    def answer(channel):
        for byte in b"answer":
            channel.sendall(bytes([byte]))
            assert go_on.acquire(timeout=DEADLINE_S)

    with serving(answer) as server:
        client.connect(server)
        for byte in b"answer":
            assert client.until(bool) == [Received(CHANNEL, bytes([byte]))]
            go_on.release()


def test_an_idle_channel_does_not_keep_poll_awake(client):
    go_on = threading.Event()

    def wait(channel):
        read_exactly(channel, 4 * MIB)
        assert go_on.wait(DEADLINE_S)

    with serving(wait) as server:
        client.connect(server)
        client.network.send(CHANNEL, [bytes(4 * MIB)])
        client.until(lambda events: SendCompleted(CHANNEL) in events)
        client.network.poll(0)  # the tickets of TLS 1.3, if they have not come before
        assert client.network._selector.select(0) == []
        go_on.set()


# --- ends ------------------------------------------------------------------------------------------


def lost_at(client, serve):
    """How a connection ends whose other side is no TLS server, and does ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept():
            accepted, _ = listener.accept()
            with accepted:
                serve(accepted)

        threading.Thread(target=accept, daemon=True).start()
        client.network.connect(CHANNEL, Address(socket.AF_INET, listener.getsockname()), HOST)
        return client.until_lost()


def test_a_listener_in_clear_text_is_not_taken_for_a_refusal(client):
    """It hangs up; a broker that is being restarted does that, too."""
    event = lost_at(client, lambda accepted: accepted.recv(MIB))
    assert not event.is_refused
    assert event.reason == "localhost: [Errno 104] closed by the broker"


def test_an_orderly_end_in_the_handshake_is_not_taken_for_a_refusal(client):
    """As of a broker, or a load balancer, that is being stopped."""
    close_notify = bytes.fromhex("15 03 03 00 02 01 00")

    def end(accepted):
        accepted.recv(MIB)
        accepted.sendall(close_notify)
        accepted.recv(MIB)

    event = lost_at(client, end)
    assert not event.is_refused
    assert event.reason == "closed by the broker"


def test_bytes_that_tls_does_not_take_yet_are_kept():
    """It waits for the broker: whoever writes goes on with other things meanwhile."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = TlsChannel(CHANNEL, ours, HOST, ssl.create_default_context(), explain)
        # Nothing was received: TLS takes no bytes before the server's hello.
        channel.queue([b"request"])
        channel.write()
        assert channel.has_unsent
        assert theirs.recv(MIB).startswith(b"\x16\x03")


def test_a_listener_that_speaks_something_else(client):
    def greet(accepted):
        accepted.sendall(b"220 mail.example ESMTP\r\n")
        accepted.recv(MIB)

    event = lost_at(client, greet)
    assert event.is_refused
    assert "WRONG_VERSION_NUMBER" in event.reason


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["close_notify", "without a word"])
def test_the_last_answer_comes_before_the_end(client, says_goodbye):
    def answer(channel):
        channel.sendall(b"last words")
        if says_goodbye:
            channel.unwrap()

    with serving(answer) as server:
        client.connect(server)
        events = client.until(lambda events: any(isinstance(e, Disconnected) for e in events))
    assert received(events) == b"last words"
    assert events[-1] == Disconnected(CHANNEL, "closed by the broker")


def test_this_side_says_goodbye(client):
    """The server reads an end, not an error."""
    ends = []

    def read_to_the_end(channel):
        channel.suppress_ragged_eofs = False
        channel.sendall(b"welcome")
        ends.append(channel.recv(1))

    with serving(read_to_the_end) as server:
        client.connect(server)
        client.until_received(7)
        client.network.disconnect(CHANNEL)
        server.join()
    assert server.failure is None
    assert ends == [b""]


def test_bytes_that_are_no_record_end_an_established_connection(client):
    """Lost, not refused: it was good before."""

    def answer(channel):
        channel.sendall(b"good")
        with socket.socket(fileno=socket.dup(channel.fileno())) as raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        channel.recv(1)

    with serving(answer) as server:
        client.connect(server)
        events = client.until(lambda events: any(isinstance(e, Disconnected) for e in events))
    assert received(events) == b"good"
    last = events[-1]
    assert not last.is_refused
    assert "TLS" in last.reason


def test_a_plaintext_process_does_not_load_ssl():
    from tests.unit.test_layers import loaded_by

    loaded = loaded_by("from spark_kafka_sink.network.transport import SelectorNetwork")
    assert not loaded & {"ssl", "cryptography"}


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
        with serving(nothing, server_context(version=ssl.TLSVersion[version])) as server:
            event = client.connect(server)
            server.join()
    assert event.is_refused
    assert "certificate verify failed" in event.reason
    assert "alert" in str(server.failure), "the broker is not told why"


def test_a_certificate_of_another_host(client):
    with serving(nothing) as server:
        event = client.connect(server, "kafka.example")
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
    assert event.is_refused


@VERSIONS
def test_no_client_certificate(client, version):
    """With TLS 1.3 the handshake succeeds, and the refusal is what is read first."""
    context = server_context(None, authority(), ssl.TLSVersion[version])
    with serving(nothing, context) as server:
        first = client.connect(server)
        if isinstance(first, Connected):
            client.network.send(CHANNEL, [b"request"])
            first = client.until_lost()
    assert first.is_refused
    assert "alert" in first.reason.lower()


def test_an_alert_is_told_although_writing_fails_first(client):
    """The broker has hung up when the first request is written: what it said before counts."""
    context = server_context(None, authority(), ssl.TLSVersion.TLSv1_3)
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
        with serving(look, server_context(clients=authority())) as server:
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


UPDATES = 5
LINES = 20_000
LAST = b"line of the end"
POLL_MS = 20


class OpenSsl:
    """``openssl s_server``. It shows what it receives, and sends what it is told to."""

    def __init__(self, process, messages, shown):
        self._process = process
        self._messages = messages
        self._shown = shown

    @property
    def address(self):
        """Where it listens."""
        while b"ACCEPT 127.0.0.1:" not in self._shown.read_bytes():
            assert self._process.poll() is None
        host, port = self._shown.read_text().split("ACCEPT ")[1].split()[0].split(":")
        return host, int(port)

    def tell(self, line):
        """One line at a time: a command is what it reads at once."""
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def updates(self, direction):
        """How often keys were renewed. direction: ``>>>`` by the server, ``<<<`` by the client."""
        lines = self._messages.read_text().splitlines()
        return sum(line.startswith(direction) and line.endswith("KeyUpdate") for line in lines)

    def lines(self):
        """Those that the client sent, and that have come wholly."""
        data = self._shown.read_bytes().rpartition(b"\n")[0]
        return [line for line in data.split(b"\n") if line.startswith(b"line ")]


@contextmanager
def openssl_serving(folder):
    identity, messages, shown = folder / "broker.pem", folder / "messages", folder / "shown"
    identity.write_text(broker().pem())
    messages.touch()
    arguments = ("-accept", "127.0.0.1:0", "-cert", str(identity), "-key", str(identity))
    more = ("-tls1_3", "-msg", "-msgfile", str(messages))
    with (
        shown.open("wb") as out,
        subprocess.Popen(
            ["openssl", "s_server", *arguments, *more],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield OpenSsl(process, messages, shown)
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no program openssl")
def test_keys_that_are_renewed_in_the_middle(client, tmp_path):
    """Each byte once, in order, both ways; and this side renews its own keys when asked to."""
    numbered = [b"line %d" % number for number in range(LINES)]
    answers = [b"answer %d\n" % number for number in range(UPDATES)]
    part = LINES // UPDATES
    events = []

    with openssl_serving(tmp_path) as server:
        client.network.connect(CHANNEL, Address(socket.AF_INET, server.address), HOST)
        assert client.until(bool)[0] == Connected(CHANNEL)

        def until(is_done):
            while not is_done():
                events.extend(client.network.poll(POLL_MS))

        for number in range(UPDATES):
            lines = numbered[number * part : (number + 1) * part]
            client.network.send(CHANNEL, [line + b"\n" for line in lines])
            server.tell(b"K\n")
            until(lambda number=number: server.updates(">>>") == number + 1)
            server.tell(answers[number])
            until(lambda number=number: received(events) == b"".join(answers[: number + 1]))
        # OpenSSL renews this side's keys when it writes.
        client.network.send(CHANNEL, [LAST + b"\n"])
        until(lambda: server.updates("<<<") == UPDATES)
        until(lambda: server.lines() == [*numbered, LAST])
    assert not any(isinstance(event, Disconnected) for event in events)
