"""Measure how the cost of a job grows: with partitions, topics, tasks, rows and headers.

    python -m benchmarks.growth [--axes topics tasks] [--pairs 3] [--resume]

Along an axis one thing grows while the rest stays as it is: rows of 100 B with keys like UUIDs,
cached in Spark, lz4, 6 partitions, 2 tasks. This sink, Spark's JVM sink, and Spark's JVM sink with
buffers of 256 MB take turns. On the axes of tasks, an empty Python sink takes turns, too. 32 MB
hold 256 batches of 128 KB: some points have more partitions.

Writes benchmarks/results/growth.json after each point, so a run may be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks import harness, sinks
from benchmarks.cached import JOBS_CONF
from benchmarks.measure import Contender, Run, alternate, as_json, compare
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

SETTINGS = {**sinks.COMMON_SETTINGS, "compression.type": "lz4"}
LARGE_BUFFER = "jvm, 256 MB"
CONTENDERS = {
    "ours": (sinks.ours, SETTINGS),
    "jvm": (sinks.jvm, SETTINGS),
    LARGE_BUFFER: (sinks.jvm, {**SETTINGS, "buffer.memory": str(256 << 20)}),
}
EMPTY = "empty"
_WITH_EMPTY = ("tasks", "small tasks")
"""Axes on which the empty Python sink takes turns, too: it shows what Spark needs for a task."""
_VALUE_BYTES = 100
_SMALL_TASK_ROWS = 100
_PAIRS = 3
_WARMUPS = 1


@dataclass(frozen=True)
class Load:
    """One point of an axis. ``partitions``: of each topic."""

    partitions: int = 6
    topics: int = 1
    tasks: int = 2
    rows: int = 2_000_000
    headers: int = 0


AXES: Mapping[str, Mapping[int, Load]] = {
    "partitions": {n: Load(partitions=n) for n in (1, 10, 100, 1_000, 2_000)},
    "topics": {n: Load(topics=n, partitions=1) for n in (1, 10, 100, 500)},
    "tasks": {n: Load(tasks=n) for n in (1, 2, 16, 64, 256)},
    "small tasks": {n: Load(tasks=n, rows=n * _SMALL_TASK_ROWS) for n in (1, 8, 64, 200, 256)},
    "rows": {n: Load(rows=n) for n in (100_000, 1_000_000, 4_000_000, 8_000_000)},
    "headers": {n: Load(headers=n, rows=1_000_000) for n in (0, 1, 10)},
}


@contextmanager
def rows_of(spark: SparkSession, load: Load) -> Iterator[DataFrame]:
    """Yield the cached rows, with the number of their topic as ``number``."""
    made = make_rows(spark, load.rows, _VALUE_BYTES, "long", tasks=load.tasks)
    if load.headers:
        header = F.struct(F.lit("trace").alias("key"), F.col("key").alias("value"))
        made = made.withColumn("headers", F.array(*[header] * load.headers))
    made = made.withColumn("number", F.pmod(F.xxhash64("key"), F.lit(load.topics)))
    cached = made.persist(StorageLevel.MEMORY_ONLY)
    try:
        assert cached.count() == load.rows
        yield cached
    finally:
        cached.unpersist(blocking=True)


def measure_load(
    kafka: LocalKafka, spark: SparkSession, load: Load, pairs: int, with_empty: bool
) -> list[dict[str, Run]]:
    """Run all rounds of a point."""
    contenders, topics = [], []
    with rows_of(spark, load) as frame:
        try:
            for name, (write, settings) in CONTENDERS.items():
                topic = BenchTopic(kafka, load.partitions, load.topics)
                topics.append(topic)
                own, fixed = frame.drop("number"), topic.name
                if load.topics > 1:
                    column = F.concat(F.lit(f"{topic.name}-"), F.col("number"))
                    own, fixed = frame.withColumn("topic", column).drop("number"), ""
                target = sinks.Target(kafka.bootstrap_servers, fixed, settings)
                contenders.append(Contender(name, own, load.rows, target, topic, write))
            if with_empty:
                nowhere = sinks.Target(kafka.bootstrap_servers, "", SETTINGS)
                contenders.append(
                    Contender(EMPTY, frame.drop("number"), load.rows, nowhere, None, sinks.empty)
                )
            return alternate(contenders, pairs, _WARMUPS)
        finally:
            for topic in topics:
                topic.delete()


def table(points: Mapping[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        "| axis | | ours, s | JVM sink / ours | the same with 256 MB | CPU, ours / JVM sink "
        "| ours / empty sink |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for axis, axis_points in points.items():
        for number, point in axis_points.items():
            ours_s = statistics.median(runs["ours"]["elapsed_s"] for runs in point["rounds"])
            ratios = point["ratios"]
            cells = [
                f"{ratios[name]['elapsed']['median']:.2f} ({ratios[name]['elapsed']['min']:.2f} to "
                f"{ratios[name]['elapsed']['max']:.2f})"
                for name in ("jvm", LARGE_BUFFER)
            ]
            cells.append(f"{ratios['jvm']['cpu']['median']:.2f}")
            over_empty = [
                runs["ours"]["elapsed_s"] / runs[EMPTY]["elapsed_s"]
                for runs in point["rounds"]
                if EMPTY in runs
            ]
            cells.append(f"{statistics.median(over_empty):.2f}" if over_empty else "")
            lines.append(f"| {axis} | {int(number):,} | {ours_s:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    parser.add_argument("--resume", action="store_true", help="leave out points that are there")
    parser.add_argument("--output", default="growth", help="name of the results, without .json")
    arguments = parser.parse_args()
    points: dict[str, Any] = harness.load(arguments.output).get("points", {})
    if not arguments.resume:
        points = {axis: found for axis, found in points.items() if axis not in arguments.axes}
    with LocalKafka(heap="2g", server_properties=SERVER_PROPERTIES) as kafka:
        for axis in arguments.axes:
            for number, load in AXES[axis].items():
                if str(number) in points.setdefault(axis, {}):
                    continue
                few = max(load.tasks, int(load.rows * arguments.scale))
                load = replace(load, rows=few)
                with harness.spark_session(**JOBS_CONF) as spark:
                    rounds = measure_load(kafka, spark, load, arguments.pairs, axis in _WITH_EMPTY)
                points[axis][str(number)] = {
                    "load": asdict(load),
                    "ratios": compare(rounds),
                    "rounds": as_json(rounds),
                }
                print(
                    table({axis: {number: points[axis][str(number)]}}).splitlines()[-1], flush=True
                )
                harness.save_points(arguments.output, kafka.version, JOBS_CONF, points)
    print(table(points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
