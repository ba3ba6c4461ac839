"""What is known of Protobuf messages where rows are written: without the official package.

Source: Protobuf's ``descriptor.proto``, whose numbers of types these are.
"""

from __future__ import annotations

from typing import NamedTuple

TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
MESSAGE, ENUM, GROUP = "message", "enum", "group"


class ProtobufField(NamedTuple):
    """A field of a message.

    type: one of TYPES; type_name: the full name of a message or an enum
    has_presence: whether a default value is written; oneof: name of the one that it is in
    """

    name: str
    number: int
    type: str
    type_name: str = ""
    is_repeated: bool = False
    is_required: bool = False
    is_packed: bool = False
    has_presence: bool = False
    oneof: str = ""

    @property
    def words(self) -> str:
        """Its type as messages have it."""
        return f"{'repeated ' if self.is_repeated else ''}{self.type_name or self.type}"


class ProtobufMessage(NamedTuple):
    """is_entry: of a map, whose key is the field 1 and whose value is the field 2"""

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False


class ProtobufEnum(NamedTuple):
    """values: names and numbers"""

    name: str
    values: tuple[tuple[str, int], ...]


class ProtobufSchema(NamedTuple):
    """A message and what it is made of.

    root: its full name
    indexes: where it is in its file: a number for each message around it, and its own
    """

    root: str
    messages: tuple[ProtobufMessage, ...]
    enums: tuple[ProtobufEnum, ...] = ()
    indexes: tuple[int, ...] = (0,)

    def has_field(self, name: str) -> bool:
        """Whether its root has a field of this name, in any case."""
        root = next(message for message in self.messages if message.name == self.root)
        return any(field.name.lower() == name.lower() for field in root.fields)
