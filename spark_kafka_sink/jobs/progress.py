"""Progress of a job in lines, and of the demo in steps that update themselves on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from spark_kafka_sink.base.clock import Clock, SystemClock

# --- lag of a stream behind its input topics -----------------------------------------------------

_KAFKA = "Kafka"


def kafka_lag(progress: Mapping[str, Any]) -> int | None:
    """Return how many offsets a micro-batch was behind the end of its topics when it was planned.

    progress: a StreamingQueryProgress. Returns None without a Kafka source, and for a micro-batch
    that was planned before a restart. Transactions use offsets of their own, so fewer records may
    be left.
    """
    behind = None
    for source in progress.get("sources") or ():
        if not source["description"].startswith(_KAFKA):
            continue
        ends, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if not latest:
            return None
        behind = (behind or 0) + sum(
            max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()
        )
    return behind


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Parse ``{"topic":{"0":12}}``; return an empty dictionary for no text."""
    topics = json.loads(text) if text else None
    return {
        (topic, partition): offset
        for topic, partitions in (topics or {}).items()
        for partition, offset in partitions.items()
    }


# --- progress ------------------------------------------------------------------------------------

_INTERVAL_MS = 5000


@dataclass
class Totals:
    """Totals of a stream since its start.

    files: (processed, found) of a stream of files; lag: in offsets, of a stream from Kafka
    """

    rows: int = 0
    batches: int = 0
    rows_per_second: float = 0.0
    files: tuple[int, int] | None = None
    lag: int | None = None

    def add(self, progress: Mapping[str, Any]) -> None:
        """Count one StreamingQueryProgress, as a dictionary."""
        rows = int(progress.get("numInputRows") or 0)
        if rows:
            self.rows += rows
            self.batches += 1
            duration_ms = (progress.get("durationMs") or {}).get("triggerExecution") or 0
            self.rows_per_second = rows * 1000 / duration_ms if duration_ms else 0.0
            self.lag = kafka_lag(progress)

    def describe(self) -> str:
        """Return ``336,776 rows | 41,230 rows/s | 12 batches | 0 of 12 files left``."""
        parts = [
            f"{self.rows:,} rows",
            f"{self.rows_per_second:,.0f} rows/s",
            f"{self.batches:,} batch{'' if self.batches == 1 else 'es'}",
        ]
        if self.files is not None:
            processed, found = self.files
            parts.append(f"{max(0, found - processed):,} of {found:,} files left")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        return " | ".join(parts)


class ProgressLine:
    """Shows a changing text: a line at once, and then every few seconds if the text has changed.

    Each line is whole, on a terminal too: Spark's JVM, and the driver's other Python processes,
    write their log to the same terminal at any time.
    """

    def __init__(self, clock: Clock, out: TextIO) -> None:
        self._clock = clock
        self._out = out
        self._shown = ""
        self._shown_at_ms: int | None = None
        self._has_failed = False

    def attempt(self, action: Callable[[], object]) -> None:
        """Run code that only displays: an error must not replace the job's result.

        The first error is printed on standard error. Raises only what ends the process.
        """
        try:
            action()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                print(f"progress cannot be shown: {error!r}", file=sys.stderr)

    def show(self, text: str) -> None:
        """Show ``text`` if it has changed and it is time for another line."""
        now_ms = self._clock.now_ms()
        is_due = self._shown_at_ms is None or now_ms - self._shown_at_ms >= _INTERVAL_MS
        if text != self._shown and is_due:
            self._shown, self._shown_at_ms = text, now_ms
            self.finish(text)

    def finish(self, text: str) -> None:
        """Write the final text."""
        print(text, file=self._out, flush=True)


# --- steps ---------------------------------------------------------------------------------------

_REFRESH_S = 0.1
_CLEAR_LINE = "\r\033[K"
_BLUE, _GREEN, _RED, _PLAIN = "\033[34m", "\033[32m", "\033[31m", "\033[0m"


class Step:
    """One step. The working thread may call ``say``, the displaying thread ``describe``.

    title: the current activity; it is also the finished step's text, unless ``say`` replaces it
    """

    def __init__(self, title: str, clock: Clock) -> None:
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self.text = title

    def say(self, text: str) -> None:
        """Replace the text."""
        self.text = text

    def describe(self) -> str:
        """Return the text, and the seconds since the step began."""
        return f"{self.text}  {(self._clock.now_ms() - self._started_at_ms) / 1000:.1f} s"


class Steps:
    """Shows steps, one after the other, and the total time since this object was created.

    out: standard output by default
    """

    def __init__(self, clock: Clock | None = None, out: TextIO | None = None) -> None:
        self._clock = clock or SystemClock()
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._is_coloured = self._is_terminal and "NO_COLOR" not in os.environ
        self._started_at_ms = self._clock.now_ms()

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
        """Write the last line, in green."""
        self._write(self._coloured(f"{text}  {self._total()}", _GREEN) + "\n")

    def fail(self, text: str) -> None:
        """Write the last line, in red."""
        self._write(self._coloured(f"{text}  {self._total()}", _RED) + "\n")

    def _total(self) -> str:
        return f"(total {(self._clock.now_ms() - self._started_at_ms) / 1000:.1f} s)"

    def _show(self, step: Step, done: threading.Event) -> None:
        """Show an unfinished step, on a terminal only."""
        while self._is_terminal:
            # Cut the text, because a line that wraps cannot be cleared.
            text = step.describe()[: shutil.get_terminal_size().columns - 3]
            self._write(f"{_CLEAR_LINE}{self._coloured('…', _BLUE)} {text}")
            if done.wait(_REFRESH_S):
                return

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._is_coloured else text

    def _write(self, text: str) -> None:
        print(text, end="", file=self._out, flush=True)
