"""Write 10 million 100-byte rows with two tasks, with this sink and Spark's JVM sink in turn.

    make bench-ten-million

Checks with confluent-kafka that no row is lost or duplicated. Reports the ratio of elapsed times of
alternating warm pairs, and the peak memory of a Python worker.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import DataFrame

from benchmarks import harness, sinks
from benchmarks.measure import SparkProcesses, spread
from benchmarks.rows import make_rows
from benchmarks.topics import BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

ROWS = 10_000_000
VALUE_BYTES = 100
PARTITIONS = 6
PAIRS = 3
SETTINGS = {**sinks.COMMON_SETTINGS, "compression.type": "lz4"}
MEMORY_LIMIT_MIB = 300 + int(SETTINGS["buffer.memory"]) / (1 << 20)
_ID = slice(6, 15)


def count_ids(bootstrap_servers: str, topic: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return how often ``topic`` has each row's number."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ten-million",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    counts = np.zeros(ROWS, np.uint8)
    ended = 0
    while ended < PARTITIONS:
        messages = consumer.consume(50_000, timeout=0.5)
        ended += sum(1 for m in messages if m.error() is not None and is_end(m))
        ids = b"".join(m.value()[_ID] for m in messages if m.error() is None)
        digits = np.frombuffer(ids, np.uint8).reshape(-1, 9).astype(np.int64) - ord("0")
        numbers = digits @ (10 ** np.arange(8, -1, -1))
        np.add.at(counts, numbers, 1)
    consumer.close()
    return counts


def is_end(message: Any) -> bool:
    """Return True at the end of a partition; any other error ends the benchmark."""
    if message.error().code() != KafkaError._PARTITION_EOF:
        raise RuntimeError(message.error())
    return True


def seconds(sink: str, frame: DataFrame, target: sinks.Target) -> float:
    """Return the time of one whole job."""
    started = time.perf_counter()
    sinks.SINKS[sink](frame, target)
    return time.perf_counter() - started


def main() -> int:
    """Run the benchmark; return 0 if no row is lost or duplicated and memory is in its limit."""
    with LocalKafka(heap="1g") as kafka, harness.spark_session() as spark:
        frame = make_rows(spark, ROWS, VALUE_BYTES)
        targets = {
            sink: sinks.Target(
                kafka.bootstrap_servers, BenchTopic(kafka, PARTITIONS).name, SETTINGS
            )
            for sink in ("ours", "jvm")
        }
        turns = [
            [seconds(sink, frame, target) for sink, target in targets.items()]
            for _ in range(1 + PAIRS)
        ]
        pairs = turns[1:]
        peak_mib = SparkProcesses(spark).peak_mib()
        counts = count_ids(kafka.bootstrap_servers, targets["ours"].topic)
    writes = PAIRS + 1
    lost, doubled = int((counts < writes).sum()), int((counts > writes).sum())
    result = {
        "rows": ROWS,
        "value_bytes": VALUE_BYTES,
        "settings": SETTINGS,
        "ours_s": spread([ours for ours, _ in pairs]),
        "jvm_s": spread([theirs for _, theirs in pairs]),
        "jvm_over_ours": spread([theirs / ours for ours, theirs in pairs]),
        "worker_peak_mib": round(peak_mib, 1),
        "rows_lost": lost,
        "rows_doubled": doubled,
    }
    path = harness.save("ten_million", result)
    print(path.read_text(encoding="utf-8"))
    return 0 if lost == doubled == 0 and peak_mib < MEMORY_LIMIT_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
