"""TLS over real sockets: chunks, large sends, pending data, ends of all kinds."""

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import ExitStack, closing, contextmanager

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.network.channels import (
    Address,
    Connected,
    Disconnected,
    Reached,
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
    other_authority,
    read_exactly,
    received,
    server_context,
    serving,
)
from tests.unit.test_layers import loaded_by

MIB = 1024 * 1024
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
LOST = Disconnected(CHANNEL, "closed by the broker")


def is_lost(events):
    return any(isinstance(event, Disconnected) for event in events)


@contextmanager
def client_with(context):
    client = Client(context)
    with closing(client.network):
        yield client


@pytest.fixture
def client():
    with client_with(client_context()) as client:
        yield client


# --- bytes -----------------------------------------------------------------------------------------


@VERSIONS
def test_bytes_there_and_back(client, version):
    def echo(channel):
        assert channel.version() == version.name.replace("_", ".")
        channel.sendall(read_exactly(channel, 13).upper())

    with serving(echo, server_context(version=version)) as server:
        assert client.connect(server) == Connected(CHANNEL)
        buffers = [b"size", bytearray(b"header"), memoryview(b"records")[:3]]
        assert client.network.send(CHANNEL, buffers)
        events = client.until(lambda events: len(received(events)) == 13)
        assert events == [Received(CHANNEL, b"SIZEHEADERREC")]
        server.join()
        assert server.failure is None


