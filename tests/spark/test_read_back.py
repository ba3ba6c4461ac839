"""What Spark's own Kafka source reads of what the sink has written: the same DataFrame."""

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from tests.spark.rows import mixed_rows

ROWS = 2_000


def check_same_rows(ours, expected):
    """Kafka keeps the order within a partition only, and Spark's columns of it may be null."""
    assert_df_equality(ours, expected, ignore_row_order=True, ignore_nullable=True)


def as_read(frame):
    """What a reader of Kafka gets: bytes, and no list of headers where there are none."""
    headers = F.when(F.size("headers") > 0, F.col("headers"))
    return frame.select(
        F.col("key").cast("binary"), F.col("value").cast("binary"), headers.alias("headers")
    )


def test_keys_values_and_headers_are_those_that_were_written(
    spark, new_topic, write, read_by_spark
):
    """Among them null and empty keys, tombstones, headers without value, names beyond ASCII."""
    topic = new_topic(3)
    frame = mixed_rows(spark, ROWS)
    write(frame, topic)
    check_same_rows(read_by_spark(topic).select("key", "value", "headers"), as_read(frame))


def test_records_with_a_key_are_where_the_jvm_sink_puts_them(
    spark, new_topic, write, read_by_spark
):
    ours, theirs = new_topic(7), new_topic(7)
    frame = mixed_rows(spark, ROWS).where("key is not null")
    write(frame, ours, kafka_compression_type="lz4")
    write(frame, theirs, sink="kafka", kafka_compression_type="lz4")
    columns = ["partition", "key", "value", "headers"]
    check_same_rows(read_by_spark(ours).select(columns), read_by_spark(theirs).select(columns))


def test_topic_partition_and_timestamp_are_the_columns(spark, new_topic, write, read_by_spark):
    topic = new_topic(3)
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        f"'{topic}' as topic",
        "cast(id % 3 as int) as partition",
        "cast(cast(id as string) as binary) as value",
        # Kafka keeps milliseconds.
        "timestamp_millis(1600000000000 + id * 7) as timestamp",
    )
    write(frame, None)
    check_same_rows(read_by_spark(topic).select(frame.columns), frame)


def test_what_a_failed_job_has_written_is_not_read(spark, new_topic, write, read_by_spark):
    """With exactly-once, by a reader of committed records."""
    topic = new_topic(3)
    options = {
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": f"read-back-{topic}",
        "transaction.log.replication.factor": "1",
    }
    frame = spark.range(0, ROWS, 1, 4).selectExpr("cast(cast(id as string) as binary) as value")
    # Not a constant that Spark would compute beforehand: the other rows are written.
    last = f"if(value = cast('{ROWS - 1}' as binary), raise_error('made to fail'), value) as value"
    with pytest.raises(Exception, match="made to fail"):
        write(frame.selectExpr(last), topic, **options)
    write(frame, topic, **options)
    committed = read_by_spark(topic, **{"kafka.isolation.level": "read_committed"})
    check_same_rows(committed.select("value"), frame)
    assert read_by_spark(topic).count() > ROWS, "the failed job has written nothing"
