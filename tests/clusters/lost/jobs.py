"""A batch and a stream of the same rows, each in several tasks that append several times."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from tests.chaos.jobs import rows_of

RECORDS = 100_000
ROWS_PER_ARROW_BATCH = 1000
MICRO_BATCHES = 4
_TASKS = 4
_FILES = MICRO_BATCHES * _TASKS


class Shape(NamedTuple):
    """Of a job. is_shuffled: rows come out of files that executors keep, and that are lost with them.

    pause_ms: after each 1,000 rows of a task; trigger: of a stream, None: one micro-batch at once
    after the other.
    """

    is_shuffled: bool = False
    pause_ms: int = 20
    trigger: str | None = None


def prepare(spark, folder):
    """Write the files that streams read."""
    source = folder / "in"
    spark.range(0, RECORDS, 1, _FILES).write.parquet(str(source))
    for number, path in enumerate(sorted(source.glob("part-*"))):
        # A stream takes files in order of their modification time.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_batch(spark, options, shape, folder):
    """``df.write``."""
    ids = spark.range(0, RECORDS, 1, _TASKS)
    frame = rows_of(ids, "spark_partition_id()", shape.pause_ms)
    if shape.is_shuffled:
        frame = frame.repartition(_TASKS, "key")
    frame.write.format("pykafka-sink").mode("append").options(**options).save()


def run_stream(spark, options, shape, folder):
    """``df.writeStream``, four micro-batches."""
    ids = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", str(_TASKS))
    frame = rows_of(ids.parquet(str(folder / "in")), f"id div {RECORDS // _FILES}", shape.pause_ms)
    if shape.is_shuffled:
        frame = frame.repartition(_TASKS, "key")
    writer = (
        frame.writeStream.format("pykafka-sink")
        .options(**options)
        .option("checkpointLocation", str(folder / f"checkpoint-{options['topic']}"))
    )
    if shape.trigger is None:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.trigger(processingTime=shape.trigger).start()
    query.processAllAvailable()
    query.stop()


Job = Callable[[SparkSession, dict[str, str], Shape, Path], None]
JOBS = {"batch": run_batch, "stream": run_stream}
