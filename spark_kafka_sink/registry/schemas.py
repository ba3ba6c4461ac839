"""Find or register the registry's schema of keys or values, and mark records with its id.

An id and the schema that encodes the rows always come from one answer of the registry.

Each query asks the registry because the registry may have been rebuilt since the last query. Spark
does not report to the process that plans a micro-batch whether its query has just started, so a
stream asks again after 10 s (:func:`find`). The process caches a schema for its query without an
expiry.

**One rule for all failures of a registry.** The first look-up of a query fails. Later the query
continues with the schema that it knows, whatever the registry answers, and logs a warning each
minute. It asks again after a minute, or later if the registry says so with Retry-After. A schema
that the query does not know yet, because its columns have changed, is a first look-up. Each job
is a query of its own.

Spark may plan each micro-batch in a new process. A file (``SchemaCache``) keeps an earlier
process's answer. A process without an answer of its own reads the file, and asks nevertheless,
unless the earlier process has just failed to. The file is deleted after the driver ends.

A registry never gives an id to another schema, so a cached id always belongs to its cached schema.
Only the latest schema may have changed, and with it the schema of the bytes:

- **Queries do not share answers**: the key of an answer is a query's checkpoint and name, or the
  run that Spark reports.
- **A restarted query with its checkpoint** looks like a running one. For as long as a running query
  does (10 s, or while the registry fails), it may write with the earlier latest
  schema. With Avro and a registry's Protobuf, the cached schema encodes the bytes, so readers
  decode the bytes correctly. A JSON Schema is compared with the columns again. Another message in
  a Protobuf file has another key.
- **Bytes that the user has encoded**, with the id of the latest schema: only the registry knows
  which schema is latest, so each micro-batch asks, while the registry does not fail.
- A checkpoint without a micro-batch belongs to a new query, even if an earlier query used the same
  folder. Only a checkpoint in the driver's own file system can be inspected.

Bytes before a key or value, or a header, name its schema.

The references of a registry's schemas are resolved. In Avro, definitions replace names. Protobuf
schemas get the files that they import, JSON Schemas the schemas that ``$ref`` may name.

Source: ``PrefixSchemaIdSerializer``, ``HeaderSchemaIdSerializer``, ``MessageIndexes`` of Confluent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.entry_points import load, raised_at
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, sentence, warn
from spark_kafka_sink.base.machine import (
    PrivateFolderError,
    folder_of_spark,
    private_folder,
    process_identity,
    read_owned_file,
)
from spark_kafka_sink.base.model import schema_id_header_name, zigzag_varint
from spark_kafka_sink.base.text import MOST_SCHEMA_VALUES, parse_json, values_in
from spark_kafka_sink.config.formats import HEADER
from spark_kafka_sink.config.registry import (
    RECORD_NAME,
    TOPIC_NAME,
    Reference,
    RegistryConfig,
    SchemaOptions,
)
from spark_kafka_sink.formats.avro_schema import NAMED, PRIMITIVE, UNNAMED, full_name
from spark_kafka_sink.formats.plan import ProtobufFile
from spark_kafka_sink.registry.client import (
    INCOMPATIBLE,
    INVALID,
    MAX_RESPONSE_BYTES,
    NOT_FOUND,
    SUBJECT_NOT_FOUND,
    RegistryClient,
    RegistryError,
    RegistryRefusedError,
    RegistryUnavailableError,
    Schema,
)

# --- references ----------------------------------------------------------------------------------

_MAX_REFERENCES = 100
_NAMED = tuple(NAMED)  # a type may be an object, which no set can be asked for


def with_references(client: RegistryClient, schema: Schema) -> Schema:
    """Return ``schema`` as one complete text, or, for Protobuf and JSON, with ``files``.

    A missing reference of a JSON Schema is omitted. Raises RegistryError.
    """
    if schema.kind in ("JSON", "PROTOBUF"):
        files = tuple((name, other.text) for name, other in _referenced(client, schema))
        return schema._replace(files=files)
    if not schema.references or schema.kind != "AVRO":
        return schema
    schemas = [_parsed(client, name, other) for name, other in _referenced(client, schema)]
    schemas.append(_parsed(client, f"of id {schema.id}", schema))
    inlining = _Inlining()
    try:
        for parsed in schemas:
            inlining.add(parsed, "")
        text = json.dumps(inlining.of(schemas[-1], ""))
    except (AttributeError, KeyError, RecursionError, TypeError):
        raise RegistryError(
            f"the schema of id {schema.id} that the schema registry {client.name} tells, or one "
            "that it builds on, is no Avro schema",
            code="REGISTRY-016",
        ) from None
    return schema._replace(text=text)


def _parsed(client: RegistryClient, name: str, schema: Schema) -> Any:
    try:
        return parse_json(schema.text)
    except ValueError as error:
        raise RegistryError(
            f"the schema {name} that the schema registry {client.name} tells is no Avro schema, "
            f"for it is no JSON: {error}",
            code="REGISTRY-016",
        ) from None


def _referenced(client: RegistryClient, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield all references, direct or not, by name, each after its own references.

    The first of two references with one name counts, as in Confluent's ``AbstractSchemaProvider``.
    Only references of a JSON Schema may be missing, or come twice.
    """
    is_json = schema.kind == "JSON"
    names: set[str] = set()
    fetched: dict[tuple[str, int], Schema | None] = {}
    budget = _Budget()
    budget.take(schema)
    pending = [*reversed(schema.references)]
    while pending:
        name, subject, version = pending[-1]
        if (subject, version) in fetched or (name in names and not is_json):
            pending.pop()
            found = fetched.get((subject, version))
            if found is not None and (name not in names or is_json):
                names.add(name)
                yield name, found
            continue
        if len(fetched) == _MAX_REFERENCES:
            problem = f"a schema builds on more than {_MAX_REFERENCES} others"
            raise RegistryError(problem, code="REGISTRY-016")
        fetched[subject, version] = None
        try:
            referenced = client.version(subject, version, schema.kind == "PROTOBUF")
        except RegistryRefusedError:
            if not is_json:
                raise
        else:
            budget.take(referenced)
            fetched[subject, version] = referenced
            pending += reversed(referenced.references)


