"""Schemas that build on others: Avro's with the definitions in the places of their names,
Protobuf's with the files that they import, JSON Schemas with those that ``$ref`` may name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.registry.errors import RegistryError, RegistryRefusedError

if TYPE_CHECKING:
    from spark_kafka_sink.registry.answers import Schema
    from spark_kafka_sink.registry.client import RegistryClient

_MOST_REFERENCES = 100
_NAMED = ("record", "enum", "fixed")


def with_references(client: RegistryClient, schema: Schema) -> Schema:
    """``schema`` as one text that needs no others, or, of Protobuf and JSON, with ``files``; as it
    is where it builds on none.

    Raises RegistryError. Of JSON what is not there is left out.
    """
    if schema.kind == "PROTOBUF":
        found = _referenced(client, schema, is_serialized=True)
        return schema._replace(files=tuple((name, other.text) for name, other in found.items()))
    if schema.kind == "JSON":
        return schema._replace(files=tuple(_named(client, schema)))
    if not schema.references or schema.kind != "AVRO":
        return schema
    others = _referenced(client, schema, is_serialized=False)
    definitions = {name: _parsed(client, name, other) for name, other in others.items()}
    own = _parsed(client, f"of id {schema.id}", schema)
    try:
        whole = _Inlining(definitions).of(own, "")
    except (AttributeError, KeyError, RecursionError, TypeError):
        raise RegistryError(
            f"the schema of id {schema.id} that the schema registry {client.name} tells, or one "
            "that it builds on, is no Avro schema"
        ) from None
    return schema._replace(text=json.dumps(whole))


def _parsed(client: RegistryClient, name: str, schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise RegistryError(
            f"the schema {name} that the schema registry {client.name} tells is no Avro schema, "
            f"for it is no JSON: {error}"
        ) from None


def _named(client: RegistryClient, schema: Schema) -> Iterator[tuple[str, str]]:
    """Names and texts of what ``schema`` builds on, directly or not. A name may come twice."""
    waiting = list(schema.references)
    texts: dict[tuple[str, int], str | None] = {}
    told = set()
    while waiting:
        name, subject, version = waiting.pop()
        if (subject, version) not in texts:
            _check_count(len(texts) + 1)
            try:
                found = client.version(subject, version)
            except RegistryRefusedError:
                texts[subject, version] = None
                continue
            texts[subject, version] = found.text
            waiting += found.references
        text = texts[subject, version]
        if text is not None and (name, subject, version) not in told:
            told.add((name, subject, version))
            yield name, text


def _check_count(count: int) -> None:
    if count > _MOST_REFERENCES:
        raise RegistryError(f"a schema builds on more than {_MOST_REFERENCES} others")


def _referenced(client: RegistryClient, schema: Schema, is_serialized: bool) -> dict[str, Schema]:
    """By name, what ``schema`` builds on, directly or not."""
    all_found: dict[str, Schema] = {}
    waiting, seen = list(schema.references), set()
    while waiting:
        name, subject, version = waiting.pop()
        if (subject, version) in seen:
            continue
        seen.add((subject, version))
        _check_count(len(seen))
        all_found[name] = client.version(subject, version, is_serialized)
        waiting += all_found[name].references
    return all_found


class _Inlining:
    """Puts each definition where its name comes first, which is where Avro wants it."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._left = dict(definitions)

    def of(self, node: Any, namespace: str) -> Any:
        """namespace: of the definition around it"""
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return [self.of(branch, namespace) for branch in node]
        if not isinstance(node, dict):
            return node
        inner = namespace
        if node.get("type") in _NAMED:
            name = node.get("name", "")
            inner = name.rpartition(".")[0] if "." in name else node.get("namespace", namespace)
        changed = dict(node)
        for key in ("type", "items", "values"):
            if key in node and node["type"] not in _NAMED:
                changed[key] = self.of(node[key], inner)
        if "fields" in node:
            changed["fields"] = [
                {**field, "type": self.of(field["type"], inner)} for field in node["fields"]
            ]
        return changed

    def _named(self, name: str, namespace: str) -> Any:
        for full in (name if "." in name or not namespace else f"{namespace}.{name}", name):
            if full in self._left:
                return self.of(self._left.pop(full), full.rpartition(".")[0])
        return name
