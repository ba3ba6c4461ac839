"""Options that the metrics tell with each batch: those that bound its speed, nothing secret."""

from __future__ import annotations

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.producer_keys import ACKS_ALL
from spark_kafka_sink.config.sink_options import SinkOptions

_OF_PRODUCER = (
    "batch.size",
    "linger.ms",
    "buffer.memory",
    "max.in.flight.requests.per.connection",
    "max.request.size",
)


def told_settings(options: SinkOptions) -> dict[str, str]:
    """Values as they are in force, given or not, by the names that users write."""
    producer = options.producer
    told = {
        "delivery.guarantee": options.delivery_guarantee,
        "kafka.acks": "all" if producer.acks == ACKS_ALL else str(producer.acks),
        "kafka.enable.idempotence": str(producer.enable_idempotence).lower(),
        **_compression(producer),
    }
    for name in _OF_PRODUCER:
        told[f"kafka.{name}"] = str(getattr(producer, name.replace(".", "_")))
    if producer.max_bytes_per_second is not None:
        told["max.bytes.per.second.per.task"] = str(producer.max_bytes_per_second)
    return told


def _compression(producer: ProducerConfig) -> dict[str, str]:
    codec, level = producer.compression_type, producer.compression_level
    told = {"kafka.compression.type": codec}
    return told if level is None else {**told, f"kafka.compression.{codec}.level": str(level)}
