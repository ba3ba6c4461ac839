"""The contenders: each writes the same DataFrame to the same kind of topic, as its users would.

All get the same producer settings, under the names of Kafka's Java producer; without settings, each
uses its own defaults. All are idempotent by default. Each returns when every record is
acknowledged, and raises otherwise.

Workers import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.empty_sink import NAME as EMPTY_SINK
from benchmarks.empty_sink import REPORT_OPTION, EmptySink

OURS_FORMAT = "pykafka-sink"
JVM_FORMAT = "kafka"
COMMON_SETTINGS: Mapping[str, str] = {
    "acks": "all",
    "batch.size": "131072",
    "linger.ms": "5",
    "buffer.memory": "33554432",
}
"""Settings of both sides of a pair, besides the codec, except at points about defaults."""

_FLUSH_TIMEOUT_S = 120.0
_POLL_S = 0.1


class Target(NamedTuple):
    """Servers, topic and settings. ``settings``: of the Java producer; empty for defaults.

    topic: empty if the rows name theirs
    """

    bootstrap_servers: str
    topic: str
    settings: Mapping[str, str]

    def options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka sink, which are also ours."""
        options = {f"kafka.{name}": value for name, value in self.settings.items()}
        topic = {"topic": self.topic} if self.topic else {}
        return {**options, **topic, "kafka.bootstrap.servers": self.bootstrap_servers}


# --- inside Spark --------------------------------------------------------------------------------


def ours(frame: DataFrame, target: Target) -> None:
    """Write with this package."""
    options = {**target.options(), "metrics.log": "false"}
    frame.write.format(OURS_FORMAT).mode("append").options(**options).save()


def jvm(frame: DataFrame, target: Target) -> None:
    """Write with Spark's own Kafka sink."""
    frame.write.format(JVM_FORMAT).mode("append").options(**target.options()).save()


def empty(frame: DataFrame, target: Target | None = None, report_path: str | None = None) -> None:
    """Write to a Python sink that drops its input: the floor of every sink in Python."""
    frame.sparkSession.dataSource.register(EmptySink)
    options = {} if report_path is None else {REPORT_OPTION: report_path}
    frame.write.format(EMPTY_SINK).mode("append").options(**options).save()


def confluent(frame: DataFrame, target: Target) -> None:
    """Write with confluent-kafka in ``mapInArrow``, one ``produce`` per row."""
    _map_in_arrow(frame, target, _produce_rows)


def confluent_batch(frame: DataFrame, target: Target) -> None:
    """Write with confluent-kafka, a ``produce_batch`` per Arrow batch; no headers."""
    _map_in_arrow(frame, target, _produce_batches)


SINKS: dict[str, Callable[[DataFrame, Target], None]] = {
    "ours": ours,
    "jvm": jvm,
    "empty": empty,
    "confluent": confluent,
    "confluent-batch": confluent_batch,
}
WRITES_NOTHING = frozenset({"empty"})


# --- tasks of the peers --------------------------------------------------------------------------

_Produce = Callable[[Any, Iterable[Any], Target], int]


def _map_in_arrow(frame: DataFrame, target: Target, produce: _Produce) -> None:
    task = partial(_run_confluent_task, produce, target)
    frame.mapInArrow(task, "written long").collect()


def _run_confluent_task(
    produce: _Produce, target: Target, arrow_batches: Iterable[Any]
) -> Iterator[Any]:
    """Run one producer per task. Yields the number of rows once all are acknowledged."""
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer(
        {
            **librdkafka_settings(target),
            # Reporting every delivery to Python would cost more than the delivery.
            "delivery.report.only.error": True,
            "on_delivery": lambda error, message: failures.append(error),
        }
    )
    written = produce(producer, arrow_batches, target)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left or failures:
        raise RuntimeError(f"{left} records not written; errors: {failures[:3]}")
    yield pa.record_batch([pa.array([written], pa.int64())], names=["written"])


def librdkafka_settings(target: Target) -> dict[str, Any]:
    """Return the Java producer's settings under librdkafka's names, for the same behaviour."""
    settings: dict[str, Any] = {
        "bootstrap.servers": target.bootstrap_servers,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        **target.settings,
    }
    buffer_memory = settings.pop("buffer.memory", None)
    if buffer_memory is not None:
        settings["queue.buffering.max.kbytes"] = int(buffer_memory) // 1024
        # By default librdkafka would wait after 100,000 messages, however small.
        settings["queue.buffering.max.messages"] = 1_000_000
        settings["batch.num.messages"] = 100_000
    return settings


def _column(arrow_batch: Any, name: str) -> list[Any]:
    if name not in arrow_batch.schema.names:
        return [None] * arrow_batch.num_rows
    return list(arrow_batch.column(name).to_pylist())


def _produce_rows(producer: Any, arrow_batches: Iterable[Any], target: Target) -> int:
    written = 0
    for arrow_batch in arrow_batches:
        columns = [_column(arrow_batch, name) for name in ("value", "key", "headers")]
        for value, key, headers in zip(*columns, strict=True):
            pairs = None if headers is None else [(h["key"], h["value"]) for h in headers]
            while True:
                try:
                    producer.produce(target.topic, value=value, key=key, headers=pairs)
                    break
                except BufferError:
                    producer.poll(_POLL_S)
        written += arrow_batch.num_rows
        producer.poll(0)
    return written


def _produce_batches(producer: Any, arrow_batches: Iterable[Any], target: Target) -> int:
    written = 0
    for arrow_batch in arrow_batches:
        values, keys = _column(arrow_batch, "value"), _column(arrow_batch, "key")
        messages = [{"value": v, "key": k} for v, k in zip(values, keys, strict=True)]
        while messages:
            try:
                producer.produce_batch(target.topic, messages)
            except BufferError:
                pass
            # Messages that found no room are marked; they are tried again, in order.
            messages = [message for message in messages if message.pop("_error", None)]
            producer.poll(_POLL_S if messages else 0)
        written += arrow_batch.num_rows
    return written
