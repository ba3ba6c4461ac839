"""Run the matrix: every point's contenders in turn, A B C A B C …, in the point's own session.

    python -m benchmarks.matrix [--quick] [--pairs 7] [--only 100B-lz4 …] [--resume]

Writes benchmarks/results/matrix.json after each point, so a run may be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness, sinks
from benchmarks.limits import limits_of
from benchmarks.measure import Contender, alternate, as_json, compare, needs_topic
from benchmarks.points import POINTS, QUICK, Point
from benchmarks.producer_performance import NAME as PRODUCER_PERFORMANCE
from benchmarks.producer_performance import ProducerPerformance
from benchmarks.rows import KEY_BYTES, make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_QUICK_SCALE = 0.25
_QUICK_PAIRS = 3
_FULL_PAIRS = 7


def largest_arrow_batch(frame: DataFrame) -> int:
    """Return the bytes of the largest Arrow batch of a task."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        sinks.empty(frame, report_path=str(report))
        return int(json.loads(report.read_text(encoding="utf-8"))["largest_arrow_batch_bytes"])


def make_contenders(
    kafka: LocalKafka, frame: DataFrame, point: Point, rows_count: int
) -> tuple[list[Any], list[BenchTopic]]:
    """Return each contender with its own topic. The caller deletes the topics."""
    contenders: list[Any] = []
    topics = []
    row_bytes = point.value_bytes + KEY_BYTES[point.key]
    for name in point.contenders:
        topic = BenchTopic(kafka, point.partitions) if needs_topic(name) else None
        if topic is not None:
            topics.append(topic)
        if name == PRODUCER_PERFORMANCE:
            assert topic is not None
            contender: Any = ProducerPerformance(
                kafka, frame, row_bytes, rows_count, point.settings(), topic
            )
        else:
            topic_name = "" if topic is None else topic.name
            target = sinks.Target(kafka.bootstrap_servers, topic_name, point.settings())
            contender = Contender(name, frame, rows_count, target, topic)
        contenders.append(contender)
    return contenders, topics


def measure_point(
    kafka: LocalKafka, spark: SparkSession, point: Point, pairs: int, scale: float
) -> dict[str, Any]:
    """Run all rounds of a point; return their summary."""
    rows_count = point.rows_count(scale)
    frame = make_rows(spark, rows_count, point.value_bytes, point.key, point.headers)
    row_bytes = point.value_bytes + KEY_BYTES[point.key]
    started, load = time.perf_counter(), os.getloadavg()[0]
    arrow_bytes = largest_arrow_batch(frame)
    limits = limits_of(frame, row_bytes, rows_count, point.codec)
    contenders, topics = make_contenders(kafka, frame, point, rows_count)
    try:
        rounds = alternate(contenders, pairs, warmups=1)
    finally:
        for topic in topics:
            topic.delete()
    return {
        "point": {**point.as_json(), "rows": rows_count},
        "load_before": round(load, 2),
        "took_s": round(time.perf_counter() - started, 1),
        "largest_arrow_batch_bytes": arrow_bytes,
        "limits": limits,
        "ratios": compare(rounds),
        "rounds": as_json(rounds),
    }


def _line(name: str, result: dict[str, Any]) -> str:
    """Return a line of progress."""
    ratios = (
        f"{other} / ours {ratio['elapsed']['median']:.2f}"
        for other, ratio in result["ratios"].items()
    )
    return f"{name:28} {result['took_s']:6.1f} s   {'   '.join(ratios)}"


def select(quick: bool, only: Sequence[str]) -> list[Point]:
    """Return the points whose name matches one of ``only`` (shell patterns), if given."""
    points = [point for point in POINTS if not quick or point.name in QUICK]
    return [p for p in points if not only or any(fnmatchcase(p.name, like) for like in only)]


def run(arguments: argparse.Namespace) -> None:
    """Measure the selected points, one after the other."""
    name = arguments.output or ("matrix_quick" if arguments.quick else "matrix")
    conf = dict(pair.split("=", 1) for pair in arguments.conf)
    kept = harness.load(name).get("points", {}) if arguments.resume or arguments.only else {}
    pairs = arguments.pairs or (_QUICK_PAIRS if arguments.quick else _FULL_PAIRS)
    scale = arguments.scale or (_QUICK_SCALE if arguments.quick else 1.0)
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        for point in select(arguments.quick, arguments.only):
            if arguments.resume and point.name in kept:
                continue
            with harness.spark_session(**{**conf, **point.spark_conf()}) as spark:
                kept[point.name] = measure_point(kafka, spark, point, pairs, scale)
            print(_line(point.name, kept[point.name]), flush=True)
            result = {"kafka": kafka.version, "spark_conf": conf, "pairs": pairs, "points": kept}
            harness.save(name, result)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few points, few rows, 3 pairs")
    parser.add_argument("--pairs", type=int, help="measured pairs per point")
    parser.add_argument("--scale", type=float, help="rows, as a multiple of the usual number")
    parser.add_argument(
        "--only", nargs="+", default=[], help="points with such names: 100B-lz4, '1KB*'"
    )
    parser.add_argument("--resume", action="store_true", help="leave out points that are there")
    parser.add_argument("--conf", nargs="+", default=[], metavar="NAME=VALUE", help="Spark's")
    parser.add_argument("--output", help="name of the results, without .json")
    parser.add_argument("--list", action="store_true", help="say which points there are")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(point.name for point in select(arguments.quick, arguments.only)))
        return 0
    run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