@pytest.mark.parametrize(
    "sizes",
    [[8 * MIB], [100] * 5_000 + [4 * MIB], [65_536] * 200, [4_095, 4_096] * 300],
    ids=["one buffer", "many small ones and a large one", "pages", "mixed"],
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
        is_whole = client.network.send(CHANNEL, buffers)
        events = client.until(lambda events: received(events) == b"all")
        assert events.count(SendCompleted(CHANNEL)) == (0 if is_whole else 1)
        assert bytes(arrived) == b"".join(buffers)


def unconnected(sock):
    return TlsChannel(CHANNEL, sock, HOST, client_context(), explain)


def test_bytes_that_tls_does_not_take_yet_are_kept():
    """It waits for the broker: whoever writes goes on with other things meanwhile."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = unconnected(ours)
        # Nothing was received: TLS takes no bytes before the server's hello.
        channel.queue([b"request"])
        channel.write()
        assert channel.has_unsent
        assert theirs.recv(MIB).startswith(b"\x16\x03")


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


def test_an_idle_channel_does_not_keep_poll_awake(client):
    go_on = threading.Event()

    def wait(channel):
        read_exactly(channel, 4 * MIB)
        assert go_on.wait(DEADLINE_S)

    with serving(wait) as server:
        client.connect(server)
        if not client.network.send(CHANNEL, [bytes(4 * MIB)]):
            client.until(lambda events: SendCompleted(CHANNEL) in events)
        client.network.poll(0)  # the tickets of TLS 1.3, if they have not come before
        assert client.network._selector.select(0) == []
        go_on.set()


# --- ends ------------------------------------------------------------------------------------------

CLOSE_NOTIFY = bytes.fromhex("15 03 03 00 02 01 00")


@pytest.mark.parametrize(
    ("says", "is_refused", "reason"),
    [
        # A listener in clear text hangs up; a broker that is being restarted does that, too.
        (None, False, "localhost: [Errno 104] closed by the broker"),
        # An orderly end in the handshake, as of a load balancer that is being stopped.
        (CLOSE_NOTIFY, False, "closed by the broker"),
        (b"220 mail.example ESMTP\r\n", True, "WRONG_VERSION_NUMBER"),
    ],
)
def test_what_is_no_tls_server_and_is_it_a_refusal(client, says, is_refused, reason):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept():
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(MIB)
                if says is not None:
                    accepted.sendall(says)
                    accepted.recv(MIB)

        threading.Thread(target=accept, daemon=True).start()
        client.network.connect(CHANNEL, Address(socket.AF_INET, listener.getsockname()), HOST)
        event = client.until_lost()
    assert event.is_refused == is_refused
    assert event.reason == reason or (is_refused and reason in event.reason)


def test_an_address_that_is_reached_and_has_not_answered_yet(client):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client.network.connect(CHANNEL, Address(socket.AF_INET, listener.getsockname()), HOST)
        assert client.until(bool) == [Reached(CHANNEL)]


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["close_notify", "without a word"])
def test_the_last_answer_comes_before_the_end(client, says_goodbye):
    def answer(channel):
        channel.sendall(b"last words")
        if says_goodbye:
            channel.unwrap()

    with serving(answer) as server:
        client.connect(server)
        events = client.until(is_lost)
    assert received(events) == b"last words"
    assert events[-1] == LOST


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
        events = client.until(is_lost)
    assert received(events) == b"good"
    assert not events[-1].is_refused
    assert "TLS" in events[-1].reason


def test_a_plaintext_process_does_not_load_ssl():
    loaded = loaded_by("from spark_kafka_sink.network.transport import SelectorNetwork")
    assert not loaded & {"ssl", "cryptography"}


# --- who is let in ---------------------------------------------------------------------------------


def nothing(channel):
    channel.recv(1)


@VERSIONS
def test_an_authority_that_is_not_trusted(version):
    context = client_context(other_authority())
    with (
        client_with(context) as client,
        serving(nothing, server_context(version=version)) as server,
    ):
        event = client.connect(server)
        server.join()
    assert event.is_refused
    assert "certificate verify failed" in event.reason
    assert "alert" in str(server.failure), "the broker is not told why"


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("localhost.", None),  # the same name
        ("127.0.0.1", None),
        ("kafka.example", "kafka.example"),
        *((host, "") for host in (".", "a..b", "x" * 64 + ".example")),
    ],
)
def test_hosts_of_the_certificate_and_others(client, host, told):
    with serving(nothing) as server:
        event = client.connect(server, host)
    if told is None:
        assert event == Connected(CHANNEL)
    else:
        assert event.is_refused
        assert told in event.reason


@VERSIONS
@pytest.mark.parametrize("has_ended", [False, True])
def test_no_client_certificate(client, version, has_ended):
    """With TLS 1.3 the handshake succeeds, and the refusal is what is read first.

    Also where the broker has hung up when the first request is written.
    """
    with serving(nothing, server_context(None, authority(), version)) as server:
        first = client.connect(server)
        if isinstance(first, Connected):
            if has_ended:
                server.join()
            client.network.send(CHANNEL, [b"request"])
            first = client.until_lost()
    assert first.is_refused
    assert "alert" in first.reason.lower()


@pytest.mark.parametrize("kind", [AuthenticationError, CredentialsUnavailableError])
def test_certificates_that_cannot_be_read(kind):
    """Before anything is sent. Those that may come back are no rejection, so a retry follows."""
    reason, is_refused = "kafka.ssl.truststore.location: no such file", kind is AuthenticationError

    def context():
        raise kind(reason)

    network = SelectorNetwork(open_channel=TlsChannels(context, explain))
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(network):
        network.connect(CHANNEL, Address(socket.AF_INET, listener.getsockname()), HOST)
        [event] = network.poll(0)
    assert event == Disconnected(CHANNEL, reason, is_refused=is_refused)


# --- keys that are renewed -------------------------------------------------------------------------

UPDATES, LINES, POLL_MS = 5, 20_000, 20
LAST = b"line of the end"


class OpenSsl:
    """``openssl s_server`` in a folder. It shows what it receives, and sends what it is told to."""

    def __init__(self, folder):
        identity, self._messages, self._shown = (folder / name for name in ("pem", "msg", "shown"))
        identity.write_text(broker().pem())
        self._messages.touch()
        arguments = ("-accept", "127.0.0.1:0", "-cert", str(identity), "-key", str(identity))
        with self._shown.open("wb") as out:
            self.process = subprocess.Popen(
                ["openssl", "s_server", *arguments, "-tls1_3", "-msg", "-msgfile", self._messages],
                **{"stdin": subprocess.PIPE, "stdout": out, "stderr": subprocess.STDOUT},
            )

    @property
    def address(self):
        """Where it listens."""
        while b"ACCEPT 127.0.0.1:" not in self._shown.read_bytes():
            assert self.process.poll() is None
        host, port = self._shown.read_text().split("ACCEPT ")[1].split()[0].split(":")
        return host, int(port)

    def tell(self, line):
        """One line at a time: a command is what it reads at once."""
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def updates(self, direction):
        """How often keys were renewed. direction: ``>>>`` by the server, ``<<<`` by the client."""
        lines = self._messages.read_text().splitlines()
        return sum(line.startswith(direction) and line.endswith("KeyUpdate") for line in lines)

    def lines(self):
        """Those that the client sent, and that have come wholly."""
        data = self._shown.read_bytes().rpartition(b"\n")[0]
        return [line for line in data.split(b"\n") if line.startswith(b"line ")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no program openssl")
def test_keys_that_are_renewed_in_the_middle(client, tmp_path):
    """Each byte once, in order, both ways; and this side renews its own keys when asked to."""
    numbered = [b"line %d" % number for number in range(LINES)]
    answers = [b"answer %d\n" % number for number in range(UPDATES)]
    part = LINES // UPDATES
    events = []

    server = OpenSsl(tmp_path)
    with server.process as process, ExitStack() as at_the_end:
        at_the_end.callback(process.kill)
        assert client.connect(server) == Connected(CHANNEL)

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
