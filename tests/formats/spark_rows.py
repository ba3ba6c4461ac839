"""What Spark's own functions make of a DataFrame, beside what the sink makes of the same rows."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
)

from benchmarks.harness import JVM_SINK
from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import (
    AVRO,
    JSON,
    FieldSpec,
    FormatError,
    FormatSpec,
)
from spark_kafka_sink.localkafka import fetch_jars
from tests.formats import json_twin

AVRO_JARS = ["org.apache.spark:spark-avro_2.13:4.1.1"]
_FLOATING = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")


class Compared(NamedTuple):
    """rows: all of them; otherwise: those whose bytes are others, but mean the same"""

    rows: int
    otherwise: int


@contextmanager
def avro_session():
    """With Spark's own Avro and its Kafka source, which are no part of pyspark."""
    jars = [
        *fetch_jars(AVRO_JARS, "spark-avro", transitive=False),
        *fetch_jars(JVM_SINK, "jvm-sink", transitive=False),
    ]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.localRelationThreshold": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def compare_json(frame, options, is_single):
    """Raises AssertionError for the first row that differs by more than the digits of a number.

    options: the time zone is the session's
    """
    given = {
        "ignoreNullFields": str(options.ignore_null_fields).lower(),
        "timestampFormat": options.timestamp_format,
        "timestampNTZFormat": options.timestamp_ntz_format,
        "dateFormat": options.date_format,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    rows, written = with_written(frame, f.to_json(f.struct("*"), asked))
    fields = tuple(FieldSpec((x.name,), x.name, x.dataType.json()) for x in frame.schema)
    plan = FormatSpec(JSON, fields, json_options=options)
    found = encoded(plan, rows)
    other = differing(found, written)
    for index in other:
        same_numbers(found[index].as_py().decode(), written[index].as_py().decode(), is_single)
    return Compared(rows.num_rows, len(other))


def with_variants(frame, is_single):
    """With columns of VARIANT, made of all others: by type, and of their JSON.

    Numbers of JSON are doubles: where the others are single, variants are made by type alone.
    """
    fields = [f.col(f"`{x.name}`") for x in frame.schema if _has_variant(x.dataType)]
    made = f.to_variant_object(f.struct(f.lit(1).alias("one"), *fields))
    parsed = made if is_single else f.parse_json(f.to_json(f.struct("*")))
    some = f.when(f.rand(1) < 0.8, parsed)
    return frame.select(
        "*",
        made.alias("variant"),
        some.alias("some"),
        f.array(parsed, some).alias("variants"),
        f.create_map(f.lit("k"), some, f.lit("null"), f.parse_json(f.lit("null"))).alias("of"),
        f.struct(some.alias("x"), f.lit(None).cast("variant").alias("y")).alias("in"),
    )


def _has_variant(kind):
    if isinstance(kind, StructType):
        return all(_has_variant(x.dataType) for x in kind)
    if isinstance(kind, ArrayType):
        return _has_variant(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _has_variant(kind.valueType)
    return not isinstance(kind, DayTimeIntervalType)


def compare_avro(spark, frame):
    """Of the columns that Avro has a type for, with the schema. Raises AssertionError."""
    frame = frame.select(*(x.name for x in frame.schema if has_avro(x)))
    if not frame.columns:
        return Compared(0, 0)
    schema = derived_schema(frame.schema.json())
    assert schema == spark_avro_schema(spark, frame)
    rows, written = with_written(frame, to_avro(f.struct("*"), schema))
    fields = tuple(FieldSpec((name,), name) for name in frame.columns)
    found = encoded(FormatSpec(AVRO, fields, avro_schema=schema), rows)
    other = differing(found, written)
    if other:
        assert "map" in schema
        plain = without_logical_types(json.loads(schema))
        for index in other:
            ours, sparks = found[index].as_py(), written[index].as_py()
            assert decoded(ours, plain) == decoded(sparks, plain)
            assert sorted(ours) == sorted(sparks)
    return Compared(rows.num_rows, len(other))


def with_written(frame, expression):
    """The rows as one Arrow batch as Spark hands them over, and what Spark makes of each."""
    # Not toArrow(), which fails on fields that are not nullable in structs that are null.
    batches = frame.select("*", expression.alias("written by spark"))._collect_as_arrow()
    batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    last = batch.num_columns - 1
    return batch.select([*range(last)]), batch.column(last).cast(pa.large_binary())


def encoded(plan, rows):
    made = RowEncoder(plan, rows.schema).encode(rows)
    assert made.faults is None
    return made.values


def differing(found, written):
    assert len(found) == len(written)
    assert found.null_count == written.null_count == 0
    return np.flatnonzero(~pc.equal(found, written).to_numpy(False)).tolist()


def same_numbers(ours, sparks, is_single):
    """Equal but for floating point, where Java before 19 writes more digits than needed.

    is_single: whether numbers are; None for those of which some may be
    """
    widths = (True, False) if is_single is None else (is_single,)
    assert _FLOATING.sub("?", ours) == _FLOATING.sub("?", sparks)
    for mine, other in zip(_FLOATING.findall(ours), _FLOATING.findall(sparks)):
        if mine != other:
            assert any(_is_shortest(mine, other, width) for width in widths), (ours, sparks)
            assert len(mine) <= len(other)


def _is_shortest(mine, other, is_single):
    read = np.float32 if is_single else float
    with np.errstate(over="ignore"):  # a double that no float32 is
        one, another = read(mine), read(other)
    return bool(one == another) and mine == json_twin.floating(one, is_single)


def has_avro(field):
    try:
        derived_schema(StructType([field]).json())
    except FormatError:
        return False
    return True


def spark_avro_schema(spark, frame):
    """Of nullable columns: what Spark knows of nulls depends on how it has optimised a query."""
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters
    made = converters.toAvroType(frame._jdf.schema().asNullable(), False, "topLevelRecord", "")
    return str(made.toString())


def without_logical_types(node):
    """So that what no date or decimal of Python can hold is decoded as the number it is."""
    if isinstance(node, list):
        return [without_logical_types(one) for one in node]
    if isinstance(node, dict):
        return {k: without_logical_types(v) for k, v in node.items() if k != "logicalType"}
    return node


def decoded(data, schema):
    # Not above: only the extra "registry" has it.
    import fastavro

    return repr(_in_order(fastavro.schemaless_reader(io.BytesIO(data), schema)))


def _in_order(value):
    if isinstance(value, dict):
        return [(key, _in_order(value[key])) for key in sorted(value)]
    return [_in_order(one) for one in value] if isinstance(value, list) else value
