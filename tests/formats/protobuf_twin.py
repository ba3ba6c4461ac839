"""Protobuf's encoding, field by field in plain Python: slow, obvious, written independently.

Values are as Arrow has them: days and microseconds as integers.
"""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_sink.formats.plan import ProtobufField, ProtobufMessage, ProtobufSchema

WIRE = {
    "double": 1,
    "fixed64": 1,
    "sfixed64": 1,
    "float": 5,
    "fixed32": 5,
    "sfixed32": 5,
    "string": 2,
    "bytes": 2,
    "message": 2,
}
PACKS = {
    "double": "<d",
    "float": "<f",
    "fixed64": "<Q",
    "sfixed64": "<q",
    "fixed32": "<I",
    "sfixed32": "<i",
}


class Twin:
    def __init__(self, schema: ProtobufSchema) -> None:
        self.schema = schema
        self.messages = {m.name: m for m in schema.messages}
        self.enums = {e.name: dict(e.values) for e in schema.enums}

    def row(self, row: dict[str, Any]) -> bytes:
        return self.message(self.messages[self.schema.root], row)

    def message(self, message: ProtobufMessage, values: dict[str, Any]) -> bytes:
        made = b""
        for field in sorted(message.fields, key=lambda f: f.number):
            value = values.get(field.name)
            if value is None:
                continue
            if not field.is_repeated:
                if not field.has_presence and self.is_default(field, value):
                    continue
                made += self.tagged(field, value)
            elif field.is_packed:
                items = b"".join(self.value(field, item) for item in value)
                made += varint(field.number << 3 | 2) + sized(items) if value else b""
            elif field.type == "message" and self.messages[field.type_name].is_entry:
                entry = self.messages[field.type_name]
                key, item = (next(f for f in entry.fields if f.number == n) for n in (1, 2))
                for k, v in value:
                    pair = self.tagged(key, k) + self.tagged(item, v)
                    made += varint(field.number << 3 | 2) + sized(pair)
            else:
                made += b"".join(self.tagged(field, item) for item in value)
        return made

    def is_default(self, field: ProtobufField, value: Any) -> bool:
        if field.type == "enum" and isinstance(value, str):
            return self.enums[field.type_name][value] == 0
        if field.type in ("float", "double"):
            return struct.pack("<d", value) == bytes(8)
        return not value

    def tagged(self, field: ProtobufField, value: Any) -> bytes:
        return varint(field.number << 3 | WIRE.get(field.type, 0)) + self.value(field, value)

    def value(self, field: ProtobufField, value: Any) -> bytes:
        kind = field.type
        if kind in PACKS:
            if kind.startswith("fixed"):
                value %= 2 ** (32 if kind == "fixed32" else 64)
            return struct.pack(PACKS[kind], value)
        if kind == "string":
            return sized(value.encode())
        if kind == "bytes":
            return sized(value)
        if kind == "enum":
            return varint(self.enums[field.type_name][value] if isinstance(value, str) else value)
        if kind.startswith("sint"):
            return varint(2 * value if value >= 0 else -2 * value - 1)
        if kind == "uint32":
            return varint(value % 2**32)
        if kind != "message":
            return varint(int(value))
        name = field.type_name
        if isinstance(value, dict):
            return sized(self.message(self.messages[name], value))
        if name == "google.protobuf.Timestamp":
            return sized(seconds_and_nanos(*divmod(value, 10**6)))
        if name == "google.protobuf.Duration":
            seconds, micros = divmod(abs(value), 10**6)
            sign = 1 if value >= 0 else -1
            return sized(seconds_and_nanos(sign * seconds, sign * micros))
        inner = next(f for f in self.messages[name].fields if f.number == 1)
        return sized(b"" if self.is_default(inner, value) else self.tagged(inner, value))


def seconds_and_nanos(seconds: int, micros: int) -> bytes:
    made = b"\x08" + varint(seconds) if seconds else b""
    return made + (b"\x10" + varint(micros * 1000) if micros else b"")


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def varint(value: int) -> bytes:
    value %= 2**64
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
