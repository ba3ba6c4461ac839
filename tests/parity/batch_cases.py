"""Batch writes: cases of Spark's suites for its own sink, and more. ``world.case`` says how."""

from __future__ import annotations

from typing import Any

from tests.parity.world import WAITS_SHORT, World, case

BATCH = "KafkaSinkBatchSuite"
HEADERS = "array<struct<key:string,value:binary>>"
KEYED = ("cast(id as string) as key", "cast(id as string) as value")


@case(BATCH, out=1)
def headers(world: World) -> None:
    """Headers in order, with repeated keys, null values, none at all"""
    world.save(
        world.rows(
            "cast(id as string) as value",
            f"""case id when 0 then array(named_struct('key', 'a', 'value', cast('b' as binary)))
                when 1 then array(named_struct('key', 'g', 'value', cast('h' as binary)),
                                  named_struct('key', 'g', 'value', cast('i' as binary)))
                when 2 then cast(null as {HEADERS})
                when 3 then cast(array() as {HEADERS})
                else array(named_struct('key', 'ö', 'value', cast(null as binary))) end as headers""",
        ),
        world.topic("out"),
    )


@case(BATCH, default=4, column=4, null=4)
def partition_of_keys_and_column(world: World) -> None:
    """A partition column comes before the key; null leaves it to the key"""
    world.save(world.rows(*KEYED, count=500), world.topic("default"))
    world.save(world.rows(*KEYED, "2 as partition"), world.topic("column"))
    null = world.rows(*KEYED, "cast(null as int) as partition", count=500)
    world.save(null, world.topic("null"))


@case(BATCH, out=4)
def partition_column_before_partitioner(world: World) -> None:
    """A partition column comes before kafka.partitioner.class"""
    robin = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    world.save(world.rows(*KEYED, "2 as partition"), world.topic("out"), **robin)


@case(BATCH)
def null_topic(world: World) -> None:
    """A null topic without the option topic is refused"""
    world.save_refused(world.rows("cast(null as string) as topic", "'v' as value"))


@case(BATCH, True, out=1)
def save_mode_ignore(world: World) -> None:
    """Save mode ignore is refused, and nothing written"""
    world.save_refused(world.rows("'v' as value"), world.topic("out"), mode="ignore")


@case(BATCH, True, out=1)
def save_mode_overwrite(world: World) -> None:
    """Save mode overwrite is refused, and nothing written"""
    world.save_refused(world.rows("'v' as value"), world.topic("out"), mode="overwrite")


@case("KafkaSourceProvider", True, out=1)
def default_save_mode(world: World) -> None:
    """Without a save mode"""
    world.save(world.rows("'v' as value"), world.topic("out"), mode="")


@case(BATCH, out=3)
def analyzed_plan(world: World) -> None:
    """Values computed from all columns, SPARK-20496"""
    numbers = world.spark.range(1, 1000)
    world.save(numbers.selectExpr("to_json(struct(*)) as value"), world.topic("out"))


@case(BATCH, out=1)
def small_buffer(world: World) -> None:
    """1,000 records of 15,000 bytes through kafka.buffer.memory=16384"""
    values = world.rows("rpad(cast(id as string), 15000, '.') as value", count=1000)
    world.save(values, world.topic("out"), kafka_buffer_memory=16384)


@case("KafkaSinkBatchSuite, SPARK-29500")
def missing_topic(world: World) -> None:
    """A topic that is not there, and that brokers do not create"""
    world.save_refused(world.rows("'v' as value"), "not-there", **WAITS_SHORT)


@case("KafkaSinkBatchSuite, SPARK-29500", out=2)
def partition_that_is_not_there(world: World) -> None:
    """A partition column with a number that the topic does not have"""
    frame = world.rows("'v' as value", "7 as partition")
    world.save_refused(frame, world.topic("out"), **WAITS_SHORT)


@case("KafkaWriter")
def wrong_types(world: World) -> None:
    """Columns of wrong types are refused, each with its types"""
    for columns in (
        ("1 as key", "'v' as value"),
        ("1 as value",),
        ("'v' as value", "'x' as partition"),
        ("'v' as value", "1 as headers"),
    ):
        world.save_refused(world.rows(*columns), "t")
    world.save_refused(world.rows("1 as topic", "'v' as value"))


