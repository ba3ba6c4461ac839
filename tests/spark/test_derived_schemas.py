"""Derived schemas do not depend on what Spark knows of nulls in one write or one micro-batch."""

import pytest
from pyspark.sql import functions as f

import spark_kafka_sink
from tests.reading import read_topic

# As to_avro of nullable columns: each value after the number of its branch, 0.
FIRST = bytes.fromhex("00 0a  00 0e  00 02 00 02 00")
SECOND = bytes.fromhex("00 0a  00 02  00 02 00 02 00")
SCHEMA = "id int, x int, list array<int>"


def options_of(kafka, topic):
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    return {**servers, "value.format": "avro"}


def values(kafka, topic):
    return [record.value for record in read_topic(kafka.bootstrap_servers, topic)]


def frames(spark):
    """The same row, of which Spark knows other things of nulls."""
    row = spark.sql("select 5 id, 7 x, array(1) list")
    nullable = spark.createDataFrame([(5, 7, [1]), (None, None, None)], SCHEMA)
    filtered = nullable.where("id is not null and x is not null and list is not null")
    return [row, filtered, row.union(nullable.where("x is null")).limit(1)]


@pytest.mark.parametrize("api", ["save", "write", "batch_writer"])
def test_a_row_has_the_same_bytes_whatever_spark_knows_of_nulls(spark, kafka, new_topic, api):
    topic = new_topic(1)
    options = options_of(kafka, topic)
    for frame in frames(spark):
        if api == "save":
            frame.write.format("pykafka-sink").mode("append").options(**options).save()
        elif api == "write":
            spark_kafka_sink.write(frame, options)
        else:
            spark_kafka_sink.batch_writer(options)(frame, 0)
    assert values(kafka, topic) == [FIRST] * 3


def test_a_stream_whose_sources_are_empty_in_turn(spark, kafka, new_topic, tmp_path):
    """Spark leaves out the source without data, and with it that columns may be null."""
    topic = new_topic(1)
    sources = {}
    for name in ("a", "b"):
        sources[name] = str(tmp_path / name)
        spark.createDataFrame([], SCHEMA).write.parquet(sources[name])
    a, b = (spark.readStream.schema(SCHEMA).parquet(folder) for folder in sources.values())
    defaults = {"id": f.lit(0), "x": f.lit(0), "list": f.array(f.lit(1))}
    never_null = a.select(
        *(f.coalesce(name, value).alias(name) for name, value in defaults.items())
    )
    writer = never_null.union(b).writeStream.format("pykafka-sink")
    writer = writer.options(**options_of(kafka, topic))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        for name, x in (("a", 7), ("b", 1), ("a", 7), ("b", 1)):
            rows = spark.createDataFrame([(5, x, [1])], SCHEMA)
            rows.write.mode("append").parquet(sources[name])
            query.processAllAvailable()
    finally:
        query.stop()
    assert values(kafka, topic) == [FIRST, SECOND] * 2
