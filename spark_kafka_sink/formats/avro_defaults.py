"""Avro's binary encoding of the defaults of a schema's fields, which are JSON.

Source: Avro's specification, "Complex Types", on defaults.
"""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_sink.formats.avro_names import NamedTypes, branches, type_name
from spark_kafka_sink.formats.errors import FormatError

_JSON: dict[str, type] = {"record": dict, "map": dict, "array": list}
# What a default raises that is of another type, beyond it, or has itself in it without an end.
_WRONG = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError),
    *(struct.error, RecursionError),
)


def encoded_default(schema: Any, value: Any, names: NamedTypes, space: str, field: str) -> bytes:
    """A default's bytes. Of a union it is one of its first branch, or, as in newer Avro, of any.

    Raises FormatError for one that is not of its type.
    """
    several = branches(schema)
    if several is None:
        try:
            return _encoded(names.resolved(schema, space), value, names, field)
        except _WRONG as error:
            raise FormatError(
                f"the default of field '{field}' of the Avro schema is no {type_name(schema)}: "
                f"{str(value)[:100]}"
            ) from error
    for number, branch in enumerate(several):
        try:
            return varint(number) + encoded_default(branch, value, names, space, field)
        except FormatError:
            continue
    raise FormatError(
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


def _encoded(schema: Any, value: Any, names: NamedTypes, field: str) -> bytes:
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in _JSON and not isinstance(value, _JSON[kind]):
        raise ValueError(kind)
    if kind == "record":
        return _record(schema, value, names, field)
    space = names.space_of(schema)
    if kind == "array":
        items = [encoded_default(schema["items"], v, names, space, field) for v in value]
        return _block(items)
    if kind == "map":
        pairs = value.items()
        return _block(
            [
                _sized(k.encode()) + encoded_default(schema["values"], v, names, space, field)
                for k, v in pairs
            ]
        )
    return _scalar(kind, schema, value)


def _record(schema: Any, value: Any, names: NamedTypes, field: str) -> bytes:
    space = names.space_of(schema)
    found = b""
    for inner in schema["fields"]:
        given = value[inner["name"]] if inner["name"] in value else inner["default"]
        found += encoded_default(inner["type"], given, names, space, f"{field}.{inner['name']}")
    return found


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


def _block(items: list[bytes]) -> bytes:
    return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
