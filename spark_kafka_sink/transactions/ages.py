"""Compute the ages of open transactions, although the clocks of the machines may differ.

A coordinator reports by its own clock when a transaction began, and the driver compares that with
the driver's clock. Two measured durations bound the result: a transaction is at least as old as
its task has measured, and not older than its plan. The excess is the difference of the two clocks.
It applies to all transactions of the coordinator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from spark_kafka_sink.base.model import Node
from spark_kafka_sink.transactions.model import format_duration

NOTEWORTHY_MS = 5_000
"""A smaller difference of clocks is not reported."""


class Timing(NamedTuple):
    """Facts about the age of one transaction.

    by_clocks_ms: the driver's time less the begin that ``coordinator`` reports
    at_least_ms: as the task has measured between the begin and its last row
    at_most_ms: since the plan, without which no task begins
    """

    transactional_id: str
    coordinator: Node | None
    by_clocks_ms: int
    at_least_ms: int
    at_most_ms: int


class Ages(NamedTuple):
    """ms: transactional id -> age.

    ahead_ms: by how much the driver's clock is ahead of a coordinator's at least; negative: behind
    coordinator: with the largest difference
    """

    ms: dict[str, int]
    ahead_ms: int = 0
    coordinator: Node | None = None

    @property
    def clock_problem(self) -> str:
        """Return a sentence about clocks that differ; empty if none is known to."""
        if abs(self.ahead_ms) < NOTEWORTHY_MS:
            return ""
        return (
            f"the clock of this machine is at least {format_duration(abs(self.ahead_ms))} "
            f"{'ahead of' if self.ahead_ms > 0 else 'behind'} that of "
            f"{self.coordinator or 'a broker'}: synchronise both (NTP)"
        )


def ages_of(timings: Iterable[Timing]) -> Ages:
    """Return the ages, within their bounds."""
    groups: dict[Node | None, list[Timing]] = defaultdict(list)
    for timing in timings:
        groups[timing.coordinator].append(timing)
    ages = Ages({})
    for coordinator, group in groups.items():
        ahead_ms = _ahead_ms(group)
        if abs(ahead_ms) > abs(ages.ahead_ms):
            ages = Ages(ages.ms, ahead_ms, coordinator)
        for timing in group:
            age_ms = max(timing.by_clocks_ms - ahead_ms, timing.at_least_ms)
            ages.ms[timing.transactional_id] = min(age_ms, timing.at_most_ms)
    return ages


def _ahead_ms(group: Iterable[Timing]) -> int:
    """Return by how much the driver's clock is ahead at least; 0 if nothing is certain.

    Bounds that contradict each other show a clock that was set meanwhile.
    """
    ahead_ms = max(0, *(t.by_clocks_ms - t.at_most_ms for t in group))
    behind_ms = max(0, *(t.at_least_ms - t.by_clocks_ms for t in group))
    return 0 if ahead_ms and behind_ms else ahead_ms - behind_ms