class _Budget:
    """The limits of one answer, for a schema together with all that it builds on."""

    def __init__(self) -> None:
        self._characters = MAX_RESPONSE_BYTES
        self._values = MOST_SCHEMA_VALUES

    def take(self, schema: Schema) -> None:
        """Raise RegistryError if nothing is left for this schema."""
        self._characters -= len(schema.text)
        # A reference is an object with three values.
        self._values -= values_in(schema.text) + 4 * len(schema.references)
        if self._characters < 0 or self._values < 0:
            raise RegistryError(
                f"a schema and those that it builds on have more than {MAX_RESPONSE_BYTES:,} "
                f"characters, or {MOST_SCHEMA_VALUES:,} values, which are not taken",
                code="REGISTRY-016",
            )


class _Inlining:
    """Replaces the first use of each name by the type's definition, as Avro requires.

    All types of the references are known by their full names, as in Java's parser, including types
    defined inside another type.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, str]] = {}  # with the namespace around the definition
        self._written: set[str] = set()

    def add(self, node: Any, space: str) -> None:
        """Add the definitions in a schema. space: the namespace around it

        Raises RegistryError if a name has two different definitions.
        """
        if isinstance(node, list):
            for branch in node:
                self.add(branch, space)
        elif isinstance(node, dict) and node["type"] in _NAMED:
            full = full_name(node, space)
            if self._known.setdefault(full, (node, space))[0] != node:
                raise RegistryError(
                    f"an Avro schema of the schema registry has another type '{full}' than a "
                    "schema that it builds on, or than itself elsewhere",
                    code="REGISTRY-016",
                )
            for field in node.get("fields", ()):
                self.add(field["type"], full.rpartition(".")[0])
        elif isinstance(node, dict):
            for inside in ("items", "values"):
                self.add(node.get(inside), space)

    def of(self, node: Any, space: str) -> Any:
        """Return a schema with the definitions inserted. space: the namespace around it"""
        if isinstance(node, str):
            return self._named(node, space)
        if isinstance(node, list):
            return [self.of(branch, space) for branch in node]
        if not isinstance(node, dict):
            return node
        if node["type"] in _NAMED:
            return self._definition(node, space)
        if isinstance(node["type"], str) and node["type"] not in PRIMITIVE | UNNAMED:
            return self._named(node["type"], space)
        inner = {key: self.of(node[key], space) for key in ("items", "values") if key in node}
        return {**node, **inner}

    def _definition(self, node: Any, space: str) -> Any:
        full = full_name(node, space)
        if full in self._written:
            return full
        self._written.add(full)
        namespace, _, name = full.rpartition(".")
        definition = {**node, "name": name, "namespace": namespace}
        if "fields" in node:
            definition["fields"] = [
                {**f, "type": self.of(f["type"], namespace)} for f in node["fields"]
            ]
        return definition

    def _named(self, name: str, space: str) -> Any:
        if name in PRIMITIVE:
            return name
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if full in self._known:
                return self.of(*self._known[full])
        return name


# --- the schema of keys or values ----------------------------------------------------------------

_MAX_AGE_MS, _FAILURE_PAUSE_MS = 10_000, 60_000
"""Time until a stream asks again: after an answer, and after a failure."""
_WARNING_PAUSE_MS = 60_000
_MOST_RETRY_AFTER_MS = 3_600_000
"""Limit of Retry-After: a registry that works again is used after an hour."""

_TIMEOUT_MS_WITH_ANSWER = 2000
"""Timeout of a request if a cached answer exists."""
_NAME_OPTIONS = {
    "AVRO": "avro.schema, with one",
    "JSON": "json.schema, with a title",
    "PROTOBUF": "protobuf.message",
}
"""Kind -> option that names a schema or a message."""

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """A query's knowledge of a schema. Times are those of ``Clock.now_ms``, equal in all processes.

    ask_at_ms, warn_at_ms: times of the next request and of the next warning
    problem: why the registry cannot be asked now; empty if its last answer is ``schema``
    """

    schema: Schema
    ask_at_ms: int
    problem: str = ""
    warn_at_ms: int = 0


_answers: dict[tuple[object, ...], _Answer] = {}


class SchemaRequest(NamedTuple):
    """A request for the schema of one part of the records.

    part: value or key; topic: None if a column holds the topic
    text: the schema to write with, None if the registry's schema is used
    kind: AVRO, JSON or PROTOBUF
    record: for JSON, the schema's title; for Protobuf, the message's name, if known
    files: for Protobuf, the files of ``text``, each after its imports, the main file last
    follows_map: whether only the registry's own text shows the message's indexes
    is_encoded: whether the user has encoded the bytes with a schema that is unknown here
    """

    part: str
    topic: str | None
    text: str | None
    location: str
    options: SchemaOptions
    kind: str = "AVRO"
    record: str | None = None
    files: tuple[ProtobufFile, ...] = ()
    follows_map: bool = False
    is_encoded: bool = False

    @property
    def must_be_latest(self) -> bool:
        """Return True if the answer must not be cached: encoded bytes need the latest schema."""
        return self.is_encoded and self.options.uses_latest_version

    def subject(self, text: str | None) -> str:
        """Return the schema's subject. Raises ConfigError."""
        strategy = self.options.strategy
        if ":" in strategy:
            return user_defined_subject(strategy, self.part, self.topic, self._record(text))
        if strategy != RECORD_NAME and not self.topic:
            raise ConfigError(
                f"{self.part}.subject.name.strategy={strategy} needs option 'topic': topics in a "
                f"column are not known before the rows. Set {self.part}.subject.name.strategy to "
                f"{RECORD_NAME}, with avro.record.name for Avro schemas that are derived, or "
                "use.schema.id",
                code="REGISTRY-014",
            )
        if strategy == TOPIC_NAME:
            return f"{self.topic}-{self.part}"
        name = self._record(text)
        if name is None:
            raise ConfigError(
                f"{self.part}.subject.name.strategy={strategy} needs the name of a record: set "
                f"{self.part}.{_NAME_OPTIONS[self.kind]}",
                code="REGISTRY-014",
            )
        return name if strategy == RECORD_NAME else f"{self.topic}-{name}"

    def _record(self, text: str | None) -> str | None:
        is_avro = self.kind == "AVRO"
        return self.record if not is_avro or text is None else record_name(text)


