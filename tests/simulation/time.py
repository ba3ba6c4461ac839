"""Simulated time: a clock that only the scheduler moves, and what is to happen when."""

from __future__ import annotations

import heapq
import itertools


class SimClock:
    """A Clock that stands still until somebody moves it."""

    def __init__(self, ms=1_000_000):
        self.ms = ms
        self.skew_ms = 0

    def now_ms(self):
        return self.ms

    def timestamp_ms(self):
        return 1_700_000_000_000 + self.ms + self.skew_ms

    def perf_ns(self):
        return self.ms * 1_000_000


class Scheduler:
    """Callbacks by time, and by order of arrival where times are equal."""

    def __init__(self, clock):
        self.clock = clock
        self._queue = []
        self._order = itertools.count()

    def after(self, delay_ms, callback):
        heapq.heappush(self._queue, (self.clock.ms + delay_ms, next(self._order), callback))

    def change(self, delay_ms, target, **fields):
        """Set ``fields`` of an object later."""
        self.after(delay_ms, lambda: [setattr(target, *field) for field in fields.items()])

    def next_at_ms(self):
        return self._queue[0][0] if self._queue else None

    def run_due(self):
        while self._queue and self._queue[0][0] <= self.clock.ms:
            heapq.heappop(self._queue)[2]()
