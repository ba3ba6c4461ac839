"""Match columns with the fields of a Protobuf message and choose how each column is encoded.

Fields match by name, exactly or else without regard to case, as in Spark's ``ProtobufSerializer``.
A field without a column is not written.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.base.model import unsigned_varint
from spark_kafka_sink.formats.layout import Column, Node, is_variant, kind_of, not_writable
from spark_kafka_sink.formats.plan import (
    ENUM,
    GROUP,
    MESSAGE,
    OF_VARIANTS,
    FormatError,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
)
from spark_kafka_sink.record.compiled import nodes

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_INTEGERS = (nodes.INT8, nodes.INT16, nodes.INT32, nodes.INT64)
_SMALL = _INTEGERS[:3]
_TIMES = {
    (nodes.TIMESTAMP, "google.protobuf.Timestamp"): (nodes.SECONDS, nodes.OF_TIMESTAMPS),
    (nodes.INTERVAL, "google.protobuf.Duration"): (nodes.SIGNED_SECONDS, nodes.OF_DURATIONS),
}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value": name.lower() for name in _WRAPPED}
# Values copied from Arrow's buffers -> bytes per value. Fields with a range check are not copied.
_COPIED = {
    (nodes.FLOAT, nodes.FIXED_4): 4,
    (nodes.INT32, nodes.FIXED_4): 4,
    (nodes.DOUBLE, nodes.FIXED_8): 8,
    (nodes.INT64, nodes.FIXED_8): 8,
}
_MAX_DIGITS = 20
"""Digits of a decimal that holds an unsigned 64-bit integer, as Spark reads these."""


class _Type(NamedTuple):
    """A scalar type. wire: its wire type; is_wide: whether an integer has 64 bits"""

    written_as: int
    wire: int
    is_wide: bool = False
    is_signed: bool = True


_TYPES = {
    "int32": _Type(nodes.VARINT, _VARINT),
    "int64": _Type(nodes.VARINT, _VARINT, True),
    "uint32": _Type(nodes.VARINT, _VARINT, is_signed=False),
    "uint64": _Type(nodes.VARINT, _VARINT, True, False),
    "sint32": _Type(nodes.ZIGZAG, _VARINT),
    "sint64": _Type(nodes.ZIGZAG, _VARINT, True),
    "fixed32": _Type(nodes.FIXED_4, _FOUR, is_signed=False),
    "fixed64": _Type(nodes.FIXED_8, _EIGHT, True, False),
    "sfixed32": _Type(nodes.FIXED_4, _FOUR),
    "sfixed64": _Type(nodes.FIXED_8, _EIGHT, True),
}
# (kind of the column, type of the field) -> encoding, for types that need no other check.
_OTHERS = {
    (nodes.BOOLEAN, "bool"): (nodes.VARINT, _VARINT, 0),
    (nodes.FLOAT, "float"): (nodes.FIXED_4, _FOUR, 0),
    (nodes.FLOAT, "double"): (nodes.FIXED_8, _EIGHT, nodes.PROTOBUF_AS_DOUBLE),
    (nodes.DOUBLE, "double"): (nodes.FIXED_8, _EIGHT, 0),
    (nodes.STRING, "string"): (nodes.VARINT, _LENGTH, nodes.IS_TEXT),
    (nodes.BINARY, "bytes"): (nodes.VARINT, _LENGTH, 0),
}


def protobuf_root(schema: ProtobufSchema, columns: list[Column]) -> Node:
    """Return the node of a row.

    Raises FormatError for a column without a matching field, or a required field without a column.
    """
    return Node(nodes.STRUCT, children=_Layout(schema).fields(schema.root, columns, ""))


class _Layout:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._messages = {message.name: message for message in schema.messages}
        self._enums = {enum.name: enum for enum in schema.enums}

    def fields(self, name: str, columns: list[Column], path: str) -> tuple[Node, ...]:
        """Return the nodes of a message's fields in descending order of numbers, the kernel's."""
        message = self._messages[name]
        found = _matched(message, columns)
        missing = [f.name for f in message.fields if f.is_required and f.number not in found]
        if missing:
            raise FormatError(
                f"the Protobuf message {message.name} requires the field '{missing[0]}', and there "
                f"is no column '{path + '.' if path else ''}{missing[0]}'. Add one",
                code="FORMAT-010",
            )
        taken = sorted((f for f in message.fields if f.number in found), key=lambda f: -f.number)
        matched = []
        for place, field in enumerate(taken):
            number = found[field.number]
            node = self._field(field, columns[number])._replace(source=number)
            if field.oneof:
                later = (n for n in range(place + 1, len(taken)) if taken[n].oneof == field.oneof)
                node = node._replace(rules=node.rules | nodes.IN_ONEOF, rival=next(later, -1))
            matched.append(node)
        return tuple(matched)

    def _field(self, field: ProtobufField, column: Column) -> Node:
        if field.type == GROUP:
            raise FormatError(
                f"the Protobuf field '{field.name}' is a group (or of the message encoding "
                f"DELIMITED), as which column '{column.path}' is not written: make it a message of "
                "the usual encoding, or leave the column out",
                code="FORMAT-007",
            )
        if column.type == pa.null():
            return Node(nodes.NULL, rules=_needed(field), path=column.path)
        kind, offset_bytes = _kind_of(field, column)
        if field.is_repeated:
            return self._repeated(field, column, kind, offset_bytes)
        return self._value(field, column)

    def _repeated(self, field: ProtobufField, column: Column, kind: int, offset_bytes: int) -> Node:
        is_entry = field.type == MESSAGE and self._messages[field.type_name].is_entry
        if kind != (nodes.MAP if is_entry else nodes.LIST):
            raise _does_not_fit(field, column)
        if is_entry:
            child = self._entry(field, column)
        else:
            inner = Column("", f"{column.path}[]", column.type.value_type)
            is_null = inner.type == pa.null()
            child = Node(nodes.NULL, path=inner.path) if is_null else self._value(field, inner)
        child = child._replace(rules=child.rules & ~nodes.LEAVES_ZERO_OUT | nodes.NEEDS_VALUE)
        node = Node(nodes.LIST, offset_bytes=offset_bytes, path=column.path, children=(child,))
        if not field.is_packed:
            return node
        tag = _tag(field.number, _LENGTH)
        bare = child._replace(name=b"", rules=child.rules & ~(15 << nodes.TAG_BYTES))
        rules = nodes.IS_PACKED | len(tag) << nodes.TAG_BYTES
        size = _COPIED.get((child.kind, child.written_as), 0)
        if size:
            rules |= nodes.IS_COPIED
        return node._replace(name=tag, rules=rules, parameter=size, children=(bare,))

    def _entry(self, field: ProtobufField, column: Column) -> Node:
        """Return the node of a map's entry, a message whose two fields are always written."""
        fields = {f.number: f for f in self._messages[field.type_name].fields}
        parts = (
            (1, fields[2], Column("", f"{column.path}[]", column.type.item_type)),
            (0, fields[1], Column("", f"{column.path}'s key", column.type.key_type)),
        )
        children = []
        for source, part, inner in parts:
            node = self._field(part._replace(has_presence=True), inner)
            children.append(node._replace(source=source, rules=node.rules | nodes.NEEDS_VALUE))
        entry = Node(nodes.STRUCT, path=column.path, children=tuple(children))
        return _tagged(field, _LENGTH, entry)

    def _value(self, field: ProtobufField, column: Column) -> Node:
        """Return the node of a field that is not repeated, or of a repeated field's element."""
        kind, offset_bytes = _kind_of(field, column)
        node = Node(kind, offset_bytes=offset_bytes, path=column.path)
        if field.type == ENUM:
            return self._enum(field, column, node)
        if field.type == MESSAGE:
            return self._message_value(field, column, node)
        scalar = _scalar(field.type, column.type, node)
        if scalar is None:
            raise _does_not_fit(field, column)
        return _tagged(field, scalar[1], scalar[0])

    def _enum(self, field: ProtobufField, column: Column, node: Node) -> Node:
        values = self._enums[field.type_name].values
        if node.kind == nodes.STRING:
            node = node._replace(symbols=tuple(name for name, _ in values), rules=nodes.IS_SYMBOL)
        elif node.kind in _SMALL:
            node = node._replace(rules=nodes.IS_NUMBER)
        else:
            raise _does_not_fit(field, column)
        numbers = tuple(number for _, number in values)
        return _tagged(field, _VARINT, node._replace(numbers=numbers))

    def _message_value(self, field: ProtobufField, column: Column, node: Node) -> Node:
        kind, name = node.kind, field.type_name
        if kind == nodes.STRUCT:
            fields = [column.type.field(number) for number in range(column.type.num_fields)]
            inner = [Column(f.name, f"{column.path}.{f.name}", f.type) for f in fields]
            children = self.fields(name, inner, column.path)
            return _tagged(field, _LENGTH, node._replace(children=children))
        if (kind, name) in _TIMES:
            written_as, limit = _TIMES[kind, name]
            value = node._replace(kind=nodes.INT64, written_as=written_as, parameter=limit)
            return _tagged(field, _LENGTH, value._replace(rules=nodes.CHECKS_RANGE))
        wrapped = _scalar(_WRAPPERS[name], column.type, node) if name in _WRAPPERS else None
        if wrapped is None:
            raise _does_not_fit(field, column)
        value, wire = wrapped
        inner_tag = (1 << 3 | wire) << nodes.INNER_TAG
        value = value._replace(rules=value.rules | nodes.IS_WRAPPED | inner_tag)
        return _tagged(field, _LENGTH, value)


