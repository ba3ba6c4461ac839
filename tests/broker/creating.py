"""Producers that are open for a while, and those that may create topics."""

import contextlib

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.broker.producing import batch_of, open_producer, plan_of


def creating(bootstrap_servers, kafka=None, **creation):
    """``creation``: the options ``topic.creation.*``, with underscores."""
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic.creation.enable": "true"}
    options.update({f"kafka.{name}": value for name, value in (kafka or {}).items()})
    options.update({f"topic.creation.{n.replace('_', '.')}": v for n, v in creation.items()})
    return SinkOptions.parse(options).producer


@contextlib.contextmanager
def producer_for(bootstrap_servers, **options):
    """``options``: Kafka's keys, with underscores."""
    producer = open_producer(bootstrap_servers, **options)
    try:
        yield producer
    finally:
        producer.close()


def append(producer, topic, values):
    batch = batch_of(value=values)
    producer.append(batch, plan_of(batch, topic))


def write(config, topic, values):
    """Append, flush, close."""
    producer = ThreadedProducer(config)
    try:
        append(producer, topic, values)
        producer.flush()
    finally:
        producer.close()
