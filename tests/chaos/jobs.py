"""The jobs that write while brokers fail: a batch and a stream of the same records.

A record's value begins with its id in ten digits. Its key names the sequence it belongs to: rows of
one key are written by one task after the other, in rising order of their ids.
"""

import os

ID_DIGITS = 10
KEYS = 500
_BATCH_TASKS = 4
_FILES = 100
_VALUE_BYTES = 100


def rows_of(ids, sequence, pause_ms):
    """``pause_ms``: after each 1,000 rows of a task, so that the job outlasts the fault."""
    pause = f"substring(java_method('java.lang.Thread', 'sleep', {pause_ms}L), 1, 0)"
    padding = f"repeat('x', {_VALUE_BYTES - ID_DIGITS})"
    return ids.selectExpr(
        f"concat({sequence}, '-', id % {KEYS}) as key",
        f"concat(lpad(id, {ID_DIGITS}, '0'), {padding}, if(id % 1000 = 0, {pause}, '')) as value",
    )


def run_batch(spark, options, records, pause_ms, folder):
    """``df.write``: four tasks, two at a time."""
    ids = spark.range(0, records, 1, _BATCH_TASKS)
    frame = rows_of(ids, "spark_partition_id()", pause_ms)
    frame.write.format("pykafka-sink").mode("append").options(**options).save()


def run_stream(spark, options, records, pause_ms, folder):
    """``df.writeStream`` over files, two a micro-batch."""
    source = folder / "in"
    if not source.exists():
        _write_files(spark, records, source)
    ids = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", "2")
    frame = rows_of(ids.parquet(str(source)), f"id div {records // _FILES} % 2", pause_ms)
    query = (
        frame.writeStream.format("pykafka-sink")
        .options(**options)
        .option("checkpointLocation", str(folder / f"checkpoint-{options['topic']}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _write_files(spark, records, source):
    spark.range(0, records, 1, _FILES).write.parquet(str(source))
    for number, path in enumerate(sorted(source.glob("part-*"))):
        # A stream takes files in order of their modification time.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


JOBS = {"batch": run_batch, "stream": run_stream}
