"""Spark's daemon of Python workers, which loads the sink before it forks workers.

``spark.python.daemon.module=spark_kafka_sink.spark.daemon``. An executor starts one daemon, which
forks every Python worker. A worker inherits the daemon's modules, in memory that all workers share.
Spark's own daemon loads almost nothing because threads do not survive a fork. This daemon checks
that: if a thread still exists after a fork, it starts again without loaded modules. Where threads
cannot be counted, as on macOS, it loads nothing.

Over TCP, a worker that has answered delays its acknowledgements by 40 ms, and Spark's JVM does not
send the next small part of a task before them (Nagle). So a worker acknowledges at once from the
beginning of each task.

After any error, this process runs Spark's own daemon: other Python code of the application must not
fail because of the sink.

Source: ``pyspark/daemon.py``, whose ``manager`` runs here unchanged.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

SPARKS_OWN = "pyspark.daemon"
TASKS = "pyspark.worker"
"""The worker module of tasks. Since 4.0 Spark passes it as the first argument; planning and commits
have other modules."""

# Modules that a worker loads for a first task of a Python sink or of pandas UDFs, if they exist.
_OF_SPARK = (TASKS, "pyspark.sql.datasource", "pyspark.sql.pandas.serializers")
_THREADS = "/proc/self/task"
_TRIALS = 20
# pyarrow's jemalloc starts a thread that returns memory; without it, the freeing thread does so.
_JEMALLOC = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
# pyarrow's mimalloc (the default since pyarrow 18) reserves 1 GiB of addresses. Without the
# reservation, compute kernels take up to ten times as long: set only if addresses are limited.
_MIMALLOC = ("MIMALLOC_ARENA_RESERVE", "0")
# spark.executor.pyspark.memory for each worker: pyspark.worker limits its addresses (RLIMIT_AS).
_WORKER_MIB = "PYSPARK_EXECUTOR_MEMORY_MB"
_MOST_OF_LIMIT = 0.5
_SIZES = "/proc/self/statm"
_STDOUT, _STDERR = 1, 2


class ThreadsStartedError(Exception):
    """A loaded module has started threads, or may have, which workers would not have."""


class TooLittleMemoryError(Exception):
    """The loaded modules would leave a worker too little of its memory limit."""


def load() -> None:
    """Load all modules that a task of the sink needs, kernels included, without any thread.

    Raises ThreadsStartedError, TooLittleMemoryError, or any error of an import.
    """
    before = _threads()
    if not before:
        raise ThreadsStartedError(f"there is no {_THREADS}, which would show threads")
    gc.disable()
    try:
        _import_all()
    finally:
        gc.enable()
    _refuse_threads(before)
    _refuse_small_limit()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        # Without a seed, every worker would draw the same numbers. Python's own random reseeds.
        os.register_at_fork(after_in_child=numpy_random.seed)
    # A collection in a worker would write to shared memory and thus copy it.
    gc.collect()
    gc.freeze()


def _import_all() -> None:
    with _environment(_JEMALLOC, *([_MIMALLOC] if _worker_mib() else [])):
        from spark_kafka_sink.spark.task import load_all

        load_all()
        for module in _OF_SPARK:
            with suppress(ModuleNotFoundError):
                importlib.import_module(module)
        _acknowledge_tasks_at_once()


def _acknowledge_tasks_at_once() -> None:
    """Make Spark's function for a task acknowledge at once what the JVM sends by TCP.

    Linux takes this setting back when the worker answers, so each task sets it again.
    Source: tcp(7), TCP_QUICKACK.
    """
    acknowledge_at_once: int | None = getattr(socket, "TCP_QUICKACK", None)
    if acknowledge_at_once is None:  # not Linux
        return
    worker: Any = importlib.import_module(TASKS)
    run_task = worker.main

    @wraps(run_task)
    def run_acknowledged(infile: Any, outfile: Any) -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(infile.fileno())) as connection:
            # A Unix domain socket needs no acknowledgement, and rejects the setting.
            connection.setsockopt(socket.IPPROTO_TCP, acknowledge_at_once, 1)
        run_task(infile, outfile)

    worker.main = run_acknowledged


@contextmanager
def _environment(*settings: tuple[str, str]) -> Iterator[None]:
    """Set these variables if they have no value, and unset them for the workers."""
    mine = {name: value for name, value in settings if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]


def _worker_mib() -> int:
    """Return the limit of addresses per worker, MiB; 0 without a limit."""
    value = os.environ.get(_WORKER_MIB, "")
    return int(value) if value.isdecimal() else 0


def _refuse_small_limit() -> None:
    """Raise TooLittleMemoryError if the daemon's addresses use most of a worker's limit.

    A worker inherits these addresses, whether its code uses them or not.
    """
    limit = _worker_mib()
    pages = int(Path(_SIZES).read_text(encoding="ascii").split()[0])
    loaded = pages * os.sysconf("SC_PAGE_SIZE") >> 20
    if limit and loaded > limit * _MOST_OF_LIMIT:
        raise TooLittleMemoryError(
            f"spark.executor.pyspark.memory leaves {limit} MiB for each worker, and what would be "
            f"loaded takes {loaded} MiB of that: more than half"
        )


def _threads() -> list[str]:
    """Return the names of this process's threads, including libraries'; empty if unknown."""
    try:
        threads = os.listdir(_THREADS)
    except OSError:
        return []
    names = []
    for thread in threads:
        with suppress(OSError):  # the thread has just ended
            names.append(Path(_THREADS, thread, "comm").read_text(encoding="utf-8").strip())
    return names


def _refuse_threads(before: list[str]) -> None:
    """Raise ThreadsStartedError if more threads than ``before`` exist after a fork.

    OpenBLAS ends its threads at a fork and restarts them on demand. An ended thread is listed for a
    moment longer, so the check is repeated.
    """
    for _ in range(_TRIALS):
        process_id = os.fork()
        if process_id == 0:
            os._exit(0)
        with suppress(ChildProcessError):  # the parent process may have set SIGCHLD to ignore
            os.waitpid(process_id, 0)
        if len(_threads()) <= len(before):
            return
    raise ThreadsStartedError(f"threads were started: {', '.join(_threads())}")


@contextmanager
def _nothing_on_stdout() -> Iterator[None]:
    """Redirect output of imports to stderr: Spark reads the daemon's port from stdout."""
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def main(arguments: list[str]) -> None:
    """Load the modules if the workers are for tasks, and run Spark's daemon."""
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
            # Start again without partly loaded modules.
            os.execv(sys.executable, [sys.executable, "-m", SPARKS_OWN, *arguments])
    importlib.import_module(SPARKS_OWN).manager()


if __name__ == "__main__":
    main(sys.argv[1:])
