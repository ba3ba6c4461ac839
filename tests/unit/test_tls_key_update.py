"""TLS 1.3: new keys in the middle of a connection, as servers may ask for.

Python's own server cannot; OpenSSL's program can, with the command ``K`` of its standard input.
"""

import shutil
import socket
import subprocess
from contextlib import contextmanager

import pytest

from spark_kafka_sink.network.interface import Address, Connected, Disconnected
from tests.unit.tls_client import CHANNEL, Client, received
from tests.unit.tls_server import HOST, broker

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no program openssl")

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
        assert self._process.stdin is not None
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
def serving(folder):
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


@pytest.fixture
def client():
    client = Client()
    yield client
    client.network.close()


def test_keys_that_are_renewed_in_the_middle(client, tmp_path):
    """Each byte once, in order, both ways; and this side renews its own keys when asked to."""
    numbered = [b"line %d" % number for number in range(LINES)]
    answers = [b"answer %d\n" % number for number in range(UPDATES)]
    part = LINES // UPDATES
    events = []

    with serving(tmp_path) as server:
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
