"""What goes on, step by step: on a terminal a line that shows the seconds, else plain lines."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from spark_kafka_sink.base.clock import Clock

_REFRESH_S = 0.1
_CLEAR_LINE = "\r\033[K"
_BLUE, _GREEN, _RED, _PLAIN = "\033[34m", "\033[32m", "\033[31m", "\033[0m"


class Step:
    """One step. ``say`` may be called from the thread that works, ``show`` from the one that shows.

    title: what is done now; until ``say`` gives another text, it is the text of the finished step
    """

    def __init__(self, title: str, clock: Clock) -> None:
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self.text = title

    def say(self, text: str) -> None:
        """Replace the text."""
        self.text = text

    def describe(self) -> str:
        """The text, and the seconds since the step began."""
        return f"{self.text}  {(self._clock.now_ms() - self._started_at_ms) / 1000:.1f} s"


class Steps:
    """Shows steps, one after the other, and the total time since it was made."""

    def __init__(self, clock: Clock, out: TextIO) -> None:
        self._clock = clock
        self._out = out
        self._is_terminal = out.isatty()
        self._is_coloured = self._is_terminal and "NO_COLOR" not in os.environ
        self._started_at_ms = clock.now_ms()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show ``title`` at once, and a line with its time when the block ends."""
        step = Step(title, self._clock)
        if not self._is_terminal:
            self._write(f"{title} …\n")
        done = threading.Event()
        shows = threading.Thread(target=self._show, args=(step, done), daemon=True)
        shows.start()
        is_ok = False
        try:
            yield step
            is_ok = True
        finally:
            done.set()
            shows.join()
            mark = self._coloured("✓", _GREEN) if is_ok else self._coloured("✗", _RED)
            start = _CLEAR_LINE if self._is_terminal else ""
            self._write(f"{start}{mark} {step.describe()}\n")

    def succeed(self, text: str) -> None:
        """The last line, in green."""
        self._write(self._coloured(f"{text}  {self._total()}", _GREEN) + "\n")

    def fail(self, text: str) -> None:
        """The last line, in red."""
        self._write(self._coloured(f"{text}  {self._total()}", _RED) + "\n")

    def _total(self) -> str:
        return f"(total {(self._clock.now_ms() - self._started_at_ms) / 1000:.1f} s)"

    def _show(self, step: Step, done: threading.Event) -> None:
        """Only a terminal is told about a step that is not finished."""
        while self._is_terminal:
            # A line that wraps could not be cleared.
            text = step.describe()[: shutil.get_terminal_size().columns - 3]
            self._write(f"{_CLEAR_LINE}{self._coloured('…', _BLUE)} {text}")
            if done.wait(_REFRESH_S):
                return

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._is_coloured else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
