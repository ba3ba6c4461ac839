"""Streams: cases of Spark's suites for its own sink, and more. ``world.case`` says how."""

from __future__ import annotations

import inspect
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from tests.parity.world import OURS, WAITS_SHORT, World, case, until

MICRO_BATCH = "KafkaSinkMicroBatchStreamingSuite"
_BATCHES = ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10))
_AVAILABLE = {"availableNow": True}
_TCP_ESTABLISHED = "01"


@case(MICRO_BATCH, out=3)
def stream_with_topic_field(world: World) -> None:
    """The topic in a column"""
    frame = world.lines(f"'{world.topic('out')}' as topic", "value")
    world.feed(world.start(frame), *_BATCHES)


@case(MICRO_BATCH, out=3)
def stream_with_topic_option(world: World) -> None:
    """The topic as an option"""
    world.feed(world.start(world.lines(), world.topic("out")), *_BATCHES)


@case(MICRO_BATCH, out=3)
def stream_with_field_and_option(world: World) -> None:
    """The option comes before the column"""
    frame = world.lines("'foo' as topic", "value")
    world.feed(world.start(frame, world.topic("out")), *_BATCHES)


@case(MICRO_BATCH)
def stream_with_bad_schema(world: World) -> None:
    """No topic; no value"""
    world.put(1)
    world.stream_refused(world.lines("value as key", "value"))
    world.stream_refused(world.lines("'t' as topic", "value as key"))


@case(MICRO_BATCH)
def stream_with_wrong_types(world: World) -> None:
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
def stream_to_missing_topic(world: World) -> None:
    """A topic that is not there, and that brokers do not create"""
    world.put(1)
    world.stream_refused(world.lines(), "not-there-either", **WAITS_SHORT)


@case(MICRO_BATCH)
def stream_with_serializers(world: World) -> None:
    """Serializers are refused"""
    world.put(1)
    for name in ("kafka.key.serializer", "kafka.value.serializer"):
        world.stream_refused(world.lines(), "t", **{name: "foo"})


@case(MICRO_BATCH, True, out=1)
def stream_progress(world: World) -> dict[str, Any]:
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
def stream_in_update_mode(world: World) -> None:
    """Output mode update"""
    world.put(1, 2, 3)
    query = world.start(world.lines(), world.topic("out"), mode="update", trigger=_AVAILABLE)
    query.awaitTermination()


@case("KafkaSinkSuite of Spark 2", out=1)
def stream_in_complete_mode(world: World) -> None:
    """Output mode complete: the whole result with each micro-batch"""
    counts = world.lines().groupBy("value").count()
    frame = counts.selectExpr("value as key", "cast(count as string) as value")
    query = world.start(frame, world.topic("out"), mode="complete")
    world.feed(query, ("a", "a", "b"), ("c", "b", "d"))


@case(out=3)
def stream_that_is_restarted(world: World) -> None:
    """Goes on where it was, nothing twice"""
    for batch in _BATCHES:
        query = world.start(world.lines(), world.topic("out"), checkpoint="same")
        world.feed(query, batch)


@case(out=3)
def stream_of_what_is_available(world: World) -> None:
    """trigger(availableNow=True), with a restart"""
    for batch in _BATCHES:
        world.put(*batch)
        trigger = {"trigger": _AVAILABLE, "checkpoint": "same"}
        world.start(world.lines(), world.topic("out"), **trigger).awaitTermination()


@case(out=3)
def stream_by_foreach_batch(world: World) -> None:
    """A batch write inside foreachBatch"""

    def write(frame: DataFrame, batch_id: int) -> None:
        world.save(frame, world.topic("out"))

    writer = world.lines().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(world.folder / "checkpoint"))
    world.feed(writer.start(), *_BATCHES)


def _numbers_of_kafka(world: World) -> DataFrame:
    """A stream of what is written to the topic ``source`` first."""
    source = world.topic("source")
    frame = world.spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
    frame.write.format("kafka").mode("append").option(
        "kafka.bootstrap.servers", world.servers
    ).option("topic", source).save()
    reader = world.spark.readStream.format("kafka").option("subscribe", source)
    reader = reader.option("kafka.bootstrap.servers", world.servers)
    return reader.option("startingOffsets", "earliest").load().select("value")


def _written(world: World) -> int:
    reader = world.spark.read.format("kafka").option("subscribe", world.topic("out"))
    return reader.option("kafka.bootstrap.servers", world.servers).load().count()


@case("KafkaContinuousSinkSuite", True, source=1, out=1)
def stream_with_continuous_trigger(world: World) -> dict[str, Any]:
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
def stream_in_real_time_mode(world: World) -> dict[str, Any]:
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


def _connections(servers: str) -> int:
    """Connections to the broker, of all processes of this machine."""
    port = int(servers.rsplit(":", 1)[1])
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="utf-8") as lines:
            for line in list(lines)[1:]:
                remote, state = line.split()[2:4]
                count += int(remote.rsplit(":", 1)[1], 16) == port and state == _TCP_ESTABLISHED
    return count


@case("InternalKafkaProducerPoolSuite", out=3)
def stream_keeps_its_producers(world: World) -> dict[str, Any]:
    """Connections do not grow over 12 micro-batches"""
    counts = []
    query = world.start(world.lines("value as key", "value"), world.topic("out"))
    try:
        for number in range(12):
            world.put(number)
            query.processAllAvailable()
            counts.append(_connections(world.servers))
    finally:
        query.stop()
    # A producer for each micro-batch would leave ten; two slots may each have begun late.
    return {"connections are flat": counts[-1] - counts[1] <= 4}
