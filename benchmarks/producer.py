"""Measure the producer alone, without Spark: CPU of its two threads, with a real broker.

    python -m benchmarks.producer [--only 1KB-lz4-key36 …] [--rounds 5] [--seconds 0]

The benchmark appends and flushes 96 MiB of Arrow batches, as Spark passes them on, again and again.
The fastest round of each point counts. The figures are CPU of this process, of the appending thread
and of the sending thread, in ns per record. ``encode`` and ``compress`` are the task's own
counters, parts of the appending thread's time. With ``--seconds`` each point goes on for so long,
for a profiler:

    perf record -g -p <process id, as printed> -- sleep 5
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import uuid
from fnmatch import fnmatchcase
from typing import NamedTuple

import pyarrow as pa

from benchmarks.rows import KEY_BYTES, PAGE, KeyKind
from benchmarks.sinks import COMMON_SETTINGS
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.producer.producer import ThreadedProducer


class Point(NamedTuple):
    """Size, codec and key of the records, and partitions of the topic."""

    value_bytes: int
    codec: str
    key: KeyKind = "null"
    partitions: int = 6

    @property
    def name(self) -> str:
        """Return a name such as 1KB-lz4-key36-100p."""
        size = self.value_bytes
        parts = [f"{size}B" if size < 1000 else f"{size // 1000}KB", self.codec]
        if self.key != "null":
            parts.append(f"key{KEY_BYTES[self.key]}")
        if self.partitions != self._field_defaults["partitions"]:
            parts.append(f"{self.partitions}p")
        return "-".join(parts)


POINTS = (
    Point(100, "lz4"),
    Point(1_000, "none"),
    Point(1_000, "lz4"),
    Point(1_000, "lz4", "long"),
    Point(1_000, "lz4", "long", partitions=100),
    Point(10_000, "none"),
    Point(10_000, "lz4"),
)
_ARROW_ROWS = 10_000
_ALL_BYTES = 96 << 20
_PRIME = 7919


class Cost(NamedTuple):
    """CPU in ns per record: the process, the appending thread, and the sending thread."""

    process: float
    appends: float
    sends: float
    encode: float
    compress: float


def arrow_batches(point: Point, most_bytes: int) -> list[pa.RecordBatch]:
    """Return rows similar to ``rows.make_rows``, in Arrow batches of at most ``most_bytes``."""
    rng = random.Random(7)
    rows = max(1, min(_ARROW_ROWS, most_bytes // point.value_bytes))
    batches = []
    for first in range(0, _ALL_BYTES // point.value_bytes, rows):
        values = [_value(first + row, point.value_bytes, rng) for row in range(rows)]
        columns = {"value": pa.array(values, pa.binary())}
        if point.key != "null":
            keys = [str(uuid.UUID(int=rng.getrandbits(128))).encode() for _ in range(rows)]
            columns["key"] = pa.array(keys, pa.binary())
        batches.append(pa.record_batch(columns))
    return batches


def _value(number: int, size: int, rng: random.Random) -> bytes:
    head = b'{"id":%09d,"hash":"%016x",' % (number, rng.getrandbits(64))
    start = number * _PRIME % (len(PAGE) - size)
    return (head + PAGE[start : start + size])[:size]


class Task:
    """One producer, and its Arrow batches."""

    def __init__(self, kafka: LocalKafka, point: Point, most_bytes: int) -> None:
        self._topic = BenchTopic(kafka, point.partitions)
        self._batches = arrow_batches(point, most_bytes)
        self._rows = sum(batch.num_rows for batch in self._batches)
        self._positions = ColumnPositions(
            value=0, key=None if point.key == "null" else 1, topic_option=self._topic.name
        )
        settings = {
            **COMMON_SETTINGS,
            "compression.type": point.codec,
            "bootstrap.servers": kafka.bootstrap_servers,
        }
        self._producer = ThreadedProducer(ProducerConfig.parse(settings), [self._topic.name])

    def run(self) -> Cost:
        """Append all Arrow batches and flush; return the cost."""
        metrics = self._producer.metrics
        encode_ns, compress_ns = metrics.encode_ns, metrics.compress_ns
        process_ns, thread_ns = time.process_time_ns(), time.thread_time_ns()
        for batch in self._batches:
            self._producer.append(batch, self._positions)
        self._producer.flush()
        process_ns = time.process_time_ns() - process_ns
        thread_ns = time.thread_time_ns() - thread_ns
        encode_ns, compress_ns = metrics.encode_ns - encode_ns, metrics.compress_ns - compress_ns
        took = process_ns, thread_ns, process_ns - thread_ns, encode_ns, compress_ns
        self._topic.empty()
        return Cost(*(ns / self._rows for ns in took))

    def close(self) -> None:
        """Close the producer and remove the topic."""
        self._producer.close()
        self._topic.delete()


def measure(task: Task, rounds: int, seconds: float) -> Cost:
    """Return the cheapest round, because other load of the machine only adds to the cost."""
    task.run()
    costs = [task.run() for _ in range(rounds)]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        costs.append(task.run())
    return min(costs)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="points with such names: '1KB*'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0, help="then go on for so long")
    parser.add_argument("--arrow-mib", type=float, default=64, help="Arrow batches of at most this")
    arguments = parser.parse_args()
    wanted = arguments.only
    print(f"process {os.getpid()}; ns per record, CPU", flush=True)
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        for point in POINTS:
            if wanted and not any(fnmatchcase(point.name, pattern) for pattern in wanted):
                continue
            task = Task(kafka, point, int(arguments.arrow_mib * (1 << 20)))
            cost = measure(task, arguments.rounds, arguments.seconds)
            task.close()
            figures = "   ".join(f"{name} {ns:7.0f}" for name, ns in cost._asdict().items())
            print(f"{point.name:20} {figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