def find(
    config: RegistryConfig,
    request: SchemaRequest,
    clock: Clock | None = None,
    cache: SchemaCache | None = None,
    is_stream: bool = False,
    query: str | None = None,
) -> Schema:
    """Return the schema; register it if the options request that.

    is_stream: a micro-batch, whose query may have asked before; any other write asks
    cache: for a stream, answers to other processes
    query: identity of a micro-batch's query; None for a job

    Raises RegistryError and ConfigError if the query knows no schema yet.
    """
    clock = clock or SystemClock()
    key, cache_key = (config, request, query), _cache_key(config, request, query)
    # A new query has no earlier answer: cached ones are others'.
    known = _answers.get(key) if is_stream else None
    if known is None and is_stream and cache is not None:
        known = cache.read(cache_key)
    answer = known
    if answer is None or clock.now_ms() >= answer.ask_at_ms:
        answer = _asked(config, request, clock, known)
    if answer.problem and clock.now_ms() >= answer.warn_at_ms:
        warn(
            logger,
            "REGISTRY-018",
            f"{sentence(answer.problem)}. The schema {answer.schema.id}, which it has told before, "
            "is written",
        )
        answer = answer._replace(warn_at_ms=clock.now_ms() + _WARNING_PAUSE_MS)
    if answer is not known and cache is not None:
        cache.write(cache_key, answer if answer.problem else answer._replace(ask_at_ms=0))
    _answers[key] = answer
    return answer.schema


