"""Where a batch's time goes: the parts of its tasks' time, as shares of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Part(NamedTuple):
    """field: of ``metrics``, in task time"""

    field: str
    name: str


PARTS = (
    Part("input_wait_ms", "waiting for Spark's rows"),
    Part("encode_ms", "encoding"),
    Part("compress_ms", "compressing"),
    Part("metadata_wait_ms", "waiting for metadata"),
    Part("buffer_wait_ms", "waiting for buffer memory"),
    Part("ack_wait_ms", "waiting for acknowledgements"),
    Part("transaction_begin_ms", "beginning transactions"),
    Part("load_ms", "loading"),
)
OTHER = "other"
COMMIT = "committing"
PLANNING = "planning"
NAMES = (*(part.name for part in PARTS), OTHER, COMMIT, PLANNING)
"""What a batch's seconds are divided into, in the order in which they are shown."""


def shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What share of the tasks' time each field of ``PARTS`` has, and ``OTHER``: together 1.

    Compression beside the task's thread may make the parts longer than the tasks: then these are
    shares of the parts. All 0 without a time.
    """
    times = {part.field: float(metrics.get(part.field) or 0) for part in PARTS}
    known = sum(times.values())
    whole = max(known, float(metrics.get("task_ms") or 0))
    if not whole:
        return {**dict.fromkeys(times, 0.0), OTHER: 0.0}
    return {**{field: ms / whole for field, ms in times.items()}, OTHER: (whole - known) / whole}


def took_ms(line: Mapping[str, Any]) -> float:
    """Planning, from the first task's start until the end of the last one, and committing."""
    return sum(float(line.get(name) or 0) for name in ("planning_ms", "elapsed_ms", "commit_ms"))


def largest(line: Mapping[str, Any]) -> str:
    """The name of what took most of a batch's time; "" if nothing is known."""
    found = shares(line.get("metrics") or {})
    elapsed_ms = float(line.get("elapsed_ms") or 0)
    times = [(found[part.field] * elapsed_ms, part.name) for part in PARTS]
    times += [
        (found[OTHER] * elapsed_ms, OTHER),
        (float(line.get("commit_ms") or 0), COMMIT),
        (float(line.get("planning_ms") or 0), PLANNING),
    ]
    most_ms, name = max(times)
    return name if most_ms > 0 else ""