@case("KafkaWriter")
def missing_columns(world: World) -> None:
    """No value; no topic"""
    world.save_refused(world.rows("'k' as key"), "t")
    world.save_refused(world.rows("'k' as key", "'v' as value"))


@case("KafkaWriter")
def case_of_columns(world: World) -> None:
    """Names of columns are taken as they are written"""
    world.save_refused(world.rows("'v' as VALUE"), "t")


@case("KafkaSourceProviderSuite", out=1)
def case_of_options(world: World) -> None:
    """Names of options are taken in any case"""
    options = {"TOPIC": world.topic("out"), "Kafka.Compression.TYPE": "gzip"}
    world.save(world.rows(*KEYED), **options)


@case("KafkaSourceProviderSuite", out=1)
def options_of_others(world: World) -> None:
    """Options without kafka. that belong to others have no effect"""
    world.save(world.rows(*KEYED), world.topic("out"), includeHeaders="true", pathGlob="*.x")


@case("KafkaSourceProviderSuite")
def serializers(world: World) -> None:
    """Serializers are refused"""
    for name in ("kafka.key.serializer", "kafka.value.serializer"):
        world.save_refused(world.rows("'v' as value"), "t", **{name: "foo"})


@case(out=1)
def prefix_forgotten(world: World) -> None:
    """A producer option whose kafka. was forgotten"""
    world.save(world.rows("'v' as value"), world.topic("out"), linger_ms=5)


@case(out=2)
def empty_frame(world: World) -> None:
    """No rows"""
    world.save(world.rows(*KEYED, count=0), world.topic("out"))


@case(out=1)
def tombstones_and_empty(world: World) -> None:
    """Null, empty and absent keys and values stay what they are"""
    world.save(
        world.rows(
            "case id % 3 when 0 then null when 1 then '' else 'k' end as key",
            "case cast(id / 3 as int) when 0 then null when 1 then '' else 'v' end as value",
            count=9,
        ),
        world.topic("out"),
    )


@case(out=3)
def columns_in_any_order(world: World) -> None:
    """Order does not matter, other columns are ignored, strings and binaries are taken"""
    world.save(
        world.rows(
            "id as other",
            "cast(cast(id as string) as binary) as value",
            "array(id) as more",
            "cast(cast(id as string) as binary) as key",
        ),
        world.topic("out"),
    )


@case(one=3, two=4)
def topic_of_each_row(world: World) -> None:
    """Rows go to the topics that they name"""
    one, two = world.topic("one"), world.topic("two")
    world.save(world.rows(*KEYED, f"if(id % 2 = 0, '{one}', '{two}') as topic", count=1000))


@case(out=1)
def option_before_null_topics(world: World) -> None:
    """With the option topic the column is not looked at"""
    frame = world.rows(*KEYED, "if(id = 0, null, 'nowhere') as topic")
    world.save(frame, world.topic("out"))


@case(out=1)
def too_large(world: World) -> None:
    """A record larger than kafka.max.request.size"""
    world.save_refused(world.rows("repeat('x', 2000000) as value", count=1), world.topic("out"))


@case(out=3)
def order_in_partition(world: World) -> dict[str, Any]:
    """Rows of a task keep their order in each partition"""
    world.save(
        world.rows("cast(id % 3 as int) as partition", KEYED[1], count=9000), world.topic("out")
    )
    return {"in order": ["out"]}


@case(**dict.fromkeys(("none", "gzip", "snappy", "lz4", "zstd"), 3))
def codecs(world: World) -> None:
    """Every codec"""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        rows = world.rows(*KEYED, count=2000)
        world.save(rows, world.topic(codec), kafka_compression_type=codec)


@case(out=3, leader=3)
def acks(world: World) -> None:
    """kafka.acks=1 and all"""
    world.save(world.rows(*KEYED), world.topic("leader"), kafka_acks="1")
    world.save(world.rows(*KEYED), world.topic("out"), kafka_acks="all")
