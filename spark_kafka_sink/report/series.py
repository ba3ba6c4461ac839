"""Points of charts: some hundreds, whatever the number of lines, with the extremes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan
from typing import Any, Optional

import numpy as np

from spark_kafka_sink.report.collecting import Values
from spark_kafka_sink.report.parts import PARTS

MOST_POINTS = 400
Series = dict[str, list[Optional[float]]]


def points(columns: dict[str, Values]) -> Series:
    """By name, a value for each point, None where it is not known.

    first, last: numbers of batches, else of lines; time_ms, until_ms: when their lines were written
    seconds, slowest_s: mean and most of a batch, with committing
    records_per_s and bytes_per_s (compressed): from planning to committing; with ``least_``
    and ``most_``, of one batch
    part_0 … : seconds of ``parts.NAMES``, of a mean batch
    p50_ms: median of the batches'; p99_ms and max_ms: the largest of them
    rate: size of batches after compression, as a share of the size before
    retries, throttle_ms, aborted, attempts, errors, dead (letters): added up
    """
    lines = len(columns["time_ms"])
    if not lines:
        return {}
    starts = np.linspace(0, lines, min(lines, MOST_POINTS), endpoint=False).astype(np.int64)
    ends = np.append(starts[1:], lines)
    at = _At(starts, ends)
    batch_ids = columns["batch_id"]
    numbers = batch_ids if not np.isnan(batch_ids).any() else np.arange(1.0, lines + 1)
    found = {
        "first": numbers[starts],
        "last": numbers[ends - 1],
        "time_ms": columns["time_ms"][starts],
        "until_ms": columns["time_ms"][ends - 1],
        **_rates(columns, at),
        **_parts(columns, at),
        **_latencies(columns, at),
        "rate": _ratio(at.sum(columns["compressed_bytes"]), at.sum(columns["uncompressed_bytes"])),
        "retries": at.sum(columns["record_retries"]),
        "throttle_ms": at.sum(columns["throttle_time_ms"]) + at.sum(columns["throttle_left_ms"]),
        "dead": at.sum(columns["dead_letters"]),
        "aborted": at.sum(columns["aborted"]),
        "attempts": at.sum(columns["failed_attempts"]),
        "errors": at.sum(columns["record_errors"]),
    }
    return {name: [_short(value) for value in values] for name, values in found.items()}


class _At:
    """Reduces columns to points."""

    def __init__(self, starts: Any, ends: Any) -> None:
        self._starts = starts
        self._ends = ends

    def sum(self, values: Values) -> Values:
        found: Values = np.add.reduceat(np.nan_to_num(values), self._starts)
        return found

    def least(self, values: Values) -> Values:
        found: Values = np.fmin.reduceat(values, self._starts)
        return found

    def most(self, values: Values) -> Values:
        found: Values = np.fmax.reduceat(values, self._starts)
        return found

    def median(self, values: Values) -> Values:
        each = (values[start:end] for start, end in zip(self._starts, self._ends))
        return np.array(list(map(_median, each)))

    def mean(self, values: Values) -> Values:
        return _ratio(self.sum(values), self.sum(np.isfinite(values).astype(np.float64)))


def _median(values: Values) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else np.nan


def _took_ms(columns: dict[str, Values]) -> Values:
    beside = np.nan_to_num(columns["commit_ms"]) + np.nan_to_num(columns["planning_ms"])
    took: Values = columns["elapsed_ms"] + beside
    return took


def _rates(columns: dict[str, Values], at: _At) -> dict[str, Values]:
    took_s = _took_ms(columns) / 1000
    found = {"seconds": at.mean(took_s), "slowest_s": at.most(took_s)}
    for name, column in (
        ("records_per_s", "records_acknowledged"),
        ("bytes_per_s", "compressed_bytes"),
    ):
        known = np.where(np.isnan(took_s), np.nan, columns[column])
        found[name] = _ratio(at.sum(known), at.sum(took_s))
        of_each = _ratio(columns[column], took_s)
        found[f"least_{name}"], found[f"most_{name}"] = at.least(of_each), at.most(of_each)
    return found


def _parts(columns: dict[str, Values], at: _At) -> dict[str, Values]:
    """Tasks run beside each other: their times' shares, of the seconds that all of them took."""
    times = [np.nan_to_num(columns[part.field]) for part in PARTS]
    known = np.sum(times, axis=0)
    whole = np.fmax(known, np.nan_to_num(columns["task_ms"]))
    seconds = columns["elapsed_ms"] / 1000
    divided = [_ratio(each, whole) * seconds for each in (*times, whole - known)]
    divided += [columns[name] / 1000 for name in ("commit_ms", "planning_ms")]
    lines = at.sum(np.ones(len(seconds)))
    return {f"part_{number}": at.sum(each) / lines for number, each in enumerate(divided)}


def _latencies(columns: dict[str, Values], at: _At) -> dict[str, Values]:
    return {
        "p50_ms": at.median(columns["p50_ms"]),
        "p99_ms": at.most(columns["p99_ms"]),
        "max_ms": at.most(columns["request_latency_max_ms"]),
    }


def _ratio(values: Values, by: Values) -> Values:
    """Not a number where that is 0 or unknown."""
    found = np.full(len(values), np.nan)
    np.divide(values, by, out=found, where=np.nan_to_num(by) > 0)
    return found


def _short(value: float) -> float | None:
    """Four digits, or all of a whole number: a page holds thousands."""
    if isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.4g}")


def steps(values: list[Any], most: int, joined: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """``values`` in at most ``most`` groups of neighbours, each joined."""
    size = -(-len(values) // most)
    for start in range(0, len(values), size or 1):
        group = values[start : start + size]
        found = group[0]
        for other in group[1:]:
            found = joined(found, other)
        yield found