def _asked(
    config: RegistryConfig, request: SchemaRequest, clock: Clock, known: _Answer | None
) -> _Answer:
    """Return the registry's answer; after a failure ``known``, with the problem."""
    if known is not None:  # the query does not wait for long
        config = replace(config, timeout_ms=min(config.timeout_ms, _TIMEOUT_MS_WITH_ANSWER))
    try:
        schema = _fetch(RegistryClient(config, clock), request)
    except KafkaSinkError as error:
        if known is None:
            raise
        asked_ms = error.retry_after_ms if isinstance(error, RegistryUnavailableError) else 0
        pause_ms = max(_FAILURE_PAUSE_MS, min(asked_ms, _MOST_RETRY_AFTER_MS))
        return known._replace(ask_at_ms=clock.now_ms() + pause_ms, problem=str(error))
    return _Answer(schema, clock.now_ms() + (0 if request.must_be_latest else _MAX_AGE_MS))


def _cache_key(config: RegistryConfig, request: SchemaRequest, query: str | None) -> str:
    """Return all inputs of the answer as a text, without credentials."""
    urls = [url.reveal().rpartition("@")[2] for url in config.urls]
    return repr((urls, request, query))


def record_name(text: str) -> str:
    """Return the full name of an Avro schema's record. Raises ConfigError."""
    try:
        schema = parse_json(text)
    except ValueError as error:
        problem = f"the Avro schema is no JSON: {error}"
        raise ConfigError(problem, code="REGISTRY-014") from None
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        raise ConfigError("the Avro schema is no record with a name", code="REGISTRY-014")
    return full_name(schema, "")


@contextmanager
def _if_missing(problem: str) -> Iterator[None]:
    """Raise RegistryError with ``problem`` if the subject, version or schema does not exist."""
    try:
        yield
    except RegistryRefusedError as refusal:
        if refusal.number not in NOT_FOUND:
            raise
        raise RegistryError(problem, code="REGISTRY-013") from None


def _fetch(client: RegistryClient, request: SchemaRequest) -> Schema:
    options = request.options
    if options.schema_id is not None:
        return _schema_by_id(client, request, options.schema_id)
    subject = request.subject(request.text)
    if options.uses_latest_version:
        schema = _latest(client, request, subject)
    else:
        schema = _schema_to_register(client, request)
        schema = _register_or_look_up(client, subject, schema, options)
        if request.follows_map and schema.id is not None:
            schema = schema._replace(text=client.by_id(schema.id).text)
    if request.location == HEADER and schema.guid is None and schema.id is not None:
        schema = schema._replace(guid=client.by_id(schema.id).guid)
    return _with_needed_ones(client, request, schema)


def _with_needed_ones(client: RegistryClient, request: SchemaRequest, schema: Schema) -> Schema:
    """Return the schema with its references, if they are needed.

    A JSON Schema needs them if columns are compared with it, which holds for a registry's schema
    only. The imports of the user's descriptor file are known without the registry.
    """
    options = request.options
    is_chosen = options.uses_latest_version or options.schema_id is not None
    is_compared = request.kind == "JSON" and is_chosen and options.requires_all_columns
    is_known = request.kind == "PROTOBUF" and not is_chosen
    is_left = is_known or (schema.kind == "JSON" and not is_compared)
    return schema if is_left else with_references(client, schema)


