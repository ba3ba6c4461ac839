"""Files in, Kafka records out: what the jobs do with their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_DEFAULT_FORMAT = "json"


def declare_input(arguments: JobArguments) -> None:
    """The arguments that say what to read and what to key by."""
    arguments.add("input", "folder or glob of the input files")
    arguments.add("format", "csv, json, parquet, orc or text (default: json)")
    arguments.add("schema", "columns as DDL, e.g. 'id INT, name STRING' (default: inferred)")
    arguments.add("key", "column whose text is the record key (default: no key)")


def file_format(settings: JobSettings) -> str:
    """The format of the input files."""
    return settings.get("format") or _DEFAULT_FORMAT


def input_schema(spark: SparkSession, settings: JobSettings) -> str | StructType:
    """The schema that was given, or the one that the files have now."""
    given = settings.get("schema")
    if given is not None:
        return given
    reader = spark.read.format(file_format(settings)).options(**settings.reader_options)
    if file_format(settings) == "csv":
        reader = reader.option("inferSchema", "true")
    return reader.load(settings.require("input")).schema


def to_records(rows: DataFrame, key: str | None) -> DataFrame:
    """Columns key and value: the row as JSON, and one of its columns as text."""
    columns = [functions.col(f"`{name}`") for name in rows.columns]
    value = functions.to_json(functions.struct(*columns)).alias("value")
    if key is None:
        return rows.select(value)
    if key not in rows.columns:
        known = ", ".join(rows.columns)
        raise ConfigError(f"--key {key}: the input has no such column. It has: {known}")
    return rows.select(functions.col(f"`{key}`").cast("string").alias("key"), value)
