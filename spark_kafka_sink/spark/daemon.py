"""Spark's daemon of Python workers, with the sink loaded before it forks them.

``spark.python.daemon.module=spark_kafka_sink.spark.daemon``. An executor starts one daemon, which
forks every Python worker: a worker has what the daemon has loaded, in memory that all of them
share. Spark's own daemon loads next to nothing, as threads do not survive a fork. Here that is
looked at: with a thread that is still there after a fork, nothing is kept loaded.

Whatever goes wrong, Spark's own daemon takes this process: other Python code of the application
must not fail because of the sink.

Source: ``pyspark/daemon.py``, whose ``manager`` runs here unchanged.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SPARKS_OWN = "pyspark.daemon"
TASKS = "pyspark.worker"
"""The worker module of tasks. Since 4.0 Spark names it as the first argument; planning and commits
have others."""

# What a worker loads for a first task of a Python sink or of pandas UDFs, where the version has it.
_OF_SPARK = (TASKS, "pyspark.sql.datasource", "pyspark.sql.pandas.serializers")
_THREADS = "/proc/self/task"
_TRIALS = 20
# pyarrow's jemalloc starts a thread that gives memory back; after a fork it does so in the thread
# that frees.
_JEMALLOC = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
# Its mimalloc (since pyarrow 18 the one that is used) takes 1 GiB of addresses in advance. Without
# that, compute kernels take up to ten times as long: only where addresses are limited.
_MIMALLOC = ("MIMALLOC_ARENA_RESERVE", "0")
# spark.executor.pyspark.memory for each worker: pyspark.worker limits its addresses (RLIMIT_AS).
_WORKER_MIB = "PYSPARK_EXECUTOR_MEMORY_MB"
_MOST_OF_LIMIT = 0.5
_SIZES = "/proc/self/statm"
_STDOUT, _STDERR = 1, 2


class ThreadsStartedError(Exception):
    """Something that was loaded has started threads, which workers would not have."""


class TooLittleMemoryError(Exception):
    """What is loaded would leave a worker too little of the memory that it may have."""


def load() -> None:
    """Have all loaded that a task of the sink needs, kernels included, and no thread.

    Raises ThreadsStartedError, TooLittleMemoryError, or whatever an import raises.
    """
    before = _threads()
    gc.disable()
    try:
        _import_all()
    finally:
        gc.enable()
    _refuse_threads(before)
    _refuse_small_limit()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        # Every worker would draw the same numbers. Python's own generator does this by itself.
        os.register_at_fork(after_in_child=numpy_random.seed)
    # A collection in a worker would write to what is shared, and so make it the worker's own.
    gc.collect()
    gc.freeze()


def _import_all() -> None:
    with _environment(_JEMALLOC, *([_MIMALLOC] if _worker_mib() else [])):
        from spark_kafka_sink.spark.task import load_all

        load_all()
        for module in _OF_SPARK:
            with suppress(ModuleNotFoundError):
                importlib.import_module(module)


@contextmanager
def _environment(*settings: tuple[str, str]) -> Iterator[None]:
    """With these variables, where they have no value; workers do not have them."""
    mine = {name: value for name, value in settings if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]


def _worker_mib() -> int:
    """MiB of addresses that Spark gives to each worker, 0 for any number."""
    value = os.environ.get(_WORKER_MIB, "")
    return int(value) if value.isdecimal() else 0


def _refuse_small_limit() -> None:
    """A worker has the addresses of what the daemon has loaded, whether its code uses it or not."""
    limit = _worker_mib()
    try:
        pages = int(Path(_SIZES).read_text(encoding="ascii").split()[0])
    except OSError:  # not Linux: Spark sets no limit that holds there
        return
    loaded = pages * os.sysconf("SC_PAGE_SIZE") >> 20
    if limit and loaded > limit * _MOST_OF_LIMIT:
        raise TooLittleMemoryError(
            f"spark.executor.pyspark.memory leaves {limit} MiB for each worker, and what would be "
            f"loaded takes {loaded} MiB of that: more than half"
        )


def _threads() -> list[str]:
    """Names of the threads of this process, of libraries' too; none where they cannot be listed."""
    try:
        threads = os.listdir(_THREADS)
    except OSError:
        return []
    names = []
    for thread in threads:
        with suppress(OSError):  # it has just ended
            names.append(Path(_THREADS, thread, "comm").read_text(encoding="utf-8").strip())
    return names


def _refuse_threads(before: list[str]) -> None:
    """OpenBLAS ends its threads when a process forks, and has them again when it needs them; a
    thread that has ended is listed for a moment longer.
    """
    for _ in range(_TRIALS):
        process_id = os.fork()
        if process_id == 0:
            os._exit(0)
        with suppress(ChildProcessError):  # who started this process has said to ignore such ends
            os.waitpid(process_id, 0)
        if len(_threads()) <= len(before):
            return
    raise ThreadsStartedError(f"threads were started: {', '.join(_threads())}")


@contextmanager
def _nothing_on_stdout() -> Iterator[None]:
    """The first bytes there tell Spark the daemon's port: what imports print goes to stderr."""
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def main(arguments: list[str]) -> None:
    """Load, if the workers are for tasks, and be Spark's daemon."""
    if (arguments or [TASKS])[0] == TASKS:
        try:
            with _nothing_on_stdout():
                load()
        except (Exception, SystemExit) as error:
            sys.stderr.write(
                f"pykafka-sink: not loaded before workers are forked, each loads it by itself: "
                f"{type(error).__name__}: {error}\n"
            )
            sys.stderr.flush()
            # A process without anything that was half loaded.
            os.execv(sys.executable, [sys.executable, "-m", SPARKS_OWN, *arguments])
    importlib.import_module(SPARKS_OWN).manager()


if __name__ == "__main__":
    main(sys.argv[1:])
