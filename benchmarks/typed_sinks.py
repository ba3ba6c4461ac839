"""Write typed columns to Kafka: with this package's formats, and with Spark's functions.

Each contender takes the same DataFrame of any columns. ``Target.settings`` are the Java producer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.avro.functions import to_avro

from benchmarks.sinks import JVM_FORMAT, OURS_FORMAT, Target, empty, librdkafka_settings

_FLUSH_TIMEOUT_S = 120.0
_POLL_S = 0.1


class Registry(NamedTuple):
    """The registry's address, and the Avro schema. schema_id: the schema's id in the registry."""

    url: str
    schema_id: int
    schema: str

    @property
    def prefix(self) -> bytes:
        """Return the five bytes of Confluent's serializers."""
        return b"\0" + self.schema_id.to_bytes(4, "big")


Write = Callable[[DataFrame, Target], None]


def typed_sinks(registry: Registry) -> dict[str, Write]:
    """Return the contenders by name, ours first."""
    return {
        "ours, json": partial(_ours, {"value.format": "json"}),
        "jvm, to_json": partial(_encoded, JVM_FORMAT, _json),
        "ours, to_json": partial(_encoded, OURS_FORMAT, _json),
        "ours, avro": partial(_ours, _avro_options(registry)),
        "jvm, to_avro": partial(_encoded, JVM_FORMAT, partial(_avro, registry.prefix)),
        "ours, to_avro": partial(_encoded, OURS_FORMAT, partial(_avro, registry.prefix)),
        "empty": empty,
    }


def confluent_sink(registry: Registry) -> Write:
    """Return confluent-kafka and its AvroSerializer in ``mapInArrow``, a call of each per row."""
    return partial(_confluent, registry)


def _ours(more: Mapping[str, str], frame: DataFrame, target: Target) -> None:
    _save(frame, OURS_FORMAT, {**target.options(), **more})


def _encoded(name: str, encode: Callable[[], Any], frame: DataFrame, target: Target) -> None:
    _save(frame.select(encode().alias("value")), name, target.options())


def _save(frame: DataFrame, name: str, options: Mapping[str, str]) -> None:
    quiet = {"metrics.log": "false"} if name == OURS_FORMAT else {}
    frame.write.format(name).mode("append").options(**options, **quiet).save()


def _json() -> Any:
    return functions.to_json(functions.struct("*"))


def _avro(prefix: bytes) -> Any:
    return functions.concat(functions.lit(prefix), to_avro(functions.struct("*")))


def _avro_options(registry: Registry) -> dict[str, str]:
    return {
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "use.schema.id": str(registry.schema_id),
        "auto.register.schemas": "false",
    }


def _confluent(registry: Registry, frame: DataFrame, target: Target) -> None:
    task = partial(_serialize_and_produce, registry, target.bootstrap_servers, target.topic)
    frame.mapInArrow(partial(task, dict(target.settings)), "written long").collect()


def _serialize_and_produce(
    registry: Registry,
    bootstrap_servers: str,
    topic: str,
    settings: Mapping[str, str],
    arrow_batches: Iterable[Any],
) -> Iterator[Any]:
    """Run one producer per task. Yields the number of rows once all are acknowledged."""
    from confluent_kafka import Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    failures: list[Any] = []
    # The serializer registers under its own topic's subject: one request per task.
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), registry.schema)
    producer = Producer(
        {
            **librdkafka_settings(Target(bootstrap_servers, topic, settings)),
            "delivery.report.only.error": True,
            "on_delivery": lambda error, message: failures.append(error),
        }
    )
    context = SerializationContext(topic, MessageField.VALUE)
    written = 0
    for arrow_batch in arrow_batches:
        for row in arrow_batch.to_pylist():
            while True:
                try:
                    producer.produce(topic, value=serialize(row, context))
                    break
                except BufferError:
                    producer.poll(_POLL_S)
        written += arrow_batch.num_rows
        producer.poll(0)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left or failures:
        raise RuntimeError(f"{left} records not written; errors: {failures[:3]}")
    yield pa.record_batch([pa.array([written], pa.int64())], names=["written"])
