"""What explains the time of many batches: the findings of each, weighted by how long it took.

The figures of all of them added up would not tell: one batch of tiny record batches among large
ones has a mean size that no rule minds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.report.advice import findings
from spark_kafka_sink.report.figures import count, percent
from spark_kafka_sink.report.finding import Finding
from spark_kafka_sink.report.parts import took_ms

_LEAST_SHARE = 0.05
_MOST_CAUSES = 4


class Cause(NamedTuple):
    """A finding of one batch, that explains most, and what it explains of all of them.

    share: of the time of all batches; batches: in how many it was found
    batch: name of the one that the finding's figures are of
    """

    finding: Finding
    share: float
    batches: int
    batch: str


class Causes:
    """Of the lines so far. lines: how many"""

    def __init__(self) -> None:
        self.lines = 0
        self._whole_ms = 0.0
        self._found: dict[str, list[Any]] = {}

    def look_at(self, line: Mapping[str, Any]) -> None:
        """Another line."""
        self.lines += 1
        ms = took_ms(line)
        self._whole_ms += ms
        for finding in findings(line):
            explained_ms = finding.weight * ms
            known = self._found.setdefault(finding.kind, [0.0, 0, -1.0, finding, ""])
            known[0] += explained_ms
            known[1] += 1
            if explained_ms > known[2]:
                known[2:] = explained_ms, finding, batch_name(line)

    def slow(self) -> list[Cause]:
        """Without what went wrong, which is counted and no matter of time. Most time first."""
        whole_ms = self._whole_ms or 1.0
        causes = [
            Cause(finding, explained_ms / whole_ms, batches, batch)
            for explained_ms, batches, _, finding, batch in self._found.values()
            if not finding.is_trouble and explained_ms >= _LEAST_SHARE * whole_ms
        ]
        return sorted(causes, key=lambda cause: -cause.share)[:_MOST_CAUSES]


def overall(total: Mapping[str, Any], causes: Causes) -> list[Finding]:
    """What is to be said about many batches. total: all of them, added up."""
    counted = [found for found in findings(total) if found.is_trouble or not found.weight]
    return [*counted, *(_told(cause, causes.lines) for cause in causes.slow())]


def _told(cause: Cause, lines: int) -> Finding:
    if lines == 1:
        return cause.finding
    where = (
        f"It explains {percent(cause.share)} of the time of all batches, in {count(cause.batches)} "
        f"of {count(lines)}. As in {cause.batch}: "
    )
    return cause.finding._replace(text=where + cause.finding.text, weight=cause.share)


def batch_name(line: Mapping[str, Any]) -> str:
    """As people call it."""
    number = line.get("batch_id")
    return "a job" if number is None else f"batch {number}"
