"""The producer under test, outside Spark."""

import pyarrow as pa

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import ThreadedProducer


def open_producer(bootstrap_servers, **options):
    values = {"bootstrap.servers": bootstrap_servers}
    values.update({name.replace("_", "."): value for name, value in options.items()})
    return ThreadedProducer(ProducerConfig.parse(values))


def batch_of(**columns):
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("ms", "UTC"),
    }
    arrays = [pa.array(values, types[name]) for name, values in columns.items()]
    arrays = [
        a.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(a.type) else a for a in arrays
    ]
    return pa.record_batch(arrays, names=list(columns))


def plan_of(batch, topic):
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    return ColumnPositions(topic_option=topic, **positions)


def send(bootstrap_servers, topic, batches, **options):
    """Append all batches, flush, close."""
    producer = open_producer(bootstrap_servers, **options)
    try:
        for batch in batches:
            producer.append(batch, plan_of(batch, topic))
        producer.flush()
    finally:
        producer.close()
    return producer
