"""Exponential back-off: doubles, is jittered, ends at its maximum. As Java's ExponentialBackoff."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff


class Dice:
    """A random source that always throws the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


LOWEST, MIDDLE, HIGHEST = Dice(0.0), Dice(0.5), Dice(0.999)


def pauses(backoff: ExponentialBackoff, attempts: int) -> list[int]:
    return [backoff.backoff_ms(attempt) for attempt in range(attempts)]


def test_doubles_up_to_the_maximum() -> None:
    assert pauses(ExponentialBackoff(100, 1000, MIDDLE), 6) == [100, 200, 400, 800, 1000, 1000]


def test_another_multiplier() -> None:
    assert pauses(ExponentialBackoff(10, 1000, MIDDLE, multiplier=3), 4) == [10, 30, 90, 270]


@pytest.mark.parametrize(("dice", "expected"), [(LOWEST, [80, 160]), (HIGHEST, [119, 239])])
def test_jitter_is_a_fifth_either_way(dice: Dice, expected: list[int]) -> None:
    assert pauses(ExponentialBackoff(100, 1000, dice), 2) == expected


def test_jitter_never_exceeds_the_maximum() -> None:
    backoff = ExponentialBackoff(900, 1000, HIGHEST)
    assert pauses(backoff, 5) == [1000] * 5


def test_without_jitter() -> None:
    for dice in (LOWEST, MIDDLE, HIGHEST):
        assert pauses(ExponentialBackoff(50, 1000, dice, jitter=0), 3) == [50, 100, 200]


def test_jitter_goes_on_at_the_maximum() -> None:
    """Java's caps the term, then jitters: tasks that lost a broker together do not reconnect together."""
    assert ExponentialBackoff(100, 1000, LOWEST).backoff_ms(20) == 800


def test_an_initial_pause_above_the_maximum_makes_it_constant() -> None:
    for dice in (LOWEST, MIDDLE, HIGHEST):
        assert pauses(ExponentialBackoff(5000, 1000, dice), 4) == [1000] * 4


def test_zero_never_waits() -> None:
    assert pauses(ExponentialBackoff(0, 0, HIGHEST), 3) == [0, 0, 0]
    assert pauses(ExponentialBackoff(0, 1000, HIGHEST), 3) == [0, 0, 0]


@pytest.mark.parametrize("attempts", [31, 1_000, 10**6, 10**30])
def test_any_number_of_attempts(attempts: int) -> None:
    """Float powers overflow at 2**1024; a task may retry for days."""
    assert ExponentialBackoff(100, 1000, MIDDLE).backoff_ms(attempts) == 1000


def test_every_pause_is_within_its_bounds_and_they_spread() -> None:
    backoff = ExponentialBackoff(100, 10_000, random.Random(1))
    seen = [backoff.backoff_ms(3) for _ in range(2_000)]
    assert all(640 <= pause <= 960 for pause in seen)
    assert min(seen) < 650
    assert max(seen) > 950
    assert 790 < sum(seen) / len(seen) < 810
