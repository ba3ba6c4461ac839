"""What is lost, and how: a Python worker, an executor, a node; and what Spark takes away itself."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil

from tests.chaos.crash import STRAGGLE, Trap
from tests.chaos.standalone import SPECULATION
from tests.clusters.lost.application import WORKERS, Application
from tests.clusters.lost.instants import Held
from tests.clusters.lost.jobs import Shape
from tests.patience import eventually

Note = dict[str, Any]
Happens = Callable[[Application, Held, random.Random], Note]
Meanwhile = Callable[[Application, random.Random, Callable[[], bool]], Note]


class Fault(NamedTuple):
    """``happen`` takes something away at an instant; ``meanwhile`` is what Spark does by itself, and
    is called while a job runs, with what tells when that is over.

    group: the application that it needs, a key of CONFS; shape: of the jobs that suffer it
    of_tasks: it must happen while tasks run
    after: makes good what Spark does not by itself
    """

    what: str
    happen: Happens | None = None
    meanwhile: Meanwhile | None = None
    group: str = "plain"
    shape: Shape = Shape()
    of_tasks: bool = False
    after: Callable[[Application, Note], None] = lambda application, note: None


DYNAMIC = "dynamic allocation"
CONFS = {
    # New Python workers start soon then.
    "plain": {"spark.python.daemon.module": "spark_kafka_sink.spark.daemon"},
    "decommissioning": {
        "spark.decommission.enabled": "true",
        "spark.executor.decommission.forceKillTimeout": "10s",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
    },
    DYNAMIC: {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": str(WORKERS),
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    },
    "speculation": {k: v for k, v in SPECULATION.items() if k.startswith("spark.speculation")},
}


def _victim(application, held, rng):
    """The executor of the process that is held; any, if that is the driver's or nobody."""
    executors = application.executors()
    if held.process_id is not None:
        parents = {p.pid for p in psutil.Process(held.process_id).parents()}
        executors = [one for one in executors if one.pid in parents] or executors
    return rng.choice(executors)


def kill_python_worker(application, held, rng):
    """The one that is held in the middle of its task."""
    assert held.process_id is not None
    os.kill(held.process_id, signal.SIGKILL)
    return {}


def kill_executor(application, held, rng):
    """SIGKILL for its JVM; its Python processes find out by themselves."""
    os.kill(_victim(application, held, rng).pid, signal.SIGKILL)
    return {}


def kill_node(application, held, rng):
    """SIGKILL for Spark's Worker and everything below it; it comes back while the job goes on."""
    number = _victim(application, held, rng).worker
    application.cluster.kill_worker(number)
    application.cluster.start_worker(number, is_waited_for=False)
    return {}


def decommission_executor(application, held, rng):
    """By the signal that an executor takes for it: it takes no more tasks, and ends."""
    os.kill(_victim(application, held, rng).pid, signal.SIGPWR)
    return {}


def decommission_node(application, held, rng):
    """By the signal that a Worker takes for it, as a cloud's notice would send it."""
    number = _victim(application, held, rng).worker
    application.cluster.decommission_worker(number)
    return {"worker": number}


def _exchange_node(application, note):
    """The node is gone, as announced; another one comes."""
    application.cluster.kill_worker(note["worker"])


def take_executor(application, held, rng):
    """As an operator does, or a program: ``SparkContext.killExecutor`` by number."""
    victim = _victim(application, held, rng)
    assert application.context.killExecutor(str(victim.number))
    return {}


def _ask_for_another(application, note):
    # More than there can be: what Spark counts on from differs by how it was started.
    application.context.requestExecutors(WORKERS)


def let_come_and_go(application, rng, is_over):
    """Which executors there were."""
    numbers = set()
    most = least = len(application.executors())
    while not is_over():
        now = application.executors()
        numbers |= {one.number for one in now}
        most, least = max(most, len(now)), min(least, len(now))
        time.sleep(0.05)
    return {"executors": len(numbers), "least": least, "most": most}


def slow_down(application, rng, is_over):
    """Some first attempts take so long that Spark begins second ones."""
    points = [rng.choice(("task.written", "task.written", "task.flushed")) for _ in range(_SLOW)]
    names = [
        application.traps.set(
            Trap(point, STRAGGLE, rng.randint(1, 5) if point == "task.written" else 1, attempt=0)
        )
        for point in points
    ]
    eventually(is_over)
    slowed = sum(application.traps.sprung(name) is not None for name in names)
    application.traps.clear()
    return {"slowed": slowed}


_SLOW = 3
_SHUFFLED = Shape(is_shuffled=True)
FAULTS = {
    "python worker": Fault("SIGKILL of a Python worker", kill_python_worker, of_tasks=True),
    "executor": Fault("SIGKILL of an executor's JVM", kill_executor, shape=_SHUFFLED),
    "node": Fault("SIGKILL of a Worker and all below it", kill_node, shape=_SHUFFLED),
    "decommissioned executor": Fault(
        "an executor is decommissioned",
        decommission_executor,
        group="decommissioning",
        shape=_SHUFFLED,
    ),
    "decommissioned node": Fault(
        "a Worker is decommissioned, and another one comes",
        decommission_node,
        group="decommissioning",
        shape=_SHUFFLED,
        after=_exchange_node,
    ),
    "taken executor": Fault(
        "an executor is taken away by `SparkContext.killExecutor`",
        take_executor,
        shape=_SHUFFLED,
        after=_ask_for_another,
    ),
    "dynamic allocation": Fault(
        "dynamic allocation with shuffle tracking: executors come and go",
        meanwhile=let_come_and_go,
        group=DYNAMIC,
        shape=Shape(is_shuffled=True, trigger="5 seconds"),
    ),
    "speculation": Fault(
        "slow tasks get a second attempt by speculation", meanwhile=slow_down, group="speculation"
    ),
}
KILLS = ("python worker", "executor", "node")
