"""Measure the cost of exactly-once delivery: throughput, commit time, producer ids.

    python -m benchmarks.exactly_once [--only throughput commit ids] [--quick]

- throughput: jobs write the same rows at least once and exactly once, in turn; the result is the
  ratio of each turn.
- commit: micro-batches of 8 tasks, in turn with at-least-once. The results are the sink's time of
  its commit (``commit_ms``), and Spark's time of the whole ``addBatch``.
- ids: the broker's producer states and the transactional ids, over many micro-batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness, sinks
from benchmarks.latency import p99
from benchmarks.measure import spread
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
GUARANTEES = (EXACTLY_ONCE, AT_LEAST_ONCE)
_SETTINGS = {**sinks.COMMON_SETTINGS, "compression.type": "lz4"}
_VALUE_BYTES = 100
_PARTITIONS = 6
_TASKS = 2
_COMMIT_TASKS = 8
_COMMIT_BROKERS = 3
_ROWS_PER_TASK = 100
_WARMUPS = 5
_TIMEOUT_S = 3600.0
_NAME = "exactly_once"
_RATIO = 0.9
_MOST_COMMIT_MS = 100


def options_of(guarantee: str, kafka: LocalKafka, topic: str) -> dict[str, str]:
    """Return the sink's options. The prefix of transactional ids is the topic's name."""
    options = sinks.Target(kafka.bootstrap_servers, topic, _SETTINGS).options()
    options.update({"delivery.guarantee": guarantee, "metrics.log": "false"})
    if guarantee == EXACTLY_ONCE:
        replicas = min(3, len(kafka.broker_ids))
        options["transactional.id.prefix"] = topic
        options["transaction.log.replication.factor"] = str(replicas)
    return options


# --- throughput ---------------------------------------------------------------------------------


class Job:
    """Writes the same rows again and again with one guarantee, to its own topic."""

    def __init__(self, guarantee: str, kafka: LocalKafka, frame: DataFrame, rows: int) -> None:
        self._topic = BenchTopic(kafka, _PARTITIONS)
        self._options = options_of(guarantee, kafka, self._topic.name)
        self._frame = frame
        self._rows = rows
        # Each transaction ends with a marker in each partition that it has written to.
        self._markers = _TASKS * _PARTITIONS if guarantee == EXACTLY_ONCE else 0

    def seconds(self) -> float:
        """Return the time of one job. Raise RuntimeError unless the topic has got every row."""
        before = self._topic.end_offsets()
        started = time.perf_counter()
        writer = self._frame.write.format(sinks.OURS_FORMAT).mode("append")
        writer.options(**self._options).save()
        elapsed_s = time.perf_counter() - started
        written = self._topic.end_offsets() - before
        if not self._rows <= written <= self._rows + self._markers:
            raise RuntimeError(f"{written} records and markers of {self._rows} rows")
        self._topic.empty()
        return elapsed_s


def throughput(rows: int, pairs: int) -> dict[str, Any]:
    """Measure elapsed time at-least-once over exactly-once: the throughput that remains."""
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        harness.spark_session() as spark,
    ):
        frame = make_rows(spark, rows, _VALUE_BYTES, tasks=_TASKS)
        jobs = {guarantee: Job(guarantee, kafka, frame, rows) for guarantee in GUARANTEES}
        turns = []
        for turn in range(pairs + 1):
            # The guarantees take turns in going first.
            order = GUARANTEES if turn % 2 else GUARANTEES[::-1]
            seconds = {guarantee: jobs[guarantee].seconds() for guarantee in order}
            print(json.dumps({name: round(s, 2) for name, s in seconds.items()}), flush=True)
            turns.append(seconds)
    warm = turns[1:]
    return {
        "rows": rows,
        "value_bytes": _VALUE_BYTES,
        "settings": _SETTINGS,
        "seconds": {g: spread([turn[g] for turn in warm]) for g in GUARANTEES},
        "ratio": spread([turn[AT_LEAST_ONCE] / turn[EXACTLY_ONCE] for turn in warm]),
    }


# --- micro-batches ------------------------------------------------------------------------------


def run_query(
    spark: SparkSession,
    options: dict[str, str],
    tasks: int,
    micro_batches: int,
    look: Callable[[int], None] = lambda batch_id: None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run a query of so many micro-batches; return commit lines and ms of each ``addBatch``.

    look: called regularly with the number of micro-batches so far
    """
    rows = spark.readStream.format("rate-micro-batch").option("numPartitions", str(tasks))
    frame = rows.option("rowsPerBatch", str(tasks * _ROWS_PER_TASK)).load()
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        query = (
            frame.selectExpr(f"repeat('x', {_VALUE_BYTES}) as value")
            .writeStream.format(sinks.OURS_FORMAT)
            .options(**options)
            .option("metrics.path", str(metrics))
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        took: dict[int, int] = {}
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            while len(took) < micro_batches:
                if query.awaitTermination(1):
                    raise RuntimeError(f"the query ended: {query.exception()}")
                took.update({p.batchId: p.durationMs["addBatch"] for p in query.recentProgress})
                look(len(took))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(took)} micro-batches within {_TIMEOUT_S} s")
        finally:
            query.stop()
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    # The end of the query interrupts the last micro-batch.
    lines = [line for line in lines if line["event"] == "commit"]
    return lines, [took[batch_id] for batch_id in sorted(took)]


