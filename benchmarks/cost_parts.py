"""The parts of benchmarks.cost beside its points, each by the program that measures it at length.

Each part takes the rounds, and a divisor of its rows that is above 1 in a quick run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import cold, exactly_once, harness, latency, memory, memory_typed, tls
from benchmarks.rows import make_rows, write_flights
from benchmarks.topics import SERVER_PROPERTIES
from spark_kafka_sink.localkafka import LocalKafka

_MICRO_BATCHES = 15
_COMMITS = 20
_FIRST_JOB_ROWS = 4_000_000
_FIRST_JOB_SINKS = ("ours", "jvm", "empty")
_TLS_SINKS = ("ours", "jvm")
_RAW_POINTS = (
    *(memory.MemoryPoint(buffer_mib=mib) for mib in (32, 8, 128)),
    memory.MemoryPoint(value_bytes=10_000),
)
Part = Callable[[int, int], dict[str, Any]]


def micro_batch(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure micro-batches of one row."""
    return latency.measure(rounds, max(2, _MICRO_BATCHES // divisor))


def first_job(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure the first job of a new session."""
    return cold.measure(rounds, _FIRST_JOB_ROWS // divisor, _FIRST_JOB_SINKS)


def worker_memory(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure the peaks of a worker once, because they hardly vary; quick: of typed rows only."""
    points = []
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        write_flights(Path(folder, "flights"), memory_typed.ROWS)
        typed = memory_typed.TypedPoint("json", 10_000)
        points.append(memory_typed.measure_point(kafka, typed, Path(folder)))
        for raw in _RAW_POINTS if divisor == 1 else ():
            points.append(memory.measure_point(kafka, raw))
    return {"points": points}


def with_tls(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure this sink and Spark's JVM sink, with TLS and without."""
    points = {}
    with tls.secured_kafka() as kafka, harness.spark_session(**harness.SOCKETS) as spark:
        for value_bytes, count in tls.ROWS.items():
            rows = count // divisor
            frame = make_rows(spark, rows, value_bytes)
            points[str(value_bytes)] = tls.measure(kafka, frame, rows, rounds, _TLS_SINKS)
    return {"points": points}


def commits(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure what exactly-once adds to a micro-batch."""
    return exactly_once.commit(rounds, max(2, _COMMITS // divisor))


PARTS: Mapping[str, Part] = {
    "micro-batch": micro_batch,
    "first-job": first_job,
    "memory": worker_memory,
    "tls": with_tls,
    "commits": commits,
}
"""The names for ``--only``, which are also the keys in the results."""
