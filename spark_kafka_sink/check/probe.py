"""One record, written for good: with ``--write`` only."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.check.finding import Finding, failed, passed
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import ThreadedProducer

_KEY = b"pykafka-sink check"


def write(config: ProducerConfig, topic: str, clock: Clock) -> Iterator[Finding]:
    """With the producer that tasks have, and its options. Not in a transaction."""
    subject = f"test record to {topic}"
    value = json.dumps({"pykafka-sink check": __version__}).encode()
    columns = {"key": [_KEY], "value": [value]}
    row = pa.record_batch([pa.array(c, pa.binary()) for c in columns.values()], [*columns])
    began_ms = clock.now_ms()
    producer = ThreadedProducer(config, [topic])
    try:
        producer.append(row, ColumnPositions(value=1, key=0, topic_option=topic))
        producer.flush()
    except KafkaSinkError as error:
        yield failed(subject, str(error))
        return
    finally:
        producer.close()
    for partition, report in producer.report.items():
        place = f"{partition}, offset {report.first_offset}"
        yield passed(subject, f"acknowledged: {place}, after {clock.now_ms() - began_ms} ms")
