"""Every legal shape of a column arrives as it was."""

import datetime

import pytest
from pyspark.sql import functions as F

from tests.reading import read_topic


@pytest.fixture(params=["false", "true"])
def large_types(request, spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", request.param)
    yield request.param
    spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_strings_and_binaries_of_both_widths(spark, kafka, new_topic, write, large_types):
    topic = new_topic(2)
    frame = spark.range(0, 100).selectExpr(
        "concat('schlüssel-', id) as key",
        "cast(concat('wert-', id) as binary) as value",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers",
    )
    write(frame, topic)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert {(r.key.decode(), r.value.decode()) for r in records} == {
        (f"schlüssel-{i}", f"wert-{i}") for i in range(100)
    }
    assert all(r.headers == (("h", r.key.split(b"-")[1]),) for r in records)


def test_many_small_arrow_batches(spark, kafka, new_topic, write):
    topic = new_topic(3)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        write(spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) as value"), topic)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    values = sorted(int(r.value) for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == list(range(1000))


def test_no_rows_and_empty_partitions(spark, kafka, new_topic, write):
    topic = new_topic(1)
    write(spark.range(0).selectExpr("cast(id as string) as value"), topic)
    write(spark.range(0, 3, 1, 8).where("id = 1").selectExpr("cast(id as string) as value"), topic)
    assert [r.value for r in read_topic(kafka.bootstrap_servers, topic)] == [b"1"]


def test_columns_of_nulls_alone(spark, kafka, new_topic, write):
    topic = new_topic(2)
    frame = spark.range(0, 10).select(
        F.lit(None).cast("string").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("timestamp").alias("timestamp"),
    )
    write(frame, topic)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [(r.key, r.value, r.headers) for r in records] == [(None, None, ())] * 10
    now_ms = datetime.datetime.now(datetime.timezone.utc).timestamp() * 1000
    assert all(abs(r.timestamp - now_ms) < 120_000 for r in records)


def test_a_timestamp_column_becomes_the_records_timestamp(spark, kafka, new_topic, write):
    topic = new_topic(2)
    frame = spark.range(0, 100).selectExpr(
        "cast(id as string) as value",
        "if(id % 10 = 9, null, timestamp_millis(1357034400000 + id * 1000)) as timestamp",
    )
    write(frame, topic)
    for record in read_topic(kafka.bootstrap_servers, topic):
        number = int(record.value)
        if number % 10 == 9:
            assert record.timestamp > 1_700_000_000_000
        else:
            assert record.timestamp == 1357034400000 + number * 1000


def test_column_order_and_further_columns_do_not_matter(spark, kafka, new_topic, write):
    topic = new_topic(1)
    frame = spark.sql("select 1 as Value, map('a', 1) as extra, 'v' as value, 2.5 as x, 'k' as key")
    write(frame, topic)
    assert [(r.key, r.value) for r in read_topic(kafka.bootstrap_servers, topic)] == [(b"k", b"v")]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_megabyte_passes_where_it_is_allowed(spark, kafka, new_topic, write, codec):
    topic = new_topic(1, max_message_bytes="4000000")
    frame = spark.range(0, 4, 1, 1).selectExpr(
        "cast(id as string) as key",
        "cast(concat_ws('', transform(sequence(1, 15625), i -> sha2(cast(i * 31 + id as string), 256))) as binary) as value",
    )
    write(frame, topic, kafka_max_request_size="3000000", kafka_compression_type=codec)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [len(r.value) for r in records] == [1_000_000] * 4
    expected = {bytes(r.value) for r in frame.select("value").collect()}
    assert {r.value for r in records} == expected
