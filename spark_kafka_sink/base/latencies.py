"""How often which latency occurred, in few numbers that can be added up.

Buckets grow by a factor of the eighth root of 2, so that each quantile is right within 4.5 %. They
are those of OpenTelemetry's exponential histograms of scale 3 and of Prometheus' native histograms
of schema 3: bucket ``index`` has the values above ``2 ** (index / 8)``, up to and with
``2 ** ((index + 1) / 8)``.

Source: OpenTelemetry's data model of metrics, "ExponentialHistogram"; DDSketch (Masson, Rim, Lee).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

SCALE = 3
_PER_DOUBLING = 2**SCALE

Latencies = dict[int, int]
"""How many values are in each bucket, by the bucket's index. A value of 0 is in bucket -1, with 1:
the clock has no more than milliseconds."""


def observe(latencies: Latencies, value_ms: int) -> None:
    """Count one value, in milliseconds."""
    index = ceil(log2(value_ms) * _PER_DOUBLING) - 1 if value_ms > 1 else -1
    latencies[index] = latencies.get(index, 0) + 1


def add(latencies: Latencies, others: Mapping[int, int]) -> None:
    """Count what others have counted."""
    for index, count in others.items():
        latencies[index] = latencies.get(index, 0) + count


def upper_bound_ms(index: int) -> float:
    """The largest value of a bucket."""
    bound: float = 2.0 ** ((index + 1) / _PER_DOUBLING)
    return bound


def count_up_to(latencies: Mapping[int, int], doublings: int) -> int:
    """How many values are at most ``2 ** doublings`` milliseconds: exact, it ends a bucket."""
    return sum(n for index, n in latencies.items() if index < doublings * _PER_DOUBLING)


def quantile_ms(latencies: Mapping[int, int], share: float) -> float | None:
    """The value that ``share`` of all are not above; None without any.

    The middle of its bucket, by factors; of a bucket with one whole number, that number.
    """
    wanted = share * sum(latencies.values())
    counted = 0
    for index in sorted(latencies):
        counted += latencies[index]
        if counted >= wanted:
            return _middle_ms(index)
    return None


def _middle_ms(index: int) -> float:
    upper, lower = upper_bound_ms(index), upper_bound_ms(index - 1)
    if index < 0:
        return 1.0
    largest = int(upper + 1e-9)
    if largest - 1 <= lower:
        return float(largest)
    middle: float = (upper * lower) ** 0.5
    return round(middle, 1)
