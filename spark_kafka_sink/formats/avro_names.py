"""Types of an Avro schema that are given by name, and what a type is called in messages.

Source: Avro's specification, "Names".
"""

from __future__ import annotations

import json
from typing import Any

from spark_kafka_sink.formats.errors import FormatError

_PRIMITIVE = frozenset(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"],
)
_NAMED = frozenset(["record", "enum", "fixed"])
_UNNAMED = frozenset(["array", "map"])


def has_field(schema: str, name: str) -> bool:
    """Whether the record of a schema, as JSON text, has a field of this name, in any case."""
    root: Any = json.loads(schema)
    fields = root.get("fields", ()) if isinstance(root, dict) else ()
    return any(field["name"].lower() == name.lower() for field in fields)


class NamedTypes:
    """Records, enums and fixed types, known from where they are defined on."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._spaces: dict[int, str] = {}

    def resolved(self, schema: Any, space: str) -> Any:
        """A primitive type's name, or a dict of another type that is no union.

        space: the namespace in which a name stands. Raises FormatError for what is no Avro schema.
        """
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVE else self._named(schema, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, dict):
            return self.resolved(kind, space)
        if kind in _NAMED:
            return self._defined(schema, space)
        if kind in _UNNAMED:
            self._spaces[id(schema)] = space
            return schema
        if kind in _PRIMITIVE:
            return schema if "logicalType" in schema else kind
        if isinstance(kind, str):
            return self._named(kind, space)
        raise FormatError(f"this is no Avro schema: {str(schema)[:200]}")

    def space_of(self, schema: Any) -> str:
        """The namespace of names in a type that was resolved."""
        return self._spaces.get(id(schema), "")

    def _named(self, name: str, space: str) -> Any:
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._known.get(full, self._known.get(name))
        if found is None:
            raise FormatError(
                f"the Avro schema has a type '{name}' that it does not define: one of "
                f"{sorted(_PRIMITIVE | _NAMED | _UNNAMED)}, or a name that is defined before"
            )
        return found

    def _defined(self, schema: Any, space: str) -> Any:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise FormatError(f"the Avro schema has a {schema['type']} without a name")
        given = schema.get("namespace", space)
        space = name.rpartition(".")[0] if "." in name else given
        full = name if "." in name or not space else f"{space}.{name}"
        self._known[full] = schema
        self._spaces[id(schema)] = space
        return schema


def branches(schema: Any) -> list[Any] | None:
    """Of a union; None for what is none."""
    return schema if isinstance(schema, list) else None


def logical_type(schema: Any) -> str:
    """Of a type that was resolved, or empty."""
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""


def type_name(schema: Any) -> str:
    """A type in few words."""
    if isinstance(schema, list):
        return "union of " + " and ".join(type_name(branch) for branch in schema)
    if not isinstance(schema, dict):
        return str(schema)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    name = f" {schema['name']}" if "name" in schema else ""
    return f"{type_name(schema.get('type'))}{name}{f' of {logical}' if logical else ''}"
