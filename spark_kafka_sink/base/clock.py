"""Time and chance as dependencies: clocks, and exponential back-off with jitter.

This is the only module that imports ``time``. Everything that waits, expires or backs off takes a
:class:`Clock` and a :class:`RandomSource`, so that tests and the simulator can set both.

Source: ``ExponentialBackoff``, KIP-580.
"""

from __future__ import annotations

import math
import time
from typing import Protocol

LONGEST_WAIT_MS = 3_600_000
"""No wait is longer; whoever waits looks again after it. The operating system refuses waits as
long as the options allow, for which the largest number is a way to say "for ever"."""


def wait_seconds(timeout_ms: int) -> float:
    """``timeout_ms`` as the operating system takes it: in seconds, not negative, not too long."""
    return min(max(timeout_ms, 0), LONGEST_WAIT_MS) / 1000


def pause(timeout_ms: int) -> None:
    """Do nothing for as long."""
    time.sleep(wait_seconds(timeout_ms))


class Clock(Protocol):
    """What the producer needs to know about time."""

    def now_ms(self) -> int:
        """Monotonic milliseconds: for deadlines, back-off and ages. Origin is arbitrary."""
        ...

    def timestamp_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC: for record timestamps only."""
        ...

    def perf_ns(self) -> int:
        """Monotonic nanoseconds: for the producer's own timings."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def timestamp_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def perf_ns(self) -> int:
        return time.perf_counter_ns()


class RandomSource(Protocol):
    """What is needed of ``random.Random``."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class ExponentialBackoff:
    """``initial_ms * multiplier ** attempts``, at most ``max_ms``, give or take ``jitter``.

    ``jitter`` is the share by which the term may be off in either direction, at the maximum too, so
    that clients that failed at the same time do not all try again at the same time. The result
    never exceeds ``max_ms``. An ``initial_ms`` of ``max_ms`` or more makes the back-off constant,
    without jitter.
    """

    def __init__(
        self,
        initial_ms: int,
        max_ms: int,
        rng: RandomSource,
        multiplier: int = 2,
        jitter: float = 0.2,
    ) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._rng = rng
        self._multiplier = multiplier
        self._jitter = jitter
        self._most_doublings = 0.0
        if 0 < initial_ms < max_ms:
            self._most_doublings = math.log(max_ms / initial_ms, multiplier)

    def backoff_ms(self, attempts: int) -> int:
        """The pause after ``attempts`` earlier failures (0 for the first)."""
        if not self._most_doublings:
            return self._initial_ms
        term = self._initial_ms * self._multiplier ** min(attempts, self._most_doublings)
        factor = 1 + self._jitter * (2 * self._rng.random() - 1)
        return int(min(term * factor, self._max_ms))