def _matched(message: ProtobufMessage, columns: list[Column]) -> dict[int, int]:
    """Return field number -> index of its column."""
    exact = {field.name: field.number for field in message.fields}
    lower = Counter(field.name.lower() for field in message.fields)
    near = {f.name.lower(): f.number for f in message.fields if lower[f.name.lower()] == 1}
    found: dict[int, int] = {}
    for place, column in enumerate(columns):
        number = exact.get(column.name, near.get(column.name.lower()))
        if number is None or number in found:
            why = "more than one column" if number in found else "no field"
            names = [field.name for field in message.fields]
            raise FormatError(
                f"the Protobuf message {message.name} has {why} for '{column.path}': it has "
                f"{names}. Leave this column out, or name it as the message does",
                code="FORMAT-009",
            )
        found[number] = place
    return found


def _kind_of(field: ProtobufField, column: Column) -> tuple[int, int]:
    found = kind_of(column.type)
    if is_variant(column.type):
        raise FormatError(
            f"column '{column.path}' is a VARIANT, which cannot be written as the Protobuf field "
            f"'{field.name}' ({field.words}). {OF_VARIANTS}",
            code="FORMAT-007",
        )
    if found is None:
        as_what = f"the Protobuf field '{field.name}' ({field.words})"
        raise not_writable(column.path, column.type, as_what)
    return found


