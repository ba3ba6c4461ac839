"""When a fault happens: at a point of a task or of a commit, or at a share of the rows.

A seed chooses. A process that reaches its point is held there until the fault has happened.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from tests.chaos.crash import HOLD, Trap
from tests.clusters.lost.application import EXACTLY_ONCE, PARTITIONS
from tests.clusters.lost.jobs import MICRO_BATCHES, RECORDS
from tests.patience import PATIENCE_S
from tests.reading import consumer

_POINTS = ("task.written", "task.written", "task.written", "task.flushed", "share", "share")
_WITH_TRANSACTIONS = ("task.begin", "commit.begin", "commit.decided", "commit.ending")
_MOST_ARROW_BATCHES = {"batch": 12, "stream": 5}
_LAST_SHARE = 0.8


class Instant(NamedTuple):
    """point: of ``crash_points``, reached for the ``nth`` time by some task, or "share" of the rows.

    after: so many micro-batches are committed by then
    is_held: some task is held; else, at a share of the rows, whatever runs goes on
    """

    point: str
    nth: int
    after: int
    share: float
    is_held: bool

    def __str__(self):
        if self.point == "share":
            return f"{self.share:.0%} of the rows in the log"
        nth = f" for the {self.nth}. time" if self.nth > 1 else ""
        after = f", after micro-batch {self.after}" if self.after else ""
        return f"{self.point}{nth}{after}"


def choose(rng, job, guarantee, of_tasks_only):
    """Any instant; of_tasks_only: while a task runs."""
    points = _POINTS
    if guarantee == EXACTLY_ONCE:
        points = (*_POINTS, *_POINTS, *_WITH_TRANSACTIONS)
    if of_tasks_only:
        points = tuple(point for point in points if not point.startswith("commit."))
    point = rng.choice(points)
    nth = rng.randint(1, _MOST_ARROW_BATCHES[job]) if point == "task.written" else 1
    after = rng.randrange(MICRO_BATCHES - 1) if job == "stream" and point != "share" else 0
    is_held = of_tasks_only or point != "share"
    return Instant(point, nth, after, rng.uniform(0.03, _LAST_SHARE), is_held)


class Held(NamedTuple):
    """The process that is held at the instant; None if it is nobody's point."""

    process_id: int | None
    trap: str | None


def await_instant(application, instant, topic, is_over):
    """Wait for it. None if the job has ended before."""
    if instant.point == "share":
        if not _is_share_written(application, instant.share, topic, is_over):
            return None
        if not instant.is_held:
            return Held(None, None)
        return _hold(application, Trap("task.written", HOLD), is_over)
    if not _until(lambda: application.committed(topic) >= instant.after, is_over):
        return None
    return _hold(application, Trap(instant.point, HOLD, instant.nth), is_over)


def _hold(application, trap, is_over):
    name = application.traps.set(trap)
    if not _until(lambda: application.traps.sprung(name) is not None, is_over):
        application.traps.clear()
        return None
    sprung = application.traps.sprung(name)
    assert sprung is not None
    return Held(sprung["pid"], name)


def _is_share_written(application, share, topic, is_over):
    reader = consumer(application.kafka.bootstrap_servers)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    def is_written():
        try:
            ends = [reader.get_watermark_offsets(p, timeout=PATIENCE_S)[1] for p in partitions]
        except KafkaException:  # the topic is new: not everything knows its leaders
            return False
        return sum(ends) >= share * RECORDS

    try:
        return _until(is_written, is_over)
    finally:
        reader.close()


def _until(is_so, is_over):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if is_over():
            return False
        assert time.monotonic() < deadline, "the instant does not come"
        time.sleep(0.01)
    return True
