"""What happens to the processes of a Spark driver at named points of the commit protocol.

``PYKAFKA_SINK_CRASH_HOOK=evidence.harness.crash:hook`` makes every process of the sink ask here. Traps
are files in the folder that ``PYKAFKA_CHAOS_FOLDER`` names: the process that reaches a trap's point
first takes the file away, and does what it says. Nothing of the sink is imported here: it imports this.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

FOLDER = "PYKAFKA_CHAOS_FOLDER"
KILL_DRIVER, KILL_WORKER, FAIL, HOLD, STRAGGLE = (
    "kill-driver",
    "kill-worker",
    "fail",
    "hold",
    "straggle",
)
STRAGGLE_S = 2.0
COMMIT_STARTS = "commit.starts"
"""A point that is not the sink's: Spark starts the process that commits, see held/sitecustomize.py."""
# A process that nobody lets go on ends after this time.
_HELD_AT_MOST_S = 3600.0
DRIVER = "driver.json"
"""Process ids of the Spark driver that runs now."""
ATTEMPTS = "attempts.txt"
"""A line for each attempt at a task that is not its first."""


class Trap(NamedTuple):
    """``nth``: how often a task, or a process of the driver, reaches the point before it counts.

    attempt: only in this attempt of a task; repeats: it stays until it is taken away
    """

    point: str
    action: str
    nth: int = 1
    attempt: int | None = None
    repeats: bool = False


def announce_driver(process_ids):
    """Called by the Spark driver: who dies with ``kill-driver``."""
    folder = Path(os.environ[FOLDER])
    hidden = folder / f".{DRIVER}"
    hidden.write_text(json.dumps(process_ids), encoding="utf-8")
    hidden.rename(folder / DRIVER)


def kill_driver(folder):
    """SIGKILL for the driver's Python process and its JVM, whichever are left; False: no driver."""
    path = folder / DRIVER
    try:
        process_ids = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
    except FileNotFoundError:
        return False
    for process_id in process_ids:
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return True


class Interceptor:
    """Where a sink without transactions reaches the points of a task, for runs as a control."""

    def on_send(self, arrow_batch):
        hook("task.written")
        return arrow_batch

    def on_acknowledgement(self, summary):
        hook("task.flushed")


# --- in the processes of the sink ---------------------------------------------------------------

_reached: dict = {}


def hook(point):
    """Called by the sink at each of ``crash_points.POINTS``."""
    task = _task() if point.startswith("task.") else None
    key = (point, None if task is None else task.taskAttemptId())
    _reached[key] = _reached.get(key, 0) + 1
    attempt = None if task is None else task.attemptNumber()
    if point == "task.begin" and attempt:
        _note(task)
    for path, trap in _traps():
        if trap.point != point or _reached[key] < trap.nth:
            continue
        if trap.attempt is not None and trap.attempt != attempt:
            continue
        if trap.action == KILL_DRIVER and not (path.parent / DRIVER).exists():
            continue  # a worker that has outlived its driver: the trap is for the next one
        if trap.repeats or _claimed(path):
            _act(trap, path)


def _traps():
    for path in sorted(Path(os.environ[FOLDER]).glob("*.trap")):
        try:
            yield path, Trap(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue  # another process was faster


def _claimed(path):
    """Whether this process is the one that the trap is for."""
    mine = path.with_suffix(f".{os.getpid()}")
    try:
        path.rename(mine)
    except FileNotFoundError:
        return False
    told = {**json.loads(mine.read_text(encoding="utf-8")), "pid": os.getpid(), "at": time.time()}
    mine.write_text(json.dumps(told), encoding="utf-8")
    mine.rename(path.with_suffix(".sprung"))
    return True


def _act(trap, path):
    if trap.action == KILL_DRIVER:
        # Its Python processes end a little later than the JVM: this one must not take another step.
        kill_driver(path.parent)
        os.kill(os.getpid(), signal.SIGKILL)
    elif trap.action == KILL_WORKER:
        os.kill(os.getpid(), signal.SIGKILL)
    elif trap.action == FAIL:
        raise RuntimeError(f"made to fail at {trap.point}")
    elif trap.action == STRAGGLE:
        time.sleep(STRAGGLE_S)
    elif trap.action == HOLD:
        _await(path.with_suffix(".released"))


def _await(path):
    deadline = time.monotonic() + _HELD_AT_MOST_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"nobody made {path.name}")
        time.sleep(0.005)


def _note(task):
    """Write down another attempt at a task."""
    with (Path(os.environ[FOLDER]) / ATTEMPTS).open("a", encoding="utf-8") as file:
        file.write(f"{task.stageId()} {task.partitionId()} {task.attemptNumber()}\n")


def _task():
    from pyspark import TaskContext

    return TaskContext.get()
