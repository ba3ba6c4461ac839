"""Measure the CPU of a million records: executor, Python and broker, beside Spark's JVM sink.

    python -m benchmarks.cost [--only '400B-*' json] [--pairs 5] [--resume]

Rows are real: text of the 336,776 flights as JSON, cut into values of 100 B to 10 KB with UUIDs as
keys, cached in Spark; or the flights' 19 typed columns. Contenders take turns in one session, with
the settings of ``conf/`` and batches of 128 KiB. ``empty`` is the Python sink that drops its input.

Writes benchmarks/results/cost.json after each point, so a run may be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import to_avro

from benchmarks import harness, sinks
from benchmarks.cached import JOBS_CONF
from benchmarks.measure import Contender, Run, alternate, as_json, needs_topic, spread
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from benchmarks.typed import SPARK_AVRO, write_flights
from spark_kafka_sink.localkafka import LocalKafka
from tests.formats.protobuf_files import descriptor_set, one_message

_PARTITIONS = 6
_TASKS = 2
_PAIRS = 5
_WARMUPS = 2
_PARTS = ("elapsed_s", "jvm_cpu_s", "python_cpu_s", "broker_cpu_s")
_PER = 1_000_000
_ROWS = {100: 2_000_000, 400: 1_000_000, 1_000: 400_000, 10_000: 60_000}
_TYPED_ROWS = 1_000_000
_PROTOBUF_TYPES = {
    pa.int64(): "int64",
    pa.float64(): "double",
    pa.string(): "string",
    pa.timestamp("us", "UTC"): "google.protobuf.Timestamp",
}
EXACTLY_ONCE = "ours, exactly-once"
Write = Callable[[DataFrame, sinks.Target], None]


@dataclass(frozen=True)
class Point:
    """A point names values or columns, and a codec. ``value_bytes``: 0 for columns in ``form``."""

    value_bytes: int
    codec: str
    form: str = ""

    @property
    def name(self) -> str:
        """Return a name such as 400B-lz4 or json-lz4."""
        return f"{self.form or f'{self.value_bytes}B'}-{self.codec}"


POINTS = [
    *(Point(size, codec) for size in _ROWS for codec in ("none", "lz4", "zstd")),
    *(Point(0, "lz4", form) for form in ("json", "avro", "protobuf")),
]


# --- rows ----------------------------------------------------------------------------------------


def real_rows(spark: SparkSession, flights: Path, value_bytes: int, folder: Path) -> DataFrame:
    """Return values of ``value_bytes``, cut from the flights as JSON, with UUIDs as keys."""
    rows = _ROWS[value_bytes]
    texts = spark.read.parquet(str(flights)).select(F.to_json(F.struct("*"))).toArrow()
    text = np.frombuffer("".join(texts.column(0).to_pylist()).encode(), np.uint8)
    folder.mkdir()
    part = rows // _TASKS
    offsets = pa.py_buffer(np.arange(part + 1, dtype=np.int32) * value_bytes)
    for number in range(_TASKS):
        start = number * part * value_bytes % len(text)
        data = np.resize(np.roll(text, -start), part * value_bytes)
        values = pa.Array.from_buffers(pa.binary(), part, [None, offsets, pa.py_buffer(data)])
        made = (uuid.UUID(int=number * part + n, version=4) for n in range(part))
        keys = pa.array([str(one) for one in made], pa.string()).cast(pa.binary())
        pq.write_table(pa.table({"key": keys, "value": values}), folder / f"{number}.parquet")
    return spark.read.parquet(str(folder))


def protobuf_options(frame: DataFrame, path: Path) -> dict[str, str]:
    """Write the descriptor of a message with a field per column; return the options for it."""
    schema = frame.limit(1).toArrow().schema
    file = one_message(**{field.name: _PROTOBUF_TYPES[field.type] for field in schema})
    path.write_bytes(descriptor_set([file]))
    return {
        "value.format": "protobuf",
        "value.protobuf.descriptor.file": str(path),
        "value.protobuf.message": "pkg.Root",
    }


# --- contenders ----------------------------------------------------------------------------------


def _ours(more: Mapping[str, str], frame: DataFrame, target: sinks.Target) -> None:
    options = {**target.options(), "metrics.log": "false", **more}
    if options.get("delivery.guarantee") == "exactly-once":
        options["transactional.id.prefix"] = target.topic
    frame.write.format(sinks.OURS_FORMAT).mode("append").options(**options).save()


def _encoded(encode: Callable[[Any], Any], frame: DataFrame, target: sinks.Target) -> None:
    sinks.jvm(frame.select(encode(F.struct("*")).alias("value")), target)


def contenders_of(point: Point, frame: DataFrame, folder: Path) -> dict[str, Write]:
    """Return the contenders by name, ours first."""
    if not point.form:
        exactly_once = {
            "delivery.guarantee": "exactly-once",
            "transaction.log.replication.factor": "1",
        }
        ours = {"ours": sinks.ours, EXACTLY_ONCE: partial(_ours, exactly_once)}
        return {**ours, "jvm": sinks.jvm, "empty": sinks.empty}
    if point.form == "protobuf":  # Spark's to_protobuf needs a package that is not everywhere
        options = protobuf_options(frame, folder / "flights.desc")
        return {"ours": partial(_ours, options), "empty": sinks.empty}
    encode = {"json": F.to_json, "avro": to_avro}[point.form]
    ours_typed = partial(_ours, {"value.format": point.form})
    return {"ours": ours_typed, "jvm": partial(_encoded, encode), "empty": sinks.empty}


def measure(
    kafka: LocalKafka, point: Point, frame: DataFrame, rows: int, pairs: int, folder: Path
) -> list[dict[str, Run]]:
    """Run all rounds of a point with cached rows."""
    settings = {**sinks.COMMON_SETTINGS, "compression.type": point.codec}
    contenders, topics = [], []
    cached = frame.persist(StorageLevel.MEMORY_ONLY)
    try:
        assert cached.count() == rows
        for name, write in contenders_of(point, frame, folder).items():
            topic = BenchTopic(kafka, _PARTITIONS) if needs_topic(name) else None
            topics += [topic] if topic else []
            target = sinks.Target(kafka.bootstrap_servers, topic.name if topic else "", settings)
            markers = _TASKS * _PARTITIONS if name == EXACTLY_ONCE else 0
            contenders.append(Contender(name, cached, rows, target, topic, write, markers))
        return alternate(contenders, pairs, _WARMUPS)
    finally:
        for topic in topics:
            topic.delete()
        cached.unpersist(blocking=True)


# --- results -------------------------------------------------------------------------------------


def summary(rounds: Sequence[Mapping[str, Run]], rows: int) -> dict[str, Any]:
    """Return medians per million records, and the ratios of the rounds."""

    def median(name: str, part: str) -> float:
        seconds = statistics.median(getattr(runs[name], part) for runs in rounds)
        return round(seconds * _PER / rows, 3)

    result: dict[str, Any] = {
        "rows": rows,
        "per_million": {name: {p: median(name, p) for p in _PARTS} for name in rounds[0]},
    }
    if "jvm" in rounds[0]:
        pairs = [(runs["ours"], runs["jvm"]) for runs in rounds]
        result["cpu_ours_over_jvm"] = spread([ours.cpu_s / jvm.cpu_s for ours, jvm in pairs])
        result["jvm_over_ours"] = spread([jvm.elapsed_s / ours.elapsed_s for ours, jvm in pairs])
    return {**result, "rounds": as_json(rounds)}


def table(points: Mapping[str, Any]) -> str:
    """Return CPU seconds of Spark + Python + broker per million records as a table in Markdown."""
    names = ("jvm", "ours", EXACTLY_ONCE, "empty")
    lines = [
        f"| rows | {' | '.join(names)} | CPU, ours / JVM sink | elapsed, JVM sink / ours |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for point, result in points.items():
        cells = [
            " + ".join(f"{result['per_million'][name][part]:.2f}" for part in _PARTS[1:])
            if name in result["per_million"]
            else ""
            for name in names
        ]
        for ratio in ("cpu_ours_over_jvm", "jvm_over_ours"):
            cells.append(f"{result[ratio]['median']:.2f}" if ratio in result else "")
        lines.append(f"| {point} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="points with such names: '1000B*'")
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--resume", action="store_true", help="leave out points that are there")
    parser.add_argument("--output", default="cost", help="name of the results, without .json")
    arguments = parser.parse_args()
    points: dict[str, Any] = harness.load(arguments.output).get("points", {})
    chosen = [p for p in POINTS if any(fnmatchcase(p.name, like) for like in arguments.only)]
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        rows = write_flights(folder / "flights", _TYPED_ROWS)
        for point in chosen:
            if arguments.resume and point.name in points:
                continue
            with harness.spark_session(more_jars=(SPARK_AVRO,), **JOBS_CONF) as spark:
                if point.form:
                    frame, count = spark.read.parquet(str(folder / "flights")), rows
                else:
                    path = folder / point.name
                    frame = real_rows(spark, folder / "flights", point.value_bytes, path)
                    count = _ROWS[point.value_bytes]
                rounds = measure(kafka, point, frame, count, arguments.pairs, folder)
            points[point.name] = summary(rounds, count)
            print(table({point.name: points[point.name]}).splitlines()[-1], flush=True)
            harness.save_points(arguments.output, kafka.version, JOBS_CONF, points)
    print(table(points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