def _schema_to_register(client: RegistryClient, request: SchemaRequest) -> Schema:
    """Return the schema to write with, with references to versions in the registry."""
    text, configured = request.text, request.options.references
    assert text is not None
    if request.kind != "PROTOBUF":
        references = tuple(version_of(client, reference) for reference in configured)
        return Schema(None, text, request.kind, references=references)
    imported = {file.name for file in request.files[:-1]}
    unknown = [reference.name for reference in configured if reference.name not in imported]
    if unknown:
        raise ConfigError(
            f"{request.part}.schema.references has '{unknown[0]}', which the message's file does "
            f"not import: it imports {sorted(imported) or 'none'}",
            code="OPTION-003",
        )
    return Schema(None, text, request.kind, references=_register_imports(client, request))


def _register_imports(
    client: RegistryClient, request: SchemaRequest
) -> tuple[tuple[str, str, int], ...]:
    """Return references to the files that the message's own file imports.

    Each file is registered once if the options request that, except files in schema.references.
    """
    configured = {reference.name: reference for reference in request.options.references}
    imported: set[str] = set()
    for file in reversed(request.files):
        if file is request.files[-1] or (file.name in imported and file.name not in configured):
            imported.update(file.imports)
    registered: dict[str, tuple[str, str, int]] = {}
    for file in request.files[:-1]:
        if file.name in configured and file.name in imported:
            registered[file.name] = version_of(client, configured[file.name])
        elif file.name in imported:
            references = tuple(registered[name] for name in file.imports)
            registered[file.name] = _register_file(client, file, references, request.options)
    return tuple(registered[name] for name in request.files[-1].imports) if request.files else ()


def _register_file(
    client: RegistryClient,
    file: ProtobufFile,
    references: tuple[tuple[str, str, int], ...],
    options: SchemaOptions,
) -> tuple[str, str, int]:
    schema = Schema(None, file.text, "PROTOBUF", references=references)
    version = _register_or_look_up(client, file.name, schema, options).version
    if version is None:  # some registries do not return it from a registration
        version = client.look_up(file.name, schema, options.is_normalized).version
    if version is None:
        raise RegistryError(
            f"the schema registry {client.name} does not tell which version of subject "
            f"'{file.name}' the schema is",
            code="REGISTRY-016",
        )
    return file.name, file.name, version


def _schema_by_id(client: RegistryClient, request: SchemaRequest, schema_id: int) -> Schema:
    name = "use.schema.id" if request.part == "value" else "key.use.schema.id"
    with _if_missing(
        f"{name}={schema_id}: the schema registry {client.name} has no schema of this id"
    ):
        schema = client.by_id(schema_id, request.kind == "PROTOBUF")
    return _with_needed_ones(client, request, schema)


def version_of(client: RegistryClient, reference: Reference) -> tuple[str, str, int]:
    """Return a reference with its version, as a registration sends it. Raises RegistryError."""
    name, subject, version = reference
    with _if_missing(
        f"the schema registry {client.name} has no version {version or 'at all'} of "
        f"subject '{subject}', which the schema builds on as '{name}': register it first"
    ):
        found = client.version(subject, version)
    if version is None and found.version is None:
        raise RegistryError(
            f"the schema registry {client.name} does not tell which version of subject "
            f"'{subject}' is the latest: give its version as well",
            code="REGISTRY-016",
        )
    return name, subject, version or found.version or 0


def _latest(client: RegistryClient, request: SchemaRequest, subject: str) -> Schema:
    metadata, is_serialized = request.options.metadata, request.kind == "PROTOBUF"
    if metadata:
        with _if_missing(
            f"use.latest.with.metadata: the schema registry {client.name} has no schema of "
            f"subject '{subject}' with these metadata"
        ):
            return client.with_metadata(subject, metadata, is_serialized)
    is_key = request.part == "key"
    instead = "set key.use.latest.version=false" if is_key else "leave use.latest.version out"
    with _if_missing(
        f"use.latest.version=true: the schema registry {client.name} has no subject "
        f"'{subject}': register a schema for it, or {instead}"
    ):
        return client.version(subject, is_serialized=is_serialized)


