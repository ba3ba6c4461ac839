"""Which partition rows without partition and key go to: the sticky partition, and when it changes.

Rows stick to one partition until its batch is closed, so that batches get full; then the next one
takes over. Partitions follow each other in shuffled rounds: each gets its turn before any gets a
second one, which is more even than the Java producer's independent draws.

Source: ``BuiltInPartitioner``; KIP-480, KIP-794.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Shuffler(Protocol):
    """What is needed of ``random.Random``."""

    def shuffle(self, x: list[int]) -> None:
        """Shuffle in place."""
        ...


class StickyPartitioner:
    """Sequence of sticky partitions of one topic."""

    def __init__(self, rng: Shuffler) -> None:
        self._rng = rng
        self._round: list[int] = []

    def next_partition(self, available: Sequence[int]) -> int:
        """The partition to stick to from now on; ``available``: those that have a leader."""
        allowed = set(available)
        while True:
            if not self._round:
                self._round = list(available)
                self._rng.shuffle(self._round)
            partition = self._round.pop()
            if partition in allowed:
                return partition