def _scalar(name: str, arrow_type: Any, node: Node) -> tuple[Node, int] | None:
    """Return the node and wire type of a scalar; None if the field cannot hold the column."""
    kind = nodes.INT32 if node.kind == nodes.DATE else node.kind
    other = _OTHERS.get((kind, name))
    if other is not None:
        written_as, wire, rules = other
        return node._replace(written_as=written_as, rules=rules), wire
    found = _TYPES.get(name)
    if found is None or (node.kind == nodes.DATE and found.is_wide):
        return None
    value = node._replace(kind=kind, written_as=found.written_as)
    if kind == nodes.DECIMAL:
        fits = arrow_type.scale == 0 and arrow_type.precision <= _MAX_DIGITS
        return (value, found.wire) if fits and found.is_wide and not found.is_signed else None
    if kind not in _INTEGERS:
        return None
    limit = 0
    if kind == nodes.INT64 and not found.is_wide:
        limit = nodes.SIGNED_32 if found.is_signed else nodes.UNSIGNED_32
    elif kind in _SMALL and found.is_wide and not found.is_signed:
        limit = nodes.NOT_NEGATIVE
    if limit:
        return value._replace(parameter=limit, rules=nodes.CHECKS_RANGE), found.wire
    if not found.is_wide and not found.is_signed:
        value = value._replace(rules=nodes.OF_32_BITS)
    return value, found.wire


def _tagged(field: ProtobufField, wire: int, node: Node) -> Node:
    """Return the node with the field's tag and rules."""
    tag = _tag(field.number, wire)
    rules = node.rules | len(tag) << nodes.TAG_BYTES | _needed(field)
    if not field.has_presence and not field.is_repeated:
        rules |= nodes.LEAVES_ZERO_OUT
    return node._replace(name=tag, rules=rules)


def _needed(field: ProtobufField) -> int:
    return nodes.NEEDS_VALUE if field.is_required else 0


def _tag(number: int, wire: int) -> bytes:
    return unsigned_varint(number << 3 | wire)


def _does_not_fit(field: ProtobufField, column: Column) -> FormatError:
    return FormatError(
        f"column '{column.path}' has the Arrow type {column.type}, which the Protobuf field "
        f"'{field.name}' ({field.words}) cannot hold. Cast the column",
        code="FORMAT-011",
    )
