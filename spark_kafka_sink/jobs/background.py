"""Running a Spark action in the background, to show its progress and to be able to cancel it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.jobs.progress import ProgressLine
from spark_kafka_sink.jobs.shutdown import GracefulStop

_POLL_S = 0.25


class BackgroundAction:
    """One Spark action (a write) in a thread of its own."""

    def __init__(self, spark: Any, action: Callable[[], None], clock: Clock) -> None:
        self._spark = spark
        self._action = action
        self._clock = clock
        self._line = ProgressLine(clock)
        self._started_at_ms = clock.now_ms()
        self.failure: Exception | None = None
        self.was_cancelled = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-action", daemon=True)

    def _run(self) -> None:
        try:
            self._action()
        except Exception as error:
            self.failure = error
        finally:
            self._done.set()

    def follow(self, stop: GracefulStop) -> None:
        """Run the action, show its progress, cancel it when asked to stop."""
        self._thread.start()
        while not self._done.wait(_POLL_S):
            self._line.show(self._describe())
            if stop.is_requested and not self.was_cancelled:
                self.was_cancelled = True
                self._spark.sparkContext.cancelAllJobs()
        self._line.finish(self._describe())

    def _describe(self) -> str:
        """``1,200,000 rows read | 310,000 rows/s | 3 of 8 tasks left``."""
        rows, done, tasks = 0, 0, 0
        store = self._spark.sparkContext._jsc.sc().statusStore()
        stages = store.stageList(None, False, False, self._no_quantiles(), None)
        for index in range(stages.size()):
            stage = stages.apply(index)
            rows += stage.inputRecords()
            done += stage.numCompleteTasks()
            tasks += stage.numTasks()
        elapsed_s = max(self._clock.now_ms() - self._started_at_ms, 1) / 1000
        return (
            f"{rows:,} rows read | {rows / elapsed_s:,.0f} rows/s | "
            f"{tasks - done:,} of {tasks:,} tasks left"
        )

    def _no_quantiles(self) -> Any:
        gateway = self._spark.sparkContext._gateway
        return gateway.new_array(gateway.jvm.double, 0)
