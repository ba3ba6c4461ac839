"""Resolve the references of a registry's schemas.

In Avro, definitions replace names. Protobuf schemas get the files that they import, JSON Schemas
the schemas that ``$ref`` may name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.text import parse_json
from spark_kafka_sink.formats.avro_schema import NAMED, PRIMITIVE, UNNAMED, full_name
from spark_kafka_sink.registry.client import RegistryError, RegistryRefusedError

if TYPE_CHECKING:
    from spark_kafka_sink.registry.client import RegistryClient, Schema

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
            fetched[subject, version] = referenced
            pending += reversed(referenced.references)


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
