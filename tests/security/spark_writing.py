"""Numbers, written by one of Spark's sinks and read back by another client."""

from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.reading import read_topic

ROWS = 400


def ids_in(world, topic):
    """What a reader of committed records finds."""
    records = read_topic(world.kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    return sorted(int(record.value or b"") for record in records)


def numbers(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")


def save(frame, sink, topic, options):
    frame.write.format(sink).mode("append").options(**options).option("topic", topic).save()
