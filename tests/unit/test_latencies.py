"""Histograms of latencies: exact where they are small, within 4.5 % where they are not."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.node_metrics import (
    Latencies,
    add,
    count_up_to,
    observe,
    quantile_ms,
    upper_bound_ms,
)


def of(values: list[int]) -> Latencies:
    latencies: Latencies = {}
    for value in values:
        observe(latencies, value)
    return latencies


def test_buckets_are_those_of_opentelemetry() -> None:
    """Of scale 3: above the lower bound, up to and with the upper one."""
    for value in [*range(2, 3000), 2**20 - 1, 2**20, 2**20 + 1]:
        ((index, count),) = of([value]).items()
        assert count == 1
        assert upper_bound_ms(index - 1) < value <= upper_bound_ms(index) * (1 + 1e-12)
    assert of([0, 1]) == {-1: 2}
    assert list(of([2, 4, 8, 1024])) == [7, 15, 23, 79]


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_are_within_the_promised_error(share: float) -> None:
    rng = random.Random(7)
    values = sorted(int(rng.lognormvariate(4, 1.5)) + 1 for _ in range(20_000))
    exact = values[max(0, int(share * len(values)) - 1)]
    estimate = quantile_ms(of(values), share)
    assert estimate == pytest.approx(exact, rel=0.045)


def test_small_values_are_exact() -> None:
    for value in range(1, 12):
        assert quantile_ms(of([value]), 0.5) == value
    assert quantile_ms({}, 0.5) is None


def test_what_is_added_up_is_as_if_counted_at_once() -> None:
    first, second = [1, 5, 900], [5, 7, 60_000]
    merged = of(first)
    add(merged, of(second))
    assert merged == of([*first, *second])


def test_counts_at_powers_of_two_are_exact() -> None:
    values = list(range(1, 5000))
    for doublings in range(13):
        assert count_up_to(of(values), doublings) == min(2**doublings, 4999)
