"""Measure what forking workers from ``spark_kafka_sink.spark.daemon`` saves.

    python -m benchmarks.daemon [--rounds 5]

Spark's daemon and the sink's take turns in each round, which measures three figures:

- the first job of a session, with as many tasks as slots; it starts the daemon;
- the seconds of a task whose worker is a new process (``spark.python.worker.reuse=false``);
- the memory of daemon and workers, if workers are kept. PSS divides shared memory among its
  processes, USS is the memory of one process alone, as Linux counts.

A round before the first is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from benchmarks import harness, sinks
from benchmarks.measure import SparkProcesses
from benchmarks.rows import make_rows
from benchmarks.sinks import Target
from spark_kafka_sink.localkafka import LocalKafka

SLOTS, FRESH_TASKS = 4, 8
DAEMONS = {"spark's": "pyspark.daemon", "the sink's": "spark_kafka_sink.spark.daemon"}
_ROWS, _VALUE_BYTES = 40_000, 100
_MIB = 1 << 20
_START_MS = 300_000


def seconds_of(frame: Any, target: Target) -> float:
    """Return the seconds of one job."""
    started = time.perf_counter()
    sinks.ours(frame, target)
    return time.perf_counter() - started


def fresh_workers(daemon: str, target: Target) -> float:
    """Return the seconds of a task in a new process after the daemon's start, one at a time."""
    conf = {"spark.python.daemon.module": daemon, "spark.python.worker.reuse": "false"}
    with harness.spark_session(1, **conf) as spark:
        frame = make_rows(spark, _ROWS, _VALUE_BYTES, "short").repartition(FRESH_TASKS).cache()
        frame.count()
        seconds_of(frame, target)
        return seconds_of(frame, target) / FRESH_TASKS


def kept_workers(daemon: str, target: Target) -> dict[str, float]:
    """Return the first job's seconds, and MiB of workers and daemon after a second job."""
    with harness.spark_session(SLOTS, **{"spark.python.daemon.module": daemon}) as spark:
        frame = make_rows(spark, _ROWS, _VALUE_BYTES, "short").repartition(SLOTS).cache()
        frame.count()
        first_s = seconds_of(frame, target)
        seconds_of(frame, target)
        processes = SparkProcesses(spark)
        below = [p for p in processes.python() if daemon in p.cmdline()]
        workers = [p for p in below if p.ppid() != processes.jvm.pid]
        # A planning worker has Spark's own daemon; the tasks' workers are the larger ones.
        workers = sorted(workers, key=lambda p: p.memory_info().rss)[-SLOTS:]
        parents = {p.ppid() for p in workers}
        forking = [p for p in below if p.pid in parents]
        uss = [p.memory_full_info().uss / _MIB for p in workers]
        pss = sum(p.memory_full_info().pss / _MIB for p in [*workers, *forking])
        return {"first_job_s": first_s, "uss_mib": statistics.median(uss), "pss_mib": pss}


def main() -> int:
    """Run the command line: print one line for each measurement, and medians at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds: list[dict[str, dict[str, float]]] = []
    with LocalKafka(start_timeout_ms=_START_MS) as kafka:
        kafka.create_topic("workers", SLOTS)
        target = Target(kafka.bootstrap_servers, "workers", {})
        for _ in range(1 + parser.parse_args().rounds):
            measured = {}
            for name, daemon in DAEMONS.items():
                measured[name] = kept_workers(daemon, target)
                measured[name]["fresh_task_s"] = fresh_workers(daemon, target)
                print(name, measured[name], flush=True)
            rounds.append(measured)
    del rounds[0]
    medians = {
        name: {
            figure: round(statistics.median(r[name][figure] for r in rounds), 3)
            for figure in rounds[0][name]
        }
        for name in DAEMONS
    }
    ratios = {
        figure: round(
            statistics.median(r["the sink's"][figure] / r["spark's"][figure] for r in rounds), 3
        )
        for figure in medians["spark's"]
    }
    print("medians", medians)
    print("the sink's / spark's", ratios)
    harness.save("daemon", {"slots": SLOTS, "rounds": rounds, "medians": medians, "ratios": ratios})
    return 0


if __name__ == "__main__":
    sys.exit(main())
