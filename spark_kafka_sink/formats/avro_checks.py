"""Whether JSON is a schema of Avro: all of it, also what no column is written as.

Java's Avro is the judge, as it is for Spark and for registries: its peers in Python take more.

Source: Avro's specification, "Schema Declaration"; ``Schema.parse`` and ``NameValidator`` of Java's
Avro 1.12.
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.formats.avro_names import (
    NAMED,
    PRIMITIVE,
    UNNAMED,
    NamedTypes,
    full_name,
    is_name,
)
from spark_kafka_sink.formats.errors import FormatError

_ORDERS = ("ascending", "descending", "ignore")
_LARGEST_FIXED = 2**31 - 9
"""Bytes of the largest array of Java."""
_INSIDE = {"array": "items", "map": "values"}


def checked_types(schema: Any) -> NamedTypes:
    """The types that ``schema`` defines. schema: of Avro, as ``json.loads`` has it.

    Raises FormatError for what is no schema; it names the field and what is wrong.
    """
    names = NamedTypes()
    try:
        _Checking(names).type(schema, "", "")
    except RecursionError:
        raise FormatError("the Avro schema is nested too deeply") from None
    return names


class _Checking:
    """Paths are for messages; a space is the namespace in which a type stands."""

    def __init__(self, names: NamedTypes) -> None:
        self._names = names

    def type(self, schema: Any, space: str, path: str) -> str:
        """What it is called, which a union has once."""
        if isinstance(schema, list):
            return self._union(schema, space, path)
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            raise FormatError(f"{_at(path)} has no type that Avro knows: {str(schema)[:200]}")
        if isinstance(schema, dict) and kind in NAMED:
            return self._named(schema, space, path)
        if isinstance(schema, dict) and kind in UNNAMED:
            inside = _INSIDE[kind]
            if inside not in schema:
                article = "an" if kind == "array" else "a"
                raise FormatError(f"{_at(path)} has {article} {kind} without {inside}")
            self._names.put(schema, space)
            self.type(schema[inside], space, f"{path}[]")
            return kind
        if kind not in PRIMITIVE and self._names.found(kind, space) is None:
            raise FormatError(
                f"{_at(path)} has a type '{kind}' that the schema does not define: one of "
                f"{sorted(PRIMITIVE | NAMED | UNNAMED)}, or a name that is defined before"
            )
        return kind if kind in PRIMITIVE else self._names.found_name(kind, space)

    def _union(self, several: list[Any], space: str, path: str) -> str:
        seen = set()
        for branch in several:
            if isinstance(branch, list):
                raise FormatError(f"{_at(path)} has a union in a union")
            name = self.type(branch, space, path)
            if name in seen:
                raise FormatError(f"{_at(path)} has a union with '{name}' twice")
            seen.add(name)
        return "union"

    def _named(self, schema: Any, space: str, path: str) -> str:
        kind, name = schema["type"], schema.get("name")
        if not isinstance(name, str) or not name:
            raise FormatError(f"{_at(path)} has a {kind} without a name")
        here = f"{_at(path)} has a {kind} '{name}'"
        if not isinstance(schema.get("namespace", ""), (str, type(None))):
            raise FormatError(f"{here} whose namespace is no text: {schema['namespace']}")
        full = full_name(schema, space)
        aliases = _aliases(schema, here)
        for part in [*full.split("."), *(alias.rpartition(".")[2] for alias in aliases)]:
            _check_name(part, here)
        if full in PRIMITIVE:
            raise FormatError(f"{here}, which is the name of a primitive type")
        if not self._names.define(schema, space):
            raise FormatError(f"{_at(path)} has another type '{name}' than the one defined before")
        if kind == "enum":
            _check_symbols(schema, here)
        if kind == "fixed" and not _is_size(schema.get("size")):
            raise FormatError(f"{here} without a size of 0 to {_LARGEST_FIXED}")
        if kind == "record":
            self._fields(schema, path, here)
        return full

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
            _check_name(name, here)
            _aliases(field, f"{here} with a field '{name}'")
            if str(field.get("order", "ignore")).lower() not in _ORDERS:
                raise FormatError(f"{here} with a field '{name}' whose order is none of {_ORDERS}")
            self.type(field.get("type"), space, f"{path}.{name}" if path else name)


def _check_name(name: str, here: str) -> None:
    if not is_name(name):
        shown = name.encode("utf-8", "backslashreplace").decode()
        raise FormatError(
            f"{here} with '{shown}', which is no name: letters, digits and _, no digit first"
        )


def _aliases(schema: Any, here: str) -> list[str]:
    aliases = schema.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise FormatError(f"{here} whose aliases are no list of texts")
    return aliases


def _check_symbols(enum: Any, here: str) -> None:
    symbols = enum.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise FormatError(f"{here} without a list of symbols")
    for symbol in symbols:
        _check_name(symbol, here)
    if len(set(symbols)) < len(symbols):
        raise FormatError(f"{here} with a symbol twice")
    default = enum.get("default")
    if isinstance(default, str) and default not in symbols:
        raise FormatError(f"{here} whose default '{default}' is none of its symbols")


def _at(path: str) -> str:
    return f"field '{path}' of the Avro schema" if path else "the Avro schema"


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_FIXED
