"""A schema registry asked as a query does it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import SchemaRequest, find
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
    schemas._answers.clear()
    with serving(Registry()) as made:
        yield made
    schemas._answers.clear()


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
    assert given.registry.config is not None
    assert given.registry.value is not None
    location = given.formats.value.id_location
    wanted = SchemaRequest("value", given.topic, text, location, given.registry.value)
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


def jwt() -> str:
    parts = [{"alg": "none"}, {"exp": 4_000_000_000, "sub": "s", "iat": 1}]
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*texts, "x"])


@contextmanager
def serving_token(status: int, content: dict[str, str]) -> Iterator[str]:
    """The address of an issuer of tokens that answers this."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
