"""Measure the first job of a fresh session: new JVM, new Python workers, no compiled code.

    make wheel && python -m benchmarks.cold [--quick]

Each run is a process of its own; the sinks take turns. The session's start is not counted, because
it is the same for all. The contender ``INSTALLED`` is the first job of a new installation from the
wheel in dist/, which each run repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spark_kafka_sink
from benchmarks import harness
from benchmarks.measure import spread
from benchmarks.rows import make_rows
from benchmarks.sinks import COMMON_SETTINGS, SINKS, Target
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_ROWS = 4_000_000
_VALUE_BYTES = 100
_CODEC = "lz4"
_PARTITIONS = 6
_TIMEOUT_S = 600
INSTALLED = "ours, installed anew"
CONTENDERS = ("ours", INSTALLED, "jvm", "empty")
_ROOT = Path(__file__).resolve().parents[1]


def first_job(sink: str, target: Target, rows_count: int) -> dict[str, Any]:
    """Run in the child: return seconds of the session's start and first job, and the package."""
    started = time.perf_counter()
    with harness.spark_session() as spark:
        frame = make_rows(spark, rows_count, _VALUE_BYTES)
        ready = time.perf_counter()
        SINKS[sink](frame, target)
        done = time.perf_counter()
    times = {"session_s": round(ready - started, 3), "job_s": round(done - ready, 3)}
    return {**times, "package": str(Path(spark_kafka_sink.__file__).parent)}


def run_child(contender: str, target: Target, topic: BenchTopic, rows_count: int) -> float:
    """Return seconds of the first job. Raise RuntimeError unless the topic has every row once."""
    before = topic.end_offsets()
    sink = "ours" if contender == INSTALLED else contender
    given = json.dumps({"target": target._asdict(), "rows_count": rows_count})
    command = [sys.executable, "-m", "benchmarks.cold", "--child", sink, given]
    with tempfile.TemporaryDirectory() as folder:
        root = _installed_in(Path(folder)) if contender == INSTALLED else _ROOT
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{contender} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["package"] != str(root / "spark_kafka_sink"):
        raise RuntimeError(f"{contender} was {found['package']}")
    written = topic.end_offsets() - before
    if sink != "empty" and written != rows_count:
        raise RuntimeError(f"{contender} wrote {written} records of {rows_count} rows")
    topic.empty()
    return float(found["job_s"])


def _installed_in(folder: Path) -> Path:
    """Install the package from the wheel, with these benchmarks beside it."""
    (wheel,) = _ROOT.glob("dist/pykafka_sink-*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True)
    (folder / "benchmarks").symlink_to(_ROOT / "benchmarks")
    return folder


def measure(
    rounds_count: int, rows_count: int, contenders: Sequence[str] = CONTENDERS
) -> dict[str, Any]:
    """Run all turns; return their times and the ratios to the JVM sink's time."""
    settings = {**COMMON_SETTINGS, "compression.type": _CODEC}
    with LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka:
        topic = BenchTopic(kafka, _PARTITIONS)
        target = Target(kafka.bootstrap_servers, topic.name, settings)
        rounds = []
        for _ in range(rounds_count):
            turn = {sink: run_child(sink, target, topic, rows_count) for sink in contenders}
            print("  ".join(f"{sink} {seconds:.2f} s" for sink, seconds in turn.items()))
            sys.stdout.flush()
            rounds.append(turn)
    result = {
        "rows": rows_count,
        "value_bytes": _VALUE_BYTES,
        "settings": settings,
        "job_s": {sink: spread([turn[sink] for turn in rounds]) for sink in contenders},
        "ours_over": {
            other: spread([turn["ours"] / turn[other] for turn in rounds])
            for other in ("jvm", "empty")
        },
        "rounds": rounds,
    }
    if INSTALLED in contenders:
        ratios = [turn[INSTALLED] / turn["empty"] for turn in rounds]
        result["installed_over_empty"] = spread(ratios)
    return result


def main() -> int:
    """Run the command line. ``--child`` is for this program's own use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one turn, a quarter of the rows")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        sink, given = arguments.child[0], json.loads(arguments.child[1])
        print(json.dumps(first_job(sink, Target(**given["target"]), given["rows_count"])))
        return 0
    rounds_count = arguments.rounds or (1 if arguments.quick else 7)
    rows_count = arguments.rows or (_ROWS // 4 if arguments.quick else _ROWS)
    result = measure(rounds_count, rows_count)
    harness.save("cold_quick" if arguments.quick else "cold", result)
    print(f"ours / jvm {result['ours_over']['jvm']['median']}")
    print(f"installed anew / empty {result['installed_over_empty']['median']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
