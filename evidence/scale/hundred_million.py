"""100 million rows of 100 bytes in one job: counted, and compared by a checksum, by another client.

python -m evidence hundred-million                  # ten minutes on 2 cores
python -m evidence hundred-million --rows 1000000   # printed only

Spark adds up the checksums of the rows without the sink. Processes of confluent-kafka read all
records back; each id must be there once. Writes evidence/scale/hundred_million.json.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from benchmarks.measure import SparkProcesses
from evidence.chaos.brokers import session
from evidence.chaos.planted import package_commit
from evidence.harness.planning import parser_of, show
from evidence.scale.soak import connections_count
from spark_kafka_sink.localkafka import LocalKafka
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.reading import consumer

RESULT = Path(__file__).with_name("hundred_million.json")
ROWS = 100_000_000
_TASKS = 200
_PARTITIONS = 12
_READERS = 2
_VALUE_BYTES = 100
_ID_DIGITS = 10
_MIB = 1 << 20
_TOPIC = "hundred-million"


def rows_of(spark, count):
    """A value is its id, 16 digits that hardly compress, and a text that does."""
    padding = _VALUE_BYTES - _ID_DIGITS - 16
    value = f"concat(lpad(id, {_ID_DIGITS}, '0'), lpad(hex(xxhash64(id)), 16, '0'), repeat('x', {padding}))"
    return spark.range(0, count, 1, _TASKS).selectExpr(
        "cast(id % 1000 as string) key", f"{value} value"
    )


class Found(NamedTuple):
    """What a reader has found. seen: bitmap of ids"""

    records: int
    checksum: int
    seen: np.ndarray


def read(bootstrap_servers, partitions, count):
    """All records of some partitions."""
    seen = np.zeros(count, np.bool_)
    records = checksum = 0
    waiting = set(partitions)
    idle_since = time.monotonic()
    with closing(consumer(bootstrap_servers, **{"fetch.message.max.bytes": 8 << 20})) as reader:
        reader.assign([TopicPartition(_TOPIC, partition, 0) for partition in partitions])
        while waiting:
            messages = reader.consume(50_000, timeout=0.5)
            for message in messages:
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    waiting.discard(message.partition())
            values = [message.value() for message in messages if message.error() is None]
            if messages:
                idle_since = time.monotonic()
            assert time.monotonic() < idle_since + PATIENCE_S, f"nothing more of {waiting}"
            if not values:
                continue
            records += len(values)
            checksum += sum(map(zlib.crc32, values))
            digits = np.frombuffer(b"".join(values), np.uint8).reshape(-1, _VALUE_BYTES)
            ids = digits[:, :_ID_DIGITS].astype(np.int64) - ord("0")
            seen[ids @ 10 ** np.arange(_ID_DIGITS - 1, -1, -1)] = True
    return Found(records, checksum, np.packbits(seen))


def read_all(bootstrap_servers, count):
    """In several processes, each with a part of the partitions."""
    with ProcessPoolExecutor(_READERS, multiprocessing.get_context("spawn")) as pool:
        shares = [range(first, _PARTITIONS, _READERS) for first in range(_READERS)]
        parts = [pool.submit(read, bootstrap_servers, [*share], count) for share in shares]
        found = [part.result() for part in parts]
    seen = np.unpackbits(np.bitwise_or.reduce([part.seen for part in found]))[:count]
    return sum(f.records for f in found), sum(f.checksum for f in found), int(seen.sum())


class Peaks(threading.Thread):
    """The most connections, and memory of the driver's JVM, in which the tasks run, while this ran."""

    def __init__(self, kafka, processes):
        super().__init__(daemon=True)
        self._kafka, self._processes = kafka, processes
        self._is_over = threading.Event()
        self.connections = self.jvm_bytes = 0

    def run(self):
        while not self._is_over.wait(1.0):
            self.connections = max(self.connections, connections_count(self._kafka))
            self.jvm_bytes = max(self.jvm_bytes, self._processes.jvm.memory_info().rss)

    def stop(self):
        self._is_over.set()
        self.join()


def write(spark, kafka, count, guarantee):
    """What the job took, and its own figures."""
    processes = SparkProcesses(spark)
    peaks = Peaks(kafka, processes)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.compression.type": "lz4",
            "topic": _TOPIC,
            "metrics.path": metrics.name,
            "delivery.guarantee": guarantee,
            # The broker may be slow, on a machine of any load.
            "kafka.delivery.timeout.ms": str(PATIENCE_MS),
            "kafka.max.block.ms": str(PATIENCE_MS),
        }
        if guarantee == "exactly-once":
            options["transactional.id.prefix"] = _TOPIC
            options["transaction.log.replication.factor"] = "1"
        peaks.start()
        started = time.monotonic()
        rows = rows_of(spark, count)
        rows.write.format("pykafka-sink").mode("append").options(**options).save()
        seconds = time.monotonic() - started
        line = json.loads(metrics.read().splitlines()[-1])
    peaks.stop()
    return {
        "seconds": round(seconds, 1),
        "acknowledged": line["records_acknowledged"],
        "requests": line["metrics"]["requests"],
        "retries": line["metrics"]["retries"],
        "worker_peak_mib": round(processes.peak_mib(), 1),
        "jvm_peak_mib": round(peaks.jvm_bytes / _MIB, 1),
        "connections": peaks.connections,
    }


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--guarantee", default="at-least-once")
    arguments = parser.parse_args(words)
    count = arguments.rows
    if arguments.plan:
        return show([f"{count:,} rows, {arguments.guarantee}"])
    with LocalKafka(heap="1g", start_timeout_ms=PATIENCE_MS) as kafka:
        kafka.create_topic(_TOPIC, _PARTITIONS, timeout_ms=PATIENCE_MS)
        with session() as spark:
            (expected,) = (
                rows_of(spark, count).selectExpr("sum(crc32(cast(value as binary)))").first()
            )
            result = {"rows": count, "guarantee": arguments.guarantee}
            result.update(write(spark, kafka, count, arguments.guarantee))
        started = time.monotonic()
        records, checksum, ids = read_all(kafka.bootstrap_servers, count)
        result["reading_seconds"] = round(time.monotonic() - started, 1)
        result["kafka"] = kafka.version
    result.update(read=records, ids=ids, checksum=checksum, is_checksum_right=checksum == expected)
    result["commit"] = package_commit()
    print(json.dumps(result, indent=1), flush=True)
    if count == ROWS:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if records == ids == count and checksum == expected else 1
