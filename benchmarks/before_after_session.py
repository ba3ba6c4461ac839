"""One side of benchmarks/before_after.py: runs jobs from standard input, and prints their cost.

The process runs the measured checkout in the checkout's virtual environment. It imports nothing
else of this checkout, so that earlier commits can be measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NamedTuple


class Case(NamedTuple):
    """The rows of one case. columns: SQL over ``id``; options: without servers and topic."""

    what: str
    rows: int
    columns: tuple[str, ...]
    options: dict[str, str]
    partitions: int = 6


_COMMON = {
    "kafka.acks": "all",
    "kafka.batch.size": "131072",
    "kafka.linger.ms": "5",
    "kafka.compression.type": "lz4",
    "metrics.log": "false",
}
_TEXT_100 = "substring(concat(sha2(string(id), 256), repeat('status:delivered;', 3)), 1, 100)"
_TEXT_1000 = (
    'substring(concat(sha2(string(id), 512), repeat(\'"city":"Springfield",\', 20), '
    'sha2(string(-id), 512), repeat(\'"carrier":"UA","gate":"B12",\', 20)), 1, 1000)'
)
CASES = {
    "100 B": Case("100 B, lz4", 1_000_000, (f"{_TEXT_100} value",), _COMMON),
    "1 KB keys": Case(
        "1 KB with keys, lz4", 300_000, ("md5(string(id)) key", f"{_TEXT_1000} value"), _COMMON
    ),
    "1,000 partitions": Case(
        "100 B with keys, lz4, 1,000 partitions",
        2_000_000,
        ("md5(string(id)) key", f"{_TEXT_100} value"),
        _COMMON,
        partitions=1_000,
    ),
    "typed JSON": Case(
        "10 typed columns as JSON, lz4",
        600_000,
        (
            "id",
            "int(id % 1000) flight",
            "id / 7.0D delay",
            "id % 3 = 0 cancelled",
            "timestamp_seconds(1700000000 + id) departure",
            "date_add(DATE'2024-01-01', int(id % 365)) day",
            "concat('N', id % 9999) tail",
            "if(id % 5 = 0, null, 'Springfield') city",
            "decimal(id % 100000) / 100 price",
            "array(id % 7, id % 11) stops",
        ),
        {**_COMMON, "value.format": "json"},
    ),
}


def _serve() -> None:
    import psutil
    from pyspark.sql import DataFrame, SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    gateway: Any = spark.sparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)

    def cpu_s() -> float:
        total = 0.0
        for process in [jvm, *jvm.children(recursive=True)]:
            times = process.cpu_times()
            # Include workers that have ended.
            total += times.user + times.system
            if process is not jvm:
                total += times.children_user + times.children_system
        return total

    frames: dict[str, DataFrame] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        case = CASES[asked["case"]]
        if asked["case"] not in frames:
            for frame in frames.values():
                frame.unpersist()
            frames = {
                asked["case"]: spark.range(0, asked["rows"], 1, 2)
                .selectExpr(*case.columns)
                .persist()
            }
            frames[asked["case"]].count()
        options = {
            **case.options,
            "kafka.bootstrap.servers": asked["servers"],
            "topic": asked["topic"],
        }
        before_cpu_s, began_s = cpu_s(), time.monotonic()
        writer = frames[asked["case"]].write.format("pykafka-sink").mode("append")
        writer.options(**options).save()
        elapsed_s = time.monotonic() - began_s
        print(json.dumps({"elapsed_s": elapsed_s, "cpu_s": cpu_s() - before_cpu_s}), flush=True)


if __name__ == "__main__":
    _serve()
