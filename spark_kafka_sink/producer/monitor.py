"""Where the task thread and the sender thread meet: one lock, one condition, and turns.

Everything that blocks in the producer blocks here, always with a deadline. In the simulator a
monitor of another kind runs the sender instead of waiting for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


_RECHECK_MS = 60_000


class Turns:
    """One turn at a time. The sender thread's are short, and it takes none that the task waits for.

    The turn at the open batches is the task thread's, the sender thread's, or nobody's. The monitor
    decides it, but no thread holds the monitor for the length of a turn, because a batch is
    compressed meanwhile.

    is_task_at_work: the task thread has the turn, which ends with a wake-up of the sender
    is_task_waiting: the task thread's turn begins when the sender thread's has ended
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.is_task_at_work = False
        self._is_sender_at_work = False
        self.is_task_waiting = False

    @contextmanager
    def of_task(self) -> Iterator[None]:
        """The task thread's turn; begins after one of the sender's at most."""
        with self._monitor:
            self.is_task_waiting = True
            try:
                while self._is_sender_at_work:
                    self._monitor.wait(_RECHECK_MS)
            finally:
                self.is_task_waiting = False
            self.is_task_at_work = True
        try:
            yield
        finally:
            with self._monitor:
                self.is_task_at_work = False

    @property
    def is_free_for_sender(self) -> bool:
        """Whether the task thread neither is at work nor waits. The monitor must be held."""
        return not self.is_task_at_work and not self.is_task_waiting

    @contextmanager
    def of_sender(self) -> Iterator[bool]:
        """The sender thread's turn, if it is free: says whether it is."""
        with self._monitor:
            is_begun = self._is_sender_at_work = self.is_free_for_sender
        try:
            yield is_begun
        finally:
            with self._monitor:
                self._is_sender_at_work = False
                if self.is_task_waiting:
                    self._monitor.notify_all()
