"""Measure ``addBatch`` of micro-batches of one row with a trigger of 1 s.

    python -m benchmarks.latency [--quick]

Queries of the three sinks take turns. The first micro-batches of each query, which start workers
and connections, are omitted. Spark itself reports ``addBatch`` in StreamingQueryProgress: planning
the write, running its task, committing it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.empty_sink import NAME as EMPTY_SINK
from benchmarks.empty_sink import EmptySink
from benchmarks.measure import spread
from benchmarks.sinks import JVM_FORMAT, OURS_FORMAT, Target
from benchmarks.topics import BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

FORMATS = {"ours": OURS_FORMAT, "empty": EMPTY_SINK, "jvm": JVM_FORMAT}
_SETTINGS = {"acks": "all", "linger.ms": "0"}
_WARMUPS = 3
_TIMEOUT_S = 120
_PHASES = ("addBatch", "queryPlanning", "walCommit", "commitOffsets", "triggerExecution")


def micro_batches(
    spark: SparkSession,
    sink: str,
    target: Target,
    count: int,
    more: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Return ms by phase of ``count`` micro-batches, after the warm-up.

    more: options for ours alone
    """
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1")
    frame = rows.option("numPartitions", "1").load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.selectExpr("cast(value as string) as value").writeStream
        writer = writer.format(FORMATS[sink]).option("checkpointLocation", checkpoint)
        if sink != "empty":
            writer = writer.options(**target.options())
        if sink == "ours":
            writer = writer.options(**{"metrics.log": "false", **more})
        query = writer.trigger(processingTime="1 second").start()
        try:
            progress = _await_progress(query, _WARMUPS + count)
        finally:
            query.stop()
    return [{phase: p.durationMs[phase] for phase in _PHASES} for p in progress[_WARMUPS:]]


def _await_progress(query: Any, count: int) -> list[Any]:
    """Return the first ``count`` reports of micro-batches that had a row."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        found = [progress for progress in query.recentProgress if progress.numInputRows]
        if len(found) >= count:
            return found[:count]
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        time.sleep(0.2)
    raise TimeoutError(f"{count} micro-batches took more than {_TIMEOUT_S} s")


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile; with fewer than a hundred values, nearly the largest."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def summarize(rounds: list[dict[str, list[dict[str, int]]]]) -> dict[str, Any]:
    """Return p50 and p99 by sink over all rounds, and differences to ours, round by round."""
    phases = {
        sink: {
            phase: {"p50": statistics.median(values), "p99": round(p99(values), 1)}
            for phase in _PHASES
            if (values := [batch[phase] for turn in rounds for batch in turn[sink]])
        }
        for sink in FORMATS
    }
    differences = {}
    for other in ("empty", "jvm"):
        pairs = [(_p50(turn["ours"]), _p50(turn[other])) for turn in rounds]
        differences[f"ours - {other}"] = spread([ours - theirs for ours, theirs in pairs])
    return {"phases_ms": phases, "add_batch_p50_ms": differences}


def _p50(batches: list[dict[str, int]]) -> float:
    return statistics.median(batch["addBatch"] for batch in batches)


def measure(rounds_count: int, batches_count: int) -> dict[str, Any]:
    """Run all rounds; return p50 and p99 of each sink, and every micro-batch."""
    rounds = []
    with LocalKafka() as kafka, harness.spark_session(**harness.SOCKETS) as spark:
        spark.dataSource.register(EmptySink)
        topics = {sink: BenchTopic(kafka, 1).name for sink in FORMATS if sink != "empty"}
        for _ in range(rounds_count):
            turn = {}
            for sink in FORMATS:
                target = Target(kafka.bootstrap_servers, topics.get(sink, ""), _SETTINGS)
                turn[sink] = micro_batches(spark, sink, target, batches_count)
                print(f"{sink:6} addBatch p50 {_p50(turn[sink]):.0f} ms", flush=True)
            rounds.append(turn)
    return {"rounds": rounds_count, "batches": batches_count, **summarize(rounds), "runs": rounds}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1 round of 6 micro-batches")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--batches", type=int, help="micro-batches per query")
    arguments = parser.parse_args()
    rounds_count = arguments.rounds or (1 if arguments.quick else 7)
    batches_count = arguments.batches or (6 if arguments.quick else 15)
    result = measure(rounds_count, batches_count)
    harness.save("latency_quick" if arguments.quick else "latency", result)
    for name, difference in result["add_batch_p50_ms"].items():
        print(f"{name}: {difference['median']:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
