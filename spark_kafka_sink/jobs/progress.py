"""Progress of a job: one line that updates itself on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.jobs.kafka_lag import kafka_lag

_LOG_INTERVAL_MS = 5000
_CLEAR_LINE = "\r\033[K"


@dataclass
class Totals:
    """What a stream has done since it was started.

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
        """``336,776 rows | 41,230 rows/s | 12 batches | 0 of 12 files left``."""
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


def progress_output(spark: Any) -> TextIO:
    """Where progress is shown: the terminal if there is one, else standard error, that is, the log.

    Under spark-submit the JVM holds the terminal and Python only gets pipes, so the JVM is asked.
    """
    if sys.stderr.isatty():
        return sys.stderr
    if spark.sparkContext._jvm.java.lang.System.console() is None:
        return sys.stderr
    try:
        return open("/dev/tty", "w", encoding="utf-8")
    except OSError:
        return sys.stderr


class BestEffort:
    """Runs what only shows something: whatever it raises must not take the place of a job's result.

    The first error is told on standard error.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def run(self, show: Callable[[], object]) -> None:
        """Call ``show``. Raises nothing but what ends the process."""
        try:
            show()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                print(f"progress cannot be shown: {error!r}", file=sys.stderr)


class ProgressLine:
    """Shows a text that changes. Not on a terminal: a line every few seconds, if it has changed."""

    def __init__(self, clock: Clock, out: TextIO) -> None:
        self._clock = clock
        self._out = out
        self._is_terminal = self._out.isatty()
        self._shown = ""
        self._shown_at_ms: int | None = None

    def show(self, text: str) -> None:
        """Show ``text`` now (terminal) or when it is time for another line (log)."""
        if text == self._shown:
            return
        now_ms = self._clock.now_ms()
        if self._is_terminal:
            self._out.write(_CLEAR_LINE + text)
        elif self._shown_at_ms is None or now_ms - self._shown_at_ms >= _LOG_INTERVAL_MS:
            self._out.write(text + "\n")
        else:
            return
        self._out.flush()
        self._shown = text
        self._shown_at_ms = now_ms

    def finish(self, text: str) -> None:
        """The final text, on a line of its own."""
        self._out.write((_CLEAR_LINE if self._is_terminal else "") + text + "\n")
        self._out.flush()
