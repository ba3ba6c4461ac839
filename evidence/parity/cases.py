"""Cases of Spark's suites for its own sink, and more: batch writes and streams. ``world.case`` says how.

``python -m evidence.parity.cases SERVERS FOLDER PREFIX JARS [CASE ...]``, by the interpreter of each Spark
version, writes them with both sinks in one session, and prints a line of JSON for each case and sink:
what was refused, what the case has seen, and the error that ended it.
"""

import inspect
import json
import platform
import sys
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from evidence.parity.world import (
    CASES,
    HAS_DATA_SOURCES,
    OURS,
    SPARKS,
    WAITS_SHORT,
    World,
    case,
    topic_name,
    until,
)

BATCH = "KafkaSinkBatchSuite"
HEADERS = "array<struct<key:string,value:binary>>"
KEYED = ("cast(id as string) as key", "cast(id as string) as value")


@case(BATCH, out=1)
def headers(world):
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
def partition_of_keys_and_column(world):
    """A partition column comes before the key; null leaves it to the key"""
    world.save(world.rows(*KEYED, count=500), world.topic("default"))
    world.save(world.rows(*KEYED, "2 as partition"), world.topic("column"))
    null = world.rows(*KEYED, "cast(null as int) as partition", count=500)
    world.save(null, world.topic("null"))


@case(BATCH, out=4)
def partition_column_before_partitioner(world):
    """A partition column comes before kafka.partitioner.class"""
    robin = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    world.save(world.rows(*KEYED, "2 as partition"), world.topic("out"), **robin)


@case(BATCH)
def null_topic(world):
    """A null topic without the option topic is refused"""
    world.save_refused(world.rows("cast(null as string) as topic", "'v' as value"))


@case(BATCH, True, out=1)
def save_mode_ignore(world):
    """Save mode ignore is refused, and nothing written"""
    world.save_refused(world.rows("'v' as value"), world.topic("out"), mode="ignore")


@case(BATCH, True, out=1)
def save_mode_overwrite(world):
    """Save mode overwrite is refused, and nothing written"""
    world.save_refused(world.rows("'v' as value"), world.topic("out"), mode="overwrite")


@case("KafkaSourceProvider", True, out=1)
def default_save_mode(world):
    """Without a save mode"""
    world.save(world.rows("'v' as value"), world.topic("out"), mode="")


@case(BATCH, out=3)
def analyzed_plan(world):
    """Values computed from all columns, SPARK-20496"""
    numbers = world.spark.range(1, 1000)
    world.save(numbers.selectExpr("to_json(struct(*)) as value"), world.topic("out"))


@case(BATCH, out=1)
def small_buffer(world):
    """1,000 records of 15,000 bytes through kafka.buffer.memory=16384"""
    values = world.rows("rpad(cast(id as string), 15000, '.') as value", count=1000)
    world.save(values, world.topic("out"), kafka_buffer_memory=16384)


@case("KafkaSinkBatchSuite, SPARK-29500")
def missing_topic(world):
    """A topic that is not there, and that brokers do not create"""
    world.save_refused(world.rows("'v' as value"), "not-there", **WAITS_SHORT)


@case("KafkaSinkBatchSuite, SPARK-29500", out=2)
def partition_that_is_not_there(world):
    """A partition column with a number that the topic does not have"""
    frame = world.rows("'v' as value", "7 as partition")
    world.save_refused(frame, world.topic("out"), **WAITS_SHORT)


@case("KafkaWriter")
def wrong_types(world):
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
def missing_columns(world):
    """No value; no topic"""
    world.save_refused(world.rows("'k' as key"), "t")
    world.save_refused(world.rows("'k' as key", "'v' as value"))


@case("KafkaWriter")
def case_of_columns(world):
    """Names of columns are taken as they are written"""
    world.save_refused(world.rows("'v' as VALUE"), "t")


@case("KafkaSourceProviderSuite", out=1)
def case_of_options(world):
    """Names of options are taken in any case"""
    options = {"TOPIC": world.topic("out"), "Kafka.Compression.TYPE": "gzip"}
    world.save(world.rows(*KEYED), **options)


@case("KafkaSourceProviderSuite", out=1)
def options_of_others(world):
    """Options without kafka. that belong to others have no effect"""
    world.save(world.rows(*KEYED), world.topic("out"), includeHeaders="true", pathGlob="*.x")


@case("KafkaSourceProviderSuite")
def serializers(world):
    """Serializers are refused"""
    for name in ("kafka.key.serializer", "kafka.value.serializer"):
        world.save_refused(world.rows("'v' as value"), "t", **{name: "foo"})


@case(out=1)
def prefix_forgotten(world):
    """A producer option whose kafka. was forgotten"""
    world.save(world.rows("'v' as value"), world.topic("out"), linger_ms=5)


@case(out=1)
def too_large(world):
    """A record larger than kafka.max.request.size"""
    world.save_refused(world.rows("repeat('x', 2000000) as value", count=1), world.topic("out"))


MICRO_BATCH = "KafkaSinkMicroBatchStreamingSuite"
_BATCHES = ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10))
_AVAILABLE = {"availableNow": True}


@case(MICRO_BATCH, out=3)
def stream_with_topic_field(world):
    """The topic in a column"""
    frame = world.lines(f"'{world.topic('out')}' as topic", "value")
    world.feed(world.start(frame), *_BATCHES)


