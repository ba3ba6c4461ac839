"""Ctrl-C and SIGTERM end a stream between two micro-batches; a second Ctrl-C interrupts it.

Under spark-submit the JVM is the parent: it gets the SIGTERM, and together with Python the Ctrl-C.
So this module makes the JVM ignore Ctrl-C. A shutdown hook in the JVM waits until Python has
stopped the query, before Spark's own hooks end the session.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

# Spark stops its context at priority 50 and removes its temporary folders after that.
_BEFORE_SPARK = 100
_FINISH_TIMEOUT_S = 25.0
_LOOKS_FOR_TASKS, _LOOK_S = 20, 0.2
_EXIT_INTERRUPTED = 128 + signal.SIGINT


def end_at_ctrl_c(job: str) -> None:
    """Let Ctrl-C end the process with one line, until ``GracefulStop`` begins and after its end.

    While Spark starts, an exception would also leave its JVM without the files that it needs, and
    the JVM would print stack traces. If the process ignores Ctrl-C, it still does.
    """

    def end(number: int, frame: FrameType | None) -> None:
        # Not print: the signal may have interrupted a write to the same file.
        os.write(2, f"{job}: interrupted\n".encode())
        os._exit(_EXIT_INTERRUPTED)  # the JVM ends when its standard input does

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


class GracefulStop:
    """Turns signals into ``is_requested``. A context manager around the job's main loop."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._requested = threading.Event()
        self._finished = threading.Event()
        self._restore: list[Callable[[], object]] = []
        self._hooks: Any = None
        self._hook: Any = None

    @property
    def is_requested(self) -> bool:
        """True if the user or the system has requested the job to end."""
        return self._requested.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request; return True if one has come."""
        return self._requested.wait(timeout_s)

    def pause(self, timeout_s: float) -> None:
        """Wait for ``timeout_s`` seconds, even after a request."""
        self._finished.wait(timeout_s)

    def end(self, query: Any) -> None:
        """Stop ``query``, without the errors that Spark logs of a micro-batch that it interrupts.

        A busy query has begun its next micro-batch by now. The next start repeats this micro-batch.
        """
        context = self._spark.sparkContext
        root = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
        level = root.getLevel().toString()
        context.setLogLevel("OFF")
        try:
            query.stop()
            # Interrupted tasks log after the query has ended. Other queries may run tasks for ever.
            for _ in range(_LOOKS_FOR_TASKS):
                self.pause(_LOOK_S)
                executors = context._jsc.sc().statusTracker().getExecutorInfos()
                if not any(executor.numRunningTasks() for executor in executors):
                    break
        finally:
            context.setLogLevel(level)

    def __enter__(self) -> GracefulStop:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                previous = signal.signal(number, self._request)
                self._restore.append(partial(signal.signal, number, previous))
            self._prepare_jvm()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._finished.set()
        try:
            self._hooks.removeShutdownHook(self._hook)
        except Exception:
            pass  # no hook was added; or the JVM is ending, and its hook has made the request
        for restore in self._restore:
            restore()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested.set()
        # The query does not end while code of the user is busy, so the next Ctrl-C interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _prepare_jvm(self) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        gateway = self._spark.sparkContext._gateway
        jvm = gateway.jvm
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("INT"), jvm.sun.misc.SignalHandler.SIG_IGN)
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        # A Java thread has hashCode and equals, which a set of hooks needs.
        self._hook = jvm.java.lang.Thread(_ShutdownHook(self._requested, self._finished))
        self._hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        self._hooks.addShutdownHook(self._hook, _BEFORE_SPARK)


class _ShutdownHook:
    """A java.lang.Runnable that the JVM runs when it ends."""

    def __init__(self, requested: threading.Event, finished: threading.Event) -> None:
        self._requested = requested
        self._finished = finished

    def run(self) -> None:
        """Request the job to end, and wait until it has ended."""
        self._requested.set()
        self._finished.wait(_FINISH_TIMEOUT_S)

    class Java:
        """Declares the interface to py4j."""

        implements = ("java.lang.Runnable",)
