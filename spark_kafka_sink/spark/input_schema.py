"""Spark schema → where the record's parts are, or the error that names the column.

Columns are found by exact, case-sensitive name; others are ignored. Types and messages are those
of Spark's JVM Kafka sink, which has no ``timestamp`` column.

Spark hands all columns to a Python sink, also those that are ignored, as Arrow. What it cannot hand
over would fail in the tasks, without naming the column: it is refused here.

Source: ``KafkaWriter.validateQuery`` of Spark.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    UserDefinedType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.spark.versions import interval_types

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


NULLS_WITHOUT_KEY = (
    "value.null.when without a key: a null value deletes what has the same key, so these records "
    "delete nothing. Set key.columns"
)


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

    Raises SchemaError for a missing value or topic, for a column of the wrong type, and for one
    that Spark cannot hand to a Python sink.
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
        raise SchemaError(
            "Required attribute 'value' not found. To write all columns as one value, set "
            "value.format, e.g. to json"
        )
    for name in _EXPECTED:
        if name not in positions or (name == "topic" and topic_option is not None):
            continue
        check_type(name, schema.fields[positions[name]].dataType)
    check_handed_over(schema, [name for name in _EXPECTED if name in positions])
    return ColumnPositions(
        value=positions["value"],
        key=positions.get("key"),
        headers=positions.get("headers"),
        topic=positions.get("topic"),
        partition=positions.get("partition"),
        timestamp=positions.get("timestamp"),
        topic_option=topic_option,
    )


def check_type(name: str, data_type: DataType) -> None:
    """Raise SchemaError if a column of this type cannot be the part ``name`` of a record."""
    is_expected, expected = _EXPECTED[name]
    if not is_expected(data_type):
        raise SchemaError(
            f"{name} attribute unsupported type {data_type.simpleString()}. "
            f"{name} must be a(n) {expected}"
        )


def check_handed_over(schema: StructType, record: Sequence[str]) -> None:
    """Raise SchemaError for a column, ignored or not, that cannot come as Arrow.

    record: names of the columns that are not ignored
    """
    names = Counter(field.name for field in schema.fields)
    for field in schema.fields:
        problem = next(_problems_of(field.dataType, is_nested=False), None)
        if names[field.name] > 1:
            problem = f"is there {names[field.name]} times"
        if problem is not None:
            cure = _cure(field.name, names, record)
            raise SchemaError(
                f"column '{field.name}' {problem}: Spark cannot hand that to a Python sink, which "
                f"gets all columns, also those that are not written. {cure}"
            )


def _cure(name: str, names: Counter[str], record: Sequence[str]) -> str:
    """For column ``name``, which cannot come: what the DataFrame is to have instead."""
    if name not in record:
        others = ", ".join(f'"{other}"' for other in record)
        return f"Select only the columns of a record, each once: .select({others})"
    if names[name] > 1:
        return "Rename one of them in the DataFrame, or drop it"
    return "Cast it in the DataFrame, or drop it"


def notes_on_parts(parts: Iterable[str], has_topic: bool) -> Iterator[str]:
    """About columns that are no part of the value for their names alone. parts: these names

    has_topic: whether option ``topic`` is set
    """
    for part in parts:
        where = f"is the record's {part} and is not in the value"
        if part == "topic" and has_topic:
            where = "is written nowhere, as option 'topic' is set"
        yield (
            f"column '{part}' {where}: set {part}.column to an empty text to have it in the value, "
            f"or to '{part}' if that is meant"
        )


def no_such_column(name: str, names: Iterable[str]) -> str:
    """What is wrong with the name of a column, and which may have been meant."""
    return f"the DataFrame has no column '{name}'{_meant(name, [*names])}"


def no_such_field(path: str, name: str, kind: DataType) -> str:
    """The same for a field ``name`` of the column, or field, ``path``."""
    hint = f", being of type {kind.simpleString()}"
    if isinstance(kind, StructType):
        hint = _meant(name, kind.names)
    return f"'{path}' has no field '{name}'{hint}"


def _meant(name: str, known: list[str]) -> str:
    same = [other for other in known if other.lower() == name.lower()]
    if same:
        return f". Did you mean '{same[0]}'? Names are exact"
    near = difflib.get_close_matches(name, known, n=1)
    return f". Did you mean '{near[0]}'?" if near else f". There are: {', '.join(known[:20])}"


def _problems_of(data_type: DataType, is_nested: bool) -> Iterator[str]:
    """What of a column's type has no counterpart in Arrow, or none that pyarrow can read.

    pyarrow has no arrays of months. Inside of others they are never looked at.
    """
    if isinstance(data_type, UserDefinedType):
        yield from _problems_of(data_type.sqlType(), is_nested)
    elif isinstance(data_type, interval_types()) or (
        isinstance(data_type, YearMonthIntervalType) and not is_nested
    ):
        yield f"has the type {data_type.simpleString()}"
    elif isinstance(data_type, ArrayType):
        yield from _problems_of(data_type.elementType, True)
    elif isinstance(data_type, MapType):
        yield from _problems_of(data_type.keyType, True)
        yield from _problems_of(data_type.valueType, True)
    elif isinstance(data_type, StructType):
        repeated = [name for name, count in Counter(data_type.names).items() if count > 1]
        if repeated:
            yield f"has the field '{repeated[0]}' more than once"
        for field in data_type.fields:
            yield from _problems_of(field.dataType, True)
