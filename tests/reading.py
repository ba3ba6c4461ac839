"""Reading topics back with confluent-kafka: tests rely on it, never on the package's own code."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.patience import PATIENCE_S, eventually


class Read(NamedTuple):
    """One record, as another client sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def consumer(bootstrap_servers, **settings):
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # From the first record that is left, where the older ones were deleted.
            "auto.offset.reset": "earliest",
            # An empty fetch would wait for half a second.
            "fetch.wait.max.ms": 10,
            "log_level": 0,
            **settings,
        }
    )


def read_topic(bootstrap_servers, topic, **settings):
    """All records that are in ``topic`` now, per partition in order of their offset.

    ``settings``: of the consumer, by Kafka's keys. Its ``isolation.level`` is read_committed.
    """
    reader = consumer(bootstrap_servers, **settings)
    try:
        partitions = []

        def is_known():
            # The broker that is asked may not have heard of a new topic yet.
            partitions[:] = reader.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            return bool(partitions)

        assert eventually(is_known), f"no broker knows {topic}"
        reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        records = []
        ended = set()
        idle_polls = 0
        while len(ended) < len(partitions):
            # consume() waits for so many messages or for the timeout, whatever comes first.
            messages = reader.consume(10_000, timeout=0.2)
            idle_polls = 0 if messages else idle_polls + 1
            assert idle_polls < 5 * PATIENCE_S, f"nothing more from {topic}"
            for message in messages:
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
                    continue
                headers = tuple((name, value) for name, value in message.headers() or ())
                records.append(
                    Read(
                        message.partition(),
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        headers,
                    )
                )
        return sorted(records, key=lambda r: (r.partition, r.offset))
    finally:
        reader.close()


def values(records):
    return [record.value for record in records]


def read_values(bootstrap_servers, topic, **settings):
    """The values of all records that are in ``topic`` now."""
    return values(read_topic(bootstrap_servers, topic, **settings))
