"""``python -m tests.formats.generate_protobuf JAR``: what Spark's to_protobuf makes of rows.

JAR: of spark-protobuf for this Spark; the cases that are kept were made with ``ProtobufSerializer``
of Spark's sources, compiled against it. The cases' rows are kept as Arrow has them, so that tests need
no Spark. Each row is written alone: where Spark fails, the case has its error.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from tests.formats.generate import arrow_text
from tests.formats.official import descriptor_set
from tests.formats.protobuf_files import one_message

CASES = Path(__file__).parent / "protobuf_cases"
ZONE = "Europe/Berlin"


class Case(NamedTuple):
    """fields: of pkg.Root; choice: those of one oneof"""

    query: str
    fields: dict[str, str]
    syntax: str = "proto3"
    choice: tuple[str, ...] = ()


SCALARS = {
    "i": "int32",
    "l": "int64",
    "s": "sint32",
    "t": "sint64",
    "f": "sfixed32",
    "g": "sfixed64",
    "small": "int32",
    "tiny": "int32",
    "b": "bool",
    "x": "float",
    "y": "double",
    "text": "string",
    "raw": "bytes",
    "day": "int32",
}
SCALAR_ROWS = """select cast(a as int) i, a l, cast(-a as int) s, -a t, cast(a as int) f, a g,
    cast(a % 1000 as smallint) small, cast(a % 100 as tinyint) tiny, a > 0 b, cast(a / 4 as float) x,
    a / 8 y, concat('ä', a) text, cast(cast(a as string) as binary) raw, date_add(date'1970-01-01', cast(a as int)) day
    from values (0L), (1L), (-1L), (127L), (128L), (2147483647L), (-2147483647L), (null) t(a)"""

CASES_OF: dict[str, Case] = {
    "scalars": Case(SCALAR_ROWS, SCALARS),
    "scalars_of_proto2": Case(SCALAR_ROWS, SCALARS, "proto2"),
    "unsigned": Case(
        """select try_cast(a as int) i, try_cast(a as int) f, a l, a g, a % 4294967296 w
        from values (1L), (-1L), (4294967295L), (9223372036854775807L) t(a)""",
        {"i": "uint32", "f": "fixed32", "l": "uint64", "g": "fixed64", "w": "int64"},
    ),
    "unsigned_of_wider_columns": Case(
        "select 4294967295L w, cast(9223372036854775807 as decimal(20,0)) d",
        {"w": "uint32", "d": "uint64"},
    ),
    "wrapped": Case(
        """select a > 0 b, cast(a as int) i, a l, cast(a as int) ui, a ul, cast(a as float) f,
        cast(a as double) d, cast(a as string) s, cast(cast(a as string) as binary) y
        from values (0L), (7L), (null) t(a)""",
        {
            "b": "google.protobuf.BoolValue",
            "i": "google.protobuf.Int32Value",
            "l": "google.protobuf.Int64Value",
            "ui": "google.protobuf.UInt32Value",
            "ul": "google.protobuf.UInt64Value",
            "f": "google.protobuf.FloatValue",
            "d": "google.protobuf.DoubleValue",
            "s": "google.protobuf.StringValue",
            "y": "google.protobuf.BytesValue",
        },
    ),
    "enums": Case(
        "select * from values ('ONE', 1), ('FAR', 100000), ('ZERO', 0), (null, null) t(name, number)",
        {"name": "enum pkg.Kind", "number": "enum pkg.Kind"},
    ),
    "times": Case(
        """select cast(d as timestamp) t, interval '1 02:03:04.5' day to second a,
        interval '-1.25' second b, interval '0' day c from values ('1970-01-01 01:00:00'),
        ('2024-07-01 12:34:56.123'), ('1969-12-31 00:00:00'), ('0001-01-01 00:00:00'), (null) t(d)""",
        {
            "t": "google.protobuf.Timestamp",
            **dict.fromkeys("abc", "google.protobuf.Duration"),
        },
    ),
    "nested": Case(
        """select named_struct('x', 1) inner, array(named_struct('x', 2), named_struct('x', null)) many,
        array(1, 0, -1) a, array('u', '') t, array(true, false) b, array(1.5D) y,
        map('k', 1, 'l', 0) m, map(1L, named_struct('x', 3)) n, cast(null as array<int>) z""",
        {
            "inner": "pkg.Inner",
            "many": "repeated pkg.Inner",
            "a": "repeated int32",
            "t": "repeated string",
            "b": "repeated bool",
            "y": "repeated double",
            "m": "map string int32",
            "n": "map int64 pkg.Inner",
            "z": "repeated int32",
        },
    ),
    "empty": Case(
        "select 0 i, '' t, false b, 0D y, -0D x, cast(array() as array<int>) a, "
        "cast(map() as map<string, int>) m, named_struct('x', 0) inner, cast(null as int) n",
        {
            "i": "int32",
            "t": "string",
            "b": "bool",
            "y": "double",
            "x": "double",
            "a": "repeated int32",
            "m": "map string int32",
            "inner": "pkg.Inner",
            "n": "int32",
        },
    ),
    "repeated_of_proto2": Case(
        "select array(1, 0) a, array(1.5D) y",
        {"a": "repeated int32", "y": "repeated double"},
        "proto2",
    ),
    "names": Case("select 1 `USERID`, 2 b", {"userId": "int32", "B": "int32", "other": "int32"}),
    "choice": Case(
        "select * from values (1, null), (null, 2), (null, null) t(a, b)",
        {"a": "int32", "b": "int32"},
        choice=("a", "b"),
    ),
    # What is written otherwise here, or refused on one side: see test_spark_protobuf.
    "micros": Case(
        "select timestamp'2024-07-01 12:34:56.123456' t, interval '0.000001' second d",
        {"t": "google.protobuf.Timestamp", "d": "google.protobuf.Duration"},
    ),
    "empty_bytes": Case("select X'' a", {"a": "bytes"}),
    "before_1970": Case(
        "select timestamp'1969-12-31 23:59:59.5' t", {"t": "google.protobuf.Timestamp"}
    ),
    "required_null": Case("select cast(null as int) a", {"a": "required int32"}, "proto2"),
    "map_null": Case("select map('k', cast(null as int)) a", {"a": "map string int32"}),
    "list_null": Case("select array(1, null) a", {"a": "repeated int32"}),
    "both_of_one": Case("select 1 a, 2 b", {"a": "int32", "b": "int32"}, choice=("a", "b")),
    "beyond_uint32": Case("select 4294967296L a", {"a": "uint32"}),
    "beyond_int32": Case("select 1L a", {"a": "int32"}),
    "int_as_int64": Case("select 1 a", {"a": "int64"}),
    "float_as_double": Case("select float(1.5) a", {"a": "double"}),
    "unknown_symbol": Case("select 'TWO' a", {"a": "enum pkg.Kind"}),
    "unknown_number": Case("select 2 a", {"a": "enum pkg.Kind"}),
    "decimal_as_double": Case("select 1.5BD a", {"a": "double"}),
    "ntz": Case("select timestamp_ntz'2024-01-01 00:00:00' a", {"a": "google.protobuf.Timestamp"}),
    "text_as_bytes": Case("select 'x' a", {"a": "bytes"}),
    "no_field": Case("select 1 a, 2 b", {"a": "int32"}),
    "no_column": Case("select 1 a", {"a": "int32", "b": "required int32"}, "proto2"),
    "not_utf8": Case("select cast(X'61FF' as string) a", {"a": "string"}),
    "beyond_long": Case("select cast(18446744073709551615 as decimal(20,0)) a", {"a": "uint64"}),
}


def file_of(case: Case) -> Any:
    made = one_message(case.syntax, **case.fields)
    root = made.message_type[0]
    if case.choice:
        root.oneof_decl.add(name="choice")
    for field in root.field:
        if field.name in case.choice:
            field.oneof_index = 0
    return made


def written(frame: DataFrame, path: str) -> list[str]:
    made = f"hex(to_protobuf(struct(*), 'pkg.Root', '{path}', map()))"
    try:
        return [row.c for row in frame.selectExpr(f"{made} c").collect()]
    except Exception as error:
        return ["error: " + str(error).strip().splitlines()[0]]


def main(jar: str) -> None:
    session = SparkSession.builder.master("local[1]").config("spark.jars", jar)
    session = session.config("spark.sql.session.timeZone", ZONE)
    spark = session.config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES_OF.items():
            data = descriptor_set([file_of(case)])
            path = Path(folder) / f"{name}.desc"
            path.write_bytes(data)
            frame = spark.sql(case.query)
            found = {"spark": spark.version, "arrow": arrow_text(frame)}
            found["descriptors"] = base64.b64encode(data).decode()
            found["rows"] = written(frame, str(path))
            text = json.dumps(found, ensure_ascii=True, indent=1)
            (CASES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
