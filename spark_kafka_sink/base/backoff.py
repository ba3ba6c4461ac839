"""Exponential back-off with jitter. Pure: the random source is passed in.

Source: ``ExponentialBackoff``, KIP-580.
"""

from __future__ import annotations

import math
from typing import Protocol


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
