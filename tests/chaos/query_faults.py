"""What happens to a query that writes exactly once: each fault, and how it is brought about."""

import os
import signal
import time

from spark_kafka_sink.transactions.crash_points import POINTS
from tests.chaos.broker_faults import CUT_OFF, HUNG, KILLED
from tests.chaos.crash import FAIL, HOLD, KILL_DRIVER, KILL_WORKER, STRAGGLE, Trap
from tests.chaos.query_fault import QueryFault

# --- the driver ---------------------------------------------------------------------------------


def _kill_at(point):
    def happen(scene):
        if point == "plan.claimed":  # only a new driver does that
            scene.driver.kill()
            scene.dead()
            name = scene.set(Trap(point, KILL_DRIVER))
            scene.driver.start()
            scene.await_sprung(name)
        else:
            if point.startswith("abort.") and not scene.is_control:
                scene.set(Trap("task.written", FAIL, repeats=True))
            elif point == "sweep.listed":  # only where a task has left something open
                scene.set(Trap("task.flushed", KILL_WORKER, attempt=0))
            scene.spring(Trap(point, KILL_DRIVER))
        scene.dead()
        return scene.recover()

    return happen


def _kill_twice(first, second):
    """The second time while the first is being repaired."""

    def happen(scene):
        scene.spring(Trap(first, KILL_DRIVER))
        scene.dead()
        name = scene.set(Trap(second, KILL_DRIVER))
        scene.driver.start()
        scene.await_sprung(name)
        scene.dead()
        return scene.recover()

    return happen


def _kill_anywhere(scene):
    scene.driver.kill()
    scene.dead()
    return scene.recover()


# --- tasks --------------------------------------------------------------------------------------


def _kill_worker(point, nth=1):
    def happen(scene):
        sprung = scene.spring(Trap(point, KILL_WORKER, nth, attempt=0))
        scene.run_on(1)
        return {**scene.lag(sprung["at"]), **scene.check_open()}

    return happen


def _kill_worker_mid_write(scene):
    """When a part of its rows is in the log."""
    sprung = scene.spring(Trap("task.written", HOLD, nth=3, attempt=0))
    # The other tasks end, this one's sender sends what it has: then nothing more happens.
    scene.until(lambda: scene.watch.is_still_since(sprung["at"]), "end of what is sent")
    os.kill(sprung["pid"], signal.SIGKILL)
    at = time.time()
    scene.run_on(1)
    return {**scene.lag(at), **scene.check_open()}


def _fail_first(point, tasks):
    def happen(scene):
        names = [scene.set(Trap(point, FAIL, attempt=0)) for _ in range(tasks)]
        sprung = [scene.await_sprung(name) for name in names]
        scene.run_on(1)
        return {**scene.lag(sprung[0]["at"]), **scene.check_open()}

    return happen


def _straggle(point):
    """The first attempt takes so long that Spark begins another one; the slower one is killed."""

    def happen(scene):
        before = scene.attempts_count()
        sprung = scene.spring(Trap(point, STRAGGLE, attempt=0))
        scene.run_on(2)
        more = scene.attempts_count() - before
        return {"attempts": more, **scene.lag(sprung["at"]), **scene.check_open()}

    return happen


# --- all of them --------------------------------------------------------------------------------


def _driver_faults():
    faults = [
        QueryFault("driver", f"driver killed at {point}", _kill_at(point)) for point in POINTS
    ]
    twice = [
        ("commit.decided", "commit.ending"),
        ("commit.ending", "plan.fenced"),
        ("commit.ended", "plan.resolved"),
        ("commit.deciding", "plan.begin"),
    ]
    for first, second in twice:
        what = f"driver killed at {first}, the next one at {second}"
        faults.append(QueryFault("driver", what, _kill_twice(first, second)))
    faults += [QueryFault("driver", "driver killed anywhere", _kill_anywhere)] * 2
    return faults


IN_ONE_PROCESS = [
    QueryFault("worker", "worker killed at task.begin", _kill_worker("task.begin")),
    *[QueryFault("worker", "worker killed in the middle of its rows", _kill_worker_mid_write)] * 3,
    QueryFault("worker", "worker killed at task.flushed", _kill_worker("task.flushed")),
    QueryFault("worker", "worker killed at task.flushed", _kill_worker("task.flushed")),
    QueryFault("attempt", "a first attempt fails after rows", _fail_first("task.written", 1)),
    QueryFault("attempt", "three first attempts fail at the end", _fail_first("task.flushed", 3)),
    *KILLED,
    *HUNG,
    *CUT_OFF,
    *_driver_faults(),
]
"""With local[2]: tasks in the driver's JVM, Python workers beside it."""

WITH_SPECULATION = [
    *(
        QueryFault("speculation", f"a straggler at {point}, speculation on", _straggle(point))
        for point in ("task.begin", "task.written", "task.flushed", "task.flushed")
    ),
    QueryFault(
        "worker",
        "worker killed in the middle of its rows, speculation on",
        _kill_worker("task.written", 2),
    ),
    *(
        QueryFault("driver", f"driver killed at {point}, executors outlive it", _kill_at(point))
        for point in ("task.written", "task.flushed", "commit.decided", "commit.ending")
    ),
]
"""With two executors on two hosts."""
