"""Measure one run: elapsed time, CPU of Spark and Python, worker's memory, broker's bytes.

CPU is that of Spark's JVM and of the Python processes below it, without the broker and this
measuring process. Workers outlive their tasks, so none ends between the two readings.

Memory is the operating system's own high-water mark (Linux: ``VmHWM``, reset before each run),
which no sampling can miss. Elsewhere it is the size after the run.
"""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.sinks import SINKS, WRITES_NOTHING, Target
from benchmarks.topics import BenchTopic

_MIB = 1 << 20
_KIB = 1 << 10
_TOUCHED_BYTES = 2 << 30
_RESET_PEAK = "5"
_IDLE_S = 0.015


@dataclass(frozen=True)
class Run:
    """Figures of one job. The broker reports ``records`` and ``broker_bytes``.

    broker_cpu_s: not the sink's, but the broker may take its time from the shared cores
    """

    elapsed_s: float
    jvm_cpu_s: float
    python_cpu_s: float
    worker_peak_mib: float
    records: int
    broker_bytes: int
    broker_cpu_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """Return the CPU seconds of Spark and Python together."""
        return self.jvm_cpu_s + self.python_cpu_s


class SparkProcesses:
    """The JVM of a session and the Python processes below it."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._jvm = psutil.Process(gateway.proc.pid)

    def python(self) -> list[psutil.Process]:
        """Return Spark's daemons and workers."""
        return self._jvm.children(recursive=True)

    @property
    def jvm(self) -> psutil.Process:
        """Return the process of Spark's driver, in local mode also its executor."""
        return self._jvm

    def cpu_s(self) -> tuple[float, dict[int, float]]:
        """Return (seconds of the JVM, seconds of each Python process by its id)."""
        return cpu_seconds(self._jvm), {
            process.pid: cpu_seconds(process) for process in self.python()
        }

    def reset_peaks(self) -> None:
        """Reset the high-water marks of memory."""
        for process in self.python():
            try:
                Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
            except OSError:  # not Linux, or the process has ended
                continue

    def peak_mib(self, process_ids: Container[int] | None = None) -> float:
        """Return the highest mark of any Python process, or of any in ``process_ids``."""
        asked = (p for p in self.python() if process_ids is None or p.pid in process_ids)
        return max((_peak_mib(process) for process in asked), default=0.0)


def touch_memory(size: int) -> None:
    """Use ``size`` bytes of memory and return them to the operating system.

    A virtual machine may return free memory to its host. The first process to use such a page again
    pays for it: 0.5 to 2 s per GB. Without this, the sink that uses more memory would pay.
    """
    with mmap.mmap(-1, size) as memory:
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1


def cpu_seconds(process: psutil.Process) -> float:
    """Return user and system time since the process began; 0 if the process has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _peak_mib(process: psutil.Process) -> float:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * _KIB / _MIB
    except (OSError, StopIteration):
        pass
    try:
        return float(process.memory_info().rss / _MIB)
    except psutil.NoSuchProcess:
        return 0.0


@dataclass
class Contender:
    """A sink with its own topic, which writes the same rows again and again.

    write: replaces the function of this name in ``sinks.SINKS``
    markers: offsets that the job's transactions take besides its records
    """

    name: str
    frame: DataFrame
    rows_count: int
    target: Target
    topic: BenchTopic | None
    write: Callable[[DataFrame, Target], None] | None = None
    markers: int = 0

    def __post_init__(self) -> None:
        self._write = self.write or SINKS[self.name]
        self._processes = SparkProcesses(self.frame.sparkSession)

    def run(self) -> Run:
        """Run one job. Raise RuntimeError unless the topic has got every row once."""
        touch_memory(_TOUCHED_BYTES)
        before = self.topic.end_offsets() if self.topic else 0
        self._processes.reset_peaks()
        broker_before = self._broker_cpu_s()
        jvm_before, python_before = self._processes.cpu_s()
        started = time.perf_counter()
        self._write(self.frame, self.target)
        elapsed_s = time.perf_counter() - started
        jvm_after, python_after = self._processes.cpu_s()
        broker_cpu_s = self._broker_cpu_s() - broker_before
        used = {pid: s - python_before.get(pid, 0.0) for pid, s in python_after.items()}
        # Spark keeps the other contenders' workers too; ignore workers that were idle in this run.
        peak_mib = self._processes.peak_mib({pid for pid, s in used.items() if s > _IDLE_S})
        records, broker_bytes = self._written_since(before)
        return Run(
            round(elapsed_s, 4),
            round(jvm_after - jvm_before, 2),
            round(sum(used.values()), 2),
            round(peak_mib, 1),
            records,
            broker_bytes,
            round(broker_cpu_s, 2),
        )

    def _broker_cpu_s(self) -> float:
        return 0.0 if self.topic is None else cpu_seconds(self.topic.broker)

    def _written_since(self, before: int) -> tuple[int, int]:
        if self.topic is None:
            return 0, 0
        records = self.topic.end_offsets() - before - self.markers
        broker_bytes = self.topic.log_bytes()
        if records != self.rows_count:
            raise RuntimeError(f"{self.name} wrote {records} records of {self.rows_count} rows")
        self.topic.empty()
        return records, broker_bytes


def needs_topic(name: str) -> bool:
    """Return True if the contender writes to Kafka."""
    return name not in WRITES_NOTHING


def alternate(
    contenders: Sequence[Any],
    rounds: int,
    warmups: int,
    note: Callable[[str, Run], None] = lambda name, run: None,
) -> list[dict[str, Run]]:
    """Return ``rounds`` of one run each, A B C A B C …, after ``warmups`` that are not counted."""
    for _ in range(warmups):
        for contender in contenders:
            contender.run()
    measured = []
    for _ in range(rounds):
        runs = {}
        for contender in contenders:
            runs[contender.name] = contender.run()
            note(contender.name, runs[contender.name])
        measured.append(runs)
    return measured


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and extremes."""
    low, high = values[0], values[0]
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "median": round(statistics.median(values), 3),
        "q1": round(low, 3),
        "q3": round(high, 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def as_json(rounds: Sequence[Mapping[str, Run]]) -> list[dict[str, Any]]:
    """Return the measured values in the form of the results."""
    return [{name: asdict(run) for name, run in runs.items()} for runs in rounds]
