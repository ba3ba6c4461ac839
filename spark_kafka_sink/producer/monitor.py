"""Synchronise the task thread and the sender thread: one lock, one condition, and turns.

The task thread waits for the sender thread on a monitor, always with a deadline. The simulator's
monitor runs the sender instead of waiting for it. The two threads take turns at the open batches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from spark_kafka_sink.base.clock import wait_seconds


class Monitor(Protocol):
    """A lock with a condition to wait for."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exception: object) -> None: ...

    def wait(self, timeout_ms: int) -> None:
        """Release the lock, wait for ``notify_all`` or the timeout, and take the lock again.

        May return early, so the caller checks its condition again.
        """
        ...

    def notify_all(self) -> None:
        """Wake the other threads that wait. The caller holds the lock."""
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
    """Turns at the open batches, for one thread at a time: the task thread or the sender thread.

    The sender thread's turns are short, and it takes no turn while the task thread waits for one.
    The monitor guards only the begin and the end of a turn. No thread holds the monitor during a
    turn, because a turn may compress a batch.

    is_task_at_work: the task thread has the turn, and wakes the sender after it
    is_task_waiting: the task thread waits until the sender thread's turn ends
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.is_task_at_work = False
        self._is_sender_at_work = False
        self.is_task_waiting = False

    @contextmanager
    def task_turn(self) -> Iterator[None]:
        """Hold the task thread's turn; it begins after at most one turn of the sender thread."""
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
        """Return True if the task thread neither works nor waits. The caller holds the monitor."""
        return not self.is_task_at_work and not self.is_task_waiting

    @contextmanager
    def sender_turn(self) -> Iterator[bool]:
        """Try to hold the sender thread's turn; yield True if the turn was free."""
        with self._monitor:
            is_begun = self._is_sender_at_work = self.is_free_for_sender
        try:
            yield is_begun
        finally:
            with self._monitor:
                self._is_sender_at_work = False
                if self.is_task_waiting:
                    self._monitor.notify_all()
