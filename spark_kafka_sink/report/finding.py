"""What rules are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.report.parts import shares

Line = Mapping[str, Any]

WAITING = 0.2
"""A share of task time that waiting for brokers must have to be worth words."""
LEAST_WAITING_MS = 100.0
"""Of the mean task. Each waits some milliseconds for its last acknowledgement, however fast."""


class Finding(NamedTuple):
    """One thing that is to be known about a batch.

    kind: for programs and tests; docs/report.md has them all
    title: in a few words; text: with the figures; advice: what to do, "" for nothing
    weight: what share of the batch's time it explains, at most 1; trouble that takes no time has 0
    is_trouble: something went wrong, and not only slowly
    """

    kind: str
    title: str
    text: str
    advice: str
    weight: float
    is_trouble: bool = False


class Facts(NamedTuple):
    """A line, and what more than one rule asks of it.

    waiting: share of task time that tasks waited for brokers
    """

    line: Line
    metrics: Mapping[str, Any]
    shares: Mapping[str, float]
    waiting: float

    @classmethod
    def of(cls, line: Line) -> Facts:
        """All of one line."""
        metrics = line.get("metrics") or {}
        found = shares(metrics)
        return cls(line, metrics, found, found["buffer_wait_ms"] + found["ack_wait_ms"])

    def number(self, name: str) -> float:
        """One of ``metrics``; 0 if it is not told."""
        return float(self.metrics.get(name) or 0)

    @property
    def records_per_batch(self) -> float:
        return self.number("records") / max(self.number("batches"), 1)

    @property
    def is_waiting(self) -> bool:
        """Whether tasks wait for brokers so long that it is worth words: of the mean task, too."""
        times_ms = self.number("buffer_wait_ms") + self.number("ack_wait_ms")
        tasks = float(self.line.get("tasks") or 1)
        return self.waiting >= WAITING and times_ms / tasks >= LEAST_WAITING_MS

    def setting(self, name: str) -> str | None:
        """What an option is, where the line tells."""
        value = (self.line.get("settings") or {}).get(name)
        return None if value is None else str(value)
