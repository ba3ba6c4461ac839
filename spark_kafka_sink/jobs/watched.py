"""Run a Spark action (a write) while another thread shows its progress and can cancel it.

The action stays in the main thread. Another Python thread would have no active Spark session, and
without one Spark does not find Python data sources.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.jobs.progress import ProgressLine
from spark_kafka_sink.jobs.shutdown import GracefulStop

_POLL_S = 0.25
_COUNTING_MS = 10_000


class CancellableAction:
    """One Spark action. ``was_cancelled``: a stop was requested before the action ended."""

    def __init__(self, spark: Any, stop: GracefulStop, clock: Clock) -> None:
        self._spark = spark
        self._stop = stop
        self._clock = clock
        self._line = ProgressLine(clock, sys.stderr)
        self._started_at_ms = clock.now_ms()
        self._done = threading.Event()
        self._first_stage = 0
        self.was_cancelled = False

    def run(self, action: Callable[[], None]) -> None:
        """Run ``action``. Raises what ``action`` raises.

        Stages of earlier actions, as of inferring a schema, do not count.
        """
        self._line.attempt(self._forget_stages)
        watcher = threading.Thread(target=self._watch, name="pykafka-sink-watch", daemon=True)
        watcher.start()
        is_done = False
        try:
            action()
            is_done = True
        finally:
            self._done.set()
            watcher.join()
            self._line.attempt(lambda: self._line.finish(self._describe(is_done)))

    def _watch(self) -> None:
        while not self._done.wait(_POLL_S):
            # The driver plans before Spark has a job, so one cancellation may find none.
            if self._stop.is_requested:
                self._line.attempt(self._cancel)
            self._line.attempt(lambda: self._line.show(self._describe()))

    def _cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()
        self.was_cancelled = True

    def _describe(self, is_done: bool = False) -> str:
        """Return ``1,200,000 rows | 310,000 rows/s | 3 of 8 tasks left``.

        is_done: all rows that the tasks have read are written
        """
        if is_done:  # Spark counts in a thread of its own
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_COUNTING_MS)
        rows, done, tasks = 0, 0, 0
        for stage in self._stages():
            if stage.stageId() >= self._first_stage:
                rows += stage.inputRecords()
                done += stage.numCompleteTasks()
                tasks += stage.numTasks()
        elapsed_s = max(self._clock.now_ms() - self._started_at_ms, 1) / 1000
        rate = f"{rows / elapsed_s:,.0f} rows/s"
        if is_done:
            return f"{rows:,} rows written | {rate} | {elapsed_s:,.1f} s"
        return f"{rows:,} rows | {rate} | {tasks - done:,} of {tasks:,} tasks left"

    def _forget_stages(self) -> None:
        self._first_stage = 1 + max((stage.stageId() for stage in self._stages()), default=-1)

    def _stages(self) -> Iterator[Any]:
        store = self._spark.sparkContext._jsc.sc().statusStore()
        gateway = self._spark.sparkContext._gateway
        no_quantiles = gateway.new_array(gateway.jvm.double, 0)
        stages = store.stageList(None, False, False, no_quantiles, None)
        return map(stages.apply, range(stages.size()))
