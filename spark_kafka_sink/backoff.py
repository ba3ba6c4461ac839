"""Exponential back-off with jitter. Pure: the random source is passed in.

Source: ``ExponentialBackoff``, KIP-580.
"""

from __future__ import annotations

from typing import Protocol


class RandomSource(Protocol):
    """What is needed of ``random.Random``."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class ExponentialBackoff:
    """``initial_ms * multiplier ** attempts``, at most ``max_ms``, give or take ``jitter``.

    ``jitter`` is the share by which the term may be off in either direction; the result never
    exceeds ``max_ms``. An ``initial_ms`` above ``max_ms`` makes the back-off constant.
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

    def backoff_ms(self, attempts: int) -> int:
        """The pause after ``attempts`` earlier failures (0 for the first)."""
        # 2^31 ms is beyond any maximum: more would only overflow the float.
        term = self._initial_ms * float(self._multiplier) ** min(attempts, 31)
        factor = 1 + self._jitter * (2 * self._rng.random() - 1)
        return int(min(term * factor, self._max_ms))
