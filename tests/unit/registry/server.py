"""A schema registry in this process, asked as a query does it: what Confluent's REST API answers, how it fails."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import RegistryClient, Schema
from spark_kafka_sink.registry.schemas import SchemaRequest, find

Answer = tuple[int, Any]


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Registry:
    """subjects: schemas by subject, in the order of their versions; schemas: all, by id from 1

    fails: an answer for all requests instead, by status, and a JSON object or a text
    refuses: subjects whose next schema is incompatible; metadata: by id
    serialized: by the text of a .proto file, what format=serialized makes of it
    normalized: by the text of a schema, the one that is kept where ?normalize=true is asked
    """

    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.fails: Answer | None = None
        self.refuses: set[str] = set()
        self.serialized: dict[str, str] = {}
        self.normalized: dict[str, str] = {}
        self.metadata: dict[int, dict[str, str]] = {}
        self.has_guids = True
        self.waits_for: threading.Event | None = None
        self.url = ""

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, asked: Asked) -> Answer:
        if self.fails is not None:
            return self.fails
        if "normalize=true" in asked.path and asked.body["schema"] in self.normalized:
            kept = {**asked.body, "schema": self.normalized[asked.body["schema"]]}
            asked = asked._replace(body=kept)
        status, content = self._found(asked)
        if "format=serialized" in asked.path and content.get("schema") in self.serialized:
            content = {**content, "schema": self.serialized[content["schema"]]}
        return status, content

    def _found(self, asked: Asked) -> Answer:
        parts = [unquote(part) for part in urlsplit(asked.path).path.strip("/").split("/")]
        if parts == ["subjects"]:
            return 200, [*self.subjects]
        if parts[0] == "compatibility":
            messages = ["reader type: STRING"] if parts[2] in self.refuses else []
            return 200, {"is_compatible": not messages, "messages": messages}
        if parts[0] == "schemas":
            number = int(parts[2])
            if number > len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self._told(number)
        subject, versions = parts[1], self.subjects.get(parts[1])
        if parts[-1] == "versions" and asked.method == "POST":
            if subject in self.refuses:
                return 409, {"error_code": 409, "message": "reader type: STRING not compatible"}
            return 200, self._told(self.add(subject, asked.body))
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if asked.method == "POST":
            if asked.body not in self.schemas:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            number = self.schemas.index(asked.body) + 1
            return 200, {**self._told(number), "version": versions.index(number) + 1}
        if parts[-1] == "metadata":
            pairs = parse_qsl(urlsplit(asked.path).query)
            wanted = {key: value for (_, key), (_, value) in zip(pairs[::2], pairs[1::2])}
            has = [n for n in versions if wanted.items() <= self.metadata.get(n, {}).items()]
            if not has:
                return 404, {"error_code": 40402, "message": "Version not found."}
            return 200, {**self._told(has[-1]), "version": versions.index(has[-1]) + 1}
        if parts[-1] != "latest" and int(parts[-1]) > len(versions):
            return 404, {"error_code": 40402, "message": "Version not found."}
        number = versions[-1] if parts[-1] == "latest" else versions[int(parts[-1]) - 1]
        return 200, {**self._told(number), "version": versions.index(number) + 1}

    def _told(self, number: int) -> dict[str, Any]:
        guid = {"guid": str(UUID(int=number))} if self.has_guids else {}
        return {"id": number, **self.schemas[number - 1], **guid}


@contextmanager
def serving(registry: Registry, context: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """``registry.url`` is its address. context: for https"""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, self.path, dict(self.headers), body)
            registry.asked.append(asked)
            if registry.waits_for is not None:
                registry.waits_for.wait()
            status, content = registry.answer(asked)
            is_text = isinstance(content, str)
            data = content.encode() if is_text else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    registry.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        if registry.waits_for is not None:
            registry.waits_for.set()
        server.shutdown()
        server.server_close()
        thread.join()


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


def request_of(given: SinkOptions, text: str | None = TEXT, **more: Any) -> Any:
    """The configuration, and the request for a schema of values."""
    location = given.formats.value.id_location
    made = SchemaRequest("value", given.topic, text, location, given.registry.value)
    return given.registry.config, made._replace(**more)


def asked_of(given: SinkOptions, text: str | None = TEXT) -> Schema:
    return find(*request_of(given, text))


def client_of(*urls: str, times: Times | None = None, **more: str) -> RegistryClient:
    config = options(",".join(urls), **more).registry.config
    return RegistryClient(config, times, times.wait) if times else RegistryClient(config)


def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


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
