"""How a record says of which schema of a registry its key or value is: before it, or in a header.

Source: ``PrefixSchemaIdSerializer``, ``HeaderSchemaIdSerializer``, ``MessageIndexes`` of Confluent.
"""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.registry.answers import Schema
from spark_kafka_sink.registry.errors import RegistryError

_MAGIC, _MAGIC_OF_GUID = b"\x00", b"\x01"
_FIRST_MESSAGE = b"\x00"


def prefix_of(schema: Schema, indexes: tuple[int, ...] = (0,)) -> bytes:
    """What stands before a value of this schema.

    indexes: where a Protobuf message is in its file
    """
    assert schema.id is not None
    return _MAGIC + schema.id.to_bytes(4, "big") + _indexes_of(schema, indexes)


def _indexes_of(schema: Schema, indexes: tuple[int, ...]) -> bytes:
    """As Confluent's ``MessageIndexes``: a count and the indexes, or one byte for the first one."""
    if schema.kind != "PROTOBUF":
        return b""
    if indexes == (0,):
        return _FIRST_MESSAGE
    return b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(number: int) -> bytes:
    """Zigzag, of what is not negative."""
    rest, made = 2 * number, bytearray()
    while rest >= 128:
        made.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*made, rest])


def header_of(part: str, schema: Schema, indexes: tuple[int, ...] = (0,)) -> tuple[str, bytes]:
    """The header that says it instead. Raises RegistryError where the registry has no GUIDs."""
    if schema.guid is None:
        raise RegistryError(
            f"{part}.schema.id.location=header needs schemas with a GUID, which this registry does "
            f"not give: leave {part}.schema.id.location out, so that ids go before each {part}"
        )
    return f"__{part}_schema_id", _MAGIC_OF_GUID + UUID(schema.guid).bytes + _indexes_of(
        schema, indexes
    )
