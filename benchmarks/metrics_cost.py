"""Measure the cost of metrics: all outputs on and all off, in turn.

    python -m benchmarks.metrics_cost [--quick | --outputs] [--rounds 9]

The outputs are the log, ``metrics.path``, a push gateway, OpenTelemetry's metrics and traces, and
pushing to brokers (KIP-714). The receiver is another process, which answers at once. The results
are:

- the throughput of jobs, as the ratio within each round;
- ``addBatch`` of micro-batches of one row, as the difference within each round;
- the time that the end of a micro-batch waits for each output.
"""

from __future__ import annotations

import argparse
import atexit
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness, sinks
from benchmarks.latency import micro_batches
from benchmarks.measure import Contender, alternate, as_json, spread
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.base.kafka_metrics import NodeMetrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.metrics.line import COUNTERS
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage

LEAST_THROUGHPUT = 0.98
"""Least throughput with all outputs on, relative to all off."""
MOST_ADD_BATCH_MS = 3.0
"""Most ms that a micro-batch of one row may take longer."""

ROWS = {100: 4_000_000, 1_000: 1_000_000}
PARTITIONS = 6
_ROUNDS, _QUICK_ROUNDS = 9, 2
_BATCHES, _QUICK_BATCHES = 20, 6
_QUICK_PART = 10
_SETTINGS = {**sinks.COMMON_SETTINGS, "compression.type": "lz4"}
_LATENCY_SETTINGS = {"acks": "all", "linger.ms": "0"}
_OFF = {"metrics.log": "false", "kafka.enable.metrics.push": "false"}
_OUTPUT_BATCHES = 200
_PAUSE_S = 0.02

_RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def receiver() -> str:
    """Start a process that is collector and push gateway; return its address. Ends with us."""
    command = [sys.executable, "-c", _RECEIVER]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    assert process.stdout is not None
    return f"http://127.0.0.1:{int(process.stdout.readline())}"


def outputs_of(folder: Path, url: str) -> dict[str, dict[str, str]]:
    """Return the options of each output."""
    return {
        "log": {"metrics.log": "true"},
        "path": {"metrics.path": str(folder / "metrics.jsonl")},
        "push": {"metrics.prometheus.push.url": url},
        "otlp": {"metrics.otlp.endpoint": url},
        "kip-714": {"kafka.enable.metrics.push": "true"},
    }


class Metered(Contender):
    """This sink with further options."""

    def __init__(
        self, name: str, frame: DataFrame, rows: int, target: sinks.Target, topic: BenchTopic
    ) -> None:
        super().__init__("ours", frame, rows, target, topic)
        self.name = name
        self.options: Mapping[str, str] = {}
        self._write = self._write_with_options

    def _write_with_options(self, frame: DataFrame, target: sinks.Target) -> None:
        writer = frame.write.format(sinks.OURS_FORMAT).mode("append").options(**target.options())
        writer.options(**self.options).save()


def throughput(
    kafka: LocalKafka, spark: SparkSession, value_bytes: int, rows: int, rounds: int, on: Any
) -> dict[str, Any]:
    """Measure jobs. ratio: rows per second with all outputs on over those with all off."""
    frame = make_rows(spark, rows, value_bytes)
    contenders, topics = [], []
    for name, options in (("off", _OFF), ("on", on)):
        topic = BenchTopic(kafka, PARTITIONS)
        topics.append(topic)
        target = sinks.Target(kafka.bootstrap_servers, topic.name, _SETTINGS)
        contender = Metered(name, frame, rows, target, topic)
        contender.options = options
        contenders.append(contender)
    measured = alternate(contenders, rounds, warmups=2)
    for topic in topics:
        topic.delete()
    ratio = spread([runs["off"].elapsed_s / runs["on"].elapsed_s for runs in measured])
    cpu = spread([runs["on"].cpu_s / runs["off"].cpu_s for runs in measured])
    print(
        f"{value_bytes} bytes: throughput on/off {ratio['median']}, CPU {cpu['median']}", flush=True
    )
    return {"rows": rows, "ratio": ratio, "cpu": cpu, "rounds": as_json(measured)}


