"""Named steps of the commit protocol at which a test can kill the process.

``PYKAFKA_SINK_CRASH_HOOK=package.module:function`` in the environment names a function, which is
called at each point. Without it a point costs a comparison. No point lies on the path of a record.
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
"""The points in the order of a batch.

- ``commit.deciding``: the decision is written, and its transaction is still open.
- ``commit.ending``: the first of the tasks' transactions is committed.
- ``abort.begin``: the record is read, and nothing is changed yet.
- ``….swept``: transactions that failed tasks left open are aborted.
- ``sweep.listed``: reached only if a transaction was left open.
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
    """Return True if a hook is set."""
    return _hook is not None


def reached(point: str) -> None:
    """Call the hook with ``point``."""
    if _hook is not None:
        _hook(point)
