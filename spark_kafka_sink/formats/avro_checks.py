"""Whether JSON is a schema of Avro: all of it, also what no column is written as.

Source: Avro's specification, "Schema Declaration".
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.formats.avro_names import NAMED, PRIMITIVE, UNNAMED, NamedTypes
from spark_kafka_sink.formats.errors import FormatError

_INSIDE = {"array": "items", "map": "values"}


def checked_types(schema: Any) -> NamedTypes:
    """The types that ``schema`` defines. schema: of Avro, as ``json.loads`` has it.

    Raises FormatError for what is no schema; it names the field and what is wrong.
    """
    names = NamedTypes()
    _Checking(names).type(schema, "", "")
    return names


class _Checking:
    """Paths are for messages; a space is the namespace in which a type stands."""

    def __init__(self, names: NamedTypes) -> None:
        self._names = names

    def type(self, schema: Any, space: str, path: str) -> None:
        if isinstance(schema, list):
            self._union(schema, space, path)
            return
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and isinstance(kind, dict):
            self.type(kind, space, path)
        elif not isinstance(kind, str):
            raise FormatError(f"{_at(path)} has no type that Avro knows: {str(schema)[:200]}")
        elif isinstance(schema, dict) and kind in NAMED:
            self._named(schema, space, path)
        elif isinstance(schema, dict) and kind in UNNAMED:
            inside = _INSIDE[kind]
            if inside not in schema:
                article = "an" if kind == "array" else "a"
                raise FormatError(f"{_at(path)} has {article} {kind} without {inside}")
            self._names.put(schema, space)
            self.type(schema[inside], space, f"{path}[]")
        elif kind not in PRIMITIVE and self._names.found(kind, space) is None:
            raise FormatError(
                f"{_at(path)} has a type '{kind}' that the schema does not define: one of "
                f"{sorted(PRIMITIVE | NAMED | UNNAMED)}, or a name that is defined before"
            )

    def _union(self, several: list[Any], space: str, path: str) -> None:
        for branch in several:
            if isinstance(branch, list):
                raise FormatError(f"{_at(path)} has a union in a union")
            self.type(branch, space, path)

    def _named(self, schema: Any, space: str, path: str) -> None:
        kind, name = schema["type"], schema.get("name")
        if not isinstance(name, str) or not name:
            raise FormatError(f"{_at(path)} has a {kind} without a name")
        here = f"{_at(path)} has a {kind} '{name}'"
        if not isinstance(schema.get("namespace", ""), (str, type(None))):
            raise FormatError(f"{here} whose namespace is no text: {schema['namespace']}")
        if not self._names.define(schema, space):
            raise FormatError(f"{_at(path)} has another type '{name}' than the one defined before")
        if kind == "enum" and not _is_texts(schema.get("symbols")):
            raise FormatError(f"{here} without a list of symbols")
        if kind == "fixed" and not _is_count(schema.get("size")):
            raise FormatError(f"{here} without a size")
        if kind == "record":
            self._fields(schema, path, here)

    def _fields(self, record: Any, path: str, here: str) -> None:
        if not isinstance(record.get("fields"), list):
            raise FormatError(f"{here} without a list of fields")
        space = self._names.space_of(record)
        seen = set()
        for field in record["fields"]:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise FormatError(f"{here} with a field that has no name: {str(field)[:200]}")
            if name in seen:
                raise FormatError(f"{here} with two fields '{name}'")
            seen.add(name)
            self.type(field.get("type"), space, f"{path}.{name}" if path else name)


def _at(path: str) -> str:
    return f"field '{path}' of the Avro schema" if path else "the Avro schema"


def _is_texts(value: Any) -> bool:
    """Whether it is a list of texts that UTF-8 has bytes for: JSON may have half a character."""
    try:
        return isinstance(value, list) and all(isinstance(x, str) and x.encode() for x in value)
    except UnicodeEncodeError:
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
