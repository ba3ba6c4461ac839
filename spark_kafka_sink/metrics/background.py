"""Sending lines from a thread, so that micro-batches do not wait for whoever receives them.

The thread ends with its process, and what it has not sent by then is lost. A program's own process
waits for it at its end; those that Spark starts are killed. The log says when sending to a place
starts failing and when it works again.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from importlib import import_module
from threading import Condition, Lock, Thread

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.metrics.line import Line

# --- failures in the log -------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_MOST_OF_ERROR = 500


class Told:
    """Once for each change, and for each other reason.

    failing: what cannot be done, to which the reason is added; working: what is done again, with
    ``{batches}`` for the number of those that were not sent
    """

    def __init__(self, failing: str, working: str) -> None:
        self._failing = failing
        self._working = working
        self._told: str | None = None
        self._failed = self._lost_before = 0

    def note(self, problem: str | None, lost: int) -> None:
        """What came of one line. lost: those of this process that were never tried."""
        if problem is None:
            self._note_success(lost)
            return
        problem = shown(problem)
        if self._told is None:
            self._lost_before = lost
        self._failed += 1
        if problem != self._told:
            self._told = problem
            logger.warning(
                f"{self._failing}: {problem}. Batches go on, and what is not sent is lost; the log "
                "tells when it is sent again"
            )

    def _note_success(self, lost: int) -> None:
        if self._told is not None:
            batches = self._failed + lost - self._lost_before
            logger.info(self._working.format(batches=batches))
            self._told = None
            self._failed = 0


def reason_of(error: BaseException) -> str:
    """What the operating system says, else the beginning of the error: those of libraries for other
    file systems have pages."""
    if isinstance(error, OSError):
        text = str(error.strerror or error)
    elif isinstance(error, (ValueError, NotImplementedError)) and str(error):
        text = str(error)
    else:
        text = repr(error)
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= _MOST_OF_ERROR else f"{line[:_MOST_OF_ERROR]}…"


# --- the thread ----------------------------------------------------------------------------------

THREAD_NAME = "pykafka-sink metrics"
MOST_WAITING = 100
PAUSE_S = 0.1
"""Spark waits for a process that has committed to say so, and ends the micro-batch then. A thread
that is at work would have Python's lock for up to 5 ms, ``sys.getswitchinterval``, and a core."""
_MOST_SENDERS = 8
MOST_WAIT_S = 10.0
"""How long the end of a job, and of a program, waits for all that is sent."""

Send = Callable[[Line, int], None]
"""Sends one line, and knows how many of this process were lost, as too many waited."""

_senders: dict[Hashable, Sender] = {}
_guard = Lock()
_SYSTEM = SystemClock()


def send_behind(place: Hashable, make: Callable[[], Send], line: Line, timeout_s: float) -> Sender:
    """Have a line sent to ``place``, after those before it.

    make: makes what sends to it, in the thread
    """
    with _guard:
        sender = _senders.pop(place, None) or Sender(make, timeout_s)
        _senders[place] = sender
        while len(_senders) > _MOST_SENDERS:
            _senders.pop(next(iter(_senders))).close()
    sender.put(line)
    return sender


def wait_if_last(senders: Iterable[Sender], line: Line, clock: Clock = _SYSTEM) -> None:
    """At the end of a job, and of a batch that failed, wait for all: nothing comes after it, and
    Spark kills its processes with the application.
    """
    if line["event"] == "abort" or "batch_id" not in line:
        _wait_for(senders, clock)


def _wait_for(senders: Iterable[Sender], clock: Clock) -> None:
    """For each at most its timeout, all from now on: they send at the same time."""
    begun_ms = clock.now_ms()
    for sender in senders:
        may_take_s = min(sender.timeout_s, MOST_WAIT_S)
        sender.wait(max(may_take_s - (clock.now_ms() - begun_ms) / 1000, 0.0))


def _wait_at_exit() -> None:
    with _guard:
        senders = list(_senders.values())
    _wait_for(senders, _SYSTEM)


def _begin_anew() -> None:
    """In a fork, which has no threads."""
    global _guard
    _guard = Lock()
    _senders.clear()


atexit.register(_wait_at_exit)
os.register_at_fork(after_in_child=_begin_anew)


class Sender:
    """Of one place where lines go.

    timeout_s: how long sending a line may take
    """

    def __init__(self, make: Callable[[], Send], timeout_s: float) -> None:
        # OpenTelemetry's exporters import it, which Python refuses while a process ends.
        import_module("concurrent.futures.thread")
        self._make = make
        self.timeout_s = timeout_s
        self._queue = Background()
        self._send: Send | None = None
        self._told: str | None = None

    def put(self, line: Line) -> None:
        """What is told of partitions, most of a line, is not sent."""
        needed = {name: value for name, value in line.items() if name != "partitions"}
        self._queue.put(lambda: self._do(needed))

    def wait(self, most_s: float | None = None) -> bool:
        """Until all was sent, or given up, or the time is over. most_s: None is the timeout"""
        return self._queue.wait(self.timeout_s if most_s is None else most_s)

    def close(self) -> None:
        """No line comes any more. Those that wait are sent."""
        self._queue.close()

    def _do(self, line: Line) -> None:
        """In the thread."""
        try:
            if self._send is None:
                self._send = self._make()
            self._send(line, self._queue.lost)
            self._told = None
        except Exception as error:
            if repr(error) != self._told:
                self._told = repr(error)
                logger.warning(f"metrics of a batch are not sent: {shown(repr(error))}")


class Background:
    """Does what it is given, in that order, one at a time, in a thread: after a pause, unless
    somebody waits for it.

    lost: how many were left undone, as too many waited
    """

    def __init__(self, most_waiting: int = MOST_WAITING, pause_s: float = PAUSE_S) -> None:
        self.lost = 0
        self._most_waiting = most_waiting
        self._pause_s = pause_s
        self._awaited_by = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = self._is_closed = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def put(self, task: Callable[[], None]) -> None:
        """Do this, too; ``task`` must not raise. If too many wait, the oldest is left undone."""
        with self._changed:
            if len(self._waiting) == self._most_waiting:
                self._waiting.popleft()
                self.lost += 1
            self._waiting.append(task)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Until all is done, or the time is over. Whether all is done."""
        with self._changed:
            self._awaited_by += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(self._has_done_all, timeout_s)
            finally:
                self._awaited_by -= 1

    def close(self) -> None:
        """Nothing else comes. What waits is done, and the thread ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_done_all(self) -> bool:
        return not (self._waiting or self._is_busy)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: self._awaited_by or self._is_closed, self._pause_s)
                task = self._waiting.popleft()
                self._is_busy = True
            task()
