"""Measure the cost of dead letters if every row is valid: ``errors.tolerance=all`` on and off.

python -m benchmarks.dead_letters            # about 2 minutes, on an otherwise idle machine

Tasks of both kinds take turns, with the same producer and the same topic. CPU time is of this
process alone, of both threads of the producer; elapsed time includes the broker.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import pyarrow as pa

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.record.columns import ArrowBatch
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import prepare_process, write_rows

TOPIC = "rows"
BATCH_ROWS = 10_000
BATCHES = 10
VALUE_BYTES = 100
WARM_UP_PAIRS = 5
RULES = TopicLimits(max_message_bytes=1_048_588, needs_key=True)
"""Rules as the driver finds them for a topic, so that tasks make all checks."""

Measured = tuple[float, float]
"""CPU and elapsed seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    with LocalKafka() as kafka:
        kafka.create_topic(TOPIC, 4, configs={"retention.bytes": str(100 << 20)})
        kafka.create_topic("dead", 1)
        on, off = _tasks(kafka.bootstrap_servers, given.codec)
        pairs = _measured(on, off, given.pairs)
    for name, index in (("CPU", 0), ("elapsed", 1)):
        with_them = statistics.median(pair[0][index] for pair in pairs)
        without = statistics.median(pair[1][index] for pair in pairs)
        ratio = statistics.median(pair[0][index] / pair[1][index] for pair in pairs)
        print(
            f"{name}: {with_them * 1e3:.2f} ms with errors.tolerance=all, {without * 1e3:.2f} ms "
            f"without; median of the ratios of {len(pairs)} pairs: {ratio:.4f}"
        )


def _tasks(servers: str, codec: str) -> tuple[Callable[[], Measured], Callable[[], Measured]]:
    """Return a task with a tolerance, and one without."""
    common = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "kafka.compression.type": codec}
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    rows = _rows()
    prepare_process()
    return (
        lambda: _run(rows, SinkOptions.parse({**common, **tolerant})),
        lambda: _run(rows, SinkOptions.parse(common)),
    )


def _rows() -> list[ArrowBatch]:
    values = pa.array([b"x" * VALUE_BYTES] * BATCH_ROWS, pa.binary())
    keys = pa.array([b"k%07d" % n for n in range(BATCH_ROWS)], pa.binary())
    return [pa.record_batch([values, keys], names=["value", "key"])] * BATCHES


def _run(rows: list[ArrowBatch], options: SinkOptions) -> Measured:
    if options.dead_letters is not None:
        object.__setattr__(options, "dead_letters", options.dead_letters._replace(target=RULES))
    message = KafkaCommitMessage(0, 0)
    positions = ColumnPositions(value=0, key=1, topic_option=TOPIC)
    cpu_s, started_s = time.process_time(), time.perf_counter()
    write_rows(rows, options, positions, message)
    return time.process_time() - cpu_s, time.perf_counter() - started_s


def _measured(
    on: Callable[[], Measured], off: Callable[[], Measured], count: int
) -> list[tuple[Measured, Measured]]:
    """Return pairs (on, off); the two take turns in starting a pair."""
    pairs = []
    for number in range(WARM_UP_PAIRS + count):
        if number % 2:
            first = off()
            pairs.append((on(), first))
        else:
            first = on()
            pairs.append((first, off()))
    return pairs[WARM_UP_PAIRS:]


if __name__ == "__main__":
    main()
