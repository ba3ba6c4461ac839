"""The jobs that write while brokers fail, a batch and a stream of the same records, and what is found of them.

The rows of a stream have a bad one now and then, which becomes a dead letter.
A record's value begins with its id in ten digits, and goes on with the same letter. Its key names the sequence it belongs to: rows of
one key are written by one task after the other, in rising order of their ids.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from tests.reading import consumer

ID_DIGITS = 10
KEYS = 500
_TASKS = 4
VALUE_BYTES = 100
_PADDING = b"x" * (VALUE_BYTES - ID_DIGITS)
_BAD_EVERY = 4_999


def _is_bad(number):
    return number % _BAD_EVERY == _BAD_EVERY - 1


def rows_of(ids, sequence, pause_ms, has_bad_rows=False):
    """sequence: what a key begins with; has_bad_rows: a few have a timestamp before 1970"""
    pause = f"substring(java_method('java.lang.Thread', 'sleep', {pause_ms}L), 1, 0)"
    padding = f"repeat('x', {VALUE_BYTES - ID_DIGITS})"
    is_bad = f"id % {_BAD_EVERY} = {_BAD_EVERY - 1}"
    timestamp = f"if({is_bad}, timestamp_millis(-1), null) as timestamp"
    return ids.selectExpr(
        f"concat({sequence}, '-', id % {KEYS}) as key",
        f"concat(lpad(id, {ID_DIGITS}, '0'), {padding}, if(id % 1000 = 0, {pause}, '')) as value",
        *([timestamp] if has_bad_rows else []),
    )


def dead_letter_topic(topic):
    """Where the bad rows of a stream go."""
    return f"{topic}-dead-letters"


def dead_letter_options(topic):
    """Of a sink that gets bad rows."""
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead_letter_topic(topic),
    }


class Shape(NamedTuple):
    """Of a job.

    pause_ms: after each 1,000 rows of a task, so that the job outlasts the fault
    files, per_batch: of a stream, in all and in one micro-batch
    is_shuffled: rows come out of files that executors keep, and that are lost with them
    trigger: of a stream; None: one micro-batch at once after the other
    """

    pause_ms: int
    files: int = 100
    per_batch: int = 2
    is_shuffled: bool = False
    trigger: str | None = None


def run_batch(spark, options, records, shape, folder):
    """``df.write``: four tasks."""
    ids = spark.range(0, records, 1, _TASKS)
    frame = _shuffled(rows_of(ids, "spark_partition_id()", shape.pause_ms), shape)
    frame.write.format("pykafka-sink").mode("append").options(**options).save()


def run_stream(spark, options, records, shape, folder):
    """``df.writeStream`` over files. A few rows are bad."""
    source = folder / "in"
    if not source.exists():
        write_files(spark, records, shape.files, source)
    files = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", shape.per_batch)
    sequence = f"id div {records // shape.files} % {shape.per_batch}"
    frame = rows_of(files.parquet(str(source)), sequence, shape.pause_ms, has_bad_rows=True)
    writer = (
        _shuffled(frame, shape)
        .writeStream.format("pykafka-sink")
        .options(**options, **dead_letter_options(options["topic"]))
        .option("timestamp.column", "timestamp")
        .option("checkpointLocation", str(folder / f"checkpoint-{options['topic']}"))
    )
    if shape.trigger is None:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.trigger(processingTime=shape.trigger).start()
    query.processAllAvailable()
    query.stop()


def _shuffled(frame, shape):
    return frame.repartition(_TASKS, "key") if shape.is_shuffled else frame


def write_files(spark, records, count, source):
    """Write the files that a stream reads."""
    spark.range(0, records, 1, count).write.parquet(str(source))
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


def judge(bootstrap_servers, topic, partitions, records, has_bad_rows=False):
    """Read everything; ids 0 … ``records`` - 1 are expected, each in the topic that it belongs to."""
    copies = np.zeros(records, np.int32)
    astray = out_of_order = 0
    latest = {}
    for name in (topic, dead_letter_topic(topic)) if has_bad_rows else (topic,):
        for number, *sequence in _ids(bootstrap_servers, name, partitions):
            sequence = (name, *sequence)
            out_of_order += number < latest.get(sequence, -1)
            latest[sequence] = number
            if has_bad_rows and _is_bad(number) != (name != topic):
                astray += 1
            else:
                copies[number] += 1
    lost, doubled = int((copies == 0).sum()), int(np.maximum(copies - 1, 0).sum())
    return Verdict(int(copies.sum()) + astray, lost, doubled + astray, out_of_order)


def _ids(bootstrap_servers, topic, partitions):
    """Id, partition and key of each record."""
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
                else:
                    value = message.value()
                    assert value[ID_DIGITS:] == _PADDING, f"not a value of the job: {value}"
                    yield int(value[:ID_DIGITS]), message.partition(), message.key()
    finally:
        reader.close()


def judge_job(job, bootstrap_servers, topic, partitions, records, metrics):
    """The verdict on a job, and ``miscounted``: dead letters that are too many in what the sink tells
    of committed batches in the file ``metrics``, or too few, if negative.
    """
    has_bad_rows = job == "stream"
    verdict = judge(bootstrap_servers, topic, partitions, records, has_bad_rows)
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    committed = [line for line in lines if line["event"] == "commit"]
    counted = sum(sum(line.get("dead_letters", {}).values()) for line in committed)
    expected = sum(map(_is_bad, range(records))) if has_bad_rows else 0
    return {**verdict._asdict(), "miscounted": counted - expected}