def add_batch(
    kafka: LocalKafka, spark: SparkSession, rounds: int, count: int, on: Mapping[str, str]
) -> dict[str, Any]:
    """Measure micro-batches of one row: the mean ``addBatch`` with all on, minus that with all off.

    The mean is used because Spark reports whole milliseconds.
    """
    target = sinks.Target(kafka.bootstrap_servers, BenchTopic(kafka, 1).name, _LATENCY_SETTINGS)
    turns = []
    for turn in range(rounds):
        found = {}
        for name in ("off", "on") if turn % 2 else ("on", "off"):
            options = on if name == "on" else _OFF
            batches = micro_batches(spark, "ours", target, count, options)
            # Omit the slowest tenth, because a pause of the machine is not the sink's.
            times = sorted(batch["addBatch"] for batch in batches)
            found[name] = statistics.mean(times[: -max(1, count // 10)])
        turns.append(found)
        print(f"addBatch off {found['off']:.1f} ms, on {found['on']:.1f} ms", flush=True)
    return {
        "off_ms": spread([turn["off"] for turn in turns]),
        "difference_ms": spread([turn["on"] - turn["off"] for turn in turns]),
        "rounds": turns,
    }


def waiting(folder: Path, url: str) -> dict[str, dict[str, float]]:
    """Return the ms that the end of a micro-batch waits for each output, in this process."""
    found = {}
    base = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t", "metrics.log": "false"}
    for name, options in outputs_of(folder, url).items():
        if name in ("log", "kip-714"):
            continue  # neither is written here
        outputs = SinkOptions.parse({**base, **options}).metrics
        times = []
        for batch_id in range(_OUTPUT_BATCHES):
            line = _summary().line("commit", batch_id, client_id="c", query_name="q")
            time.sleep(_PAUSE_S)  # as between micro-batches: threads are done, caches cold
            started = time.perf_counter()
            write_outputs(outputs, line)
            times.append(1000 * (time.perf_counter() - started))
        found[name] = spread(times[_OUTPUT_BATCHES // 10 :])
        print(f"{name:12} {found[name]['median']:6.2f} ms", flush=True)
    return found


def _summary() -> BatchSummary:
    """Return the summary of four tasks, twelve partitions and three brokers."""
    messages = []
    for task in range(4):
        partitions = {
            TopicPartition("t", 3 * task + n): PartitionReport(0, 999, 1000, 10**5, 10**6)
            for n in range(3)
        }
        nodes = {
            n: NodeMetrics(*[100] * 13, latencies=dict.fromkeys(range(8), 4)) for n in range(3)
        }
        metrics = ProducerMetrics(*[10**6] * len(COUNTERS))
        messages.append(
            KafkaCommitMessage(task, 0, "q", partitions, metrics, nodes=nodes, started_at_ms=10**12)
        )
    return BatchSummary.merge(messages)


def main() -> int:
    """Run the command line; return 0 if nothing costs more than its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and rounds; no verdict")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--outputs", action="store_true", help="only the driver's time by output")
    arguments = parser.parse_args()
    url = receiver()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.outputs:
            waiting(folder, url)
            return 0
        result = _measured(folder, url, arguments.quick, arguments.rounds)
    harness.save("metrics_cost_quick" if arguments.quick else "metrics_cost", result)
    ratios = [point["ratio"]["median"] for point in result["throughput"].values()]
    difference_ms = result["add_batch"]["difference_ms"]["median"]
    print(json.dumps({"throughput": ratios, "addBatch ms": difference_ms}))
    reached = min(ratios) >= LEAST_THROUGHPUT and difference_ms <= MOST_ADD_BATCH_MS
    return 0 if arguments.quick or reached else 1


def _measured(folder: Path, url: str, is_quick: bool, rounds: int) -> dict[str, Any]:
    on = {name: text for of in outputs_of(folder, url).values() for name, text in of.items()}
    rounds, part = (_QUICK_ROUNDS, _QUICK_PART) if is_quick else (rounds, 1)
    batches = _QUICK_BATCHES if is_quick else _BATCHES
    waited = waiting(folder, url)
    points = {}
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        harness.spark_session() as spark,
    ):
        for size, rows in ROWS.items():
            points[str(size)] = throughput(kafka, spark, size, rows // part, rounds, on)
        one_row = add_batch(kafka, spark, rounds, batches, on)
    return {"throughput": points, "add_batch": one_row, "waiting_ms": waited}


if __name__ == "__main__":
    sys.exit(main())
