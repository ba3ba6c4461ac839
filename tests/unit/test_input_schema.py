"""Spark schema → positions of a record's parts, or the JVM sink's message."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.spark.row_planning import check_handed_over, find_columns


def headers_of(
    key: DataType, value: DataType, names: tuple[str, str] = ("key", "value")
) -> DataType:
    fields = [StructField(names[0], key), StructField(names[1], value)]
    return ArrayType(StructType(fields))


HEADERS = headers_of(StringType(), BinaryType())
FULL = {
    "topic": StringType(),
    "key": BinaryType(),
    "value": StringType(),
    "headers": HEADERS,
    "partition": IntegerType(),
    "timestamp": TimestampType(),
}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def refusal(columns: StructType, topic_option: str | None = "t") -> str:
    with pytest.raises(SchemaError) as raised:
        find_columns(columns, topic_option)
    return str(raised.value)


def test_all_columns():
    plan = find_columns(schema(**FULL), None)
    assert plan == ColumnPositions(
        value=2, key=1, headers=3, topic=0, partition=4, timestamp=5, topic_option=None
    )


def test_order_does_not_matter_and_other_columns_are_ignored():
    columns = {"x": MapType(StringType(), LongType()), "value": BinaryType(), "y": LongType()}
    assert find_columns(schema(**columns, key=StringType()), "t") == ColumnPositions(
        value=1, key=3, topic_option="t"
    )


def test_value_alone():
    assert find_columns(schema(value=StringType()), "t") == ColumnPositions(
        value=0, topic_option="t"
    )


def test_names_are_case_sensitive():
    assert refusal(schema(Value=StringType())).startswith("Required attribute 'value' not found. ")
    assert find_columns(schema(value=StringType(), Key=LongType()), "t").key is None


def test_two_columns_of_one_name_are_refused():
    """Spark makes no Arrow batch of them; a wrong type is told first, as by the JVM sink."""
    twice = StructType([StructField("value", StringType()), StructField("value", LongType())])
    assert refusal(twice).startswith("column 'value' is there 2 times: ")
    wrong = StructType([StructField("value", LongType()), StructField("value", StringType())])
    assert refusal(wrong).startswith("value attribute unsupported type bigint")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"value": StringType()},
            "topic option required when no 'topic' attribute is present. Use the topic option "
            "for setting a topic.",
        ),
        ({"topic": StringType()}, "Required attribute 'value' not found"),
        ({}, "topic option required when no 'topic' attribute is present. "),
    ],
)
def test_what_is_missing(columns, message):
    assert refusal(schema(**columns), None).startswith(message)


@pytest.mark.parametrize(
    ("name", "data_type", "message"),
    [
        ("key", IntegerType(), "key attribute unsupported type int. key must be a(n) string or binary"),
        ("value", DecimalType(2, 1), "value attribute unsupported type decimal(2,1). value must be a(n) string or binary"),
        ("topic", BinaryType(), "topic attribute unsupported type binary. topic must be a(n) string"),
        ("partition", LongType(), "partition attribute unsupported type bigint. partition must be a(n) int"),
        ("partition", ShortType(), "partition attribute unsupported type smallint. partition must be a(n) int"),
        ("timestamp", TimestampNTZType(), "timestamp attribute unsupported type timestamp_ntz. timestamp must be a(n) timestamp"),
        ("timestamp", LongType(), "timestamp attribute unsupported type bigint. timestamp must be a(n) timestamp"),
    ],
)  # fmt: skip
def test_types(name, data_type, message):
    assert refusal(schema(**{**FULL, name: data_type}), None) == message


@pytest.mark.parametrize(
    "data_type",
    [
        StringType(),
        ArrayType(StringType()),
        MapType(StringType(), BinaryType()),
        headers_of(BinaryType(), BinaryType()),
        headers_of(StringType(), StringType()),
        headers_of(StringType(), BinaryType(), ("name", "value")),
        headers_of(BinaryType(), StringType(), ("value", "key")),
        ArrayType(StructType([StructField("key", StringType())])),
    ],
    ids=lambda data_type: data_type.simpleString(),
)
def test_what_headers_are_not(data_type):
    assert refusal(schema(value=StringType(), headers=data_type)) == (
        f"headers attribute unsupported type {data_type.simpleString()}. headers must be a(n) "
        "array<struct<key:string,value:binary>>"
    )


def test_nullability_of_headers_does_not_matter():
    fields = [StructField("key", StringType(), False), StructField("value", BinaryType(), False)]
    strict = ArrayType(StructType(fields), containsNull=False)
    assert find_columns(schema(value=StringType(), headers=strict), "t").headers == 1


def test_the_topic_option_overrides_a_topic_column_of_any_type():
    columns = schema(value=StringType(), topic=LongType())
    assert find_columns(columns, "t").topic_option == "t"
    assert refusal(columns, None).startswith("topic attribute unsupported type bigint")


# --- what Spark cannot hand over ------------------------------------------------------------------


class Months(UserDefinedType):
    @classmethod
    def sqlType(cls) -> DataType:  # noqa: N802
        return YearMonthIntervalType()


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (YearMonthIntervalType(), "has the type interval year to month"),
        (CalendarIntervalType(), "has the type interval"),
        (ArrayType(CalendarIntervalType()), "has the type interval"),
        (MapType(StringType(), CalendarIntervalType()), "has the type interval"),
        (Months(), "has the type interval year to month"),
        (ArrayType(StructType([StructField("a", LongType()), StructField("a", LongType())])), "has the field 'a' more than once"),
    ],
    ids=str,
)  # fmt: skip
def test_a_column_that_is_not_written_and_cannot_be_handed_over(other, problem):
    """In a stream, Spark looks at none of these itself."""
    fields = [StructField("other", other), StructField("value", StringType())]
    with pytest.raises(SchemaError) as raised:
        find_columns(StructType(fields), "t")
    assert str(raised.value) == (
        f"column 'other' {problem}: Spark cannot hand that to a Python sink, which gets all "
        "columns, also those that are not written. Select only the columns of a record, each "
        'once: .select("value")'
    )


def test_a_column_of_the_record_that_cannot_be_handed_over_is_not_advised():
    columns = schema(value=StringType(), months=YearMonthIntervalType())
    with pytest.raises(SchemaError, match="Cast it in the DataFrame, or drop it$"):
        check_handed_over(columns, ["value", "months"])
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])
    assert refusal(twice).endswith("Rename one of them in the DataFrame, or drop it")


@pytest.mark.parametrize(
    "other",
    [DayTimeIntervalType(), VariantType(), DecimalType(38, 18), ArrayType(YearMonthIntervalType())],
    ids=str,
)
def test_a_column_that_does_no_harm(other):
    fields = [StructField("other", other), StructField("value", StringType())]
    assert find_columns(StructType(fields), "t").value == 1
