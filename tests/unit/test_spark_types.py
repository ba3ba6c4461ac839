"""Arrow's types of Spark's: as PySpark has them, and those that PySpark lacks and Spark sends."""

import inspect

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.spark_types import arrow_type
from spark_kafka_sink.spark import row_planning
from tests.tables import each_row


class Place(t.UserDefinedType):
    @classmethod
    def sqlType(cls):  # noqa: N802
        return t.ArrayType(t.DoubleType())

    @classmethod
    def module(cls):
        return "tests"


NAMES = (
    "NullType BooleanType ByteType ShortType IntegerType LongType FloatType DoubleType StringType "
    "BinaryType DateType TimestampType TimestampNTZType DayTimeIntervalType VariantType TimeType"
)
SIMPLE = [getattr(t, name)() for name in NAMES.split() if hasattr(t, name)]
NESTED = [
    t.DecimalType(38, 18),
    t.ArrayType(t.ArrayType(t.StringType())),
    t.MapType(t.IntegerType(), t.ArrayType(t.DateType())),
    t.StructType([t.StructField("a", t.MapType(t.StringType(), t.LongType())), t.StructField("b", t.NullType())]),
    t.StructType([]),
    Place(),
]  # fmt: skip
MARKED = [getattr(t, name)(4326) for name in ("GeometryType", "GeographyType") if hasattr(t, name)]


@each_row("kind", [*SIMPLE, *NESTED, *MARKED], ids=str)
def test_types_are_those_of_pyspark(kind):
    wants_zone = "timezone" in inspect.signature(to_arrow_type).parameters
    expected = to_arrow_type(kind, **({"timezone": "UTC"} if wants_zone else {}))
    found = arrow_type(kind.jsonValue(), "c")
    assert nullable(found) == nullable(expected)
    for mark in (b"variant", b"geometry", b"geography"):
        assert marks_of(found, mark) == marks_of(expected, mark)


def nullable(kind):
    """Of another type, all fields are; Spark's own types mark some as never null."""
    if isinstance(kind, pa.StructType):
        return pa.struct([(f.name, nullable(f.type)) for f in fields_of(kind)])
    return kind


def fields_of(kind):
    return [kind.field(number) for number in range(kind.num_fields)]


def marks_of(kind, mark):
    is_struct = isinstance(kind, pa.StructType)
    return is_struct and any((f.metadata or {}).get(mark) == b"true" for f in fields_of(kind))


CHARS = [t.CharType(3), t.VarcharType(4)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((kind, pa.string()) for kind in CHARS),
        (t.ArrayType(t.YearMonthIntervalType()), pa.list_(pa.int32())),
        (t.MapType(t.YearMonthIntervalType(0, 0), CHARS[0]), pa.map_(pa.int32(), pa.string())),
        (t.MapType(t.NullType(), t.NullType(), False), pa.map_(pa.string(), pa.null())),
    ],
    ids=str,
)
def test_types_that_pyspark_lacks(kind, expected):
    assert arrow_type(kind.jsonValue(), "c") == expected


def test_a_type_that_nothing_knows_is_an_error_that_names_the_column():
    new = {"type": "array", "elementType": "quaternion", "containsNull": True}
    with pytest.raises(SchemaError, match=r"column 'c\[\]' has the Spark type quaternion"):
        arrow_type(new, "c")


def planned(columns, **more):
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t", "value.format": "json", **more}
    schema = t.StructType([t.StructField(name, kind) for name, kind in columns.items()])
    rows = row_planning.plan_rows(schema, SinkOptions.parse(options))
    row_planning.check_encodable(rows)
    return rows


class Unknown(t.StringType):
    """A type of a Spark that is not released."""

    def jsonValue(self):  # noqa: N802
        return "quaternion"


def test_types_of_columns_that_are_not_written_do_not_matter():
    inner = t.StructType([t.StructField("x", t.LongType()), t.StructField("y", Unknown())])
    columns = {"a": t.CharType(3), "b": Unknown(), "s": inner}
    planned(columns, **{"value.columns": "a,s.x"})
    for names, path in (("a,b", "b"), ("s", "s.y"), ("s.y", "s.y"), ("s.x,s", "s.y")):
        with pytest.raises(SchemaError, match=f"column '{path}' has the Spark type quaternion"):
            planned(columns, **{"value.columns": names})


@pytest.mark.parametrize("kind", CHARS, ids=str)
def test_texts_of_a_limited_length_are_parts_of_a_record_as_other_texts(kind):
    header = t.StructType([t.StructField("key", kind), t.StructField("value", t.BinaryType())])
    columns = {"topic": kind, "key": kind, "value": kind, "headers": t.ArrayType(header)}
    schema = t.StructType([t.StructField(name, kind) for name, kind in columns.items()])
    found = row_planning.find_columns(schema, None)
    assert (found.topic, found.key, found.value, found.headers) == (0, 1, 2, 3)
    rows = planned({"k": kind, "n": t.LongType()}, **{"key.columns": "k"})
    assert (rows.plan.key.column, rows.plan.key.is_text) == (0, False)
