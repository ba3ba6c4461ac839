"""The arithmetic of a limit: never faster, hardly slower, whatever is reserved when."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.limits.ledger import BURST_NS, Bucket

NS_PER_S = 1_000_000_000

reservations = st.lists(
    st.tuples(st.integers(0, 5 * NS_PER_S), st.integers(0, 3_000_000)), min_size=1, max_size=50
)
"""Nanoseconds since the one before, and how much."""


def sent(rate: int, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """When what may be sent, and how much."""
    bucket = Bucket(0)
    times = accumulate(pause for pause, _ in steps)
    return [
        (now_ns + bucket.reserve(amount, rate, now_ns), amount)
        for now_ns, (_, amount) in zip(times, steps)
    ]


@given(rate=st.integers(1, 10**10), steps=reservations)
def test_no_time_has_more_than_its_share_and_one_second(rate, steps):
    events = sent(rate, steps)
    for first in range(len(events)):
        total = 0
        for at_ns, amount in events[first:]:
            total += amount
            took_ns = at_ns - events[first][0]
            # The first of these may have been earned before.
            allowed = rate * (took_ns + BURST_NS) + events[first][1] * NS_PER_S
            assert total * NS_PER_S <= allowed


@given(rate=st.integers(1, 10**10), steps=reservations)
def test_from_the_first_reservation_on_nothing_is_ahead_of_the_rate(rate, steps):
    began_ns = steps[0][0]
    bucket = Bucket(began_ns)
    now_ns = total = 0
    for pause_ns, amount in steps:
        now_ns += pause_ns
        total += amount
        at_ns = now_ns + bucket.reserve(amount, rate, now_ns)
        assert total * NS_PER_S <= rate * (at_ns - began_ns)


@given(rate=st.integers(1, 10**10), amounts=st.lists(st.integers(0, 3_000_000), min_size=1))
def test_who_always_has_something_to_send_gets_the_rate(rate, amounts):
    bucket = Bucket(0)
    for amount in amounts:
        at_ns = bucket.reserve(amount, rate, 0)
    due_ns = sum(amounts) * NS_PER_S / rate
    # Rounded up once for each.
    assert due_ns * (1 - 1e-12) <= at_ns <= due_ns * (1 + 1e-12) + len(amounts)


@given(
    rates=st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)),
    amount=st.integers(0, 10**7),
    after_ns=st.integers(0, 10 * NS_PER_S),
)
def test_what_is_not_earned_yet_is_earned_with_the_new_rate(rates, amount, after_ns):
    before, now = rates
    bucket = Bucket(0)
    left_ns = max(bucket.reserve(amount, before, 0) - after_ns, 0)
    at_ns = bucket.reserve(0, now, after_ns)
    assert left_ns * before <= at_ns * now < left_ns * before + now


@given(rate=st.integers(1, 10**9), idle_s=st.integers(1, 10**6))
def test_no_more_than_a_second_is_kept_for_later(rate, idle_s):
    bucket = Bucket(0)
    now_ns = idle_s * NS_PER_S
    assert bucket.reserve(rate, rate, now_ns) == 0
    assert bucket.reserve(rate, rate, now_ns) == NS_PER_S
