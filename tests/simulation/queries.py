"""Seeds of whole lives of a query, see tests/simulation/query.py.

python -m tests.simulation.queries 4711          # replay one seed, with its story
python -m tests.simulation.queries 0 20000       # a range, on all cores
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections import Counter

from tests.simulation import query

REPLAY = "python -m tests.simulation.queries {seed}"


def try_seed(seed: int) -> tuple[str, str | None]:
    """(how it ended, what is broken in the life of ``seed``, with how to replay it)."""
    try:
        life = query.live(seed)
    except Exception:
        failure = f"seed {seed} failed. Replay: {REPLAY.format(seed=seed)}\n"
        return "broken", failure + traceback.format_exc()
    return ("complete" if life.outcome is None else "left to the user"), None


def run_range(
    first: int, last: int, processes: int | None = None
) -> tuple[Counter[str], list[str]]:
    """How seeds ``first … last-1`` ended, and all failures."""
    endings: Counter[str] = Counter()
    failures = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for ending, failure in pool.imap_unordered(try_seed, range(first, last), chunksize=20):
            endings[ending] += 1
            if failure is not None:
                failures.append(failure)
    return endings, failures


def main(arguments: list[str]) -> int:
    """Replay one seed, or run a range; 1 if anything is broken."""
    numbers = [int(argument) for argument in arguments]
    if len(numbers) == 2:
        endings, failures = run_range(*numbers)
        print("\n".join(failures[:5]))
        print(f"{numbers[1] - numbers[0]} seeds: {dict(endings)}")
        return 1 if failures else 0
    stories: list[query.Life] = []
    create = query._create

    def remember(*arguments: object) -> query.Life:
        stories.append(create(*arguments))  # type: ignore[arg-type]
        return stories[-1]

    query._create = remember  # type: ignore[assignment]
    ending, failure = try_seed(numbers[0])
    print(stories[0].settings)
    print("\n".join(stories[0].story))
    print(failure or ending)
    if stories[0].outcome is not None:
        print(stories[0].outcome)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
