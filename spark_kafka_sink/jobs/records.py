"""Turn files into Kafka records: the jobs' input and the sink's options for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_DEFAULT_FORMAT = "json"
_PARTS = ("key", "topic", "partition", "headers")


def declare_input(arguments: JobArguments) -> None:
    """Declare the arguments for the input and the key."""
    arguments.add("input", "folder or glob of the input files")
    arguments.add("format", "csv, json, parquet, orc or text (default: json)")
    arguments.add("schema", "columns as DDL, e.g. 'id INT, name STRING' (default: inferred)")
    arguments.add("key", "column whose text is the record key (default: no key)")


def file_format(settings: JobSettings) -> str:
    """Return the format of the input files."""
    return settings.get("format") or _DEFAULT_FORMAT


def input_schema(spark: SparkSession, settings: JobSettings) -> str | StructType:
    """Return the given schema, or the current schema of the files."""
    schema = settings.get("schema")
    if schema is not None:
        return schema
    reader = spark.read.format(file_format(settings)).options(**settings.reader_options)
    if file_format(settings) == "csv":
        reader = reader.option("inferSchema", "true")
    return reader.load(settings.require("input")).schema


def with_record_options(rows: DataFrame, settings: JobSettings) -> JobSettings:
    """Return the settings with the sink's options for rows of any columns.

    By default the value is JSON of all columns; ``--key`` names the column of the key. Columns that
    have the name of a record's part stay in the value, unless an option says otherwise.

    Raises ConfigError if the key column does not exist.
    """
    options = {name.lower(): value for name, value in settings.sink_options.items()}
    key = settings.get("key")
    if key is not None:
        if key not in rows.columns:
            known = ", ".join(rows.columns)
            raise ConfigError(
                f"--key {key}: the input has no such column. It has: {known}", code="JOB-004"
            )
        if options.setdefault("key.columns", key) != key:
            raise ConfigError(
                "--key and --key-columns are both given: leave one of them out", code="OPTION-009"
            )
    if options.setdefault("value.format", "json").lower() != "raw":
        for part in _PARTS:
            if part in rows.columns:
                options.setdefault(f"{part}.column", "")
    return replace(settings, sink_options=options)
