"""Measure how Spark's own settings change the hand-over from JVM to Python, and the whole job.

    python -m benchmarks.settings [--only pipelined …] [--sizes 100 1000] [--rounds 7]

Some settings need a new session, so each run has its own. In each round every variant takes its
turn after a warm-up, and is compared with the defaults of the same round. `empty` is the floor,
`ours` the job that users see.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import harness, sinks
from benchmarks.measure import Contender, Run, as_json, spread
from benchmarks.points import Point
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

DEFAULTS = "defaults"
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BUFFER = "spark.sql.execution.python.udf.buffer.size"
_UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
_PIPELINED = {"spark.python.udf.pipelined.enabled": "true"}
VARIANTS: dict[str, Mapping[str, str]] = {
    DEFAULTS: {},
    "unix sockets": _UNIX_SOCKETS,
    "pipelined": _PIPELINED,
    **{f"buffer {kib} KiB": {_BUFFER: str(kib << 10)} for kib in (256, 1024)},
    **{f"arrow rows {rows}": {_ARROW_ROWS: str(rows)} for rows in (1_000, 2_000, 5_000, 20_000)},
    **{f"arrow bytes {mib} MiB": {_ARROW_BYTES: f"{mib}m"} for mib in (1, 4)},
    "unix sockets, buffer 256 KiB": {**_UNIX_SOCKETS, _BUFFER: str(256 << 10)},
}
_SINKS = ("empty", "ours")
# The JVM compiles frequent code; without a warm-up, the first variant would pay for it.
_WARMUPS = 2


def run_variant(kafka: LocalKafka, point: Point, conf: Mapping[str, str]) -> dict[str, Run]:
    """Return one measured run of each sink, in its own session."""
    rows_count = point.rows_count(1.0)
    topic = BenchTopic(kafka, point.partitions)
    target = sinks.Target(kafka.bootstrap_servers, topic.name, point.settings())
    with harness.spark_session(**conf) as spark:
        frame = make_rows(spark, rows_count, point.value_bytes)
        warm_up = make_rows(spark, rows_count // 4, point.value_bytes)
        runs = {}
        for name in _SINKS:
            sinks.SINKS[name](warm_up, target)
            if name != "empty":
                topic.empty()
            written = None if name == "empty" else topic
            runs[name] = Contender(name, frame, rows_count, target, written).run()
    topic.delete()
    return runs


def against_defaults(rounds: list[dict[str, dict[str, Run]]]) -> dict[str, Any]:
    """Return elapsed time over that with the defaults, by variant and sink: below 1 is faster."""
    return {
        variant: {
            sink: spread([r[variant][sink].elapsed_s / r[DEFAULTS][sink].elapsed_s for r in rounds])
            for sink in _SINKS
        }
        for variant in sorted(rounds[0], key=list(VARIANTS).index)
    }


def rotated(names: list[str], turn: int) -> list[str]:
    """Rotate the names, so that another variant starts each round."""
    first = turn % len(names)
    return names[first:] + names[:first]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--rows", type=int, help="rows of a run")
    parser.add_argument("--only", nargs="+", default=[], help="variants whose name contains this")
    arguments = parser.parse_args()
    wanted = arguments.only
    variants = {
        name: conf
        for name, conf in VARIANTS.items()
        if name == DEFAULTS or not wanted or any(part in name for part in wanted)
    }
    kept = harness.load("settings").get("points", {})
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        for size in arguments.sizes:
            point = Point(size, arguments.codec, rows=arguments.rows)
            rounds = []
            for _ in range(_WARMUPS):
                run_variant(kafka, point, {})
            for turn in range(arguments.rounds):
                names = rotated(list(variants), turn)
                rounds.append({v: run_variant(kafka, point, variants[v]) for v in names})
            compared = against_defaults(rounds)
            runs = {v: as_json([r[v] for r in rounds]) for v in variants}
            kept[point.name] = {"over_defaults": compared, "runs": runs}
            harness.save("settings", {"variants": VARIANTS, "points": kept})
            for name, ratios in compared.items():
                medians = "  ".join(f"{sink} {ratios[sink]['median']:.2f}" for sink in _SINKS)
                print(f"{point.name:10} {name:30} × {medians}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
