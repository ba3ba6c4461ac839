"""JSON Schema of a Spark schema: of what the JSON of its rows is, for a schema registry.

No object has more properties than it says, as in the schemas that Confluent's serializer derives:
only so is a new column compatible by a registry's usual rule.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from spark_kafka_sink.formats.errors import FormatError

DRAFT = "http://json-schema.org/draft-07/schema#"
TITLE = "Row"

_NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_TEXT = {"type": "string"}
_SIMPLE: dict[str, Any] = {
    "boolean": {"type": "boolean"},
    "byte": {"type": "integer"},
    "short": {"type": "integer"},
    "integer": {"type": "integer"},
    "long": {"type": "integer"},
    "float": _NUMBER_OR_TEXT,
    "double": _NUMBER_OR_TEXT,
    "string": _TEXT,
    "binary": {"type": "string", "contentEncoding": "base64"},
    "timestamp_ntz": _TEXT,
    "void": {"type": "null"},
    "variant": {},  # of any type, null as well
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_AS_TEXT = re.compile(r"(?:char|varchar|time)\(\d+\)|string\b.*|interval .*")


class Written(NamedTuple):
    """How rows are written. is_null_left_out: fields of structs that are null

    has_own_dates, has_own_timestamps: whether these have patterns of the user's own
    """

    is_null_left_out: bool = True
    has_own_dates: bool = False
    has_own_timestamps: bool = False


USUAL = Written()


def derived_json_schema(struct_json: str, title: str = TITLE, written: Written = USUAL) -> str:
    """JSON Schema, as text, of the fields that ``StructType.json()`` tells of.

    Raises FormatError for a type that is not written as JSON.
    """
    found = _Derived(written).type(json.loads(struct_json), "")
    return json.dumps({"$schema": DRAFT, "title": title, **found}, ensure_ascii=False)


class _Derived:
    def __init__(self, written: Written) -> None:
        self._written = written

    def type(self, spark_type: Any, path: str) -> Any:
        if isinstance(spark_type, dict):
            return self._nested(spark_type, path)
        if spark_type == "date":
            return _TEXT if self._written.has_own_dates else {"type": "string", "format": "date"}
        if spark_type == "timestamp":
            own = self._written.has_own_timestamps
            return _TEXT if own else {"type": "string", "format": "date-time"}
        if spark_type in _SIMPLE:
            return _SIMPLE[spark_type]
        if _AS_TEXT.fullmatch(spark_type):
            return _TEXT
        decimal = _DECIMAL.fullmatch(spark_type)
        if decimal is not None:
            return {"type": "number" if int(decimal[2]) > 0 else "integer"}
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which is not written as JSON. Cast "
            "it to another type, or leave it out"
        )

    def _nested(self, spark_type: dict[str, Any], path: str) -> Any:
        kind = spark_type["type"]
        if kind == "udt":
            return self.type(spark_type["sqlType"], path)
        if kind == "array":
            inner = self.type(spark_type["elementType"], f"{path}[]")
            return {"type": "array", "items": _or_null(inner, spark_type["containsNull"])}
        if kind == "map":
            inner = self.type(spark_type["valueType"], f"{path}[]")
            nullable = spark_type["valueContainsNull"]
            return {"type": "object", "additionalProperties": _or_null(inner, nullable)}
        return self._struct(spark_type, path)

    def _struct(self, struct: dict[str, Any], path: str) -> Any:
        properties, required = {}, []
        for field in struct["fields"]:
            inner = self.type(field["type"], f"{path}.{field['name']}" if path else field["name"])
            can_be_null = field["nullable"] and not self._written.is_null_left_out
            properties[field["name"]] = _or_null(inner, can_be_null)
            if not field["nullable"] and field["type"] != "void":
                required.append(field["name"])
        found = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**found, "required": required} if required else found


def _or_null(kind: Any, nullable: bool) -> Any:
    if not nullable or kind in ({}, {"type": "null"}):
        return kind
    return {"oneOf": [{"type": "null"}, kind]}
