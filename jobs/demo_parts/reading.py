"""The demo's reader: reads the whole topic with confluent-kafka, not with this package."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.jobs.progress import Step

if TYPE_CHECKING:
    import confluent_kafka

TOPIC = "flights"
PARTITIONS = 3
MOST_IDLE_POLLS = 150
Row = dict[str, Any]
ReadValue = Callable[[bytes], Row]


def value_reader(schema_registry_url: str | None) -> ReadValue:
    """Return a reader of JSON values; with a registry, Confluent's own deserializer of Avro."""
    if schema_registry_url is None:
        return json.loads
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    read = AvroDeserializer(SchemaRegistryClient({"url": schema_registry_url}))
    return lambda value: read(value, None)


@dataclass
class Content:
    """Count and checksum of rows, independent of their order."""

    rows: int = 0
    checksum: int = 0

    def add(self, values: list[str]) -> None:
        """Add one row: the texts of its values, without missing values."""
        self.rows += 1
        self.checksum = (self.checksum + zlib.crc32("\x1f".join(values).encode())) % 2**64


@dataclass
class ReadPartition:
    """Figures of the records read from one partition."""

    records: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass
class ReadBack:
    """The result of reading the topic. ``sample``: one of its records, as text."""

    content: Content = field(default_factory=Content)
    partitions: dict[int, ReadPartition] = field(default_factory=dict)
    wrong_keys: int = 0
    sample: str = ""


def read_back(bootstrap_servers: str, read_value: ReadValue, step: Step) -> ReadBack:
    """Read the topic to its end with confluent-kafka."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "pykafka-sink-demo",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    )
    result = ReadBack()
    at_end: set[int] = set()
    idle_polls = 0
    while len(at_end) < PARTITIONS:
        # consume() returns after that many messages or after the timeout.
        messages = consumer.consume(10_000, timeout=0.2)
        idle_polls = 0 if messages else idle_polls + 1
        if idle_polls == MOST_IDLE_POLLS:
            raise TimeoutError("the broker sends no more records")
        for message in messages:
            error = message.error()
            if error is None:
                take(result, message, read_value(message.value()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise confluent_kafka.KafkaException(error)
        step.say(f"Reading back with confluent-kafka: {result.content.rows:,} records")
    consumer.close()
    return result


def take(result: ReadBack, message: confluent_kafka.Message, row: Row) -> None:
    """Count one record with the value ``row``. Avro values have nulls, JSON values omit them."""
    result.content.add([str(value) for value in row.values() if value is not None])
    result.wrong_keys += message.key() != row["dest"].encode()
    partition = result.partitions.setdefault(message.partition(), ReadPartition())
    partition.records += 1
    partition.bytes += len(message.key()) + len(message.value())
    if partition.first_offset < 0:
        partition.first_offset = message.offset()
    partition.last_offset = message.offset()
    if not result.sample:
        result.sample = describe_record(message, row)


def describe_record(message: confluent_kafka.Message, row: Row) -> str:
    """Return one record as a text for users."""
    is_text = message.value().startswith(b"{")
    written = message.value().decode() if is_text else ""
    return (
        f"\na record: partition {message.partition()}, offset {message.offset()}, "
        f"timestamp {message.timestamp()[1]}\n"
        f"  key    {message.key().decode()}\n"
        f"  value  {written if is_text else json.dumps(row)}"
    )
