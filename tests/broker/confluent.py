"""Writing and reading by an independent client."""

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.patience import PATIENCE_S

_QUIET = {"log_level": 0}


def produce(bootstrap_servers, topic, values):
    """Send ``values`` with acks=all and wait until each is acknowledged."""
    failures = []

    def on_delivery(error, message):
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", **_QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume(bootstrap_servers, topic, partitions=1):
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
        values = []
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
