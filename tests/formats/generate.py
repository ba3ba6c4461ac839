"""``make golden-formats``: what Spark's to_json and to_avro make of rows of all types.

Spark's Avro is fetched from Maven Central. The cases' rows are kept as Arrow has them, so that tests need
no Spark. Floating point is left out where Java before 19 writes more digits than needed.

``python -m tests.formats.generate JAR``: what to_protobuf makes of rows. JAR: of spark-protobuf for this
Spark; the cases that are kept were made with ``ProtobufSerializer`` of Spark's sources, compiled against
it. Each row is written alone: where Spark fails, the case has its error.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from tests.formats.protobuf_files import descriptor_set, one_message
from tests.formats.spark_rows import avro_session, spark_avro_schema

CASES = Path(__file__).parent / "cases"
ZONE = "Europe/Berlin"

QUERIES = {
    "integers": """select cast(a as tinyint) a, cast(a as smallint) b, cast(a as int) c,
        cast(a as bigint) * 72057594037927936 d, a > 0 e, cast(null as int) f, id
        from values (1), (-2), (127), (-128), (0), (null) t(a), range(2)""",
    "largest_integers": """select * from values (9223372036854775807L, 2147483647, true),
        (-9223372036854775808L, -2147483648, false), (1000000000000000000L, 10, null),
        (999999999999999999L, 99, true), (-100L, 100, true), (64L, -64, true), (-65L, 63, true)
        t(a, b, c)""",
    "doubles": """select d, case when d <> 9007199254740993D then cast(d as float) end f from values (0D), (-0D), (1D), (1e7D), (9999999D),
        (1.0e-3D), (9.99e-4D), (1e21D), (12345.125D), (double('NaN')), (double('Infinity')),
        (double('-Infinity')), (4.9e-324D), (1.7976931348623157e308D), (2.2250738585072014e-308D),
        (0.1D), (3.4028235e38D), (2e-3D), (9007199254740993D), (1.1E-44D), (12345.678D),
        (100D), (-1234567D), (0.5D), (1e22D), (1.5e300D), (-7.25e-200D), (null) t(d)""",
    "decimals": """select cast(d as decimal(38,18)) a, cast(d as decimal(38,0)) b,
        cast(d as decimal(10,2)) c, cast(d as decimal(18,10)) e, cast(d as decimal(38,30)) f
        from values (0BD), (1BD), (-1.5BD), (0.00000001BD), (0.000001BD), (123456.789BD),
        (-0.1BD), (0.0000000001BD), (-1234567.8BD), (null) t(d)""",
    "large_decimals": """select 99999999999999999999999999999999999999BD a,
        -99999999999999999999999999999999999999BD b, cast(0.0 as decimal(10,8)) c,
        18446744073709551616BD d, -9223372036854775808BD e, 1000000000BD f, 1000000000000000000BD g,
        cast(-0.5 as decimal(38,38)) h, 12345678901234567890123456789.1234BD i""",
    "dates": """select cast(d as date) d from values ('1970-01-01'), ('1969-12-31'), ('0001-01-01'),
        ('9999-12-31'), ('-0044-03-15'), ('+12345-01-02'), ('0000-02-29'), ('2024-02-29'),
        ('1900-03-01'), ('2000-12-31'), ('-0001-01-01'), ('1582-10-10'), (null) t(d)""",
    "timestamps": """select cast(d as timestamp) d, cast(d as timestamp_ntz) n from values
        ('1970-01-01 00:00:00'), ('2024-07-01 12:34:56.123456'), ('2024-01-01 12:34:56.1'),
        ('2024-01-01 12:34:56.000001'), ('1969-12-31 23:59:59.999999'), ('0001-01-01 00:00:00'),
        ('1883-01-01 00:00:00'), ('9999-12-31 23:59:59'), ('-0044-03-15 01:02:03'),
        ('+12345-01-02 00:00:00'), ('1890-01-01 00:00:00.5'), ('2024-10-27 02:30:00'),
        ('2024-03-31 03:00:00'), ('1945-06-01 00:00:00'), ('2500-07-01 00:00:00'),
        ('2440-01-01 00:30:00'), ('2439-12-31 23:30:00'), ('1893-04-01 00:00:00'),
        ('2500-01-01 00:30:00'), ('2499-12-31 23:30:00'), ('5678-07-26 12:00:00'), (null) t(d)""",
    "strings": """select s, length(s) n from values ('plain'), ('q"b\\\\s/'), ('\\b\\t\\n\\r'), (''),
        ('\\u0000\\u0001\\u000c\\u001f\\u007f\\u0080'), ('ä€😀\\u2028'), ('ü'), ('12345678'),
        ('1234567"'), ('12345678"'), ('eight by\\ntes, then more and more'), ('日本語日本語日本語'),
        ('abc'), ('abcd'), ('ab"'), ('abc"'), ('abcdefghijklmnop'), ('aaaaaaaaaaaaaaaä') t(s)""",
    "not_utf8": """select cast(x as string) s from values (X'61FF62'), (X'EDA080'), (X'C3'), (X'F09F98'),
        (X'E28241'), (X'E2'), (X'E282'), (X'E08080'), (X'F08080'), (X'F4908080'), (X'F8888080'),
        (X'C0AF'), (X'F09F4141'), (X'EDA080EDB080'), (X'8080'), (X'E0A0'), (X'F0'), (X'F0904141'),
        (X'41424344454647C348'), (X'4142434445464748C3') t(x)""",
    "binary": """select b from values (X''), (X'00'), (X'0001'), (X'000102'), (X'FBFF00FF'), (null),
        (cast(repeat('abc', 60) as binary)), (cast(repeat('a', 100) as binary)) t(b)""",
    "intervals": """select interval '1' day a, interval '1 02:03:04.5' day to second b,
        interval '-1 00:00:00.000001' day to second e, interval '3' hour f,
        interval '90' minute g, interval '0.25' second h, interval '12 3' day to hour i,
        interval '5 06:07' day to minute j, interval '100:08' hour to minute k,
        interval '1:2:3.25' hour to second l, interval '-4:05' minute to second m""",
    "times": """select * from values (time'12:34:56.123456', time'00:00:00'),
        (time'23:59:59.999999', time'01:02:03.5'), (null, time'00:00:00.00001') t(a, b)""",
    "nested": """select named_struct('x', 1, 'y', cast(null as string)) s, array(1, null, 3) a,
        map('k', 1) m, array(named_struct('p', 1.5D, 'q', array('u', null))) t,
        cast(null as array<int>) n, array(named_struct('x', cast(null as int)), null) g,
        map('e', array(map('f', named_struct('h', 1)))) o, array(array(1), array(), null) p,
        cast(array() as array<string>) e, cast(map() as map<string, int>) f, id
        from range(3)""",
    "nulls_in_structs": """select case when id % 2 = 0 then named_struct('x', n, 'y',
        case when id % 4 = 0 then named_struct('z', case when id > 3 then array(id, null) end) end)
        end s, case when id % 3 = 0 then array(named_struct('v', n), null) end t
        from (select id, case when id <> 6 then id end n from range(9))""",
    "not_null": """select id, 'x' s, array(1) a, map('a', 1) m, named_struct('z', 1) n,
        array(named_struct('z', 1BD)) d, date'2024-01-01' e from range(2)""",
    "maps": """select map('l', cast(null as int)) l, map('k', named_struct('y', 2)) v,
        map('a"b', array(1)) w, map('', map('x', 1D)) x""",
    "keys": """select map(1, 2) a, map(1.5D, 2) b, map(cast(1.10 as decimal(5,2)), 1) c,
        map(true, 1) d, map(float(1.5), 1) e, map(double('NaN'), 1) f, map(1e20D, 1) g,
        map(date'2024-01-01', 1) h, map(timestamp'2024-01-01 00:00:00', 1) i,
        map(timestamp_ntz'2024-01-01 00:00:00', 1) j, map(interval '1' day, 1) k,
        map(double('-Infinity'), 1) m, map(1L, 1, 2L, null) n""",
    "names": """select 1 `a"b`, 2 `a.b`, 3 `ä`, 4 ` `, named_struct('a b', 1, 'tab\\t', 2) s""",
    "same_names": """select named_struct('s', named_struct('x', 1, 's',
        named_struct('y', cast(1.5 as decimal(20,3))))) s, named_struct('x', 2) t,
        array(named_struct('x', 3BD)) u, map('k', named_struct('y', 2)) v,
        array(cast(1.5 as decimal(20,3))) w, map('z', cast(1.5 as decimal(9,3))) z""",
    "null_type": "select null a, 1 b, array(null) c",
    "empty_struct": "select struct() s, 1 a",
    "chars": "select cast('ab' as char(5)) c, cast('ab' as varchar(5)) v",
    "kept_chars": """select cast('ab' as char(5)) c, cast(null as varchar(5)) v, array(cast('ä' as char(3))) a,
        map(cast('k' as char(2)), cast('w' as varchar(9))) m, named_struct('x', cast('' as char(1))) s""",
    "months": """select array(interval '1-2' year to month, null, interval '-0-1' year to month) a,
        named_struct('m', interval '-3' month, 'x', id) s, map('k', interval '3' year) m, map(interval '-7' year, 1) k,
        if(id = 1, null, array(named_struct('l', map(1, array(interval '2147483647' month))))) d,
        array(make_ym_interval(0, -2147483648), make_ym_interval(0, 0)) e from range(3)""",
    "variants": r"""select parse_json(s) v, id from values
        (1, '{"b":1,"a":[null,true,false,1.50,"x",{}],"":{"c":[]},"ä":"ü€😀"}'), (2, 'null'),
        (3, '"q\\"\\u0000\\u001f\\n\\t/\\\\\\u2028"'), (4, '[]'), (5, '{}'), (6, 'true'), (7, '""'),
        (8, '[127,128,-129,32767,-32769,2147483647,-2147483649,9223372036854775807]'),
        (9, '[1.0,0.10,-0.00,100.00,123456789.123456789,1e5,-2.5E-7,1e400,0.00000001]'),
        (10, '99999999999999999999999999999999999999'), (11, '123456789012345678901234567890.5'),
        (12, '100000000000000000000000000000000000000'), (13, cast(null as string)),
        (14, concat('"', repeat('a', 63), '"')), (15, concat('"', repeat('ä', 40), '"')),
        (16, concat('{"', repeat('n', 300), '":[', repeat('1,', 300), '2]}')),
        (17, '{"zz":{"a":{"b":{"c":[[[{"d":1}]]]}}},"a\\"b":2,"A":3}') t(id, s)""",
    "variants_of_types": """select to_variant_object(named_struct('d', cast(s as date),
        't', cast(s as timestamp), 'n', cast(s as timestamp_ntz))) v, cast(cast(s as timestamp) as variant) t
        from values ('2024-07-01 12:34:56.123456'), ('2024-01-01 12:34:56.1'), ('1969-12-31 23:59:59'),
        ('0001-01-01 00:00:00'), ('1883-01-01 00:00:00'), ('+12345-01-02 00:00:00'),
        ('-0044-03-15 01:02:03'), ('1890-01-01 00:00:00.000001'), ('2500-07-01 00:00:00') u(s)""",
    "variants_of_values": """select to_variant_object(named_struct('b', X'00FF10', 'f', float(1.5),
        'g', float('NaN'), 'h', double('-Infinity'), 'i', double('NaN'), 'j', -0D, 'k', 1e21D,
        'l', cast(1.5 as decimal(38,18)), 'm', cast(-0.125 as decimal(38,38)), 'o', 100.00BD, 'p', 1Y,
        'q', -300S, 'r', map('y', 1, 'x', null), 's', array(named_struct('z', cast(null as int)), null),
        't', true, 'u', cast(null as string), 'w', X'')) v,
        cast(array(1, null) as variant) a, cast(1BD as variant) b, cast('x' as variant) c""",
    "variants_nested": """select case when id % 3 > 0 then v end v, named_struct('x', v, 'y', w) s,
        array(v, w, case when id > 2 then v end) a, map('k', v, 'l', w) m,
        array(map('o', array(v))) o, case when id % 2 = 0 then named_struct('x', v) end n, id
        from (select parse_json(concat('{"n":', id, '}')) v, parse_json('null') w, id from range(5))""",
}
OPTIONS = {name: [{}, {"ignoreNullFields": "false"}] for name in QUERIES}
OPTIONS["timestamps"] += [{"timeZone": zone} for zone in ("UTC", "Asia/Kolkata", "-03:30")]
OPTIONS["timestamps"] += [{"timeZone": zone} for zone in ("America/New_York", "Africa/Casablanca")]
OPTIONS["variants_of_types"] += [{"timeZone": zone} for zone in ("UTC", "Asia/Kolkata", "-03:30")]
OPTIONS["variants_of_types"] += [
    {"timeZone": "Europe/London", "timestampFormat": "yyyy", "dateFormat": "yyyy"}
]
OPTIONS["dates"] += [
    {"dateFormat": pattern}
    for pattern in ("dd.MM.yyyy", "yyyyMMdd", "d/M/yy", "y-M-d", "yyy MM", "yyyyy", "yyyy'\"x\\'MM")
]
# Sections that a type has the fields of, or not; in one another, empty, and open at the end.
OPTIONAL = (
    *("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "yyyy-MM-dd[ HH:mm]['['ss']']", "[[d.]M.]yy[ H[ x]"),
    *("[HH[ dd]]", "[]yyyy[ 'x'[ MM][ VV]]", "d[[[[.M]]]]['\"'][SSS"),
)
OPTIONS["dates"] += [{"dateFormat": pattern} for pattern in OPTIONAL[1:]]
TIMES = (
    "yyyy-MM-dd HH:mm:ss",
    "yyyyMMddHHmmssSSSSSSSSS",
    "d.M.yy H:m:s.S",
    "y'T'HH''SSSSSS",
    "SS,SSSS",
)
OPTIONS["timestamps"] += [
    {"timeZone": zone, "timestampFormat": f"{time}{offset}", "timestampNTZFormat": time}
    for time, offset, zone in (
        (TIMES[0], "", "Europe/Berlin"),
        (TIMES[0], " VV", "America/New_York"),
        (TIMES[0], "'Z'", "UTC"),
        (TIMES[0], " VV", "UTC"),
        (TIMES[1], "X", "Asia/Kolkata"),
        (TIMES[1], "X", "Europe/Berlin"),
        (TIMES[2], "XX", "Europe/Berlin"),
        (TIMES[2], "XXX", "Africa/Casablanca"),
        (TIMES[3], "XXXX", "America/New_York"),
        (TIMES[3], "XXXXX", "America/New_York"),
        (TIMES[4], "x", "UTC"),
        (TIMES[4], "xx", "UTC"),
        (TIMES[4], "xxx", "UTC"),
        (TIMES[4], "xxxx", "Europe/Berlin"),
        (TIMES[4], "xxxxx", "UTC"),
        (TIMES[0], "Z", "Europe/Berlin"),
        (TIMES[0], "ZZZ", "UTC"),
        (TIMES[0], "ZZZZZ", "Europe/Berlin"),
        (TIMES[0], "ZZZZZ", "UTC"),
        (TIMES[0], "x'VV'VV", "-03:30"),
    )
]
OPTIONS["timestamps"] += [
    {"timeZone": zone, "timestampFormat": pattern, "timestampNTZFormat": pattern}
    for pattern, zone in zip(OPTIONAL, ("Europe/Berlin", "Asia/Kolkata", "UTC") * 2)
]


def arrow_text(df):
    if any(kind in df.schema.simpleString() for kind in ("variant", "interval year", "char(")):
        # toArrow() fails on fields that are not nullable in structs that are null, and on types
        # that only the JVM knows in Arrow.
        table = pa.Table.from_batches(df._collect_as_arrow()).combine_chunks()
    else:
        table = df.toArrow().combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def case(spark, name, query):
    df = spark.sql(query)
    found = {"schema": df.schema.jsonValue(), "arrow": arrow_text(df)}
    found["json"] = [
        {
            "options": {"timeZone": ZONE, **options},
            "rows": column(df, F.to_json(F.struct("*"), {"timeZone": ZONE, **options})),
        }
        for options in OPTIONS[name]
    ]
    try:
        schema = spark_avro_schema(spark, df)
        rows = column(df, F.hex(to_avro(F.struct("*"), schema)))
        found["avro"] = {"schema": schema, "rows": rows}
    except Exception as error:
        found["avro_error"] = str(error).splitlines()[1]
    return found


def column(df, expression):
    return [row.c for row in df.select(expression.alias("c")).collect()]


def main():
    with avro_session() as spark:
        spark.conf.set("spark.sql.session.timeZone", ZONE)
        java = spark._jvm.java.lang.System.getProperty("java.version")
        for name, query in QUERIES.items():
            spark.conf.set(
                "spark.sql.preserveCharVarcharTypeInfo", str(name == "kept_chars").lower()
            )
            found = {"spark": spark.version, "java": java, **case(spark, name, query)}
            text = json.dumps(found, ensure_ascii=True, indent=1)
            (CASES / f"{name}.json").write_text(text + "\n", encoding="utf-8")


PROTOBUF_CASES = Path(__file__).parent / "protobuf_cases"


class Case(NamedTuple):
    """fields: names and types of those of pkg.Root; choice: those of one oneof"""

    query: str
    fields: str
    syntax: str = "proto3"
    choice: tuple[str, ...] = ()


SCALARS = (
    "i int32, l int64, s sint32, t sint64, f sfixed32, g sfixed64, small int32, "
    "tiny int32, b bool, x float, y double, text string, raw bytes, day int32"
)
SCALAR_ROWS = """select cast(a as int) i, a l, cast(-a as int) s, -a t, cast(a as int) f, a g,
    cast(a % 1000 as smallint) small, cast(a % 100 as tinyint) tiny, a > 0 b, cast(a / 4 as float) x,
    a / 8 y, concat('ä', a) text, cast(cast(a as string) as binary) raw, date_add(date'1970-01-01', cast(a as int)) day
    from values (0L), (1L), (-1L), (127L), (128L), (2147483647L), (-2147483647L), (null) t(a)"""

CASES_OF = {
    "scalars": Case(SCALAR_ROWS, SCALARS),
    "scalars_of_proto2": Case(SCALAR_ROWS, SCALARS, "proto2"),
    "unsigned": Case(
        """select try_cast(a as int) i, try_cast(a as int) f, a l, a g, a % 4294967296 w
        from values (1L), (-1L), (4294967295L), (9223372036854775807L) t(a)""",
        "i uint32, f fixed32, l uint64, g fixed64, w int64",
    ),
    "unsigned_of_wider_columns": Case("select 4294967295L w, cast(9223372036854775807 as decimal(20,0)) d", "w uint32, d uint64"),
    "wrapped": Case(
        """select a > 0 b, cast(a as int) i, a l, cast(a as int) ui, a ul, cast(a as float) f,
        cast(a as double) d, cast(a as string) s, cast(cast(a as string) as binary) y
        from values (0L), (7L), (null) t(a)""",
        ("b google.protobuf.BoolValue, i google.protobuf.Int32Value, "
"l google.protobuf.Int64Value, ui google.protobuf.UInt32Value, "
"ul google.protobuf.UInt64Value, f google.protobuf.FloatValue, "
"d google.protobuf.DoubleValue, s google.protobuf.StringValue, "
"y google.protobuf.BytesValue"),
    ),
    "enums": Case(
        "select * from values ('ONE', 1), ('FAR', 100000), ('ZERO', 0), (null, null) t(name, number)",
        "name enum pkg.Kind, number enum pkg.Kind",
    ),
    "times": Case(
        """select cast(d as timestamp) t, interval '1 02:03:04.5' day to second a,
        interval '-1.25' second b, interval '0' day c from values ('1970-01-01 01:00:00'),
        ('2024-07-01 12:34:56.123'), ('1969-12-31 00:00:00'), ('0001-01-01 00:00:00'), (null) t(d)""",
        ("t google.protobuf.Timestamp, a google.protobuf.Duration, "
"b google.protobuf.Duration, c google.protobuf.Duration"),
    ),
    "nested": Case(
        """select named_struct('x', 1) inner, array(named_struct('x', 2), named_struct('x', null)) many,
        array(1, 0, -1) a, array('u', '') t, array(true, false) b, array(1.5D) y,
        map('k', 1, 'l', 0) m, map(1L, named_struct('x', 3)) n, cast(null as array<int>) z""",
        ("inner pkg.Inner, many repeated pkg.Inner, a repeated int32, t repeated string, "
"b repeated bool, y repeated double, m map string int32, n map int64 pkg.Inner, "
"z repeated int32"),
    ),
    "empty": Case(
        "select 0 i, '' t, false b, 0D y, -0D x, cast(array() as array<int>) a, "
        "cast(map() as map<string, int>) m, named_struct('x', 0) inner, cast(null as int) n",
        ("i int32, t string, b bool, y double, x double, a repeated int32, "
"m map string int32, inner pkg.Inner, n int32"),
    ),
    "repeated_of_proto2": Case("select array(1, 0) a, array(1.5D) y", "a repeated int32, y repeated double", "proto2"),
    "names": Case("select 1 `USERID`, 2 b", "userId int32, B int32, other int32"),
    "choice": Case("select * from values (1, null), (null, 2), (null, null) t(a, b)", "a int32, b int32", choice=("a", "b")),
    # What is written otherwise here, or refused on one side: see test_spark_protobuf.
    "micros": Case(
        "select timestamp'2024-07-01 12:34:56.123456' t, interval '0.000001' second d",
        "t google.protobuf.Timestamp, d google.protobuf.Duration",
    ),
    "empty_bytes": Case("select X'' a", "a bytes"),
    "before_1970": Case("select timestamp'1969-12-31 23:59:59.5' t", "t google.protobuf.Timestamp"),
    "required_null": Case("select cast(null as int) a", "a required int32", "proto2"),
    "map_null": Case("select map('k', cast(null as int)) a", "a map string int32"),
    "list_null": Case("select array(1, null) a", "a repeated int32"),
    "both_of_one": Case("select 1 a, 2 b", "a int32, b int32", choice=("a", "b")),
    "beyond_uint32": Case("select 4294967296L a", "a uint32"),
    "beyond_int32": Case("select 1L a", "a int32"),
    "int_as_int64": Case("select 1 a", "a int64"),
    "float_as_double": Case("select float(1.5) a", "a double"),
    "unknown_symbol": Case("select 'TWO' a", "a enum pkg.Kind"),
    "unknown_number": Case("select 2 a", "a enum pkg.Kind"),
    "decimal_as_double": Case("select 1.5BD a", "a double"),
    "ntz": Case("select timestamp_ntz'2024-01-01 00:00:00' a", "a google.protobuf.Timestamp"),
    "text_as_bytes": Case("select 'x' a", "a bytes"),
    "no_field": Case("select 1 a, 2 b", "a int32"),
    "no_column": Case("select 1 a", "a int32, b required int32", "proto2"),
    "not_utf8": Case("select cast(X'61FF' as string) a", "a string"),
    "beyond_long": Case("select cast(18446744073709551615 as decimal(20,0)) a", "a uint64"),
}  # fmt: skip


def file_of(case):
    kinds = dict(field.split(" ", 1) for field in case.fields.split(", "))
    made = one_message(case.syntax, **kinds)
    root = made.message_type[0]
    if case.choice:
        root.oneof_decl.add(name="choice")
    for field in root.field:
        if field.name in case.choice:
            field.oneof_index = 0
    return made


def written(frame, path):
    made = f"hex(to_protobuf(struct(*), 'pkg.Root', '{path}', map()))"
    try:
        return [row.c for row in frame.selectExpr(f"{made} c").collect()]
    except Exception as error:
        return ["error: " + str(error).strip().splitlines()[0]]


def write_protobuf(jar):
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
            (PROTOBUF_CASES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    write_protobuf(sys.argv[1]) if sys.argv[1:] else main()
