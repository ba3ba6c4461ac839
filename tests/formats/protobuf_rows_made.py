"""Random Protobuf messages, and columns that fit them, with values."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2
from hypothesis import strategies as st

from tests.formats.row_strategies import FLOATS, SINGLES, TEXT, Rows, integers

T = descriptor_pb2.FieldDescriptorProto


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(low, high), st.integers(max(low, -200), min(high, 200)))


I32, I64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
U32, U63 = (0, 2**32 - 1), (0, 2**63 - 1)
SMALL = [(pa.int8(), integers(8)), (pa.int16(), integers(16)), (pa.int32(), whole(*I32))]
UNSIGNED = [(kind, whole(0, 127)) for kind in (pa.int8(), pa.int16(), pa.int32())]
SIGNED_32 = [*SMALL, (pa.int64(), whole(*I32)), (pa.date32(), whole(*I32))]
UNSIGNED_32 = [*UNSIGNED, (pa.int64(), whole(*U32))]
SIGNED_64 = [*SMALL, (pa.int64(), whole(*I64))]
UNSIGNED_64 = [*UNSIGNED, (pa.int64(), whole(*U63)), (pa.decimal128(20, 0), whole(0, 2**64 - 1))]
TEXTS = [(pa.string(), TEXT), (pa.large_string(), TEXT)]
BYTES = [(kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary())]
FITTING: dict[int, list[tuple[Any, st.SearchStrategy[Any]]]] = {
    T.TYPE_DOUBLE: [(pa.float64(), FLOATS), (pa.float32(), SINGLES)],
    T.TYPE_FLOAT: [(pa.float32(), SINGLES)],
    T.TYPE_INT64: SIGNED_64,
    T.TYPE_UINT64: UNSIGNED_64,
    T.TYPE_INT32: SIGNED_32,
    T.TYPE_FIXED64: UNSIGNED_64,
    T.TYPE_FIXED32: UNSIGNED_32,
    T.TYPE_BOOL: [(pa.bool_(), st.booleans())],
    T.TYPE_STRING: TEXTS,
    T.TYPE_BYTES: BYTES,
    T.TYPE_UINT32: UNSIGNED_32,
    T.TYPE_SFIXED32: SIGNED_32,
    T.TYPE_SFIXED64: SIGNED_64,
    T.TYPE_SINT32: SIGNED_32,
    T.TYPE_SINT64: SIGNED_64,
}
WRAPPED = {
    "BoolValue": T.TYPE_BOOL,
    "Int32Value": T.TYPE_INT32,
    "UInt64Value": T.TYPE_UINT64,
    "DoubleValue": T.TYPE_DOUBLE,
    "FloatValue": T.TYPE_FLOAT,
    "StringValue": T.TYPE_STRING,
    "BytesValue": T.TYPE_BYTES,
}
ENUM = [("ZERO", 0), ("ONE", 1), ("FAR", 100_000), ("BELOW", -1)]
KEYS = [T.TYPE_STRING, T.TYPE_INT32, T.TYPE_UINT64, T.TYPE_BOOL, T.TYPE_SFIXED32, T.TYPE_SINT64]
SECONDS = st.integers(-62_135_596_800 * 10**6, 253_402_300_799_999_999)


class Typed(NamedTuple):
    """A column's Arrow type and its values, for what a field is."""

    kind: Any
    values: st.SearchStrategy[Any]


class Made(NamedTuple):
    """files: of a descriptor set; rows: of its message pkg.Root"""

    files: list[Any]
    rows: Rows


