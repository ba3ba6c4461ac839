"""Seeds of whole lives of a query, see tests/simulation/query.py.

python -m tests.simulation.queries 4711          # replay one seed, with its story
python -m tests.simulation.queries 0 20000       # a range, on all cores
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections import Counter
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


def run_range(
    first: int, last: int, processes: int | None = None
) -> tuple[Counter[str], Counter[str], list[str]]:
    """Endings and phases of seeds ``first … last-1``, and all failures."""
    endings: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    failures = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for ending in pool.imap_unordered(try_seed, range(first, last), chunksize=20):
            endings[ending.how] += 1
            decided += ending.phases
            if ending.failure is not None:
                failures.append(ending.failure)
    return endings, decided, failures


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
