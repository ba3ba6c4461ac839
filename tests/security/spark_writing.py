"""Numbers, written by one of Spark's sinks and read back by another client."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.reading import read_topic
from tests.security.cases import World

ROWS = 400


def ids_in(world: World, topic: str) -> list[int]:
    """What a reader of committed records finds."""
    records = read_topic(world.kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    return sorted(int(record.value or b"") for record in records)


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")


def save(frame: DataFrame, sink: str, topic: str, options: dict[str, str]) -> None:
    frame.write.format(sink).mode("append").options(**options).option("topic", topic).save()
