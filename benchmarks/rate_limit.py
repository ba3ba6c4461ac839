"""Whether a limit is kept to: 20 MB at 1 MB/s take 20 seconds, however many tasks there are.

    python -m benchmarks.rate_limit [--only local8 local2 killed]

local8: with 1, 2, 4 and 8 tasks that all run at once. local2: with 8 tasks of which two run at a
time. killed: as local8 with 4 tasks, of which one is killed in the middle and begins again. Each at
least once and exactly once. Seconds are from the start of the first task until the end of the last,
in Python workers that have loaded everything.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_RATE = 1_000_000
_ROWS = 20_000
_VALUE_BYTES = 1_000
_TOLERANCE = 0.1
_PARTITIONS = 6
_GUARANTEES = ("at-least-once", "exactly-once")
_NAME = "rate_limit"
_CASES = {"local8": (8, (1, 2, 4, 8)), "local2": (2, (8,)), "killed": (8, (4,))}
"""Slots, and numbers of tasks."""


def measure(
    spark: SparkSession, kafka: LocalKafka, tasks: int, guarantee: str, is_killed: bool
) -> dict[str, Any]:
    """One write. Raises if a row is missing, or there twice where it must not be."""
    topic = BenchTopic(kafka, _PARTITIONS)
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "metrics.jsonl")
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic.name,
            "delivery.guarantee": guarantee,
            "transactional.id.prefix": topic.name,
            "transaction.log.replication.factor": "1",
            "max.bytes.per.second": str(_RATE),
            "metrics.log": "false",
            "metrics.path": str(lines),
        }
        if is_killed:
            options["interceptors"] = "tests.killing:KillOnceLater"
        frame = spark.range(0, _ROWS, 1, tasks).selectExpr(
            f"rpad(lpad(id, 7, '0'), {_VALUE_BYTES}, '.') AS value", f"'{folder}' AS folder"
        )
        frame.write.format("pykafka-sink").options(**options).mode("append").save()
        line = json.loads(lines.read_text().splitlines()[-1])
    assert line["records_acknowledged"] == _ROWS, line["records_acknowledged"]
    metrics = line["metrics"]
    due_s = metrics["compressed_bytes"] / _RATE
    return {
        "tasks": tasks,
        "guarantee": guarantee,
        "megabytes": round(metrics["compressed_bytes"] / 1e6, 2),
        "due_s": round(due_s, 2),
        "took_s": round(line["elapsed_ms"] / 1000, 2),
        "retries": metrics["retries"],
    }


def _warm_up(spark: SparkSession, kafka: LocalKafka, slots: int) -> None:
    """Python workers have loaded everything: that takes seconds, with a limit or without."""
    topic = BenchTopic(kafka, _PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic.name}
    rows = spark.range(0, 1000 * slots, 1, slots).selectExpr("cast(id AS string) AS value")
    rows.write.format("pykafka-sink").options(**options).mode("append").save()


def run(names: list[str]) -> list[dict[str, Any]]:
    """Cases by name."""
    results = []
    # Where Spark's Python processes find the interceptor that kills.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    with LocalKafka(server_properties=SERVER_PROPERTIES) as kafka:
        for name in names:
            slots, numbers = _CASES[name]
            conf = {
                "spark.master": f"local[{slots},4]",
                "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
            }
            with harness.spark_session(slots, **conf) as spark:
                _warm_up(spark, kafka, slots)
                for tasks in numbers:
                    for guarantee in _GUARANTEES:
                        found = measure(spark, kafka, tasks, guarantee, name == "killed")
                        results.append({"case": name, "slots": slots, **found})
                        print(json.dumps(results[-1]), flush=True)
    return results


def is_kept(result: dict[str, Any]) -> bool:
    """Whether a result is as it should be: what a killed task had sent is sent once more."""
    most = 1 + _TOLERANCE + (1 / result["tasks"] if result["case"] == "killed" else 0)
    return bool(1 <= result["took_s"] / result["due_s"] <= most)


def table(results: list[dict[str, Any]]) -> str:
    """As docs/limits.md has it."""
    rows = [
        "| tasks | of which run at once | guarantee | MB sent | took | sent again |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        tasks = f"{r['tasks']}, one is killed" if r["case"] == "killed" else r["tasks"]
        at_once = min(r["tasks"], r["slots"])
        rows.append(
            f"| {tasks} | {at_once} | {r['guarantee']} | {r['megabytes']} | {r['took_s']:.1f} s | "
            f"{r['retries']} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(_CASES), default=list(_CASES))
    names = parser.parse_args().only
    earlier = harness.load(_NAME).get("results", [])
    results = [result for result in earlier if result["case"] not in names] + run(names)
    results.sort(key=lambda result: list(_CASES).index(result["case"]))
    harness.save(_NAME, {"results": results})
    print(table(results))
    sys.exit(0 if all(map(is_kept, results)) else 1)


if __name__ == "__main__":
    main()
