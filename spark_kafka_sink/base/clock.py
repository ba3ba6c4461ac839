"""Time as a dependency: the only module that imports ``time``.

Everything that waits, expires or backs off takes a :class:`Clock`, so that tests and the simulator
can move time by hand.
"""

from __future__ import annotations

import time
from typing import Protocol


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
