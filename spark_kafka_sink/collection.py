"""Garbage collection in Spark's Python processes.

Spark collects all garbage after each task, and after each planning and commit, before the process
takes the next one (``pyspark/daemon.py``). That walks over every object which imports have made:
with numba, pyarrow and pandas loaded 50 to 75 ms, as long as a task of a micro-batch needs for its
rows.
"""

from __future__ import annotations

import gc

_is_frozen = False


def freeze_loaded() -> None:
    """Keep what this process has loaded by now out of collections. Only the first call does it.

    To be called in Spark's processes, which are Spark's own, never in a user's. What is frozen and
    becomes garbage later, in a cycle, is not freed: of a whole process that is at most what its
    first task held before its first row.
    """
    global _is_frozen
    if not _is_frozen:
        _is_frozen = True
        gc.freeze()
