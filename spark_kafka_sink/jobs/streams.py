"""A streaming job's query: its arguments, its start, and following it to its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.jobs.file_lag import FileLag
from spark_kafka_sink.jobs.follow import Follower
from spark_kafka_sink.jobs.progress import progress_output
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.shutdown import GracefulStop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def declare_stream(arguments: JobArguments) -> None:
    """The arguments that every stream has."""
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
    spark: SparkSession, records: DataFrame, settings: JobSettings, lag: FileLag | None = None
) -> str | None:
    """Write until the input ends (available-now) or somebody wants the job to stop.

    lag: of a stream of files. Returns why the query failed, None if it did not.
    """
    with GracefulStop(spark) as stop:
        query = start_stream(records, settings)
        Follower(query, lag, stop, SystemClock(), progress_output(spark)).follow()
        failure = query.exception()
        return None if failure is None else f"the query failed: {failure}"


def report(job: str, failure: str | None) -> int:
    """Say why ``job`` failed, if it did; the exit status."""
    if failure is None:
        return 0
    print(f"{job}: {failure}", file=sys.stderr)
    return 1
