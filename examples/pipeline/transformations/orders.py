"""Two flows into one sink: new files of JSON lines become records of the topic orders."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink(
    "orders_topic",
    "pykafka-sink",
    {
        "kafka.bootstrap.servers": os.environ["KAFKA"],
        "topic": "orders",
        "key.columns": "id",
        "value.format": "json",
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": "orders-{query}",  # {query}: the name of the flow
        "transaction.log.replication.factor": "1",  # only for a cluster of one broker
    },
)


def new_orders(folder: str) -> DataFrame:
    """The lines of the files that no update has read yet."""
    schema = "id BIGINT, customer STRING, amount DOUBLE"
    return spark.readStream.schema(schema).json(os.path.join(os.environ["ORDERS"], folder))


@dp.append_flow(target="orders_topic")
def web_orders() -> DataFrame:
    """Orders of the web shop."""
    return new_orders("web")


@dp.append_flow(target="orders_topic")
def shop_orders() -> DataFrame:
    """Orders of the shops."""
    return new_orders("shop")
