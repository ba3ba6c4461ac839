"""Measure peak memory of a worker by buffer.memory, Arrow batch, partitions and codec.

    python -m benchmarks.memory [--quick] [--check]

Each point has its own session, and so its own workers. While its job runs, the broker is frozen for
a while, so that records fill buffer.memory, the most that a worker can hold. Every point is
compared with the documented limit, 240 MiB + buffer.memory + 3 × the Arrow batch, and 40 MiB more
if pandas is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql import DataFrame

from benchmarks import harness, sinks
from benchmarks.measure import SparkProcesses
from benchmarks.rows import KeyKind, make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_BASE_MIB = 240
_ARROW_BATCHES = 3
_ENCODED = 2
# Spark imports pandas into every worker if it is installed.
_PANDAS_MIB = 40
_MIB = 1 << 20
_FEWEST_BYTES = 200 << 20
_BUFFERS = 10
_FROZEN_S = 3.0
_SAMPLE_S = 0.25


class MemoryPoint(NamedTuple):
    """Settings of one job. The Arrow batch has ``value_bytes`` × ``arrow_rows`` bytes."""

    buffer_mib: int = 32
    value_bytes: int = 100
    arrow_rows: int = 10_000
    partitions: int = 6
    codec: str = "lz4"
    key: KeyKind = "null"

    def rows_count(self) -> int:
        """Return enough rows to fill the buffers of both tasks several times, compressed."""
        return max(_FEWEST_BYTES, _BUFFERS * self.buffer_mib * _MIB) // self.value_bytes

    def settings(self) -> dict[str, str]:
        """Return the producer's settings."""
        buffer_memory = str(self.buffer_mib * _MIB)
        codec = {"compression.type": self.codec}
        return {**sinks.COMMON_SETTINGS, "buffer.memory": buffer_memory, **codec}


POINTS = [
    *(MemoryPoint(buffer_mib=mib) for mib in (8, 32, 64, 128)),
    *(MemoryPoint(value_bytes=size) for size in (10, 1_000, 10_000)),
    *(MemoryPoint(value_bytes=1_000, arrow_rows=rows) for rows in (1_000, 50_000)),
    *(MemoryPoint(partitions=count, key="short") for count in (1, 100, 1_000)),
    *(MemoryPoint(codec=codec) for codec in ("none", "zstd", "gzip", "snappy")),
    MemoryPoint(128, 10_000, 10_000, 100, "zstd", "short"),
]
QUICK = [MemoryPoint(), MemoryPoint(8, 1_000)]


def largest_arrow_batch(frame: DataFrame) -> int:
    """Return the bytes of the largest Arrow batch of a task."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        sinks.empty(frame, report_path=str(report))
        return int(json.loads(report.read_text(encoding="utf-8"))["largest_arrow_batch_bytes"])


def promised_mib(
    machine: Mapping[str, Any], buffer_mib: int, arrow_mib: float, encoded_mib: float = 0.0
) -> float:
    """Return the documented limit of a worker's memory on ``machine``, in MiB.

    encoded_mib: size of the keys and values that are encoded from columns of an Arrow batch
    """
    pandas_mib = _PANDAS_MIB if machine.get("pandas") else 0
    own_mib = _BASE_MIB + pandas_mib + buffer_mib
    return own_mib + _ARROW_BATCHES * arrow_mib + _ENCODED * encoded_mib


class PeakShare(threading.Thread):
    """Watches the proportional set size, which counts pages shared by forked workers once."""

    def __init__(self, processes: SparkProcesses) -> None:
        super().__init__(daemon=True)
        self.mib = 0.0
        self._processes = processes
        self._done = threading.Event()

    def run(self) -> None:
        """Sample until ``stop``."""
        while not self._done.wait(_SAMPLE_S):
            for process in self._processes.python():
                try:
                    share = process.memory_full_info()
                except psutil.Error:
                    continue
                self.mib = max(self.mib, getattr(share, "pss", share.uss) / _MIB)

    def stop(self) -> float:
        """Return the largest sample in MiB."""
        self._done.set()
        self.join()
        return self.mib


@contextmanager
def frozen_once(kafka: LocalKafka, topic: BenchTopic) -> Iterator[None]:
    """Freeze the broker for a while, as soon as the first records have arrived."""
    is_over = threading.Event()

    def freeze() -> None:
        while not topic.log_bytes():
            if is_over.wait(0.02):
                return
        kafka.pause(1)
        is_over.wait(_FROZEN_S)
        kafka.resume(1)

    thread = threading.Thread(target=freeze, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def peaks_of(
    kafka: LocalKafka,
    processes: SparkProcesses,
    topic: BenchTopic,
    write: Callable[[], None],
    rows_count: int,
) -> dict[str, float]:
    """Return the workers' peaks while ``write`` writes so many rows. Deletes the topic.

    Call it after a few rows were written, so that workers have loaded everything.
    """
    topic.empty()
    at_rest_mib = processes.peak_mib()
    share = PeakShare(processes)
    share.start()
    before = topic.end_offsets()
    with frozen_once(kafka, topic):
        write()
    peak_mib, share_mib = processes.peak_mib(), share.stop()
    written = topic.end_offsets() - before
    topic.delete()
    if written != rows_count:
        raise RuntimeError(f"{written} records of {rows_count} rows")
    return {
        "after_ten_rows_mib": round(at_rest_mib, 1),
        "peak_rss_mib": round(peak_mib, 1),
        "peak_pss_mib": round(share_mib, 1),
    }


def measure_point(kafka: LocalKafka, point: MemoryPoint) -> dict[str, Any]:
    """Return the peaks of one job in fresh workers."""
    rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(point.arrow_rows)}
    with harness.spark_session(**rows, **harness.SOCKETS) as spark:
        processes = SparkProcesses(spark)
        topic = BenchTopic(kafka, point.partitions)
        target = sinks.Target(kafka.bootstrap_servers, topic.name, point.settings())
        rows_count = point.rows_count()
        frame = make_rows(spark, rows_count, point.value_bytes, point.key)
        arrow_mib = largest_arrow_batch(frame) / _MIB
        sinks.ours(make_rows(spark, 10, point.value_bytes, point.key), target)
        peaks = peaks_of(kafka, processes, topic, lambda: sinks.ours(frame, target), rows_count)
    limit_mib = promised_mib(harness.machine(), point.buffer_mib, arrow_mib)
    return {
        **point._asdict(),
        "rows": rows_count,
        "arrow_batch_mib": round(arrow_mib, 1),
        **peaks,
        "limit_mib": round(limit_mib, 1),
        "is_within": peaks["peak_rss_mib"] <= limit_mib,
    }


def main() -> int:
    """Run the command line. With ``--check``, return 1 if a point exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two points")
    parser.add_argument("--check", action="store_true", help="fail beyond the limit")
    arguments = parser.parse_args()
    points = []
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        for point in QUICK if arguments.quick else POINTS:
            started = time.perf_counter()
            points.append(result := measure_point(kafka, point))
            print(
                f"{point}: peak {result['peak_rss_mib']} MiB, limit {result['limit_mib']} MiB, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            harness.save("memory_quick" if arguments.quick else "memory", {"points": points})
    is_within = all(result["is_within"] for result in points)
    return 1 if arguments.check and not is_within else 0


if __name__ == "__main__":
    sys.exit(main())
