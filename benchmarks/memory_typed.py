"""Measure peak memory of a worker that encodes values from the 19 columns of the flights.

    python -m benchmarks.memory_typed [--check] [json avro protobuf]

As in ``benchmarks.memory``, each point has its own session, and the broker is frozen for a while.
The rows are two million flights from Parquet; Arrow batches have 10,000 or 100,000 rows. The limit
is that of ``benchmarks.memory``, and twice the encoded size of one Arrow batch.

Formats that are not named keep their earlier results.

Writes benchmarks/results/memory_typed.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks import harness, sinks
from benchmarks.measure import SparkProcesses
from benchmarks.memory import largest_arrow_batch, peaks_of, promised_mib
from benchmarks.rows import write_flights
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.encoder import RowsEncoder
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.formats.protobuf_files import descriptor_set, one_message

_MIB = 1 << 20
ROWS = 2_000_000
_FLIGHTS = 336_776
_PARTITIONS = 6
_BUFFER_MIB = 32
_FORMATS = ("json", "avro", "protobuf")
_ARROW_ROWS = (10_000, 100_000)


class TypedPoint(NamedTuple):
    """Settings of one job. With codec none, the fewest rows fill the buffers."""

    format: str
    arrow_rows: int
    codec: str = "none"


def points_of(formats: list[str]) -> Iterator[TypedPoint]:
    """Yield the points to measure."""
    for name in formats:
        yield from (TypedPoint(name, rows) for rows in _ARROW_ROWS)
        yield TypedPoint(name, _ARROW_ROWS[-1], "lz4")


def options_of(name: str, folder: Path, table: pa.Table) -> dict[str, str]:
    """Return the options of one format. Protobuf's descriptor is written into ``folder``."""
    if name != "protobuf":
        return {"value.format": name}
    file = folder / "flights.desc"
    fields = {field.name: _protobuf_type(field.type) for field in table.schema}
    file.write_bytes(descriptor_set([one_message(**fields)]))
    return {
        "value.format": name,
        "value.protobuf.descriptor.file": str(file),
        "value.protobuf.message": "pkg.Root",
    }


def _protobuf_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "google.protobuf.Timestamp"
    names = {pa.string(): "string", pa.int64(): "int64", pa.int32(): "int32"}
    return {**names, pa.float64(): "double"}[kind]


def encoded_mib(
    frame: DataFrame, table: pa.Table, target: sinks.Target, more: dict[str, str], arrow_rows: int
) -> float:
    """Return the largest encoded size of an Arrow batch of so many flights, in MiB."""
    plan = plan_rows(frame.schema, SinkOptions.parse({**target.options(), **more})).plan
    assert plan is not None
    most = 0
    for batch in table.slice(0, _FLIGHTS).combine_chunks().to_batches(arrow_rows):
        most = max(most, RowsEncoder(plan).encode(batch).rows.column(0).nbytes)
    return most / _MIB


def write(frame: DataFrame, target: sinks.Target, more: dict[str, str]) -> None:
    """Write all rows as values of this format."""
    options = {**target.options(), "metrics.log": "false", **more}
    frame.write.format(sinks.OURS_FORMAT).mode("append").options(**options).save()


def measure_point(kafka: LocalKafka, point: TypedPoint, folder: Path) -> dict[str, Any]:
    """Return the peaks of one job in fresh workers."""
    rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(point.arrow_rows)}
    flights = folder / "flights"
    table = pq.read_table(flights / "0.parquet")
    with harness.spark_session(**rows, **harness.SOCKETS) as spark:
        processes = SparkProcesses(spark)
        topic = BenchTopic(kafka, _PARTITIONS)
        buffer = {"buffer.memory": str(_BUFFER_MIB * _MIB), "compression.type": point.codec}
        settings = {**sinks.COMMON_SETTINGS, **buffer}
        target = sinks.Target(kafka.bootstrap_servers, topic.name, settings)
        frame = spark.read.parquet(str(flights))
        more = options_of(point.format, folder, table)
        arrow_mib = largest_arrow_batch(frame) / _MIB
        made_mib = encoded_mib(frame, table, target, more, point.arrow_rows)
        write(frame.limit(10), target, more)
        peaks = peaks_of(kafka, processes, topic, partial(write, frame, target, more), ROWS)
    limit_mib = promised_mib(harness.machine(), _BUFFER_MIB, arrow_mib, made_mib)
    return {
        **point._asdict(),
        "buffer_mib": _BUFFER_MIB,
        "rows": ROWS,
        "arrow_batch_mib": round(arrow_mib, 1),
        "encoded_mib": round(made_mib, 1),
        **peaks,
        "limit_mib": round(limit_mib, 1),
        "is_within": peaks["peak_rss_mib"] <= limit_mib,
    }


def main() -> int:
    """Run the command line. With ``--check``, return 1 if a point exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail beyond the limit")
    parser.add_argument("formats", nargs="*", default=list(_FORMATS), help="all, if none is named")
    arguments = parser.parse_args()
    known = harness.load("memory_typed").get("points", [])
    points = [point for point in known if point["format"] not in arguments.formats]
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        write_flights(Path(folder, "flights"), ROWS)
        for point in points_of(arguments.formats):
            started = time.perf_counter()
            points.append(result := measure_point(kafka, point, Path(folder)))
            print(
                f"{point}: peak {result['peak_rss_mib']} MiB, limit {result['limit_mib']} MiB, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            harness.save("memory_typed", {"points": points})
    is_within = all(result["is_within"] for result in points)
    return 1 if arguments.check and not is_within else 0


if __name__ == "__main__":
    sys.exit(main())
