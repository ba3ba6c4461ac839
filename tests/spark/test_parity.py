"""The same DataFrame through Spark's JVM Kafka sink and through ours, read back by confluent-kafka."""

from collections import Counter

import pytest

from tests.reading import read_topic
from tests.spark.rows import mixed_rows

ROWS = 100_000


def content(records):
    """Per keyed record: partition, key, value and headers in order; keyless ones anywhere."""
    keyed = Counter((r.partition, r.key, r.value, r.headers) for r in records if r.key is not None)
    keyless = Counter((r.value, r.headers) for r in records if r.key is None)
    return keyed, keyless


def order_of_keys(records):
    """Values of each key, in the order in which a consumer gets them."""
    by_key = {}
    for record in records:
        if record.key:
            by_key.setdefault(record.key, []).append(record.value)
    return by_key


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_partitions_and_headers_are_those_of_the_jvm_sink(
    spark, kafka, new_topic, write, codec
):
    frame = mixed_rows(spark, ROWS)
    ours, theirs = new_topic(7), new_topic(7)
    write(frame, ours, kafka_compression_type=codec)
    write(frame, theirs, sink="kafka", kafka_compression_type=codec)
    our_records = read_topic(kafka.bootstrap_servers, ours)
    their_records = read_topic(kafka.bootstrap_servers, theirs)
    assert len(our_records) == len(their_records) == ROWS
    assert content(our_records) == content(their_records)
    for partition in range(7):
        offsets = [r.offset for r in our_records if r.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_order_of_a_key_is_kept_within_a_task(spark, kafka, new_topic, write):
    topic = new_topic(5)
    frame = spark.range(0, 50_000, 1, 1).selectExpr(
        "cast(id % 100 as string) as key", "cast(id as string) as value"
    )
    write(frame, topic)
    for numbers in order_of_keys(read_topic(kafka.bootstrap_servers, topic)).values():
        assert [int(n) for n in numbers] == sorted(int(n) for n in numbers)


def test_rows_without_key_reach_every_partition(spark, kafka, new_topic, write):
    topic = new_topic(6)
    write(spark.range(0, 1_000_000, 1, 2).selectExpr("cast(id as string) as value"), topic)
    counts = Counter(r.partition for r in read_topic(kafka.bootstrap_servers, topic))
    assert sum(counts.values()) == 1_000_000
    assert set(counts) == set(range(6))
    assert max(counts.values()) <= 2 * 1_000_000 / 6


def test_partition_and_topic_columns(spark, kafka, new_topic, write):
    one, two = new_topic(3), new_topic(4)
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        f"if(id % 2 = 0, '{one}', '{two}') as topic",
        "if(id % 3 = 0, cast(id % 3 as int), null) as partition",
        "cast(id as string) as key",
        "cast(cast(id as string) as binary) as value",
    )
    for sink in ("pykafka-sink", "kafka"):
        write(frame, None, sink=sink)
    for topic in (one, two):
        records = read_topic(kafka.bootstrap_servers, topic)
        assert set(Counter((r.partition, r.key, r.value) for r in records).values()) == {2}
        assert len(records) == 1000


def test_the_topic_option_overrides_the_column(spark, kafka, new_topic, write):
    topic = new_topic(1)
    frame = spark.sql("select 'no-such-topic-anywhere' as topic, 'v' as value")
    write(frame, f" {topic} ")
    assert [r.value for r in read_topic(kafka.bootstrap_servers, topic)] == [b"v"]
