"""Writing and reading by an independent client."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.patience import PATIENCE_S

_QUIET = {"log_level": 0}


def produce(bootstrap_servers: str, topic: str, values: Iterable[bytes]) -> None:
    """Send ``values`` with acks=all and wait until each is acknowledged."""
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message[bytes, bytes]) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", **_QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[bytes]:
    """All values that are in ``topic`` now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **_QUIET,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        values: list[bytes] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing more from {topic}"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        return values
    finally:
        consumer.close()
