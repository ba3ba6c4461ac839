"""The life of the limit server on the driver, and what it does with who connects."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from spark_kafka_sink.base import private_folder
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.limits.ledger import Ledger
from spark_kafka_sink.limits.messages import (
    Granted,
    Refused,
    Reservation,
    read_answer,
    write_request,
)
from spark_kafka_sink.limits.process import identity_of
from spark_kafka_sink.limits.server import MOST_STRANGERS, STRANGER_MS, LimitServer, listen
from spark_kafka_sink.limits.starting import LimitServerError, access_for
from tests.patience import PATIENCE_S
from tests.unit.simulated_time import SimulatedClock

RATE = 1_000
BROKERS = [("127.0.0.1", 9092)]
LIMITS = LimitConfig(RATE, None, None)
NESTED = b"[" * 60_000


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the driver. Files are in a folder of the test's own."""
    monkeypatch.setattr(private_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def say(access: object, reservation: Reservation, token: str | None = None) -> object:
    text = access.token.reveal() if token is None else token  # type: ignore[attr-defined]
    place = access.host, access.port  # type: ignore[attr-defined]
    with socket.create_connection(place, PATIENCE_S) as connection:
        connection.sendall(write_request(text, reservation))
        with connection.makefile("rb") as lines:
            return read_answer(lines.readline())


def test_a_server_is_found_again_and_ends_with_its_owner(
    owner: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    first = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    asked = Reservation(first.query, 10 * RATE, 1, RATE)
    living = socket.create_connection((first.host, first.port), PATIENCE_S)
    living.sendall(write_request(first.token.reveal(), asked))
    assert read_answer(living.recv(100)) == Granted(10_000)
    # Another process that plans the next micro-batch.
    script = (
        "import sys, pickle, tempfile\n"
        "from spark_kafka_sink.limits import starting\n"
        "from spark_kafka_sink.config.limits import LimitConfig\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        f"a = starting.access_for(LimitConfig({RATE}, None, None), ['q'], {BROKERS}, {owner.pid})\n"
        "print(a.port, a.query, a.token.reveal())"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [str(first.port), first.query, first.token.reveal()]
    again = say(first, asked)
    assert isinstance(again, Granted)
    assert again.wait_ms > 10_000, "the bucket is another one"
    living.close()
    assert isinstance(say(first, asked, token="guessed"), Refused)
    (file,) = (tmp_path / f"pykafka-sink-limits-{os.geteuid()}").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    server = server_of(tmp_path)
    owner.kill()
    owner.wait()
    gone, _ = psutil.wait_procs([server], PATIENCE_S)
    assert gone == [server]
    assert not file.exists()
    with pytest.raises(OSError):
        say(first, asked)


def test_a_server_that_has_died_is_replaced(owner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    first = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    server = server_of(tmp_path)
    server.kill()
    psutil.wait_procs([server], PATIENCE_S)
    second = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    assert second.token != first.token
    assert isinstance(say(second, Reservation("q", 1, 1, RATE)), Granted)


def server_of(folder: Path) -> psutil.Process:
    """The server whose file is below ``folder``."""
    (found,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in argument for argument in process.info["cmdline"] or ())
    )
    return found


def test_a_port_that_is_taken_is_told_with_the_option(owner: subprocess.Popen[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        limits = LimitConfig(RATE, None, None, None, port)
        with pytest.raises(LimitServerError, match=rf"port {port}.*in use.*limit\.server\.port"):
            access_for(limits, ["q"], BROKERS, owner.pid)


def test_a_given_host_is_what_tasks_are_told(owner: subprocess.Popen[bytes]) -> None:
    limits = LimitConfig(RATE, None, None, "localhost", 0)
    access = access_for(limits, ["q"], BROKERS, owner.pid)
    assert access.host == "localhost"
    assert isinstance(say(access, Reservation("q", 1, 1, RATE)), Granted)


def test_somebody_elses_folder_is_not_used(owner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    folder = tmp_path / f"pykafka-sink-limits-{os.geteuid()}"
    folder.mkdir(0o755)
    with pytest.raises(LimitServerError, match="TMPDIR"):
        access_for(LIMITS, ["q"], BROKERS, owner.pid)


def test_a_folder_does_not_hold_a_query(tmp_path: Path) -> None:
    limits = LimitConfig(None, None, str(tmp_path))
    with pytest.raises(ConfigError, match=r"pause\.path = .* is a folder"):
        access_for(limits, ["q"], BROKERS, os.getpid())


def test_brokers_without_addresses_are_told(owner: subprocess.Popen[bytes]) -> None:
    with pytest.raises(LimitServerError, match=r"limit\.server\.host"):
        access_for(LIMITS, ["q"], [("no.such.host.invalid", 9092)], owner.pid)


def test_who_sends_too_much_is_given_up(owner: subprocess.Popen[bytes]) -> None:
    access = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    with socket.create_connection((access.host, access.port), PATIENCE_S) as connection:
        try:
            connection.sendall(b"x" * 1_000_000)
            assert connection.recv(1) == b""
        except ConnectionError:
            pass
    assert isinstance(say(access, Reservation("q", 1, 1, RATE)), Granted)


@pytest.mark.parametrize("has_token", [False, True])
def test_what_is_nested_ends_nothing(owner: subprocess.Popen[bytes], has_token: bool) -> None:
    access = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    token = access.token.reveal().encode() + b" " if has_token else b""
    with socket.create_connection((access.host, access.port), PATIENCE_S) as connection:
        connection.sendall(token + NESTED + b"\n")
        with connection.makefile("rb") as lines:
            assert isinstance(read_answer(lines.readline()), Refused)
    assert isinstance(say(access, Reservation("q", 1, 1, RATE)), Granted)


def test_a_failure_ends_one_connection_only(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as listener, failing_ledger(listener, tmp_path) as server:
        with socket.create_connection(listener.getsockname(), PATIENCE_S) as connection:
            connection.sendall(write_request("t", Reservation("q", 1, 1, None, None, "/held")))
            for _ in range(2):  # accepted, served
                assert server.serve_once(PATIENCE_S) == 1
            assert connection.recv(1) == b""
        with socket.create_connection(listener.getsockname(), PATIENCE_S) as connection:
            connection.sendall(write_request("t", Reservation("q", 1, 1)))
            for _ in range(2):
                assert server.serve_once(PATIENCE_S) == 1
            assert b"granted" in connection.recv(100)


def test_too_many_open_files_are_waited_for(tmp_path: Path) -> None:
    """Who connects is ready to be accepted all the time: that is not tried again and again."""
    with listen("127.0.0.1", 0) as listener, failing_ledger(listener, tmp_path) as server:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.create_connection(listener.getsockname(), PATIENCE_S) as connection:
            lowest_free = os.dup(listener.fileno())
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                assert server.serve_once(PATIENCE_S) == 1
                assert server.serve_once(0) == 0, "it is tried again at once"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            server.listen()
            connection.sendall(write_request("t", Reservation("q", 1, 1)))
            for _ in range(2):
                assert server.serve_once(PATIENCE_S) == 1
            assert b"granted" in connection.recv(100)


def connect(server: LimitServer, listener: socket.socket) -> socket.socket:
    connection = socket.create_connection(listener.getsockname(), PATIENCE_S)
    assert server.serve_once(PATIENCE_S) == 1
    return connection


def asked_over(server: LimitServer, connection: socket.socket, amount: int) -> object:
    connection.sendall(write_request("t", Reservation("q", amount, 1, RATE)))
    assert server.serve_once(PATIENCE_S) == 1
    return read_answer(connection.recv(100))


def test_a_task_that_dies_gives_back_what_it_has_not_sent(tmp_path: Path) -> None:
    clock = SimulatedClock()
    with (
        listen("127.0.0.1", 0) as listener,
        failing_ledger(listener, tmp_path, clock) as server,
        connect(server, listener) as other,
    ):
        with connect(server, listener) as dying:
            assert asked_over(server, dying, 5_000) == Granted(5_000)
        assert server.serve_once(PATIENCE_S) == 1
        assert asked_over(server, other, 1_000) == Granted(1_000)


def test_who_does_not_say_the_token_is_given_up_in_time(tmp_path: Path) -> None:
    clock = SimulatedClock()
    with (
        listen("127.0.0.1", 0) as listener,
        failing_ledger(listener, tmp_path, clock) as server,
        connect(server, listener) as ours,
        connect(server, listener) as stranger,
    ):
        assert asked_over(server, ours, 1_000) == Granted(1_000)
        stranger.sendall(b"guessed {}\n")
        assert server.serve_once(PATIENCE_S) == 1
        assert isinstance(read_answer(stranger.recv(100)), Refused)
        clock.sleep(STRANGER_MS)
        server.serve_once(0)
        assert len(server._received) == 2
        clock.sleep(1)
        server.serve_once(0)
        assert stranger.recv(1) == b""
        clock.sleep(3_600_000)
        assert isinstance(asked_over(server, ours, 1_000), Granted)


def test_there_is_room_for_who_says_the_token_among_strangers(tmp_path: Path) -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        failing_ledger(listener, tmp_path) as server,
        ExitStack() as connections,
    ):
        ours = connections.enter_context(connect(server, listener))
        assert isinstance(asked_over(server, ours, 1), Granted)
        first = connections.enter_context(connect(server, listener))
        for _ in range(MOST_STRANGERS):
            connections.enter_context(connect(server, listener))
        assert first.recv(1) == b""
        assert len(server._received) == MOST_STRANGERS + 1
        assert isinstance(asked_over(server, ours, 1), Granted)


@contextmanager
def failing_ledger(
    listener: socket.socket, folder: Path, clock: Clock | None = None
) -> Iterator[LimitServer]:
    """A server in this process that cannot look whether a path exists."""

    def fail(path: str) -> bool:
        raise RuntimeError(path)

    books, owner = Ledger(Secret("t"), fail), (os.getpid(), "")
    server = LimitServer(listener, books, owner, folder / "file", clock)
    yield server
    for connection in list(server._received):
        server._drop(connection)
    server._selector.close()


def test_a_process_is_known_by_more_than_its_id() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first = identity_of(process.pid)
    assert first is not None
    assert first == identity_of(process.pid)
    assert first != identity_of(os.getpid())
    process.communicate(b"\n")
    assert identity_of(process.pid) is None


def test_the_token_is_nowhere_to_be_read(owner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    access = access_for(LIMITS, ["q"], BROKERS, owner.pid)
    assert access.token.reveal() not in repr(access)
    assert access.token.reveal() not in " ".join(server_of(tmp_path).cmdline())
