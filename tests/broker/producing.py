"""The producer under test outside Spark, and topics as confluent-kafka sees them."""

import contextlib
from contextlib import closing
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from spark_kafka_sink.base.errors import BootstrapError, sentence
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.patience import PATIENCE_S, eventually, reason_given_time


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
    with producer_for(bootstrap_servers, **options) as producer:
        for batch in batches:
            producer.append(batch, plan_of(batch, topic))
        producer.flush()
    return producer


def creating(bootstrap_servers, kafka=None, **creation):
    """``creation``: the options ``topic.creation.*``, with underscores."""
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic.creation.enable": "true"}
    options.update({f"kafka.{name}": value for name, value in (kafka or {}).items()})
    options.update({f"topic.creation.{n.replace('_', '.')}": v for n, v in creation.items()})
    return SinkOptions.parse(options).producer


@contextlib.contextmanager
def producer_for(bootstrap_servers, **options):
    """``options``: Kafka's keys, with underscores."""
    with closing(open_producer(bootstrap_servers, **options)) as producer:
        yield producer


def append(producer, topic, values):
    batch = batch_of(value=values)
    producer.append(batch, plan_of(batch, topic))


def write(config, topic, values):
    """Append, flush, close."""
    with closing(ThreadedProducer(config)) as producer:
        append(producer, topic, values)
        producer.flush()


T = TypeVar("T")

_UNSETTLED = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def _settled(ask):
    """What ``ask`` returns, once all brokers have heard of the topic: a new partition's leader that
    nobody has written to may not know of it yet.
    """
    answers = []

    def is_answered():
        try:
            answers.append(ask())
        except KafkaException as error:
            reason = error.args[0]
            if not reason.retriable() and reason.code() not in _UNSETTLED:
                raise
        return bool(answers)

    assert eventually(is_answered), "no broker leads the topic"
    return answers[0]


class Topics:
    """The topics of a cluster, always as they are now."""

    def __init__(self, bootstrap_servers):
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def replicas(self, topic):
        """The brokers of each partition, sorted; nothing for a topic that does not exist."""
        # All topics are asked for: asking for one could create it.
        known = self._admin.list_topics(timeout=PATIENCE_S).topics
        if topic not in known:
            return {}
        return {index: sorted(p.replicas) for index, p in known[topic].partitions.items()}

    def created(self, topic):
        """``replicas`` of a topic that exists: the broker that is asked may not know it yet."""
        seen = []

        def is_known():
            seen.append(self.replicas(topic))
            return bool(seen[-1])

        assert eventually(is_known), f"no broker knows {topic}"
        return seen[-1]

    def leaders(self, topic):
        """The leader of each partition."""
        partitions = self._admin.list_topics(timeout=PATIENCE_S).topics[topic].partitions
        return {index: p.leader for index, p in partitions.items()}

    def records_count(self, topic):
        """How many offsets the topic's partitions have given out."""
        latest = {
            TopicPartition(topic, index): OffsetSpec.latest() for index in self.created(topic)
        }

        def count():
            asked = self._admin.list_offsets(latest)
            return sum(future.result(PATIENCE_S).offset for future in asked.values())

        return _settled(count)

    def own_configs(self, topic):
        """The configs that were set for the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = _settled(
            lambda: self._admin.describe_configs([resource])[resource].result(PATIENCE_S)
        )
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == own}

    def topic_id(self, topic):
        """None for a topic that does not exist."""
        if not self.replicas(topic):
            return None
        asked = TopicCollection([topic])
        described = _settled(lambda: self._admin.describe_topics(asked)[topic].result(PATIENCE_S))
        return str(described.topic_id)

    def grow(self, topic, partitions):
        growth = self._admin.create_partitions([NewPartitions(topic, partitions)])
        growth[topic].result(PATIENCE_S)

    def delete(self, topic):
        """Delete a topic, and wait until the brokers no longer know it."""
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)
        assert eventually(lambda: not self.replicas(topic))


def produce(bootstrap_servers, topic, values):
    """Send ``values`` with acks=all and wait until each is acknowledged."""
    failures = []

    def on_delivery(error, message):
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


_USUALLY_ENOUGH_MS = 300


def why_unreachable(admin, *wanted):
    """The error without its code, with as much time as it takes to find out ``wanted``."""

    def ask(timeout_ms):
        return admin.metadata([], False, admin.deadline_in(timeout_ms))

    return sentence(reason_given_time(ask, BootstrapError, _USUALLY_ENOUGH_MS, *wanted))
