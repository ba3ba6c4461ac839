"""A schema registry in this process, asked as a query does it: what Confluent's REST API answers, how it fails."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

import pytest
from pyspark.sql.types import StructField, StructType

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import RegistryClient
from spark_kafka_sink.registry.schemas import SchemaRequest, find
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.unit.security import token_endpoints


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Registry:
    """subjects: schemas by subject, in the order of their versions; schemas: all, by id from 1

    fails: an answer for all requests instead, by status, and a JSON object or a text
    headers: of each answer
    refuses: subjects whose next schema is incompatible; metadata: by id
    serialized: by the text of a .proto file, what format=serialized makes of it
    normalized: by the text of a schema, the one that is kept where ?normalize=true is asked
    """

    def __init__(self):
        self.subjects = {}
        self.schemas = []
        self.asked = []
        self.fails = None
        self.headers = []
        self.refuses = set()
        self.serialized = {}
        self.normalized = {}
        self.metadata = {}
        self.has_guids = True
        self.waits_for = None
        self.url = ""

    def add(self, subject, schema):
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, asked):
        if self.fails is not None:
            return self.fails
        if "normalize=true" in asked.path and asked.body["schema"] in self.normalized:
            kept = {**asked.body, "schema": self.normalized[asked.body["schema"]]}
            asked = asked._replace(body=kept)
        status, content = self._found(asked)
        if "format=serialized" in asked.path and content.get("schema") in self.serialized:
            content = {**content, "schema": self.serialized[content["schema"]]}
        return status, content

    def _found(self, asked):
        parts = [unquote(part) for part in urlsplit(asked.path).path.strip("/").split("/")]
        if parts == ["subjects"]:
            return 200, [*self.subjects]
        if parts[0] == "compatibility":
            messages = ["reader type: STRING"] if parts[2] in self.refuses else []
            return 200, {"is_compatible": not messages, "messages": messages}
        if parts[0] == "schemas":
            number = UUID(parts[2]).int if parts[1] == "guids" else int(parts[2])
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

    def _told(self, number):
        guid = {"guid": str(UUID(int=number))} if self.has_guids else {}
        return {"id": number, **self.schemas[number - 1], **guid}


@contextmanager
def serving(registry, context=None):
    """``registry.url`` is its address. context: for https"""

    def answer(handler):
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        asked = Asked(handler.command, handler.path, dict(handler.headers), body)
        registry.asked.append(asked)
        if registry.waits_for is not None:
            registry.waits_for.wait()
        status, content = registry.answer(asked)
        kind, data = ("text/html", content)
        if not isinstance(content, str):
            kind, data = ("application/json", json.dumps(content))
        handler.answer(status, [("Content-Type", kind), *registry.headers], data.encode())

    with token_endpoints.serving(context, do_GET=answer, do_POST=answer) as (port, _):
        registry.url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
        try:
            yield registry
        finally:
            if registry.waits_for is not None:
                registry.waits_for.set()


HUSH = "hush-0815"
TEXT = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"b","type":"string"}]}'


class Times:
    """Time that passes where somebody waits, and by 1 ms with each look."""

    def __init__(self):
        self.ms = 0
        self.pauses = []

    def now_ms(self):
        self.ms += 1
        return self.ms

    timestamp_ms = now_ms

    def perf_ns(self):
        return self.now_ms() * 1_000_000

    def wait(self, pause_ms):
        self.pauses.append(pause_ms)
        self.ms += pause_ms


@contextmanager
def fresh_registry():
    """Of which nothing is known yet."""
    schemas._answers.clear()
    with serving(Registry()) as made:
        yield made
    schemas._answers.clear()


def let_answers_age():
    """As when the time is over for which a stream does not ask again, nor warn."""
    for key, answer in schemas._answers.items():
        schemas._answers[key] = answer._replace(ask_at_ms=0, warn_at_ms=0)


def options(url, **more):
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


def columns_of(is_nullable=True, **columns):
    return StructType([StructField(name, kind, is_nullable) for name, kind in columns.items()])


def planned_rows(registry, columns, **more):
    """As the driver plans them."""
    made = options(registry.url, **more)
    return plan_schemas(plan_rows(columns, made), made)[0]


def request_of(given, text=TEXT, **more):
    """The configuration, and the request for a schema of values."""
    location = given.formats.value.id_location
    made = SchemaRequest("value", given.topic, text, location, given.registry.value)
    return given.registry.config, made._replace(**more)


def asked_of(given, text=TEXT):
    return find(*request_of(given, text))


def client_of(*urls, times=None, **more):
    config = options(",".join(urls), **more).registry.config
    return RegistryClient(config, times, times.wait) if times else RegistryClient(config)


def unused_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def found(url, text=TEXT, **more):
    return asked_of(options(url, **more), text)


def refusal(url, text=TEXT, **more):
    with pytest.raises(KafkaSinkError) as refused:
        found(url, text, **more)
    assert HUSH not in str(refused.value)
    return str(refused.value)


def paths(registry):
    return [f"{asked.method} {asked.path}" for asked in registry.asked]


JWT = token_endpoints.jwt_of({"exp": 4_000_000_000, "sub": "s", "iat": 1})


def serving_token(status, content, context=None):
    """The address of an issuer of tokens that answers this, and what it was asked."""
    answer = token_endpoints.Scripted(status, json.dumps(content).encode())
    return token_endpoints.scripted(answer, context=context)


def oauth(issuer):
    given = {"issuer_endpoint_url": issuer, "client_id": "me", "client_secret": HUSH}
    return {f"schema_registry_bearer_auth_{name}": value for name, value in given.items()}
