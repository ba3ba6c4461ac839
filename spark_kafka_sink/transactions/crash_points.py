"""Named steps of the commit protocol, at which a test can kill who takes them.

``PYKAFKA_SINK_CRASH_HOOK=package.module:function`` in the environment names a function that is
called with each point that is reached; without it a point costs a comparison. There is none in the
way of a record.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from spark_kafka_sink.base.entry_points import load

VARIABLE = "PYKAFKA_SINK_CRASH_HOOK"

POINTS = (
    "plan.begin",
    "plan.fenced",
    "plan.claimed",
    "plan.resolved",
    "plan.swept",
    "task.begin",
    "task.written",
    "task.flushed",
    "commit.begin",
    "commit.checked",
    "commit.deciding",
    "commit.decided",
    "commit.ending",
    "commit.ended",
    "commit.done",
    "commit.swept",
    "sweep.listed",
    "abort.begin",
    "abort.settled",
    "abort.swept",
)
"""In the order in which a batch reaches them. ``commit.deciding``: the decision is written, its
transaction not ended; ``commit.ending``: the first of the tasks' transactions is committed;
``sweep.listed``: only where something was left open.
"""

Hook = Callable[[str], None]


def _hook_of_environment() -> Hook | None:
    entry_point = os.environ.get(VARIABLE)
    if not entry_point:
        return None
    hook: Hook = load(entry_point, "crash hook")
    return hook


_hook: Hook | None = _hook_of_environment()


def set_hook(hook: Hook | None) -> None:
    """Call ``hook`` at every point from now on, in this process."""
    global _hook
    _hook = hook


def is_watched() -> bool:
    """Whether anybody wants to know of points."""
    return _hook is not None


def reached(point: str) -> None:
    """Say that ``point`` is reached."""
    if _hook is not None:
        _hook(point)
