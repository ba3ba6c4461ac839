"""A schema registry asked as a query does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.answers import Schema
from spark_kafka_sink.registry.schemas import Wanted, find
from tests.unit.registry_server import Registry, serving

HUSH = "hush-0815"
TEXT = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"b","type":"string"}]}'


class Times:
    """Time that passes where somebody waits, and by 1 ms with each look."""

    def __init__(self) -> None:
        self.ms = 0
        self.pauses: list[int] = []

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    timestamp_ms = now_ms

    def perf_ns(self) -> int:
        return self.now_ms() * 1_000_000

    def wait(self, pause_ms: int) -> None:
        self.pauses.append(pause_ms)
        self.ms += pause_ms


@contextmanager
def fresh_registry() -> Iterator[Registry]:
    """Of which nothing is known yet."""
    schemas._known.clear()
    with serving(Registry()) as made:
        yield made
    schemas._known.clear()


def options(url: str, **more: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "b:1",
            "topic": "t",
            "value.format": "avro",
            "schema.registry.url": url,
            **named,
        }
    )


def asked_of(given: SinkOptions, text: str | None = TEXT) -> Schema:
    assert given.registry is not None
    assert given.registry.config is not None
    assert given.registry.value is not None
    assert given.formats is not None
    location = given.formats.value.id_location
    wanted = Wanted("value", given.topic, text, location, given.registry.value)
    return find(given.registry.config, wanted)


def found(url: str, text: str | None = TEXT, **more: str) -> Schema:
    return asked_of(options(url, **more), text)


def refusal(url: str, text: str | None = TEXT, **more: str) -> str:
    with pytest.raises(KafkaSinkError) as refused:
        found(url, text, **more)
    assert HUSH not in str(refused.value)
    return str(refused.value)


def paths(registry: Registry) -> list[str]:
    return [f"{asked.method} {asked.path}" for asked in registry.asked]
