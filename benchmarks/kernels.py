"""Measure nanoseconds per row of each kernel, and its ratio to memcpy of the same bytes.

    python -m benchmarks.kernels            measures, and stores benchmarks/results/kernels.json
    python -m benchmarks.kernels --check    fails if a ratio to memcpy is more than 30 % worse

Nanoseconds depend on the machine, their ratio to memcpy much less. All stages take turns. The
fastest of many turns counts, because other load of the machine can only make a stage slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks import harness
from benchmarks.kernel_cases import Case, make_cases

_REPEATS = 40
_WORSE_BY = 1.3
_ATTEMPTS = 3
Stages = dict[str, dict[str, float]]


def stages_of(case: Case) -> dict[str, tuple[str, Callable[[], object]]]:
    """Return stages by full name, each with the name of its memcpy for comparison."""
    memcpy = f"{case.name} memcpy"
    return {f"{case.name} {name}": (memcpy, run) for name, run in case.stages().items()}


def measure(repeats: int = _REPEATS) -> Stages:
    """Measure every stage of every case: ns per row, and the ratio to memcpy."""
    measured: Stages = {}
    for case in make_cases():
        stages = stages_of(case)
        took: dict[str, list[int]] = {name: [] for name in stages}
        for turn in range(repeats + 1):
            for name, (_, run) in stages.items():
                started = time.perf_counter_ns()
                run()
                if turn:  # the first turn compiles and warms up
                    took[name].append(time.perf_counter_ns() - started)
        fastest = {name: min(times) / case.rows_count for name, times in took.items()}
        for name, (memcpy, _) in stages.items():
            measured[name] = {
                "ns_per_row": round(fastest[name], 2),
                "median_ns_per_row": round(statistics.median(took[name]) / case.rows_count, 2),
                "times_memcpy": round(fastest[name] / fastest[memcpy], 2),
            }
    return measured


def worse(stages: Stages, baseline: Stages) -> list[str]:
    """Return stages whose ratio to memcpy is worse than the baseline's, beyond the tolerance."""
    return [
        f"{name}: {stage['times_memcpy']:.2f} × memcpy, was {baseline[name]['times_memcpy']:.2f}"
        for name, stage in stages.items()
        if name in baseline and stage["times_memcpy"] > _WORSE_BY * baseline[name]["times_memcpy"]
    ]


def check(baseline: Stages) -> int:
    """Return 0 if no stage is worse. Repeat failures, because other load may be the reason."""
    best: Stages = {}
    for _ in range(_ATTEMPTS):
        for name, stage in measure().items():
            if name not in best or stage["times_memcpy"] < best[name]["times_memcpy"]:
                best[name] = stage
        failures = worse(best, baseline)
        if not failures:
            break
    show(best)
    print("\n".join(failures) or "no kernel is worse than the stored baseline")
    return 1 if failures else 0


def show(stages: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table for the terminal."""
    for name, stage in stages.items():
        print(f"{name:24} {stage['ns_per_row']:8.1f} ns/row {stage['times_memcpy']:7.2f} × memcpy")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored baseline")
    arguments = parser.parse_args()
    if arguments.check:
        return check(harness.load("kernels")["stages"])
    stages = measure()
    show(stages)
    harness.save("kernels", {"stages": stages})
    return 0


if __name__ == "__main__":
    sys.exit(main())
