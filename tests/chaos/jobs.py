"""The jobs that write while brokers fail, a batch and a stream of the same records, and what is found of them.

A record's value begins with its id in ten digits. Its key names the sequence it belongs to: rows of
one key are written by one task after the other, in rising order of their ids.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from tests.reading import consumer

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


class Verdict(NamedTuple):
    """Counts of ids that are missing, of extra copies, and of steps back within a key."""

    read: int
    lost: int
    doubled: int
    out_of_order: int

    @property
    def is_good(self):
        return not (self.lost or self.doubled or self.out_of_order)


def judge(bootstrap_servers, topic, partitions, records):
    """Read everything; ids 0 … ``records`` - 1 are expected."""
    copies = np.zeros(records, np.int32)
    latest = {}
    out_of_order = 0
    reader = consumer(bootstrap_servers)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    ended = set()
    idle_polls = 0
    try:
        while len(ended) < partitions:
            messages = reader.consume(10_000, timeout=0.2)
            idle_polls = 0 if messages else idle_polls + 1
            if idle_polls > 300:
                raise AssertionError(f"nothing more from {topic} within 60 s")
            for message in messages:
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
                    continue
                number = int(message.value()[:ID_DIGITS])
                sequence = (message.partition(), message.key())
                out_of_order += number < latest.get(sequence, -1)
                latest[sequence] = number
                copies[number] += 1
    finally:
        reader.close()
    lost, doubled = int((copies == 0).sum()), int(np.maximum(copies - 1, 0).sum())
    return Verdict(int(copies.sum()), lost, doubled, out_of_order)
