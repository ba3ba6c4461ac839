"""Avro's binary encoding of the defaults of a schema's fields, which are JSON.

Source: Avro's specification, "Complex Types", on defaults.
"""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_sink.formats.avro_names import NamedTypes, branches, type_name
from spark_kafka_sink.formats.errors import FormatError

_JSON: dict[str, type] = {"record": dict, "map": dict, "array": list}
# What a default raises that is of another type, beyond it, or too deep.
_WRONG = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError),
    *(struct.error, RecursionError),
)
_MOST_BYTES = 1 << 20
"""Of a default, which is in each row: records that are in each other may make any number."""


class _NeverError(FormatError):
    """No other branch of a union is tried: its default would depend on where one begins."""


class Defaults:
    """Of the fields of a schema, which is kept as it is meanwhile. names: of its types

    The default of a record that stands in many places is made once.
    """

    def __init__(self, names: NamedTypes) -> None:
        self._names = names
        # By identity of a record and of its default; None for one that is of another type.
        self._made: dict[tuple[int, int], bytes | None] = {}
        self._begun: set[tuple[int, int]] = set()

    def encoded(self, schema: Any, value: Any, space: str, field: str) -> bytes:
        """A default's bytes. Of a union it is of its first branch, or, as in newer Avro, of any.

        Raises FormatError for one that is not of its type, is too large, or has itself in it.
        """
        several = branches(schema)
        if several is None:
            try:
                return self._of_type(self._names.resolved(schema, space), value, field)
            except _NeverError:
                raise
            except _WRONG as error:
                raise _wrong(schema, value, field) from error
        for number, branch in enumerate(several):
            try:
                return varint(number) + self.encoded(branch, value, space, field)
            except _NeverError:
                raise
            except FormatError:
                continue
        raise _wrong(schema, value, field)

    def _of_type(self, schema: Any, value: Any, field: str) -> bytes:
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _JSON and not isinstance(value, _JSON[kind]):
            raise ValueError(kind)
        if kind == "record":
            return self._record_once(schema, value, field)
        space = self._names.space_of(schema)
        if kind == "array":
            return _block([self.encoded(schema["items"], v, space, field) for v in value], field)
        if kind == "map":
            inner = schema["values"]
            items = [
                _sized(k.encode()) + self.encoded(inner, v, space, field) for k, v in value.items()
            ]
            return _block(items, field)
        return _scalar(kind, schema, value)

    def _record_once(self, schema: Any, value: Any, field: str) -> bytes:
        key = (id(schema), id(value))
        if key not in self._made:
            if key in self._begun:
                raise _NeverError(
                    f"the default of field '{field}' of the Avro schema has itself in it without "
                    f"an end: {type_name(schema)}. Give a field of it another default"
                )
            self._begun.add(key)
            try:
                self._made[key] = self._record(schema, value, field)
            except _NeverError:
                raise
            except _WRONG:
                self._made[key] = None
                raise
        found = self._made[key]
        if found is None:
            raise ValueError("record")
        return found

    def _record(self, schema: Any, value: Any, field: str) -> bytes:
        space = self._names.space_of(schema)
        found = []
        for inner in schema["fields"]:
            name = inner["name"]
            given = value[name] if name in value else inner["default"]
            found.append(self.encoded(inner["type"], given, space, f"{field}.{name}"))
        return _joined(found, field)


def _wrong(schema: Any, value: Any, field: str) -> FormatError:
    return FormatError(
        f"the default of field '{field}' of the Avro schema is no {type_name(schema)}: "
        f"{str(value)[:100]}"
    )


def varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    found = bytearray()
    while rest >= 128:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def _scalar(kind: str, schema: Any, value: Any) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if kind in ("int", "long") and isinstance(value, int) and not isinstance(value, bool):
        bits = 31 if kind == "int" else 63
        if -(2**bits) <= value < 2**bits:
            return varint(value)
    if kind in ("float", "double") and isinstance(value, (int, float)) and type(value) is not bool:
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind == "bytes":
        return _sized(value.encode("latin-1"))
    if kind == "fixed" and len(value) == schema["size"]:
        return bytes(value.encode("latin-1"))
    if kind == "enum":
        return varint(schema["symbols"].index(value))
    raise ValueError(kind)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _block(items: list[bytes], field: str) -> bytes:
    return (varint(len(items)) + _joined(items, field) if items else b"") + b"\0"


def _joined(items: list[bytes], field: str) -> bytes:
    if sum(map(len, items)) > _MOST_BYTES:
        raise _NeverError(
            f"the default of field '{field}' of the Avro schema has more than {_MOST_BYTES:,} "
            "bytes, which each row would have"
        )
    return b"".join(items)
