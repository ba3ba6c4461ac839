"""Measure `pykafka-sink report` for many batches: CPU of the whole command, and the page's size.

python -m benchmarks.report_page             # 100,000 lines of 4 tasks, 6 partitions, 3 brokers
python -m benchmarks.report_page --lines 5000
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.kafka_metrics import NodeMetrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage

_DIFFERENT = 200
_START_MS = 1_700_000_000_000
_NS_PER_MS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "metrics.jsonl")
        _write(path, arguments.lines)
        print(f"{arguments.lines:,} lines, {path.stat().st_size / 1e6:,.0f} MB")
        for _ in range(arguments.rounds):
            print(_round(path, Path(folder, "report.html")))


def _round(path: Path, output: Path) -> str:
    command = [sys.executable, "-m", "spark_kafka_sink", "report", str(path), "--output"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, str(output)], check=True, stdout=subprocess.DEVNULL)
    wall_s, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    size = output.stat().st_size / 1e6
    return f"{user_s + system_s:.2f} s of CPU, {wall_s:.2f} s, a page of {size:.2f} MB"


def _write(path: Path, lines: int) -> None:
    """Write some hundred different lines, again and again, as batches of one query."""
    rng = random.Random(1)
    different = [_line(rng, number) for number in range(min(lines, _DIFFERENT))]
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            line = different[number % len(different)]
            line["batch_id"] = number
            line["time_ms"] = line["started_at_ms"] = _START_MS + 10_000 * number
            file.write(json.dumps(line) + "\n")


def _line(rng: random.Random, number: int) -> dict[str, Any]:
    tasks = [_task(rng, task, is_slow=number % 67 == 66) for task in range(4)]
    return BatchSummary.merge(tasks).line(
        "commit", number, client_id="pykafka-sink", query_name="orders"
    )


def _task(rng: random.Random, number: int, is_slow: bool) -> KafkaCommitMessage:
    records = 6 * rng.randint(500, 1500)
    nodes = {broker: _node(rng, is_slow and broker == 2) for broker in (1, 2, 3)}
    task_ns = rng.randint(600, 1400) * _NS_PER_MS * (3 if is_slow else 1)
    metrics = ProducerMetrics(
        records=records,
        batches=12,
        uncompressed_bytes=120 * records,
        compressed_bytes=55 * records,
        batch_size_max=120_000,
        requests=60,
        responses=60,
        request_latency_max_ms=rng.randint(20, 300),
        input_wait_ns=task_ns * 3 // 10,
        encode_ns=task_ns // 10,
        compress_ns=task_ns // 8,
        ack_wait_ns=task_ns // 3,
        task_ns=task_ns,
    )
    each = records // 6
    partitions = {
        TopicPartition("orders", partition): PartitionReport(
            0, each - 1, each, 55 * each, 120 * each
        )
        for partition in range(6)
    }
    message = KafkaCommitMessage(number, 0, "0b1c", partitions, metrics, nodes=nodes)
    message.started_at_ms = _START_MS
    return message


def _node(rng: random.Random, is_slow: bool) -> NodeMetrics:
    node = NodeMetrics()
    node.connected()
    for _ in range(20):
        node.sent(rng.randint(1_000, 100_000))
        node.record_produce_response(
            int(rng.lognormvariate(2.5, 0.6) * (6 if is_slow else 1)) + 1, 0
        )
    return node


if __name__ == "__main__":
    main()
