"""Spark schema → where the record's parts are, or the error that names the column.

Columns are found by exact, case-sensitive name; others are ignored. Types and messages are those
of Spark's JVM Kafka sink, which has no ``timestamp`` column.

Source: ``KafkaWriter.validateQuery`` of Spark.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.columns.positions import ColumnPositions

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def _is_headers(data_type: DataType) -> bool:
    if not isinstance(data_type, ArrayType) or not isinstance(data_type.elementType, StructType):
        return False
    fields = data_type.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _is_a(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda data_type: isinstance(data_type, types)


_EXPECTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "topic": (_is_a(StringType), "string"),
    "key": (_is_a(StringType, BinaryType), "string or binary"),
    "value": (_is_a(StringType, BinaryType), "string or binary"),
    "headers": (_is_headers, _HEADERS_TYPE),
    "partition": (_is_a(IntegerType), "int"),
    "timestamp": (_is_a(TimestampType), "timestamp"),
}


def find_columns(schema: StructType, topic_option: str | None) -> ColumnPositions:
    """Where the parts of a record are in rows of ``schema``.

    Raises SchemaError for a missing value or topic and for a column of the wrong type.
    """
    positions: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        positions.setdefault(field.name, position)
    if topic_option is None and "topic" not in positions:
        raise SchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic."
        )
    if "value" not in positions:
        raise SchemaError("Required attribute 'value' not found")
    for name, (is_expected, expected) in _EXPECTED.items():
        if name not in positions or (name == "topic" and topic_option is not None):
            continue
        data_type = schema.fields[positions[name]].dataType
        if not is_expected(data_type):
            raise SchemaError(
                f"{name} attribute unsupported type {data_type.simpleString()}. "
                f"{name} must be a(n) {expected}"
            )
    return ColumnPositions(
        value=positions["value"],
        key=positions.get("key"),
        headers=positions.get("headers"),
        topic=positions.get("topic"),
        partition=positions.get("partition"),
        timestamp=positions.get("timestamp"),
        topic_option=topic_option,
    )