_TEXT_ONLY = (
    ". A registry that takes no descriptors in Base64 takes the text: register the .proto file "
    "there, and set use.latest.version=true beside the descriptor file"
)


def _register_or_look_up(
    client: RegistryClient, subject: str, schema: Schema, options: SchemaOptions
) -> Schema:
    ask = client.register if options.registers_schema else client.look_up
    try:
        return ask(subject, schema, options.is_normalized)
    except RegistryRefusedError as refusal:
        if refusal.status == INCOMPATIBLE:
            raise _incompatible(client, subject, schema, refusal) from None
        if refusal.status == INVALID:
            advice = _TEXT_ONLY if schema.kind == "PROTOBUF" else ""
            raise RegistryError(
                f"{refusal}: the registry does not take the schema of subject '{subject}'{advice}",
                code=refusal.code,
            ) from None
        if refusal.number not in NOT_FOUND:
            raise
        if _has_equivalent(client, subject, schema, options, refusal):
            raise RegistryError(
                f"auto.register.schemas=false: the schema registry {client.name} has this schema "
                f"in '{subject}' in another layout: set normalize.schemas=true",
                code="REGISTRY-013",
            ) from None
        missing = "no subject" if refusal.number == SUBJECT_NOT_FOUND else "not this schema in"
        # Protobuf descriptors in Base64 are not readable.
        shown = f". The schema: {schema.text}" if schema.kind == "AVRO" else ""
        raise RegistryError(
            f"auto.register.schemas=false: the schema registry {client.name} has {missing} "
            f"'{subject}': register it, write with what is there (use.latest.version=true), or "
            f"leave auto.register.schemas out{shown}",
            code="REGISTRY-013",
        ) from None


def _has_equivalent(
    client: RegistryClient,
    subject: str,
    schema: Schema,
    options: SchemaOptions,
    refusal: RegistryRefusedError,
) -> bool:
    """Return True if the subject has the schema in a layout that normalize.schemas=true finds."""
    if options.is_normalized or refusal.number == SUBJECT_NOT_FOUND:
        return False
    try:
        client.look_up(subject, schema, True)
    except RegistryError:
        return False
    return True


def _incompatible(
    client: RegistryClient, subject: str, schema: Schema, refusal: RegistryRefusedError
) -> RegistryError:
    try:
        version = f"version {client.version(subject).version}"
    except RegistryError:
        version = "an earlier version"
    source, change = "these columns", "write the columns and types that this version has"
    if schema.kind == "PROTOBUF":
        source, change = "the descriptor file", "change the message"
    elif schema.kind == "AVRO":
        change += ", give a schema that is compatible (value.avro.schema or key.avro.schema)"
    return RegistryError(
        f"the schema registry {client.name} refuses the schema of {source}, which is not "
        f"compatible with {version} of subject '{subject}': {refusal.reason}. Either "
        f"{change}, or change the subject's compatibility",
        code="REGISTRY-012",
    )


_KEY_NAME_OPTIONS = {
    "AVRO": "key.avro.schema, with another name",
    "JSON": "key.json.schema, with another title",
    "PROTOBUF": "key.protobuf.message, with another one",
}


def user_defined_subject(
    function: str, part: str, topic: str | None, record_name: str | None
) -> str:
    """Return the subject that the user's ``function`` (package.module:name) gives keys or values.

    The function gets the arguments of Confluent's ``SubjectNameStrategy``: the topic, None if a
    column holds it; whether it is for keys; the record's name or None. Raises ConfigError.
    """
    option = f"{part}.subject.name.strategy"
    strategy = load(function, option)
    try:
        subject = strategy(topic or None, part == "key", record_name)
    except Exception as error:
        why = f"{error!r}{raised_at(error)}"
        raise ConfigError(f"{option}={function} failed: {why}", code="HOOK-001") from error
    if not isinstance(subject, str) or not subject:
        problem = f"{option}={function} must return the name of a subject, not {subject!r}"
        raise ConfigError(problem, code="HOOK-002")
    return subject


