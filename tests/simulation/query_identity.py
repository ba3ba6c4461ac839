"""Who writes in a simulated life: a query whose checkpoint is spelled in several ways, jobs before it
under the same prefix, versions of named jobs in any order, new queries in the place of the first one.

All of it is chosen apart from everything else of a life: others stay as they are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.simulation.query_settings import Blow
from tests.simulation.spark import QUERY_ID, Batch, Checkpoint

MISTAKES = ("stranger", "second query", "query elsewhere", "query at the same place")
"""Blows by which somebody else is given the prefix."""
FOLDER = "/checkpoint"
_PIPELINE = "/pipelines/_checkpoints/sink/flow"
_OWN_ROWS = 10_000
_JOBS_ROWS = 50_000


@dataclass
class Part:
    """One query, or one row of jobs. versions: of its batches, if these are jobs with a name."""

    checkpoint: Checkpoint
    query_id: str = QUERY_ID
    folder: str | None = FOLDER
    is_job: bool = False
    is_named: bool = False
    versions: tuple[int, ...] = ()
    is_closed: bool = False

    @property
    def is_complete(self):
        return self.checkpoint.first() == len(self.checkpoint.batches)


@dataclass
class Identity:
    """parts: in their order; is_refreshed: they are queries, each in the place of the one before

    knows_ids: drivers can read the query's id in its checkpoint
    """

    parts: list[Part]
    rng: random.Random
    is_refreshed: bool = False
    knows_ids: bool = False
    current: int = 0

    @property
    def part(self):
        return self.parts[self.current]

    def spelling(self):
        """The location of the current checkpoint, for the next application."""
        folder = self.part.folder
        if folder is None:
            return None
        name = folder.rpartition("/")[2]
        spellings = (
            folder,
            f"file:{folder}",
            f"file://{folder}",
            f"{folder}/",
            f"{folder}/../{name}",
        )
        return self.rng.choice(spellings)

    def advance(self):
        """Choose who runs next. True if that is another one."""
        before = self.current
        is_last = self.current == len(self.parts) - 1
        is_first_batch_open = self.is_refreshed and self.part.checkpoint.first() == 0
        if not is_last and (
            self.part.is_complete
            or self.part.is_closed
            or (self.is_refreshed and self.rng.random() < 0.5)
        ):
            self.current += 1
        elif self.current and is_first_batch_open and self.rng.random() < 0.5:
            self.back()
        return self.current != before

    def back(self):
        """The former query starts again, unless it was replaced. Whether it does."""
        if not self.current or self.parts[self.current - 1].is_closed:
            return False
        self.current -= 1
        return True


def choose_identity(seed, settings):
    """Also changes ``settings`` where these do not fit."""
    rng = random.Random(f"identity of {seed}")
    knows_ids = rng.random() < 0.5
    first = Part(Checkpoint(settings.batches))
    is_usual = not (settings.loses_log or settings.loses_offsets or settings.idles)
    kind = rng.random()
    if settings.is_job:
        first.is_job, first.is_named, first.folder = True, settings.is_named, None
        numbers = rng.sample(range(100), len(settings.batches))
        first.versions = tuple(numbers if kind < 0.7 else range(len(settings.batches)))
    elif is_usual and kind < 0.2:
        return Identity([_jobs(rng, settings), first], rng, knows_ids=knows_ids)
    elif is_usual and kind < 0.45:
        parts = [_refresh(settings, number) for number in range(rng.randint(2, 3))]
        settings.blows += [_crash(rng) for _ in range(rng.randint(1, 4))]
        return Identity(parts, rng, True, knows_ids)
    if knows_ids and not settings.is_job and is_usual and rng.random() < 0.3:
        settings.blows.append(_same_place(rng))
    return Identity([first], rng, knows_ids=knows_ids)


def _crash(rng):
    """In the middle of a full refresh, before or after the new query has decided."""
    points = ("plan.fenced", "plan.claimed", "plan.swept", "commit.checked", "commit.decided")
    return Blow(rng.choice(points), rng.randint(1, 5), "kill driver")


def _same_place(rng):
    point = rng.choice(("commit.begin", "commit.checked", "commit.decided", "commit.done"))
    return Blow(point, rng.randint(1, 3), "query at the same place")


def _jobs(rng, settings):
    """Whoever may take the prefix of jobs is no mistake, and an unnamed job may be written twice if its
    driver may still run.
    """
    is_named = rng.random() < 0.5
    settings.blows = [blow for blow in settings.blows if blow.kind not in MISTAKES]
    for blow in settings.blows:
        if blow.kind in ("freeze driver", "hang process") and not is_named:
            blow.kind = "kill driver"
    batches = [
        Batch(number, range(_JOBS_ROWS + 8 * number, _JOBS_ROWS + 8 * number + 8))
        for number in range(rng.randint(1, 2))
    ]
    return Part(
        Checkpoint(batches),
        folder=None,
        is_job=True,
        is_named=is_named,
        versions=tuple(rng.sample(range(100), len(batches))),
    )


def _refresh(settings, number):
    """The whole source once more: the same batches, with rows of their own."""
    start = _OWN_ROWS * number
    batches = [
        replace(b, ids=range(start + b.ids.start, start + b.ids.stop)) for b in settings.batches
    ]
    return Part(Checkpoint(batches), f"{QUERY_ID}-{number}", f"{_PIPELINE}/{number}")
