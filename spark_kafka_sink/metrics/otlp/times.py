"""When what a line tells of has begun and ended. Instants are nanoseconds since 1970."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.metrics.names import Values

_NS_PER_MS = 1_000_000


class Interval(NamedTuple):
    """Of a span, or of what a sum is of."""

    started_ns: int
    ended_ns: int


def between(started_ms: float, ended_ms: float) -> Interval:
    """Whole milliseconds, rounded down: so what comes after another by one clock is told so.

    Clocks of two machines may tell that something ended before it began: then it took no time.
    """
    started_ns = int(started_ms) * _NS_PER_MS
    return Interval(started_ns, max(started_ns, int(ended_ms) * _NS_PER_MS))


def planning(line: Values) -> Interval | None:
    """On the driver, before the tasks."""
    started_ms = line.get("planning_started_at_ms")
    return None if started_ms is None else between(started_ms, started_ms + line["planning_ms"])


def tasks(line: Values) -> Interval | None:
    """From the start of the first task with rows to the end of the last."""
    started_ms = line.get("started_at_ms")
    return None if started_ms is None else between(started_ms, started_ms + line["elapsed_ms"])


def flush(line: Values) -> Interval | None:
    """From when the first task waited for acknowledgements until the last had them."""
    whole = tasks(line)
    if whole is None or "flush_started_at_ms" not in line:
        return None
    return Interval(line["flush_started_at_ms"] * _NS_PER_MS, whole.ended_ns)


def commit(line: Values) -> Interval | None:
    """On the driver, after the tasks: committing or aborting."""
    started_ms = line.get("commit_started_at_ms")
    return None if started_ms is None else between(started_ms, line["time_ms"])


def slowest_task(line: Values) -> Interval | None:
    """Within ``tasks``."""
    slowest = line.get("slowest_tasks")
    whole = tasks(line)
    if not slowest or whole is None:
        return None
    started_ms = slowest[0]["started_at_ms"]
    started_ns, ended_ns = between(started_ms, started_ms + slowest[0]["task_ms"])
    return Interval(started_ns, min(ended_ns, whole.ended_ns))


def interval_of(line: Values) -> Interval:
    """All of it, as far as it is known; of clocks that differ, the widest."""
    parts = [part for of in (planning, tasks, flush, commit) if (part := of(line)) is not None]
    written_ns = line["time_ms"] * _NS_PER_MS
    return Interval(
        min((part.started_ns for part in parts), default=written_ns),
        max([written_ns, *(part.ended_ns for part in parts)]),
    )
