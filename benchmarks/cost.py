"""Measure all figures of README.md and docs/performance.md, beside Spark's JVM sink.

    python -m benchmarks.cost [--only '400B-*' tls] [--pairs 5] [--resume] [--quick]

Points are jobs: time and CPU of a million records, in executor, Python and broker.
Rows are real: text of the 336,776 flights as JSON, cut into values of 100 B to 10 KB with UUIDs as
keys, cached in Spark; or the flights' 19 typed columns. Contenders of a point take turns in one
session, with the settings of the ready-made jobs and batches of 128 KiB. ``empty`` is the Python
sink that drops its input; confluent-kafka takes part at two points.

Then come the parts of benchmarks.cost_parts: micro-batches of one row, first jobs, memory, TLS, and
commits of exactly-once.

Writes benchmarks/results/cost.json after each point or part, so a run may be interrupted.
Earlier results stay only with ``--only`` or ``--resume``, and only if the package's code and the
machine are the same. `python -m release.figures_document` writes the documents' tables.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from benchmarks.cost_parts import PARTS
from benchmarks.harness import JOBS_CONF
from benchmarks.measure import Contender, Run, alternate, as_json, needs_topic, spread
from benchmarks.rows import write_flights
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka
from tests.formats.protobuf_files import descriptor_set, one_message

SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
_PARTITIONS = 6
_TASKS = 2
_PAIRS = 3
_QUICK = 20
_KEY_BYTES = 36
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


# Other clients take long, and are compared at two points.
_WITH_CLIENTS = (Point(100, "lz4"), Point(1_000, "lz4"))
_CLIENTS = ("confluent", "confluent-batch")
POINTS = [
    *(Point(size, codec) for size in _ROWS for codec in ("none", "lz4", "zstd")),
    *(Point(0, "lz4", form) for form in ("json", "avro", "protobuf")),
]


# --- rows ----------------------------------------------------------------------------------------


def real_rows(
    spark: SparkSession, flights: Path, value_bytes: int, rows: int, folder: Path
) -> DataFrame:
    """Return values of ``value_bytes``, cut from the flights as JSON, with UUIDs as keys."""
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
        clients = _CLIENTS if point in _WITH_CLIENTS else ()
        others = {name: sinks.SINKS[name] for name in ("jvm", *clients, "empty")}
        return {**ours, **others}
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


class Results:
    """The results of one machine, one state of the package's code, and one or more days."""

    def __init__(self, name: str, keep: bool) -> None:
        self._name = name
        known = harness.load(name) if keep else {}
        mine = {"code": harness.code_version(), "machine": harness.machine()}
        if known and any(known.get(field) != value for field, value in mine.items()):
            print(f"{name}.json is of other code or another machine: its results are dropped")
            known = {}
        self.found: dict[str, Any] = {"points": {}, **known, **mine, "made_by": "benchmarks.cost"}

    def has(self, name: str) -> bool:
        """Return True if this point or part was measured."""
        return name in self.found["points"] or name in self.found

    def add(self, name: str, result: Mapping[str, Any], load: float) -> None:
        """Store a point or a part, with the machine's load before it."""
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        self.found["days"] = sorted({*self.found.get("days", ()), today})
        place = self.found if name in PARTS else self.found["points"]
        place[name] = {"load_before": round(load, 2), **result}
        harness.save(self._name, self.found)


def measure_points(results: Results, chosen: Sequence[Point], pairs: int, divisor: int) -> None:
    """Measure the chosen points; a divisor above 1 makes fewer rows."""
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        results.found |= {"kafka": kafka.version, "spark_conf": dict(JOBS_CONF)}
        rows = write_flights(folder / "flights", _TYPED_ROWS // divisor)
        for point in chosen:
            load = os.getloadavg()[0]
            with harness.spark_session(more_jars=(SPARK_AVRO,), **JOBS_CONF) as spark:
                if point.form:
                    frame, count = spark.read.parquet(str(folder / "flights")), rows
                else:
                    count = _ROWS[point.value_bytes] // divisor
                    path = folder / point.name
                    frame = real_rows(spark, folder / "flights", point.value_bytes, count, path)
                rounds = measure(kafka, point, frame, count, pairs, folder)
            keys = 0 if point.form else _KEY_BYTES
            about = {"point": {**asdict(point), "key_bytes": keys}}
            results.add(point.name, {**about, **summary(rounds, count)}, load)
            print(table({point.name: results.found["points"][point.name]}).splitlines()[-1])
            sys.stdout.flush()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = f"points with such names, '1000B*', or parts: {', '.join(PARTS)}"
    parser.add_argument("--only", nargs="+", default=["*"], help=names)
    parser.add_argument("--pairs", type=int, help=f"rounds of all sinks, by default {_PAIRS}")
    parser.add_argument("--resume", action="store_true", help="leave out what is measured")
    parser.add_argument("--quick", action="store_true", help="few rows, 1 pair; cost_quick.json")
    parser.add_argument("--output", default="cost", help="name of the results, without .json")
    arguments = parser.parse_args()
    pairs = arguments.pairs or (1 if arguments.quick else _PAIRS)
    divisor = _QUICK if arguments.quick else 1
    output = f"{arguments.output}_quick" if arguments.quick else arguments.output
    results = Results(output, keep=arguments.resume or arguments.only != ["*"])

    def wanted(name: str) -> bool:
        chosen = any(fnmatchcase(name, like) for like in arguments.only)
        return chosen and not (arguments.resume and results.has(name))

    if points := [point for point in POINTS if wanted(point.name)]:
        measure_points(results, points, pairs, divisor)
    for name, part in PARTS.items():
        if wanted(name):
            load = os.getloadavg()[0]
            results.add(name, part(pairs, divisor), load)
    print(table(results.found["points"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
