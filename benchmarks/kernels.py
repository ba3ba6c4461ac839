"""Nanoseconds per row of each kernel, beside memcpy of the same bytes.

    python -m benchmarks.kernels            measures, and stores benchmarks/results/kernels.json
    python -m benchmarks.kernels --check    fails if a ratio to memcpy is more than 30 % worse

Nanoseconds depend on the machine, their ratio to memcpy much less. All stages take turns, and the
fastest of many turns counts: whatever else the machine does can only make it slower.
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
    """Stages by full name, each with the name of the memcpy it is compared with."""
    memcpy = f"{case.name} memcpy"
    return {f"{case.name} {name}": (memcpy, run) for name, run in case.stages().items()}


def measure(repeats: int = _REPEATS) -> Stages:
    """Every stage of every case: ns per row, and how many times memcpy's that is."""
    measured: Stages = {}
    for case in make_cases():
        stages = stages_of(case)
        took: dict[str, list[int]] = {name: [] for name in stages}
        for turn in range(repeats + 1):
            for name, (_, run) in stages.items():
                started = time.perf_counter_ns()
                run()
                if turn:  # the first one compiles and warms up
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
    """Stages that take more of memcpy's time than they did, by more than is allowed."""
    return [
        f"{name}: {stage['times_memcpy']:.2f} × memcpy, was {baseline[name]['times_memcpy']:.2f}"
        for name, stage in stages.items()
        if name in baseline and stage["times_memcpy"] > _WORSE_BY * baseline[name]["times_memcpy"]
    ]


def check(baseline: Stages) -> int:
    """0 if no stage is worse. One that is worse is measured again: others may be the reason."""
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
    """A table for the terminal."""
    for name, stage in stages.items():
        print(f"{name:24} {stage['ns_per_row']:8.1f} ns/row {stage['times_memcpy']:7.2f} × memcpy")


def main() -> int:
    """Command line."""
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
