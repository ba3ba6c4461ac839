"""Time and randomness as dependencies: clocks, and exponential back-off with jitter.

This is the only module that imports ``time``. Code that waits, expires or backs off takes a
:class:`Clock` and a :class:`RandomSource`, so that tests and the simulator can set both.

Source: ``ExponentialBackoff``, KIP-580.
"""

from __future__ import annotations

import math
import time
from typing import Protocol

LONGEST_WAIT_MS = 3_600_000
"""Longest single wait; the caller then checks again. The operating system rejects waits as long as
the options allow, whose largest number means "for ever"."""


def wait_seconds(timeout_ms: int) -> float:
    """Return ``timeout_ms`` for the operating system: in seconds, not negative, not too long."""
    return min(max(timeout_ms, 0), LONGEST_WAIT_MS) / 1000


def pause(timeout_ms: int) -> None:
    """Sleep for ``timeout_ms``, at most LONGEST_WAIT_MS."""
    time.sleep(wait_seconds(timeout_ms))


class Clock(Protocol):
    """The time that the producer needs."""

    def now_ms(self) -> int:
        """Return monotonic ms of an arbitrary origin, for deadlines, back-off and ages."""
        ...

    def timestamp_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, for times that others read, as of records."""
        ...

    def perf_ns(self) -> int:
        """Return monotonic nanoseconds, for the producer's own timings."""
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
    """The used part of ``random.Random``."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


class ExponentialBackoff:
    """``initial_ms * multiplier ** attempts``, at most ``max_ms``, plus or minus ``jitter``.

    ``jitter`` is the largest deviation in either direction, as a share of the term. It applies at
    the maximum, too, so that clients that failed together do not all retry together. The result
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
        """Return the pause after ``attempts`` earlier failures (0 for the first)."""
        if not self._most_doublings:
            return self._initial_ms
        term = self._initial_ms * self._multiplier ** min(attempts, self._most_doublings)
        factor = 1 + self._jitter * (2 * self._rng.random() - 1)
        return int(min(term * factor, self._max_ms))
