"""Time as a dependency: the only module that imports ``time``.

Everything that waits, expires or backs off takes a :class:`Clock`, so that tests and the simulator
can set the time.
"""

from __future__ import annotations

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
