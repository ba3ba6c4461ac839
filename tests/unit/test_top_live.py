"""The screen of ``pykafka-sink top`` in a terminal of its own, while its file grows."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.unit.report_lines import HEALTHY, SLOW_BROKER
from tests.unit.test_report import numbered, text

_ROWS = 40
_OTHER_SCREEN = ("\x1b[?1049h", "\x1b[?1049l")
_SHOW_CURSOR = "\x1b[?25h"
_HOME = "\x1b[H"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _own_the_terminal() -> None:
    """In the new process: Ctrl-C becomes a signal, which a background job would ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A process, and the terminal that it runs in."""

    def __init__(self, command: list[str], columns: int) -> None:
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

    def frame(self) -> str:
        """What the last drawing has put on the screen, without colours."""
        return _ESCAPE.sub("", self.text.split(_HOME)[-1].split(_OTHER_SCREEN[1])[0])

    def until(self, is_so: Callable[[], bool]) -> None:
        """Read on until then."""
        while not is_so():
            readable, _, _ = select.select([self._ours], [], [], PATIENCE_S)
            assert readable, self.text
            self.text += os.read(self._ours, 65536).decode(errors="replace")

    def until_shown(self, *parts: str) -> None:
        self.until(lambda: all(part in self.frame() for part in parts))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)

    def until_ended(self) -> int:
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
def top(path: Path, columns: int = 160) -> Iterator[Terminal]:
    terminal = Terminal([sys.executable, "-m", "spark_kafka_sink", "top", str(path)], columns)
    try:
        yield terminal
    finally:
        terminal.close()


def append(path: Path, *numbers: int) -> None:
    with open(path, "ab") as file:
        file.write(text(*(numbered(HEALTHY, number) for number in numbers)))


def test_new_batches_appear(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with top(path) as terminal:
        terminal.until_shown("no line of metrics")
        assert _OTHER_SCREEN[0] in terminal.text
        append(path, 1, 2)
        terminal.until_shown("2 batches", "q ends it")
        with open(path, "ab") as file:
            file.write(text(numbered(SLOW_BROKER, 3)))
        terminal.until_shown("3 batches", "broker 2 is slow")


@pytest.mark.parametrize("end", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_the_terminal_is_as_before(tmp_path: Path, end: str) -> None:
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


def test_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    append(path, *range(16))
    with open(path, "ab") as file:
        file.write(text(numbered(SLOW_BROKER, 16)))
    with top(path, columns=40) as terminal:
        terminal.until_shown("17 batches", "broker 2 is slow")
        lines = [line.rstrip() for line in terminal.frame().splitlines()]
        terminal.press("q")
        assert terminal.until_ended() == 0
    assert max(map(len, lines)) <= 40
    assert len(lines) <= _ROWS