def check_subjects(requests: Iterable[SchemaRequest]) -> None:
    """Raise ConfigError if keys and values have different schemas but one subject.

    The schemas would be versions of each other: the registry would reject the second as
    incompatible or, worse, accept it. Derived schemas of keys and values have one record name.
    """
    by_subject: dict[str, SchemaRequest] = {}
    for request in requests:
        if request.options.uses_latest_version or request.options.schema_id is not None:
            continue
        subject = request.subject(request.text)
        first = by_subject.setdefault(subject, request)
        if (first.kind, first.text) != (request.kind, request.text):
            raise ConfigError(
                f"the schemas of values and keys both have the subject '{subject}', by "
                "value.subject.name.strategy and key.subject.name.strategy, and they differ: set "
                "key.subject.name.strategy=TopicNameStrategy, or "
                f"{_KEY_NAME_OPTIONS[request.kind]}",
                code="REGISTRY-015",
            )


_PURPOSE = "registry"


class SchemaCache:
    """Files with a registry's answers. owner: id of the process at whose end they are deleted"""

    def __init__(self, owner: int) -> None:
        self._identity = process_identity(owner)

    def read(self, cache_key: str) -> _Answer | None:
        """Return the kept answer or None. cache_key: all inputs of the answer as a text"""
        try:
            path = self._path(cache_key)
            return None if path is None else _parse_cached(json.loads(read_owned_file(path)))
        except (OSError, PrivateFolderError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def write(self, cache_key: str, answer: _Answer) -> None:
        """Keep an answer; if the file cannot be written, log a warning."""
        try:
            path = self._path(cache_key)
            if path is None:
                return
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            document = {**answer._asdict(), "schema": answer.schema._asdict()}
            part.write_text(json.dumps(document), encoding="utf-8")
            part.replace(path)
            self._remove_others(path.parent)
        except (OSError, PrivateFolderError) as error:
            warn(
                logger,
                "REGISTRY-019",
                "what the schema registry has told is not kept for later micro-batches: "
                f"{sentence(error)}",
            )

    def _path(self, cache_key: str) -> Path | None:
        if self._identity is None:
            return None
        digest = hashlib.sha256(cache_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        folder = folder_of_spark(_PURPOSE) or private_folder(_PURPOSE)
        return folder / f"{self._identity}_{digest}.json"

    def _remove_others(self, folder: Path) -> None:
        """Delete the files of processes that have ended."""
        for path in folder.iterdir():
            owner = path.name.partition("_")[0]
            number = owner.partition("-")[0]
            if number.isdecimal() and process_identity(int(number)) != owner:
                path.unlink(missing_ok=True)


def _parse_cached(document: Any) -> _Answer:
    """Return the answer in a file. Raises ValueError, LookupError, TypeError for a damaged file."""
    if not isinstance(document, dict) or not isinstance(document["schema"], dict):
        raise ValueError
    found = document.pop("schema")
    references = tuple((name, subject, int(n)) for name, subject, n in found.pop("references"))
    files = tuple((name, text) for name, text in found.pop("files"))
    schema = Schema(**found, references=references, files=files)
    answer = _Answer(schema, **document)
    if not isinstance(schema.id, int) or not isinstance(schema.text, str):
        raise ValueError
    if not isinstance(answer.ask_at_ms, int) or not isinstance(answer.warn_at_ms, int):
        raise ValueError
    return answer


def schema_id_prefix(schema: Schema, indexes: tuple[int, ...] = (0,)) -> bytes:
    """Return the bytes before a key or value of this schema.

    indexes: of a Protobuf message in its file
    """
    assert schema.id is not None
    return b"\0" + schema.id.to_bytes(4, "big") + _indexes_of(schema, indexes)


def _indexes_of(schema: Schema, indexes: tuple[int, ...]) -> bytes:
    """Encode indexes as ``MessageIndexes`` does: count and indexes, or one byte for message 0."""
    if schema.kind != "PROTOBUF":
        return b""
    if indexes == (0,):
        return b"\0"
    return b"".join(map(zigzag_varint, (len(indexes), *indexes)))


def schema_id_header(
    part: str, schema: Schema, indexes: tuple[int, ...] = (0,)
) -> tuple[str, bytes]:
    """Return the header with the schema's GUID. Raises RegistryError without a GUID."""
    if schema.guid is None:
        raise RegistryError(
            f"{part}.schema.id.location=header needs schemas with a GUID, which this registry does "
            f"not give: leave {part}.schema.id.location out, so that ids go before each {part}",
            code="REGISTRY-017",
        )
    guid = b"\1" + UUID(schema.guid).bytes
    return schema_id_header_name(part), guid + _indexes_of(schema, indexes)
