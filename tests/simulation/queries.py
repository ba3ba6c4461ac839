"""Seeds of whole lives of a query, see tests/simulation/query.py.

python -m tests.simulation.queries 4711          # replay one seed, with its story
python -m tests.simulation.queries 0 20000       # a range, on all cores
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation import query
from tests.simulation.query_checks import phases

REPLAY = "python -m tests.simulation.queries {seed}"


class Ending(NamedTuple):
    """How a life ended, what was decided in it, and what is broken."""

    how: str
    phases: Counter[str]
    failure: str | None


def try_seed(seed: int) -> Ending:
    """The life of ``seed``; if anything is broken in it, with how to replay it."""
    try:
        life = query.live(seed)
    except Exception:
        replay = f"seed {seed} failed. Replay: {REPLAY.format(seed=seed)}"
        return Ending("broken", Counter(), f"{replay}\n{traceback.format_exc()}")
    how = "complete" if life.outcome is None else "left to the user"
    return Ending(how, phases(life), None)


class Tally(NamedTuple):
    """How often each ending and each phase of a decision was seen, and all failures."""

    endings: Counter[str]
    decided: Counter[str]
    failures: list[str]


def tally(lives: Iterable[Ending]) -> Tally:
    found = Tally(Counter(), Counter(), [])
    for ending in lives:
        found.endings[ending.how] += 1
        found.decided.update(ending.phases)
        if ending.failure is not None:
            found.failures.append(ending.failure)
    return found


def run_range(first: int, last: int) -> Tally:
    """Seeds ``first … last-1``, on all cores."""
    with multiprocessing.get_context("fork").Pool() as pool:
        return tally(pool.imap_unordered(try_seed, range(first, last), chunksize=20))


def replay(seed: int) -> int:
    """Tell the story of one seed; 1 if anything is broken."""
    lives: list[query.Life] = []
    failure = None
    try:
        query.live(seed, lives.append)
    except Exception:
        failure = traceback.format_exc()
    life = lives[0]
    print(life.settings)
    print("\n".join(life.story))
    print(failure or f"outcome: {life.outcome}; {dict(phases(life))}")
    return 1 if failure else 0


def main(arguments: list[str]) -> int:
    """Replay one seed, or run a range; 1 if anything is broken."""
    numbers = [int(argument) for argument in arguments]
    if len(numbers) == 1:
        return replay(numbers[0])
    endings, decided, failures = run_range(*numbers)
    print("\n".join(failures[:5]))
    print(f"{numbers[1] - numbers[0]} seeds: {dict(endings)}; decisions: {dict(decided)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
