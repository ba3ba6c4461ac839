"""Show what each task's threads do, in microseconds: idle cores, and threads that wait.

    python -m benchmarks.timeline [--value-bytes 1000] [--codec lz4] [--key long] [--output FOLDER]

The tasks of one job record each call of some functions of the sink. For each task, the report shows
the share of time that its two threads spend in each call, and how long both only wait. Each task
also gets a file in Chrome's trace event format, which https://ui.perfetto.dev shows as a timeline.
Recording takes 1 to 2 µs a call. So calls per Arrow batch, record batch or request are recorded,
and no calls per record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks import harness, sinks
from benchmarks.rows import KEY_BYTES, make_rows
from benchmarks.timed_sink import NAME, OUTPUT_OPTION, WAITS, TimedSink
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_ROWS_BYTES = 500 << 20
_MOST_ROWS = 4_000_000
_WARMUPS = 2


class Span(NamedTuple):
    """One call. Times are microseconds since the task's start."""

    thread: str
    name: str
    started_us: float
    ended_us: float


def spans_of(path: Path) -> list[Span]:
    """Return the calls that a task has recorded."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [
        Span(event["cat"], event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["ph"] == "X"
    ]


def own_us(spans: list[Span]) -> dict[tuple[str, str], float]:
    """Return microseconds by thread and call, without those of inner calls."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for thread in {span.thread for span in spans}:
        stack: list[Span] = []
        of_thread = (span for span in spans if span.thread == thread)
        for span in sorted(of_thread, key=lambda span: (span.started_us, -span.ended_us)):
            while stack and stack[-1].ended_us <= span.started_us:
                stack.pop()
            took_us = span.ended_us - span.started_us
            found[thread, span.name] += took_us
            if stack:
                found[thread, stack[-1].name] -= took_us
            stack.append(span)
    return dict(found)


def both_wait_us(spans: list[Span]) -> float:
    """Return how long every thread was in a call that only waits."""
    waits = [span for span in spans if span.name in WAITS]
    threads = len({span.thread for span in waits})
    changes = [(span.started_us, 1) for span in waits] + [(span.ended_us, -1) for span in waits]
    total_us = since_us = 0.0
    waiting = 0
    for at_us, change in sorted(changes):
        if waiting == threads:
            total_us += at_us - since_us
        waiting, since_us = waiting + change, at_us
    return total_us


def told(paths: list[Path]) -> Iterator[str]:
    """Yield the table: percent of a task's time, on average over all tasks."""
    parts: dict[tuple[str, str], list[float]] = defaultdict(list)
    both = []
    for path in paths:
        spans = spans_of(path)
        whole_us = max(span.ended_us for span in spans)
        both.append(both_wait_us(spans) / whole_us)
        for key, took_us in own_us(spans).items():
            parts[key].append(took_us / whole_us)
    for (thread, name), values in sorted(
        parts.items(), key=lambda item: (item[0][0], -sum(item[1]))
    ):
        yield f"{thread:6} {name:28} {100 * sum(values) / len(paths):5.1f} %"
    yield f"both threads wait {100 * sum(both) / len(both):29.1f} %"


def run(
    spark: SparkSession, kafka: LocalKafka, arguments: argparse.Namespace, folder: Path
) -> None:
    """Run warm-up jobs without recording, then the job for the timeline."""
    rows = min(_MOST_ROWS, _ROWS_BYTES // arguments.value_bytes)
    frame = make_rows(spark, rows, arguments.value_bytes, arguments.key).persist()
    frame.count()
    topic = BenchTopic(kafka, arguments.partitions)
    settings = {**sinks.COMMON_SETTINGS, "compression.type": arguments.codec}
    target = sinks.Target(kafka.bootstrap_servers, topic.name, settings)
    for _ in range(_WARMUPS):
        sinks.ours(frame, target)
        topic.empty()
    options: dict[str, Any] = {**target.options(), "metrics.log": "false"}
    options[OUTPUT_OPTION] = str(folder)
    frame.write.format(NAME).mode("append").options(**options).save()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--key", choices=list(KEY_BYTES), default="null")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--output", type=Path, help="folder that keeps the files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with (
            LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
            harness.spark_session() as spark,
        ):
            spark.dataSource.register(TimedSink)
            run(spark, kafka, arguments, folder)
        print("\n".join(told(sorted(folder.glob("task-*.json")))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
