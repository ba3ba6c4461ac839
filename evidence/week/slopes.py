"""Whether figures of processes stay flat: slopes of lines through samples, with their confidence.

Producer ids are whole numbers that workers take when they begin. Kills of workers make more of them,
and brokers remember each for a day: they are compared before and after minutes without faults.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

WARM_UP_MINUTES = 5.0
LEAST_MINUTES = 5.0
LEAST_SAMPLES = 20
LEAST_BATCHES = 60
"""Micro-batches until Spark has as many files of checkpoints as it keeps: settings of ``World``."""
_NORMAL_975 = 1.96
MOST_PER_MINUTE = {"mib": 1.0, "threads": 0.2, "descriptors": 0.5, "sockets": 0.5, "files": 2.0}
"""A figure that surely grows faster than this is not flat."""
MOST_MIB_OF_A_JVM = 3.0
"""The same for memory of Spark's JVMs, whose heap is as large from the start as it may become."""
ROLES = ("driver, Python", "driver, JVM", "executor, JVM", "executor, Python worker")
"""Processes that live through minutes without faults."""
LEAST_WRITES = 20
"""Writes without faults until the number of producer ids says something: workers take some first."""


class Slope(NamedTuple):
    """Growth per minute, and the ends of its 95 % confidence interval."""

    per_minute: float
    low: float
    high: float
    samples: int


def slope_of(groups):
    """The common slope of several lines, one for each group of ``(minute, value)``.

    Neighbouring samples resemble each other: their correlation lowers the number that counts.
    Returns None if the samples are too few.
    """
    minutes, values, residual_groups = [], [], []
    for group in groups:
        at, found = np.array(group, float).T
        minutes.append(at - at.mean())
        values.append(found - found.mean())
    x, y = np.concatenate(minutes or [[]]), np.concatenate(values or [[]])
    if len(x) < LEAST_SAMPLES or not (x**2).sum():
        return None
    slope = (x @ y) / (x @ x)
    residual_groups = [v - slope * m for m, v in zip(minutes, values)]
    residuals = np.concatenate(residual_groups)
    total = residuals @ residuals
    together = sum(r[1:] @ r[:-1] for r in residual_groups)
    correlation = min(max(together / total, 0.0), 0.99) if total else 0.0
    counted = max((len(x) - len(minutes) - 1) * (1 - correlation) / (1 + correlation), 1.0)
    error = np.sqrt(total / counted / (x @ x))
    return Slope(
        float(slope),
        float(slope - _NORMAL_975 * error),
        float(slope + _NORMAL_975 * error),
        len(x),
    )


def judge(samples, counts):
    """Slopes by role and figure; ``is_flat`` is None where no process lived long enough."""
    by_process = defaultdict(list)
    for sample in samples:
        if sample["age"] >= WARM_UP_MINUTES:
            by_process[sample["role"], sample["pid"]].append(sample)
    found = []
    for role in sorted({s["role"] for s in samples}):
        lives = [v for (r, _), v in by_process.items() if r == role and _is_long(v)]
        for name in ("mib", "threads", "descriptors", "sockets"):
            groups = [[(s["minute"], s[name]) for s in life] for life in lives]
            found.append(_row(role, name, groups))
    warm = [(c["minute"], c["files"]) for c in counts if c["batches"] >= LEAST_BATCHES]
    found.append(_row("metrics and checkpoints", "files", [warm] if len(warm) > 1 else []))
    return found


def judge_ids(before, after):
    """Whether there are fewer new producer ids than half of the writes.

    A sink that does not keep its producers takes an id for each task. before, after: by workload,
    the ids that a broker remembers and the number of writes that are committed
    """
    return [
        _row_of_ids(name, after[name][0] - ids, after[name][1] - writes)
        for name, (ids, writes) in before.items()
        if name in after
    ]


def _row_of_ids(workload, new_ids, writes):
    is_flat = new_ids <= writes / 2 if writes >= LEAST_WRITES else None
    return {"workload": workload, "new_ids": new_ids, "writes": writes, "is_flat": is_flat}


def not_judged(found, quiet_minutes):
    """The roles of which no process lived long enough, although there was the time."""
    if quiet_minutes < WARM_UP_MINUTES + LEAST_MINUTES + 1:
        return []
    judged = {row["role"] for row in found if row["is_flat"] is not None}
    return [role for role in ROLES if role not in judged]


def _is_long(life):
    return life[-1]["minute"] - life[0]["minute"] >= LEAST_MINUTES


def _row(role, name, groups):
    slope = slope_of(groups)
    row = {"role": role, "figure": name, "lives": len(groups), "is_flat": None}
    if slope is None:
        return row
    rounded = {key: round(value, 3) for key, value in slope._asdict().items()}
    is_memory_of_a_jvm = name == "mib" and role.endswith("JVM") and "below" not in role
    most = MOST_MIB_OF_A_JVM if is_memory_of_a_jvm else MOST_PER_MINUTE[name]
    return {**row, **rounded, "is_flat": bool(slope.low <= most)}