class _Making:
    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.file = descriptor_pb2.FileDescriptorProto(
            name="made.proto", package="pkg", syntax=draw(st.sampled_from(["proto2", "proto3"]))
        )
        names = ("timestamp", "duration", "wrappers")
        self.file.dependency.extend(f"google/protobuf/{name}.proto" for name in names)
        enum = self.file.enum_type.add(name="Kind")
        for name, number in ENUM:
            enum.value.add(name=name, number=number)

    def message(self, message: Any, depth: int) -> Typed:
        """Fill a message; a struct of some of its fields."""
        draw = self.draw
        numbers = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=5, unique=True))
        fields, values, members = [], {}, []
        for place, number in enumerate(numbers):
            field = message.field.add(name=f"f{place}", number=number, label=T.LABEL_OPTIONAL)
            typed, is_null_allowed = self.shaped(message, field, depth), True
            if field.label == T.LABEL_REPEATED:
                pass
            elif len(members) < 3 and draw(st.integers(0, 4)) == 0:
                members.append(field)
            elif self.file.syntax == "proto2" and draw(st.integers(0, 4)) == 0:
                field.label, is_null_allowed = T.LABEL_REQUIRED, False
            elif self.file.syntax == "proto3" and draw(st.booleans()):
                field.proto3_optional = True
            fields.append(pa.field(field.name, typed.kind))
            values[field.name] = (
                st.one_of(st.none(), typed.values) if is_null_allowed else typed.values
            )
        if members:
            message.oneof_decl.add(name="choice")
            for field in members:
                field.oneof_index = 0
        for field in message.field:
            if field.proto3_optional:
                message.oneof_decl.add(name=f"_{field.name}")
                field.oneof_index = len(message.oneof_decl) - 1
        chosen = [field.name for field in members]
        made = st.fixed_dictionaries(values).map(lambda row: only_one(row, chosen))
        return Typed(pa.struct(draw(st.permutations(fields))), made)

    def shaped(self, message: Any, field: Any, depth: int) -> Typed:
        draw = self.draw
        shape = draw(st.sampled_from(["one", "one", "one", "many", "map"]))
        if shape == "map":
            entry = message.nested_type.add(name=f"F{field.name[1:]}Entry")
            entry.options.map_entry = True
            key = entry.field.add(
                name="key", number=1, label=T.LABEL_OPTIONAL, type=draw(st.sampled_from(KEYS))
            )
            value = entry.field.add(name="value", number=2, label=T.LABEL_OPTIONAL)
            keys = Typed(*draw(st.sampled_from(FITTING[key.type])))
            items = self.typed(message, value, depth)
            field.type, field.label = T.TYPE_MESSAGE, T.LABEL_REPEATED
            field.type_name = f".pkg.{message.name}.{entry.name}"
            pairs = st.lists(
                st.tuples(keys.values, items.values), max_size=3, unique_by=lambda p: p[0]
            )
            return Typed(pa.map_(keys.kind, items.kind), pairs)
        found = self.typed(message, field, depth)
        if shape == "many":
            field.label = T.LABEL_REPEATED
            if field.type not in (T.TYPE_STRING, T.TYPE_BYTES, T.TYPE_MESSAGE):
                packed = draw(st.sampled_from([None, True, False]))
                if packed is not None:
                    field.options.packed = packed
            make = draw(st.sampled_from([pa.list_, pa.large_list]))
            return Typed(make(found.kind), st.lists(found.values, max_size=4))
        return found

    def typed(self, message: Any, field: Any, depth: int) -> Typed:
        draw = self.draw
        what = draw(
            st.sampled_from(["plain"] * 4 + ["enum", "time", "wrapped"] + ["inner"] * depth)
        )
        if what == "plain":
            field.type = draw(st.sampled_from(sorted(FITTING)))
            return Typed(*draw(st.sampled_from(FITTING[field.type])))
        if what == "enum":
            field.type, field.type_name = T.TYPE_ENUM, ".pkg.Kind"
            names = Typed(pa.string(), st.sampled_from([name for name, _ in ENUM]))
            numbers = Typed(pa.int32(), st.sampled_from([number for _, number in ENUM]))
            return draw(st.sampled_from([names, numbers]))
        field.type = T.TYPE_MESSAGE
        if what == "time":
            if draw(st.booleans()):
                field.type_name = ".google.protobuf.Timestamp"
                return Typed(pa.timestamp("us", "UTC"), SECONDS)
            field.type_name = ".google.protobuf.Duration"
            return Typed(pa.duration("us"), st.integers(-(10**17), 10**17))
        if what == "wrapped":
            name = draw(st.sampled_from(sorted(WRAPPED)))
            field.type_name = f".google.protobuf.{name}"
            return Typed(*draw(st.sampled_from(FITTING[WRAPPED[name]])))
        name = f"Inner{len(self.file.message_type)}"
        field.type_name = f".pkg.{name}"
        inner = self.file.message_type.add(name=name)
        return self.message(inner, depth - 1)


def only_one(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """At most one member of a oneof has a value."""
    given = [name for name in names if row[name] is not None]
    return {name: None if name in given[1:] else value for name, value in row.items()}


@st.composite
def made_rows(draw: Any) -> Made:
    making = _Making(draw)
    root = making.file.message_type.add(name="Root")
    typed = making.message(root, 2)
    rows = Rows(pa.schema([*typed.kind]), draw(st.lists(typed.values, min_size=1, max_size=5)))
    return Made([making.file], rows)