def commit(rounds: int, micro_batches: int) -> dict[str, Any]:
    """Measure commit_ms, and what exactly-once adds to a micro-batch: 3 brokers, 8 tasks."""
    commits: list[float] = []
    added: dict[str, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    with (
        LocalKafka(_COMMIT_BROKERS) as kafka,
        harness.spark_session(**harness.SOCKETS) as spark,
    ):
        # The first turn warms up the JVM, and is not counted.
        for turn in range(rounds + 1):
            for guarantee in GUARANTEES if turn % 2 else GUARANTEES[::-1]:
                topic = BenchTopic(kafka, _PARTITIONS).name
                lines, took = run_query(
                    spark,
                    options_of(guarantee, kafka, topic),
                    _COMMIT_TASKS,
                    _WARMUPS + micro_batches,
                )
                if not turn:
                    continue
                added[guarantee].append(statistics.median(took[_WARMUPS:]))
                if guarantee == EXACTLY_ONCE:
                    commits += [line["commit_ms"] for line in lines[_WARMUPS:]]
            print(json.dumps({name: p50s[-1:] for name, p50s in added.items()}), flush=True)
    pairs = zip(added[EXACTLY_ONCE], added[AT_LEAST_ONCE], strict=True)
    return {
        "brokers": _COMMIT_BROKERS,
        "tasks": _COMMIT_TASKS,
        "micro_batches": len(commits),
        "commit_ms": {"p50": statistics.median(commits), "p99": round(p99(commits), 1)},
        "add_batch_p50_ms": {name: spread(p50s) for name, p50s in added.items()},
        "added_ms": spread([exactly - at_least for exactly, at_least in pairs]),
    }


def ids(micro_batches: int) -> dict[str, Any]:
    """Count producer ids in one partition and transactional ids, ten times over the run."""
    seen: list[dict[str, int]] = []
    with LocalKafka() as kafka, harness.spark_session() as spark:
        topic = BenchTopic(kafka, 1).name

        def look(count: int) -> None:
            if count >= (len(seen) + 1) * micro_batches // 10:
                seen.append({"micro_batches": count, **_known_ids(kafka, topic)})
                print(json.dumps(seen[-1]), flush=True)

        options = options_of(EXACTLY_ONCE, kafka, topic)
        lines, _ = run_query(spark, options, _TASKS, micro_batches, look)
    return {"micro_batches": len(lines), "seen": seen}


def _known_ids(kafka: LocalKafka, topic: str) -> dict[str, int]:
    """Return the ids that Kafka's own tool lists."""
    tool = ("TransactionsCommand", "--bootstrap-server", kafka.bootstrap_servers)
    producers = kafka.run_tool(
        *tool, "describe-producers", "--topic", topic, "--partition", "0"
    ).splitlines()
    transactions = kafka.run_tool(*tool, "list").splitlines()
    return {
        "producer_ids": sum(line[:1].isdigit() for line in producers),
        "transactional_ids": sum(line.startswith(f"{topic}.") for line in transactions),
    }


# --- all of it ----------------------------------------------------------------------------------


def wrong(results: dict[str, Any]) -> list[str]:
    """Return the missed targets."""
    missed = []
    if "throughput" in results:
        ratio = results["throughput"]["ratio"]["median"]
        if ratio < _RATIO:
            missed.append(f"records/s, exactly-once / at-least-once: {ratio}, wanted {_RATIO}")
    if "commit" in results:
        commit_ms = results["commit"]["commit_ms"]["p50"]
        if commit_ms > _MOST_COMMIT_MS:
            missed.append(f"commit, p50: {commit_ms:.0f} ms, wanted {_MOST_COMMIT_MS}")
    seen = results.get("ids", {}).get("seen", [])
    for name in ("producer_ids", "transactional_ids"):
        counts = [at[name] for at in seen]
        if max(counts, default=0) > min(counts[:1], default=0):
            missed.append(f"{name} on the broker grow: {counts}")
    return missed


def main() -> int:
    """Run the command line; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["throughput", "commit", "ids"])
    parser.add_argument("--quick", action="store_true", help="small, and kept apart")
    arguments = parser.parse_args()
    quick = arguments.quick
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "throughput": lambda: throughput(400_000 if quick else 4_000_000, 3 if quick else 7),
        "commit": lambda: commit(1 if quick else 5, 20 if quick else 60),
        "ids": lambda: ids(100 if quick else 1_000),
    }
    name = f"{_NAME}_quick" if quick else _NAME
    kept = {part: value for part, value in harness.load(name).items() if part in parts}
    for part in arguments.only:
        kept[part] = parts[part]()
        path = harness.save(name, kept)
    print(path.read_text(encoding="utf-8"))
    lines = wrong(kept)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
