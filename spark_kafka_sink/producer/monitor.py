"""Where the task thread and the sender thread meet: one lock, one condition.

Everything that blocks in the producer blocks here, always with a deadline. In the simulator a
monitor of another kind runs the sender instead of waiting for it.
"""

from __future__ import annotations

import threading
from typing import Protocol

from spark_kafka_sink.base.clock import wait_seconds


class Monitor(Protocol):
    """A lock that can be waited on."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exception: object) -> None: ...

    def wait(self, timeout_ms: int) -> None:
        """Release the lock, wait for ``notify_all`` or the timeout, take the lock again.

        It may return earlier: whoever waits looks again at what it waits for.
        """
        ...

    def notify_all(self) -> None:
        """End the waits of other threads. The lock must be held."""
        ...


class ThreadMonitor:
    """A :class:`Monitor` for two threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def __enter__(self) -> object:
        return self._condition.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._condition.release()

    def wait(self, timeout_ms: int) -> None:
        self._condition.wait(wait_seconds(timeout_ms))

    def notify_all(self) -> None:
        self._condition.notify_all()
