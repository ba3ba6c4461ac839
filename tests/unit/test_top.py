"""The latest batches in a terminal."""

import argparse
import fcntl
import io
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.tools.command import confirmation
from tests.patience import PATIENCE_S
from tests.unit.report_lines import HEALTHY, SLOW_BROKER
from tests.unit.test_report import numbered, text


@pytest.fixture(autouse=True)
def a_wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def test_the_screen(tmp_path, capsys):
    path = tmp_path / "m.jsonl"
    lines = [numbered(HEALTHY, number) for number in range(30)]
    lines[29] = numbered(SLOW_BROKER, 29, dead_letters={"too-large": 2})
    path.write_bytes(text(*lines))
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "30 batches of 0b1c to orders, the last at 2023-11-14 22:13:49 UTC" in shown
    row = next(row for row in shown.splitlines() if row.lstrip().startswith("29 "))
    assert row.split("waiting for buffer memory")[1].strip() == "broker 2 is slow (+1)"
    assert "also: rows became dead letters" in shown
    assert "Look at broker 2" in shown
    assert "broker 3" in shown
    assert "█" in shown


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_narrow_terminals(tmp_path, capsys, monkeypatch, columns):
    """No line is longer than the screen, and what matters is there: which batch, and why."""
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "m.jsonl"
    path.write_bytes(text(numbered(HEALTHY, 1), numbered(SLOW_BROKER, 16)))
    assert main(["top", str(path), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    (row,) = [line for line in lines if line.lstrip().startswith("16 ")]
    assert "4.0 s" in row
    assert "broker 2 is slow" in row


def test_batches_of_several_queries_are_told_apart(tmp_path, capsys, monkeypatch):
    path = tmp_path / "m.jsonl"
    lines = [
        numbered(HEALTHY, 7, query_name="orders"),
        numbered(HEALTHY, 8, query_id="0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"),
        numbered(HEALTHY, 9, query_name="clicks-of-all-countries-by-minute", topic="others"),
    ]
    path.write_bytes(text(*lines))

    def shown(*more):
        assert main(["top", str(path), "--once", *more]) == 0
        return capsys.readouterr().out

    head, *rows = shown().splitlines()[:5]
    assert head.startswith("3 batches, the last at")
    assert [row.split()[:3] for row in rows] == [
        ["batch", "query", "topic"],
        ["9", "clicks-of-all-count…", "others"],
        *(["8", "0b1c2d3e", "orders"], ["7", "orders", "orders"]),
    ]
    assert "1 batch of orders to orders," in shown("--query", "orders")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = shown()
    assert max(map(len, narrow.splitlines())) <= 40
    assert " clicks-… " in narrow
    path.write_bytes(text(*lines[:1]))
    assert "query" not in shown()


def test_nothing_to_show_once(tmp_path, capsys):
    """As report says it: who looks once is told that there is nothing, and not to wait."""
    path = tmp_path / "m.jsonl"
    assert main(["top", str(path), "--once"]) == 1
    assert f"no line of metrics in {path}" in capsys.readouterr().err
    path.write_bytes(text(numbered(HEALTHY, 1)))
    assert main(["top", str(path), "--once", "--query", "a"]) == 1
    assert f"no line of metrics of the query a in {path}" in capsys.readouterr().err


def test_what_is_refused(tmp_path, capsys, monkeypatch):
    assert main(["top", str(tmp_path)]) == 1
    assert "not a folder" in capsys.readouterr().err
    for command in (["top"], ["top", "--once"], ["report", "--follow"]):
        assert main([*command, "s3://bucket/metrics"]) == 1
        assert "a file of this machine that grows" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "spark_kafka_sink.tools.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["top", str(tmp_path / "m.jsonl"), "--once"]) == 1
    assert "pip install 'pykafka-sink[cli]'" in capsys.readouterr().err


BLOW = "\x1b[2J\x9b31m[bold]q\u202e"


def test_names_of_queries_are_no_commands_for_the_terminal(tmp_path, capsys):
    path = tmp_path / "m.jsonl"
    lines = [numbered(SLOW_BROKER, 1, query_name=BLOW), numbered(SLOW_BROKER, 2, query_name="b")]
    path.write_bytes(text(*lines))
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"\x1b[2J\x9b31m[b" in shown


def test_what_is_confirmed_and_what_has_failed_is_shown_escaped(tmp_path, capsys, monkeypatch):
    arguments = argparse.Namespace(yes=False)
    monkeypatch.setattr(sys, "stdin", Yes())
    confirmation(arguments, ConfigError)(f"two lines\n{BLOW}")
    shown = capsys.readouterr().err
    assert shown.startswith("two lines\n\\x1b[2J")
    assert all(line.isprintable() for line in shown.splitlines())
    assert main(["top", f"file://{BLOW}"]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()


class Yes(io.StringIO):
    def isatty(self):
        return True

    def readline(self, size=-1):
        return "yes\n"


_ROWS = 40
_OTHER_SCREEN = ("\x1b[?1049h", "\x1b[?1049l")
_SHOW_CURSOR = "\x1b[?25h"
_HOME = "\x1b[H"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _own_the_terminal():
    """In the new process: Ctrl-C becomes a signal, which a background job would ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A process, and the terminal that it runs in."""

    def __init__(self, command, columns):
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        self.theirs = theirs
        self.before = termios.tcgetattr(theirs)
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=_own_the_terminal,
        )
        self.text = ""

    def frame(self):
        """What the last drawing has put on the screen, without colours."""
        return _ESCAPE.sub("", self.text.split(_HOME)[-1].split(_OTHER_SCREEN[1])[0])

    def until(self, is_so):
        """Read on until then."""
        while not is_so():
            readable, _, _ = select.select([self._ours], [], [], PATIENCE_S)
            assert readable, self.text
            self.text += os.read(self._ours, 65536).decode(errors="replace")

    def until_shown(self, *parts):
        self.until(lambda: all(part in self.frame() for part in parts))

    def press(self, keys):
        os.write(self._ours, keys.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)

    def until_ended(self):
        """The exit status, with what was written before."""
        ended = os.pidfd_open(self.process.pid)
        try:
            while True:
                readable, _, _ = select.select([self._ours, ended], [], [], PATIENCE_S)
                assert readable, self.text
                if self._ours not in readable:
                    return self.process.wait(PATIENCE_S)
                self.text += os.read(self._ours, 65536).decode(errors="replace")
        finally:
            os.close(ended)


@contextmanager
def top(path, columns=160):
    terminal = Terminal([sys.executable, "-m", "spark_kafka_sink", "top", str(path)], columns)
    try:
        yield terminal
    finally:
        terminal.close()


def append(path, *numbers):
    with open(path, "ab") as file:
        file.write(text(*(numbered(HEALTHY, number) for number in numbers)))


@pytest.mark.slow
def test_new_batches_appear(tmp_path):
    path = tmp_path / "m.jsonl"
    with top(path, columns=40) as terminal:
        terminal.until_shown("no line of metrics")
        assert _OTHER_SCREEN[0] in terminal.text
        append(path, *range(16))
        terminal.until_shown("16 batches")
        with open(path, "ab") as file:
            file.write(text(numbered(SLOW_BROKER, 16)))
        terminal.until_shown("17 batches", "broker 2 is slow")
        lines = [line.rstrip() for line in terminal.frame().splitlines()]
    assert max(map(len, lines)) <= 40
    assert len(lines) <= _ROWS


@pytest.mark.slow
@pytest.mark.parametrize("end", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_the_terminal_is_as_before(tmp_path, end):
    with top(tmp_path / "m.jsonl") as terminal:
        terminal.until_shown("no line of metrics")
        # Keys that it does not know are left alone, and not shown.
        terminal.press("xyz")
        terminal.press(end)
        assert terminal.until_ended() == 0
        if end == "q":  # with Ctrl-C, Linux drops what is in the terminal just then
            assert _OTHER_SCREEN[1] in terminal.text
            assert _SHOW_CURSOR in terminal.text
        assert "xyz" not in terminal.text
        assert "Traceback" not in terminal.text
        assert termios.tcgetattr(terminal.theirs) == terminal.before