@case(MICRO_BATCH, out=3)
def stream_with_topic_option(world):
    """The topic as an option"""
    world.feed(world.start(world.lines(), world.topic("out")), *_BATCHES)


@case(MICRO_BATCH, out=3)
def stream_with_field_and_option(world):
    """The option comes before the column"""
    frame = world.lines("'foo' as topic", "value")
    world.feed(world.start(frame, world.topic("out")), *_BATCHES)


@case(MICRO_BATCH)
def stream_with_bad_schema(world):
    """No topic; no value"""
    world.put(1)
    world.stream_refused(world.lines("value as key", "value"))
    world.stream_refused(world.lines("'t' as topic", "value as key"))


@case(MICRO_BATCH)
def stream_with_wrong_types(world):
    """Columns of wrong types are refused, each with its types"""
    world.put(1)
    for columns in (
        ("cast('1' as int) as topic", "value"),
        ("'t' as topic", "cast(value as int) as value"),
        ("'t' as topic", "cast(value as int) as key", "value"),
        ("'t' as topic", "value", "value as partition"),
    ):
        world.stream_refused(world.lines(*columns))


@case(MICRO_BATCH)
def stream_to_missing_topic(world):
    """A topic that is not there, and that brokers do not create"""
    world.put(1)
    world.stream_refused(world.lines(), "not-there-either", **WAITS_SHORT)


@case(MICRO_BATCH)
def stream_with_serializers(world):
    """Serializers are refused"""
    world.put(1)
    for name in ("kafka.key.serializer", "kafka.value.serializer"):
        world.stream_refused(world.lines(), "t", **{name: "foo"})


@case(MICRO_BATCH, True, out=1)
def stream_progress(world):
    """The progress tells how many rows were written"""
    world.put(1, 2, 3)
    query = world.start(world.lines(), world.topic("out"))
    try:
        query.processAllAvailable()
        rows = [progress["sink"]["numOutputRows"] for progress in query.recentProgress]
    finally:
        query.stop()
    return {"numOutputRows": [count for count in rows if count > 0]}


@case(MICRO_BATCH, True, out=1)
def stream_in_update_mode(world):
    """Output mode update"""
    world.put(1, 2, 3)
    query = world.start(world.lines(), world.topic("out"), mode="update", trigger=_AVAILABLE)
    query.awaitTermination()


@case("KafkaSinkSuite of Spark 2", out=1)
def stream_in_complete_mode(world):
    """Output mode complete: the whole result with each micro-batch"""
    counts = world.lines().groupBy("value").count()
    frame = counts.selectExpr("value as key", "cast(count as string) as value")
    query = world.start(frame, world.topic("out"), mode="complete")
    world.feed(query, ("a", "a", "b"), ("c", "b", "d"))


def _numbers_of_kafka(world):
    """A stream of what is written to the topic ``source`` first."""
    source = world.topic("source")
    frame = world.spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
    frame.write.format("kafka").mode("append").option(
        "kafka.bootstrap.servers", world.servers
    ).option("topic", source).save()
    reader = world.spark.readStream.format("kafka").option("subscribe", source)
    reader = reader.option("kafka.bootstrap.servers", world.servers)
    return reader.option("startingOffsets", "earliest").load().select("value")


def _written(world):
    reader = world.spark.read.format("kafka").option("subscribe", world.topic("out"))
    return reader.option("kafka.bootstrap.servers", world.servers).load().count()


@case("KafkaContinuousSinkSuite", True, source=1, out=1)
def stream_with_continuous_trigger(world):
    """trigger(continuous=…)"""
    frame = _numbers_of_kafka(world)
    trigger = {"continuous": "1 second"}
    query = world.start(frame, world.topic("out"), trigger=trigger, checkpoint="own")
    offsets, commits = world.folder / "own" / "offsets", world.folder / "own" / "commits"
    try:
        until(lambda: (offsets / "3").exists() and (world.sink == OURS or _written(world) == 100))
    finally:
        query.stop()
    return {"epochs committed": any(file.name.isdigit() for file in commits.iterdir())}


@case("KafkaRealTimeModeSuite", True, source=1, out=1)
def stream_in_real_time_mode(world):
    """trigger(realTime=…)"""
    if "realTime" not in inspect.signature(DataStreamWriter.trigger).parameters:
        return {"skipped": "this Spark has no real-time mode in Python"}
    world.spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")
    frame = _numbers_of_kafka(world)
    trigger = {"realTime": "1 second"}
    query = world.start(frame, world.topic("out"), mode="update", trigger=trigger)
    try:
        until(lambda: _written(world) == 100)
    finally:
        query.stop()
    return {}


def session(jars, folder):
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.task.maxFailures", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


def run(spark, servers, folder, prefix, name, sink):
    here = folder / name / sink
    here.mkdir(parents=True)

    def named(topic):
        return topic_name(prefix, name, topic, sink)

    world = World(spark, servers, sink, here, named)
    seen, error = None, None
    try:
        seen = CASES[name].run(world)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    line = {"case": name, "sink": sink, "error": error, "refused": world.errors, "seen": seen}
    print(json.dumps(line), flush=True)


def main(servers, folder, prefix, jars, *names):
    print(json.dumps({"spark": pyspark.__version__, "python": platform.python_version()}))
    spark = session(jars, Path(folder))
    one = partial(run, spark, servers, Path(folder), prefix)
    for name in names or CASES:
        if HAS_DATA_SOURCES or not CASES[name].is_of_format:
            for sink in (SPARKS, OURS):
                one(name, sink)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
