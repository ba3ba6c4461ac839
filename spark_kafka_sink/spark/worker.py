"""What is arranged in Spark's Python processes, once in each. They are Spark's, never a user's own.

Garbage: Spark collects it after each task, and after each planning and commit, before the process
takes the next one (``pyspark/daemon.py``). That walks over every object which imports have made:
with numba, pyarrow and pandas loaded 50 to 75 ms, as long as a small task takes.

Memory: Spark reads an Arrow batch into one block. Blocks above 32 MiB glibc maps anew and gives
back each time, and an Arrow batch of values above 3 KB has up to 64 MiB. The page faults took a
quarter of a worker's CPU.
"""

from __future__ import annotations

import gc
import os
import sys

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

# Twice Spark's default of spark.sql.execution.arrow.maxBytesPerBatch.
LARGEST_KEPT_BYTES = 128 << 20
"""Blocks up to this size are reused."""
MOST_KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is not given back."""


_frozen_modules = 0  # how many there were when they were last kept out


def freeze_loaded() -> None:
    """Keep what this process has loaded by now out of collections: once, and again where modules
    were loaded since, as by threads that send metrics.

    What becomes garbage later is not freed if it is in a cycle: of a whole process that is at most
    what its first task held before its first row, or a commit that follows the loading.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()


def keep_large_blocks() -> None:
    """Have glibc reuse the memory of Arrow batches. Elsewhere, with a glibc that refuses, and where
    the user has set glibc's thresholds in the environment, this does nothing.
    """
    if any(name in os.environ for name in _OF_THE_USER):
        return
    import ctypes  # not in the processes that plan

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Older versions refuse more than 32 MiB. The other threshold alone would then only pin this one
    # to where it is, 128 KiB in a new process, instead of letting it grow by itself.
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES):
        mallopt(_M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
