"""Measure points of the matrix with rows that cost nothing: cached in Spark, or from Parquet.

    python -m benchmarks.cached [--points 1KB-lz4-key36 '10KB*'] [--pairs 7] [--parquet] [--resume]

Ours, Spark's JVM sink and a sink at no cost take turns in one session. The sink at no cost is the
empty Python sink, which drops the same Arrow batches. Ours / the sink at no cost is the part that a
sink in Python can influence. CPU is reported for Spark's JVM, Python and the broker.

Writes benchmarks/results/cached.json after each point, so a run may be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness
from benchmarks.matrix import make_contenders
from benchmarks.measure import Run, alternate, as_json, compare, spread
from benchmarks.points import Point
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES
from spark_kafka_sink.config.security_config import REGEX_OPTION
from spark_kafka_sink.jobs.settings import defaults_of_jobs
from spark_kafka_sink.localkafka import LocalKafka

POINTS = (
    Point(10, "zstd"),
    Point(100, "lz4"),
    Point(100, "none"),
    Point(1_000, "none"),
    Point(1_000, "lz4", "long"),
    Point(1_000, "lz4", "long", partitions=100),
    Point(10_000, "none"),
    Point(10_000, "lz4"),
)
JOBS_CONF = defaults_of_jobs(lambda name: name == REGEX_OPTION)
"""Settings of the jobs that change how Spark passes rows on: small Arrow batches, Unix sockets."""
# At most 600 MB, so that Spark's memory holds all rows and the broker's memory the topic.
_ROWS = {10: 4_000_000, 100: 4_000_000, 1_000: 500_000, 10_000: 60_000}
_TASKS = 2
_PAIRS = 7
_WARMUPS = 2
_PARTS = ("jvm_cpu_s", "python_cpu_s", "broker_cpu_s")


@contextmanager
def rows_at_hand(spark: SparkSession, point: Point, is_parquet: bool) -> Iterator[DataFrame]:
    """Yield the rows of ``point``, produced before any sink writes them."""
    assert point.rows is not None
    made = make_rows(spark, point.rows, point.value_bytes, point.key, tasks=_TASKS)
    if is_parquet:
        with tempfile.TemporaryDirectory() as folder:
            files = str(Path(folder, "rows"))
            made.write.parquet(files)
            yield spark.read.parquet(files)
        return
    cached = made.persist(StorageLevel.MEMORY_ONLY)
    try:
        assert cached.count() == point.rows
        yield cached
    finally:
        cached.unpersist(blocking=True)


def cpu_of(rounds: Sequence[Mapping[str, Run]]) -> dict[str, dict[str, float]]:
    """Return the median seconds of each part by contender; without a topic, the broker's is 0."""
    return {
        name: {
            "elapsed_s": statistics.median(runs[name].elapsed_s for runs in rounds),
            **{p: statistics.median(getattr(r[name], p) for r in rounds) for p in _PARTS},
        }
        for name in rounds[0]
    }


def measure_point(
    kafka: LocalKafka, spark: SparkSession, point: Point, pairs: int, is_parquet: bool
) -> dict[str, Any]:
    """Run all rounds of a point; return their summary."""
    started = time.perf_counter()
    with rows_at_hand(spark, point, is_parquet) as frame:
        contenders, topics = make_contenders(kafka, frame, point, point.rows or 0)
        try:
            rounds = alternate(contenders, pairs, warmups=_WARMUPS)
        finally:
            for topic in topics:
                topic.delete()
    over_empty = [runs["ours"].elapsed_s / runs["empty"].elapsed_s for runs in rounds]
    cpu = [runs["ours"].cpu_s / runs["jvm"].cpu_s for runs in rounds]
    return {
        "point": point.as_json(),
        "took_s": round(time.perf_counter() - started, 1),
        "jvm_over_ours": compare(rounds)["jvm"]["elapsed"],
        "ours_over_empty": spread(over_empty),
        "cpu_ours_over_jvm": spread(cpu),
        "seconds": cpu_of(rounds),
        "rounds": as_json(rounds),
    }


def _line(name: str, result: dict[str, Any]) -> str:
    """Return a line of progress."""
    ratios = "   ".join(
        f"{what} {result[key]['median']:.2f} ({result[key]['min']:.2f} to {result[key]['max']:.2f})"
        for what, key in (
            ("JVM sink / ours", "jvm_over_ours"),
            ("ours / at no cost", "ours_over_empty"),
            ("CPU, ours / JVM sink", "cpu_ours_over_jvm"),
        )
    )
    seconds = "   ".join(
        f"{contender} {figures['elapsed_s']:.2f} s = "
        + " + ".join(f"{figures[part]:.2f}" for part in _PARTS)
        for contender, figures in result["seconds"].items()
    )
    return f"{name:20} {result['took_s']:6.1f} s   {ratios}\n{'':20} {seconds}"


def select(patterns: Sequence[str]) -> list[Point]:
    """Return the points whose name matches one of ``patterns``, or all without patterns."""
    points = [replace(point, rows=_ROWS[point.value_bytes]) for point in POINTS]
    return [p for p in points if not patterns or any(fnmatchcase(p.name, x) for x in patterns)]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", nargs="+", default=[], help="with such names: '1KB*'")
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--parquet", action="store_true", help="rows from Parquet, not cached")
    parser.add_argument("--resume", action="store_true", help="leave out points that are there")
    parser.add_argument(
        "--conf", nargs="+", default=[], metavar="NAME=VALUE", help="Spark's, in place of the jobs'"
    )
    parser.add_argument("--output", help="name of the results, without .json")
    arguments = parser.parse_args()
    name = arguments.output or ("parquet" if arguments.parquet else "cached")
    conf = dict(pair.split("=", 1) for pair in arguments.conf) or dict(JOBS_CONF)
    kept = harness.load(name).get("points", {}) if arguments.resume or arguments.points else {}
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        for point in select(arguments.points):
            if arguments.resume and point.name in kept:
                continue
            with harness.spark_session(**conf) as spark:
                kept[point.name] = measure_point(
                    kafka, spark, point, arguments.pairs, arguments.parquet
                )
            print(_line(point.name, kept[point.name]), flush=True)
            harness.save_points(name, kafka.version, conf, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
