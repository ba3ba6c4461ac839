"""A streaming job's query: its arguments, its start, and its progress until it ends."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.jobs.file_lag import FileLag
from spark_kafka_sink.jobs.progress import ProgressLine, Totals
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.shutdown import GracefulStop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# --- watching a query until it ends or a stop is requested ---------------------------------------

_POLL_S = 0.25
_LAG_INTERVAL_MS = 2000
_FINISH_BATCH_MS = 20_000


class Follower:
    """Shows the progress of one query, and stops it between two micro-batches.

    lag: for a stream of files; other sources report their lag in their progress, or not at all
    """

    def __init__(
        self,
        query: StreamingQuery,
        lag: FileLag | None,
        stop: GracefulStop,
        clock: Clock,
        out: TextIO,
    ) -> None:
        self._query = query
        self._lag = lag
        self._stop = stop
        self._clock = clock
        self._line = ProgressLine(clock, out)
        self._last_batch_id = -1
        self._lag_counted_at_ms: int | None = None
        self.totals = Totals()

    def follow(self) -> None:
        """Return when the query has ended, by itself or at a request."""
        while self._query.isActive and not self._stop.wait(_POLL_S):
            self._line.attempt(self._look)
        if self._query.isActive:
            self._line.attempt(lambda: self._line.show(f"{self.totals.describe()} | stopping"))
            self._line.attempt(self._finish_batch)
            self._stop.end(self._query)
        self._lag_counted_at_ms = None
        self._line.attempt(self._look)
        self._line.attempt(lambda: self._line.finish(self.totals.describe()))

    def _look(self) -> None:
        is_news = self._count_batches()
        now_ms = self._clock.now_ms()
        counted_at_ms = self._lag_counted_at_ms
        is_due = counted_at_ms is None or now_ms - counted_at_ms >= _LAG_INTERVAL_MS
        if self._lag is not None and (is_news or is_due):
            self._lag_counted_at_ms = now_ms
            lag = self._lag
            self._line.attempt(lambda: setattr(self.totals, "files", lag.count()))
        self._line.show(self.totals.describe())

    def _count_batches(self) -> bool:
        """Add the micro-batches that ended since the last look; return False if none ended."""
        first = self._last_batch_id + 1
        for progress in self._query.recentProgress:
            if progress["batchId"] >= first and progress["numInputRows"]:
                self.totals.add(progress)
                self._last_batch_id = progress["batchId"]
        return self._last_batch_id >= first

    def _finish_batch(self) -> None:
        """Wait for the end of the micro-batch in progress, so that it need not be repeated."""
        deadline_ms = self._clock.now_ms() + _FINISH_BATCH_MS
        while self._query.isActive and self._clock.now_ms() < deadline_ms:
            is_busy = self._query.status["isTriggerActive"]
            if self._count_batches() or not is_busy:
                return
            self._stop.pause(_POLL_S)


# --- arguments, start, end -----------------------------------------------------------------------


def declare_stream(arguments: JobArguments) -> None:
    """Declare the arguments that every stream has."""
    arguments.add("trigger", "'5 seconds', 'available-now', or 'asap' (default)")
    arguments.add("checkpoint", "folder that remembers what was written")
    arguments.add("name", "name of the query in Spark's UI")


def start_stream(records: DataFrame, settings: JobSettings) -> StreamingQuery:
    """Start writing ``records`` to the sink."""
    writer = (
        records.writeStream.format("pykafka-sink")
        .options(**settings.sink_options)
        .option("checkpointLocation", settings.require("checkpoint"))
        .outputMode("append")
    )
    name = settings.get("name")
    if name is not None:
        writer = writer.queryName(name)
    trigger = settings.get("trigger") or "asap"
    if trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif trigger != "asap":
        writer = writer.trigger(processingTime=trigger)
    return writer.start()


def run_stream(
    job: str, records: DataFrame, settings: JobSettings, lag: FileLag | None = None
) -> int:
    """Write until the input ends (available-now) or a stop is requested; return the exit status.

    job: its name, for the line about a failure; lag: for a stream of files
    """
    from spark_kafka_sink.jobs.failures import EXIT_OK, report  # Spark's, so not for --help
    from spark_kafka_sink.metrics import follow_lineage

    spark = records.sparkSession
    if settings.sink_options.get("metrics.openlineage.enable", "").strip().lower() == "true":
        follow_lineage(spark)
    with GracefulStop(spark) as stop:
        query = start_stream(records, settings)
        Follower(query, lag, stop, SystemClock(), sys.stderr).follow()
        failure = query.exception()
        return EXIT_OK if failure is None else report(job, failure, "the query failed: ")


def await_termination(query: StreamingQuery) -> None:
    """Wait for the end of ``query`` like ``query.awaitTermination()``; a signal ends it cleanly.

    Ctrl-C and SIGTERM end the query after the micro-batch in progress, without a traceback. The
    function then returns, so that the program can go on to ``spark.stop()``. Call it in the main
    thread, not with Spark Connect. Raises the query's StreamingQueryException if it failed, and
    KeyboardInterrupt at a second Ctrl-C.

    Example::

        query = events.writeStream.format("pykafka-sink").options(**options).start()
        spark_kafka_sink.await_termination(query)
        spark.stop()
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, GracefulStop(spark) as stop:
        Follower(query, None, stop, SystemClock(), nowhere).follow()
    failure = query.exception()
    if failure is not None:
        raise failure
