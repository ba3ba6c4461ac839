"""What happens to a query that writes exactly once, and to its brokers: each fault, and how it is brought about.

The query is held at a point of the commit protocol, so that it is known what it was doing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from evidence.harness.crash import FAIL, HOLD, KILL_DRIVER, KILL_WORKER, STRAGGLE, Trap
from evidence.harness.scene import (
    LOG,
    Scene,
    coordinator,
    end_told_by,
    leader_told_by,
    transactional_ids,
)
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.transactions.crash_points import POINTS

Note = dict[str, Any]


class QueryFault(NamedTuple):
    """``happen`` leaves a query that runs, and tells what it has seen."""

    kind: str
    what: str
    happen: Callable[[Scene], Note]


# --- who is who ---------------------------------------------------------------------------------


def _drivers_coordinator(scene):
    return coordinator(scene.kafka, f"{scene.prefix}.driver")


def _tasks_coordinator(scene):
    """Of a transaction that is about to be ended, where there is one."""
    states = transactional_ids(scene.kafka)
    tasks = sorted(i for i in states if i.startswith(f"{scene.prefix}.") and "driver" not in i)
    open_ones = [i for i in tasks if states[i] == "Ongoing"]
    return coordinator(scene.kafka, (open_ones or tasks)[0])


def _log_leader(scene):
    return leader_told_by(scene.kafka, scene.kafka.broker_ids[0], *LOG)


def _output_leader(scene):
    return leader_told_by(scene.kafka, scene.kafka.broker_ids[0], scene.topic, 0)


def _first_of_the_list(scene):
    return scene.kafka.broker_ids[0]


_DRIVERS = "the driver's coordinator"
_TASKS = "a task's coordinator"
_LOG = "the decision log's leader"
_OUTPUT = "an output partition's leader"
_FIRST = "the first bootstrap broker"
_ROLES = {
    _DRIVERS: _drivers_coordinator,
    _TASKS: _tasks_coordinator,
    _LOG: _log_leader,
    _OUTPUT: _output_leader,
    _FIRST: _first_of_the_list,
}


def _broker_that_is(scene, role):
    """Without transactions only output partitions have something to do with the query."""
    if scene.is_control and role in (_DRIVERS, _TASKS, _LOG):
        role = _OUTPUT
    return _ROLES[role](scene)


def _hold(scene, point):
    """Wait until the query is at ``point``; the trap that holds it."""
    held = Trap(point, HOLD)
    if point != "plan.claimed":  # only a new driver does that
        name = scene.set(held)
    else:
        scene.driver.kill()
        scene.dead()
        name = scene.set(held)
        scene.driver.start()
    scene.await_sprung(name)
    return name


def _replace_driver(scene, held):
    scene.driver.kill()
    scene.dead()
    scene.driver.traps.release(held)
    scene.driver.start()


# --- killed -------------------------------------------------------------------------------------


def _kill(point, role, with_driver=False):
    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, role)
        scene.kafka.kill(victim)
        if with_driver:
            _replace_driver(scene, held)
        else:
            scene.driver.traps.release(held)
        return _go_on_without(scene, victim, scene.kafka.restart)

    return happen


def _go_on_without(scene, victim, bring_back):
    scene.run_on(2)
    bring_back(victim)
    scene.kafka.await_in_sync()
    return {"broker": victim, **scene.check_open()}


KILLED = [
    QueryFault(
        "broker",
        "the driver's coordinator killed before EndTxn of the decision",
        _kill("commit.deciding", _DRIVERS),
    ),
    QueryFault(
        "broker",
        "the driver's coordinator killed during EndTxn of the tasks",
        _kill("commit.ending", _DRIVERS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator killed during EndTxn",
        _kill("commit.ending", _TASKS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator killed between decision and EndTxn",
        _kill("commit.decided", _TASKS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator and the driver killed during EndTxn",
        _kill("commit.ending", _TASKS, with_driver=True),
    ),
]

# --- hung ---------------------------------------------------------------------------------------


def _hang(point, role):
    """SIGSTOP until the query has gone on without that broker."""

    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, role)
        scene.kafka.pause(victim)
        scene.driver.traps.release(held)
        return _go_on_without(scene, victim, scene.kafka.resume)

    return happen


def _hang_until_next_plan(scene):
    """The log's leader hangs while its successor gets the decision, and the driver dies of it. It
    wakes up, and does not know yet that it was deposed, when the next driver begins to plan.
    """
    held = _hold(scene, "commit.checked")
    victim = _broker_that_is(scene, _LOG)
    dies = scene.set(Trap("commit.decided", KILL_DRIVER))
    scene.kafka.pause(victim)
    scene.driver.traps.release(held)
    scene.await_sprung(dies)
    scene.dead()
    begins = scene.set(Trap("plan.begin", HOLD))
    with scene.bootstrap_begins_with(victim):
        scene.driver.start()
        scene.await_sprung(begins)
        scene.kafka.resume(victim)
        scene.driver.traps.release(begins)
        scene.run_on(2)
    scene.kafka.await_in_sync()
    return {"broker": victim, **scene.check_open()}


_HANGS_AT = (
    (_DRIVERS, "plan.fenced"),
    (_DRIVERS, "commit.deciding"),
    (_TASKS, "commit.decided"),
    (_TASKS, "commit.ending"),
    (_LOG, "plan.claimed"),
    (_LOG, "commit.checked"),
    (_OUTPUT, "task.written"),
    (_OUTPUT, "commit.decided"),
    (_FIRST, "plan.begin"),
    (_FIRST, "commit.begin"),
)

HUNG = [
    *(
        QueryFault("hung", f"{role} hangs at {point}", _hang(point, role))
        for role, point in _HANGS_AT
    ),
    QueryFault(
        "hung",
        f"{_LOG} hangs, the driver killed at commit.decided, the next one plans as it wakes up",
        _hang_until_next_plan,
    ),
]

# --- cut off ------------------------------------------------------------------------------------


def _await_deposed(scene, broker_id):
    """Until another leads the log: what both say then. The one that is cut off still answers."""
    watched = TopicPartition(scene.topic, 0) if scene.is_control else LOG
    other = next(i for i in scene.kafka.broker_ids if i != broker_id)

    def is_deposed():
        return leader_told_by(scene.kafka, other, *watched) not in (broker_id, -1)

    scene.until(is_deposed, "new leader of the decision log")
    told = leader_told_by(scene.kafka, broker_id, *watched)
    assert told == broker_id, f"broker {broker_id} is cut off, and knows leader {told}"
    return {"broker": broker_id, "leader": leader_told_by(scene.kafka, other, *watched)}


def _how_stale(scene, told):
    """Ends of the log, as both leaders tell them."""
    if scene.is_control:
        return told
    ends = {
        "end_told_when_cut_off": end_told_by(scene.kafka, told["broker"], LOG),
        "end_of_the_log": end_told_by(scene.kafka, told["leader"], LOG),
    }
    return {**told, **ends}


def _cut_off(point, dies_at):
    """The log's leader, until the query has gone on without it.

    dies_at: where the driver is killed then; the next one hears of the brokers from this one first
    """

    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, _LOG)
        with scene.links.cut_off(victim), scene.bootstrap_begins_with(victim):
            told = _await_deposed(scene, victim)
            if dies_at == point:
                _replace_driver(scene, held)
            elif dies_at is not None:
                dies = scene.set(Trap(dies_at, KILL_DRIVER))
                scene.driver.traps.release(held)
                scene.await_sprung(dies)
                scene.dead()
                told = _how_stale(scene, told)
                scene.driver.start()
            else:
                scene.driver.traps.release(held)
            scene.run_on(1)
        scene.kafka.await_in_sync()
        return {**told, **scene.check_open()}

    return happen


_CUT_OFF_AT = (
    ("plan.begin", None),
    ("plan.fenced", "plan.fenced"),
    ("plan.swept", "commit.decided"),
    ("commit.checked", "commit.decided"),
    ("commit.checked", "commit.ending"),
    ("commit.deciding", None),
    ("commit.decided", "commit.decided"),
)


def _named(point, dies_at):
    killed = "" if dies_at is None else f", the driver killed at {dies_at}"
    return f"{_LOG} cut off at {point}{killed}"


CUT_OFF = [
    QueryFault("cut off", _named(point, dies_at), _cut_off(point, dies_at))
    for point, dies_at in _CUT_OFF_AT
]


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
