"""Limits: what is asked and answered, and the life of the server on the driver."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.limits import starting
from spark_kafka_sink.limits.ledger import Ledger
from spark_kafka_sink.limits.messages import (
    Granted,
    Paused,
    Refused,
    Reservation,
    read_answer,
    read_reservation,
    split_request,
    write_answer,
    write_request,
)
from spark_kafka_sink.limits.process import identity_of
from spark_kafka_sink.limits.server import LimitServer, listen
from spark_kafka_sink.limits.starting import LimitServerError, access_for
from tests.patience import PATIENCE_S

RATE = 1_000
BROKERS = [("127.0.0.1", 9092)]
LIMITS = LimitConfig(RATE, None, None)
NS_PER_S = 1_000_000_000
NESTED = b"[" * 60_000


def ask(ledger: Ledger, at_s: float, reservation: Reservation, token: str = "t") -> object:
    line = write_request(token, reservation).rstrip(b"\n")
    return read_answer(ledger.answer(line, int(at_s * NS_PER_S)))


def ledger(held: list[str] | None = None) -> Ledger:
    there = [] if held is None else held
    return Ledger(Secret("t"), lambda path: path in there)


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Granted(12), Paused(500), Refused("no")])
def test_answers_come_as_they_were_sent(answer: Granted | Paused | Refused) -> None:
    assert read_answer(write_answer(answer)) == answer


def test_requests_come_as_they_were_sent() -> None:
    asked = Reservation("q", 10, 2, 1000, None, "/tmp/held", "unit")
    token, document = split_request(write_request("token", asked))
    assert (token, read_reservation(document)) == ("token", asked)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"[]",
        b"{}",
        b'{"granted":1,"more":2}',
        b'{"others":1}',
        b"\xff",
        NESTED,
        b'{"granted":"1"}',
    ],
)
def test_what_others_answer_is_no_answer(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_answer(line)


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"[]", b"", b" ", b"\xff", NESTED, b"u {}", b'{"token":"t"}']
)
def test_without_the_token_nothing_is_read(line: bytes) -> None:
    refused = Refused("the token is of another server")
    assert read_answer(ledger().answer(line, 0)) == refused


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        NESTED,
        b'{"query":"q","bytes":1,"records":1,"more":1}',
        b'{"query":2,"bytes":1,"records":1}',
        b'{"query":"q","bytes":"1","records":1}',
        b'{"query":"q","bytes":true,"records":1}',
        b'{"query":"q","bytes":1,"records":1,"bytes_per_second":0}',
        b'{"query":"q","bytes":1,"records":1,"records_per_second":"1"}',
        b'{"query":"q","bytes":1,"records":1,"pause_path":3}',
        b'{"query":"q","bytes":1,"records":1,"unit":[]}',
    ],
)
def test_what_is_no_request_is_refused(document: bytes) -> None:
    answer = read_answer(ledger().answer(b"t " + document, 0))
    assert isinstance(answer, Refused)
    assert "token" not in answer.reason


def test_an_amount_below_nothing_is_refused() -> None:
    assert isinstance(ask(ledger(), 0, Reservation("q", -5, 1, RATE)), Refused)


# --- ledger ---------------------------------------------------------------------------------------


def test_each_query_has_a_limit_of_its_own() -> None:
    books = ledger()
    assert ask(books, 0, Reservation("a", 500, 1, RATE)) == Granted(500)
    assert ask(books, 0, Reservation("a", 500, 1, RATE)) == Granted(1000)
    assert ask(books, 0, Reservation("b", 500, 1, RATE)) == Granted(500)


def test_the_slower_limit_counts() -> None:
    books = ledger()
    assert ask(books, 0, Reservation("a", 500, 10, RATE, 100)) == Granted(500)
    assert ask(books, 0, Reservation("a", 100, 100, RATE, 100)) == Granted(1100)


def test_a_wrong_token_is_refused_and_costs_nothing() -> None:
    books = ledger()
    asked = Reservation("a", 500, 1, RATE)
    assert ask(books, 0, asked, token="guessed") == Refused("the token is of another server")
    assert ask(books, 0, asked) == Granted(500)


def test_what_is_held_reserves_nothing() -> None:
    held = ["/held"]
    books = ledger(held)
    asked = Reservation("a", 500, 1, RATE, pause_path="/held")
    assert isinstance(ask(books, 0, asked), Paused)
    held.clear()
    assert ask(books, 1, asked) == Granted(500)


def test_a_unit_that_has_begun_is_not_held() -> None:
    held: list[str] = []
    books = ledger(held)
    begun = Reservation("a", 100, 1, RATE, pause_path="/held", unit="1")
    assert isinstance(ask(books, 0, begun), Granted)
    held.append("/held")
    assert isinstance(ask(books, 0, begun), Granted)
    assert isinstance(ask(books, 0, begun._replace(unit="2")), Paused)
    assert isinstance(ask(books, 0, begun._replace(unit=None)), Paused)


def test_a_limit_that_was_corrected_counts_at_once() -> None:
    """What was reserved with the one before is earned with the new one."""
    books = ledger()
    slow = Reservation("a", 20_000, 1, 1)
    assert ask(books, 0, slow) == Granted(20_000_000)
    assert ask(books, 10, slow._replace(bytes_per_second=RATE)) == Granted(39_990)
    # A task of the former start that has not ended yet.
    assert ask(books, 10, slow) == Granted(39_990_000 + 20_000_000)
    assert ask(books, 10, slow._replace(bytes_per_second=RATE)) == Granted(79_990)


def test_queries_that_are_over_are_forgotten() -> None:
    books = ledger()
    for number in range(3_000):
        ask(books, number * 10, Reservation(str(number), 10, 1, RATE))
    assert len(books._buckets) <= 1_000


# --- server ---------------------------------------------------------------------------------------


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the driver. Files are in a folder of the test's own."""
    monkeypatch.setattr(starting.tempfile, "gettempdir", lambda: str(tmp_path))
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
    granted = say(first, asked)
    assert isinstance(granted, Granted)
    assert granted.wait_ms == 10_000
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


@contextmanager
def failing_ledger(listener: socket.socket, folder: Path) -> Iterator[LimitServer]:
    """A server in this process that cannot look whether a path exists."""

    def fail(path: str) -> bool:
        raise RuntimeError(path)

    server = LimitServer(listener, Ledger(Secret("t"), fail), (os.getpid(), ""), folder / "file")
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
