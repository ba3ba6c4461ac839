"""Send lines from a thread, so that micro-batches do not wait for the receiver.

The thread ends with its process, and lines that it has not sent by then are lost. A program's own
process waits for the thread when it exits; Spark kills the processes that it starts. The log says
when sending to an output starts failing and when it works again.
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
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.metrics.line import Line

# --- failures in the log -------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_MAX_REASON_LENGTH = 500


class FailureLog:
    """Logs when an output starts failing, when the reason changes, and when the output recovers.

    failing: what cannot be done; the log adds the reason
    working: what works again, with ``{batches}`` for the number of batches that were not sent
    code, done: of the warning; what the output does with a line
    """

    def __init__(
        self, failing: str, working: str, code: str = "METRICS-003", done: str = "sent"
    ) -> None:
        self._failing = failing
        self._working = working
        self._code = code
        self._done = done
        self._logged_problem: str | None = None
        self._failed = self._lost_before = 0

    def record_outcome(self, problem: str | None, lost: int) -> None:
        """Record the outcome of one line. lost: lines of this process that were never sent."""
        before, self._logged_problem = self._logged_problem, problem and redacted(problem)
        if problem is None:
            if before is not None:
                batches = self._failed + lost - self._lost_before
                logger.info(self._working.replace("{batches}", str(batches)))
            self._failed = 0
            return
        if before is None:
            self._lost_before = lost
        self._failed += 1
        if self._logged_problem != before:
            warn(
                logger,
                self._code,
                f"{self._failing}: {self._logged_problem}. Batches go on, and what is not "
                f"{self._done} is lost; the log tells when it is {self._done} again",
            )


def short_reason(error: BaseException) -> str:
    """Return the operating system's message, else the first line of the error.

    The line is cut after 500 characters, because other libraries' errors fill pages.
    """
    if isinstance(error, OSError):
        text = str(error.strerror or error)
    elif isinstance(error, (ValueError, NotImplementedError)) and str(error):
        text = str(error)
    else:
        text = repr(error)
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= _MAX_REASON_LENGTH else f"{line[:_MAX_REASON_LENGTH]}…"


# --- the thread ----------------------------------------------------------------------------------

THREAD_NAME = "pykafka-sink metrics"
QUEUE_CAPACITY = 100
PAUSE_S = 0.1
"""Seconds that the thread waits before it sends.

Spark ends the micro-batch only when the committing process reports its commit. A busy thread would
hold Python's lock for up to 5 ms (``sys.getswitchinterval``), and use a core.
"""
_MOST_SENDERS = 8
FLUSH_TIMEOUT_S = 10.0
"""Seconds that the end of a job, or of a program, waits at most until all lines are sent."""

Send = Callable[[Line, int], None]
"""Sends one line; the number is how many lines of this process were dropped from a full queue."""


class BackgroundQueue:
    """Runs tasks one at a time, in order, in a thread.

    The thread pauses before each task, unless a caller waits for it.

    lost: tasks that were dropped because too many waited
    """

    def __init__(self, most_waiting: int = QUEUE_CAPACITY, pause_s: float = PAUSE_S) -> None:
        self.lost = 0
        self._most_waiting = most_waiting
        self._pause_s = pause_s
        self._awaited_by = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = self._is_closed = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def put(self, task: Callable[[], None]) -> None:
        """Queue a task, which must not raise. If too many tasks wait, drop the oldest."""
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
        """Wait until all tasks are done; return False if they are not done after the timeout."""
        with self._changed:
            self._awaited_by += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(
                    lambda: not (self._waiting or self._is_busy), timeout_s
                )
            finally:
                self._awaited_by -= 1

    def close(self) -> None:
        """Accept no more tasks; the thread runs those that wait, and ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

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


class Sender(BackgroundQueue):
    """Sends the lines of one output, from a thread.

    timeout_s: seconds that sending one line may take
    """

    def __init__(self, make: Callable[[], Send], timeout_s: float) -> None:
        # Python rejects the import while a process exits, and OpenTelemetry's exporters need it.
        import_module("concurrent.futures.thread")
        super().__init__()
        self._make = make
        self.timeout_s = timeout_s
        self._send: Send | None = None
        self._logged_error: str | None = None

    def put_line(self, line: Line) -> None:
        """Queue a line without its partitions, which are most of a line."""
        needed = {name: value for name, value in line.items() if name != "partitions"}
        self.put(lambda: self._do(needed))

    def _do(self, line: Line) -> None:
        """Send one line, in the thread."""
        try:
            if self._send is None:
                self._send = self._make()
            self._send(line, self.lost)
            self._logged_error = None
        except Exception as error:
            if repr(error) != self._logged_error:
                self._logged_error = repr(error)
                problem = f"metrics of a batch are not sent: {redacted(repr(error))}"
                warn(logger, "METRICS-009", problem)


# --- all senders of the process -------------------------------------------------------------------

_senders: dict[Hashable, Sender] = {}
_guard = Lock()
_SYSTEM = SystemClock()


def enqueue_line(place: Hashable, make: Callable[[], Send], line: Line, timeout_s: float) -> Sender:
    """Queue a line for ``place``, behind the lines before it.

    make: builds the function that sends; the thread calls it
    """
    with _guard:
        sender = _senders.pop(place, None) or Sender(make, timeout_s)
        _senders[place] = sender
        while len(_senders) > _MOST_SENDERS:
            _senders.pop(next(iter(_senders))).close()
    sender.put_line(line)
    return sender


def flush_at_end(senders: Iterable[Sender], line: Line, clock: Clock = _SYSTEM) -> None:
    """Wait for all senders at the end of a job, and after a failed batch.

    No line follows then, and Spark kills its processes with the application.
    """
    if line["event"] == "abort" or "batch_id" not in line:
        _wait_for(senders, clock)


def _wait_for(senders: Iterable[Sender], clock: Clock) -> None:
    """Wait for each sender for at most its timeout, counted from now: they send in parallel."""
    begun_ms = clock.now_ms()
    for sender in senders:
        may_take_s = min(sender.timeout_s, FLUSH_TIMEOUT_S)
        sender.wait(max(may_take_s - (clock.now_ms() - begun_ms) / 1000, 0.0))


def _wait_at_exit() -> None:
    with _guard:
        senders = list(_senders.values())
    _wait_for(senders, _SYSTEM)


def _reset_after_fork() -> None:
    """Start without senders in a forked process, which has no threads."""
    global _guard
    _guard = Lock()
    _senders.clear()


atexit.register(_wait_at_exit)
os.register_at_fork(after_in_child=_reset_after_fork)
