"""Protobuf as the official package and Spark's to_protobuf write it, and columns matched with messages.

Spark's cases were made by its own serializer of to_protobuf: where this differs is in the tables.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats.plan import PROTOBUF, FieldSpec, FormatError, FormatSpec
from spark_kafka_sink.formats.protobuf_layout import read_descriptor_set
from tests.formats.protobuf_files import (
    PREFIX,
    add_field,
    descriptor_set,
    file_of,
    fill,
    message_class,
    one_message,
    protobuf_encoder,
    schema_of,
    sized,
    varint,
    written,
)
from tests.formats.rows import FLOATS, SINGLES, TEXT, Rows, arrow_batch, integers

# --- random messages, and columns that fit them, with values --------------------------------------

T = descriptor_pb2.FieldDescriptorProto


def whole(low, high):
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
FITTING = {
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
    def __init__(self, draw):
        self.draw = draw
        self.file = descriptor_pb2.FileDescriptorProto(
            name="made.proto", package="pkg", syntax=draw(st.sampled_from(["proto2", "proto3"]))
        )
        names = ("timestamp", "duration", "wrappers")
        self.file.dependency.extend(f"google/protobuf/{name}.proto" for name in names)
        enum = self.file.enum_type.add(name="Kind")
        for name, number in ENUM:
            enum.value.add(name=name, number=number)

    def message(self, message, depth):
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

    def shaped(self, message, field, depth):
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

    def typed(self, message, field, depth):
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


def only_one(row, names):
    """At most one member of a oneof has a value."""
    given = [name for name in names if row[name] is not None]
    return {name: None if name in given[1:] else value for name, value in row.items()}


@st.composite
def made_rows(draw):
    making = _Making(draw)
    root = making.file.message_type.add(name="Root")
    typed = making.message(root, 2)
    rows = Rows(pa.schema([*typed.kind]), draw(st.lists(typed.values, min_size=1, max_size=5)))
    return Made([making.file], rows)


# --- rows -----------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(made_rows(), st.integers(0, 4))
def test_rows_are_as_the_official_package_writes_them(made, first):
    """Sliced batches, too."""
    first = min(first, len(made.rows.values) - 1)
    data = descriptor_set(made.files)
    schema = read_descriptor_set(data, "pkg.Root").schema
    encoded = protobuf_encoder(made.rows.schema, schema, PREFIX).encode(
        made.rows.batch.slice(first)
    )
    assert encoded.faults is None
    encoded.values.validate(full=True)
    kind = message_class(data, "pkg.Root")
    for value, row in zip(encoded.values.to_pylist(), made.rows.values[first:]):
        assert_official(value, fill(kind(), row))


def assert_official(value, expected):
    """The same bytes, but for the order of the entries of maps."""
    assert value[: len(PREFIX)] == PREFIX
    body = value[len(PREFIX) :]
    read, written = type(expected).FromString(body), expected.SerializeToString(deterministic=True)
    assert read.SerializeToString(deterministic=True) == written
    assert len(body) == len(written)
    if not has_maps(expected):
        assert body == written


def has_maps(message):
    """Anywhere in it."""
    return any(
        field.message_type is not None
        and (field.message_type.GetOptions().map_entry or any(map(has_maps, parts(value))))
        for field, value in message.ListFields()
    )


def parts(value):
    return list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]


@pytest.mark.parametrize(
    ("value", "kind", "field", "expected"),
    [
        # Bits of a signed column are those of an unsigned field.
        (-1, pa.int8(), "int32", b"\x08" + b"\xff" * 9 + b"\x01"),
        (-1, pa.int32(), "uint32", b"\x08\xff\xff\xff\xff\x0f"),
        (-1, pa.int32(), "fixed32", b"\x0d\xff\xff\xff\xff"),
        (-1, pa.int64(), "uint64", b"\x08" + b"\xff" * 9 + b"\x01"),
        (2**32 - 1, pa.int64(), "uint32", b"\x08\xff\xff\xff\xff\x0f"),
        (
            -1,  # seconds downwards, nanoseconds upwards
            pa.timestamp("us", "UTC"),
            "google.protobuf.Timestamp",
            b"\x0a" + sized(b"\x08" + varint(-1) + b"\x10" + varint(999_999_000)),
        ),
        ({"value": 7}, pa.struct([("value", pa.int8())]), "google.protobuf.Int64Value", b"\x0a\x02\x08\x07"),
        (None, pa.null(), "pkg.Inner", b""),
    ],
)  # fmt: skip
def test_what_fits_a_field(value, kind, field, expected):
    assert written(pa.array([value], kind), field) == [expected]


def test_fields_are_found_without_regard_to_case_and_may_have_no_column():
    file = file_of()
    root = file.message_type.add(name="Root")
    for name, number in (("userId", 3), ("a", 5), ("A", 7), ("absent", 1)):
        add_field(root, name, "int32", number)
    batch = pa.record_batch({"A": [1], "userid": [2], "a": [3]})
    [found] = protobuf_encoder(batch.schema, schema_of(file)).encode(batch).values.to_pylist()
    assert found == b"\x18\x02\x28\x03\x38\x01"


def test_names_that_differ_only_by_case_are_refused():
    schema = schema_of(one_message(ab="int32", AB="int32"))
    words = (
        r"columns \['Ab'\] and fields \['ab', 'AB'\] of the Protobuf message pkg.Root differ only"
    )
    with pytest.raises(FormatError, match=words):
        protobuf_encoder(pa.schema([("Ab", pa.int32())]), schema)


def test_recursive_messages_are_as_deep_as_their_columns():
    file = one_message(x="int32", next="pkg.Root", all="repeated pkg.Root")
    inner = pa.struct([("x", pa.int32())])
    kind = pa.struct([("x", pa.int32()), ("next", inner), ("all", pa.list_(inner))])
    value = {"x": 1, "next": {"x": 2}, "all": [{"x": 3}, {"x": None}]}
    batch = pa.record_batch([pa.array([value], kind)], ["next"])
    [found] = protobuf_encoder(batch.schema, schema_of(file)).encode(batch).values.to_pylist()
    assert found == b"\x12" + sized(b"\x08\x01\x12\x02\x08\x02\x1a\x02\x08\x03\x1a\x00")


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        (pa.string(), "int32", r"column 'c' has the Arrow type string, which the Protobuf field 'c' \(int32\) cannot hold"),
        (pa.int64(), "double", r"\(double\)"),
        (pa.float64(), "float", r"\(float\)"),
        (pa.string(), "bytes", r"\(bytes\)"),
        (pa.binary(), "string", r"\(string\)"),
        (pa.bool_(), "int32", r"\(int32\)"),
        (pa.date32(), "int64", r"\(int64\)"),
        (pa.decimal128(10, 2), "double", r"decimal128\(10, 2\).*\(double\)"),
        (pa.decimal128(20, 0), "int64", r"\(int64\)"),
        (pa.decimal128(10, 2), "uint64", r"\(uint64\)"),
        (pa.list_(pa.int32()), "pkg.Inner", r"\(pkg\.Inner\)"),
        (pa.list_(pa.int32()), "enum pkg.Kind", r"\(pkg\.Kind\)"),
        (pa.map_(pa.string(), pa.int32()), "google.protobuf.Int64Value", r"Int64Value"),
        (pa.list_(pa.list_(pa.int32())), "repeated pkg.Inner", r"column 'c\[\]'"),
        (pa.decimal128(21, 0), "uint64", r"\(uint64\)"),
        (pa.timestamp("us"), "google.protobuf.Timestamp", r"\(google\.protobuf\.Timestamp\)"),
        (pa.timestamp("us", "UTC"), "pkg.Inner", r"\(pkg\.Inner\)"),
        (pa.int64(), "enum pkg.Kind", r"\(pkg\.Kind\)"),
        (pa.int64(), "google.protobuf.StringValue", r"StringValue"),
        (pa.int32(), "repeated int32", r"\(repeated int32\)"),
        (pa.list_(pa.int32()), "int32", r"\(int32\)"),
        (pa.list_(pa.list_(pa.int32())), "repeated int32", r"column 'c\[\]'"),
        (pa.list_(pa.string()), "repeated int32", r"column 'c\[\]' has the Arrow type string"),
        (pa.list_(pa.int32()), "map int32 string", r"list<item: int32>"),
        (pa.map_(pa.string(), pa.string()), "map string int32", r"column 'c\[\]'.* field 'value' \(int32\)"),
        (pa.map_(pa.string(), pa.int32()), "map int32 int32", r"column 'c's key'"),
        (pa.struct([("y", pa.int32())]), "pkg.Inner", r"message pkg\.Inner has no field for 'c\.y': it has \['x'\]"),
        (pa.struct([("x", pa.string())]), "pkg.Inner", r"column 'c\.x'"),
        (pa.uint64(), "uint64", "the Arrow type uint64, which cannot be written"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_field(kind, field, message):
    schema = schema_of(one_message(c=field))
    with pytest.raises(FormatError, match=message):
        protobuf_encoder(pa.schema([("c", kind)]), schema)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["other", "c"], r"message pkg\.Root has no field for 'other': it has \['c', 'd'\]"),
        (["c", "C"], r"has no field for 'C'"),
        (["D", "c", "d"], r"has no field for 'D'"),
        (["d"], r"message pkg\.Root requires the field 'c', and there is no column 'c'"),
    ],
)
def test_columns_that_a_message_has_not_and_the_other_way_round(names, message):
    schema = schema_of(one_message("proto2", c="required int32", d="int32"))
    with pytest.raises(FormatError, match=message):
        protobuf_encoder(pa.schema([(name, pa.int32()) for name in names]), schema)


def test_groups_are_refused():
    file = one_message("proto2", c="group", d="int32")
    group = file.message_type[0].nested_type.add(name="C")
    add_field(group, "x", "int32")
    file.message_type[0].field[0].type_name = ".pkg.Root.C"
    with pytest.raises(FormatError, match="field 'c' is a group"):
        protobuf_encoder(pa.schema([("c", pa.struct([("x", pa.int32())]))]), schema_of(file))
    protobuf_encoder(pa.schema([("d", pa.int32())]), schema_of(file))


def test_rows_that_cannot_be_written_are_told_and_the_others_are():
    """Other causes: ``FAULTS``."""
    schema = schema_of(one_message("proto2", n="required int32", u="uint64", d="uint64"))
    numbers = [1, None, 2**31, -(2**31) - 1, 1, 1, 1]
    columns = {
        "n": pa.array(numbers, pa.int64()),
        "u": pa.array([1, 1, 1, 1, -1, 1, 7], pa.int32()),
        "d": pa.array([None, 1, 1, 1, 1, -1, None], pa.decimal128(5, 0)),
    }
    batch = pa.record_batch(columns)
    made = protobuf_encoder(batch.schema, schema, PREFIX)
    values, faults = made.encode(batch)
    values.validate(full=True)
    first, *others, last = values.to_pylist()
    assert (first, last) == (PREFIX + b"\x08\x01\x10\x01", PREFIX + b"\x08\x01\x10\x07")
    assert others == [None] * 5
    told = [fault and made.fault_text(fault).split("'")[1] for fault in faults.tolist()]
    assert told == [0, "n", "n", "n", "u", "d", 0]


WITHOUT_THE_PACKAGE = """
import pickle, sys
sys.modules["google"] = sys.modules["google.protobuf"] = None
import pyarrow as pa
from spark_kafka_sink.formats.encoder import RowEncoder
plan = pickle.loads(bytes.fromhex(sys.argv[1]))
batch = pa.record_batch({"c": [1, 2]})
print(RowEncoder(plan, batch.schema).encode(batch).values.to_pylist())
"""


def test_tasks_need_no_package_of_protobuf():
    plan = FormatSpec(
        PROTOBUF, (FieldSpec(("c",), "c"),), protobuf_schema=schema_of(one_message(c="int64"))
    )
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, pickle.dumps(plan).hex()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[b'\\x08\\x01', b'\\x08\\x02']\n", done.stderr


@pytest.mark.parametrize("kind", [pa.string(), pa.int32()])
def test_an_enum_without_values_has_no_rows(kind):
    """A schema of protoc has one at least, a descriptor file of anybody's may have none."""
    schema = schema_of(one_message(c="enum pkg.Kind"))
    schema = schema._replace(enums=tuple(e._replace(values=()) for e in schema.enums))
    batch = pa.record_batch([pa.array(["1", None]).cast(kind)], ["c"])
    made = protobuf_encoder(batch.schema, schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None, b""]
    text = "field 'c' is none of the values of its Protobuf enum"
    assert made.fault_text(int(faults[0])) == text


@pytest.mark.parametrize(
    ("kind", "name", "first", "last"),
    [
        (pa.timestamp("us", "UTC"), "Timestamp", -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1),
        (pa.duration("us"), "Duration", -315_576_000_001 * 10**6 + 1, 315_576_000_001 * 10**6 - 1),
    ],
)  # fmt: skip
def test_times_that_their_message_does_not_have(kind, name, first, last):
    """The years 1 to 9999, and 10,000 years: readers refuse others, or show another time."""
    values = [first, last, first - 1, last + 1, -(2**63), 2**63 - 1]
    batch = pa.record_batch([pa.array(values, pa.int64()).cast(kind)], ["c"])
    made = protobuf_encoder(batch.schema, schema_of(one_message(c=f"google.protobuf.{name}")))
    found, faults = made.encode(batch)
    assert [value is None for value in found.to_pylist()] == [False] * 2 + [True] * 4
    texts = {made.fault_text(fault) for fault in faults[2:].tolist()}
    assert texts == {"field 'c' is out of the range of its Protobuf type"}


@pytest.mark.parametrize(
    ("kind", "field", "code"),
    [
        (pa.float32(), "float", "f"),
        (pa.float64(), "double", "d"),
        (pa.int32(), "fixed32", "i"),
        (pa.int64(), "sfixed64", "q"),
    ],
)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_lists_of_numbers_that_are_written_as_they_are(make, kind, field, code):
    """Sliced, and with a null in a row that is left out."""
    rows = [[1], [*range(30)], [], None, [7, 8]]
    packed = [struct.pack(f"<{len(row or ())}{code}", *(row or ())) for row in rows]
    for left_out in ([None], [0]):
        found = written(pa.array([left_out, *rows], make(kind)).slice(1), f"repeated {field}")
        assert found == [b"\x0a" + sized(p) if p else b"" for p in packed]


SPARKS = Path(__file__).parent / "protobuf_cases"
SPARKS_CASES = sorted(path.stem for path in SPARKS.glob("*.json"))
# What Spark refuses to write, or fails at, and this writes; or what both write otherwise.
OTHERWISE = {
    "micros": [b"\x0a" + sized(b"\x08" + varint(1_719_830_096) + b"\x10" + varint(123_456_000)) + b"\x12" + sized(b"\x10" + varint(1000))],
    "before_1970": [b"\x0a" + sized(b"\x08" + varint(-3601) + b"\x10" + varint(500_000_000))],
    "empty_bytes": [b""],  # Spark writes the default; readers see no difference
    "beyond_int32": [b"\x08\x01"],
    "int_as_int64": [b"\x08\x01"],
    "float_as_double": [b"\x09" + bytes(6) + b"\xf8\x3f"],
    "beyond_long": [b"\x08" + b"\xff" * 9 + b"\x01"],
}  # fmt: skip
# Rows that Spark writes although google.protobuf.Timestamp has no such time.
BEYOND = {"times": [3]}
# What Spark writes with a loss, or fails at, and this makes faults of.
FAULTS = {
    "required_null": "field 'a' is null, and Protobuf has no null for required fields",
    "map_null": r"field 'a\[\]' is null, and Protobuf has no null",
    "list_null": r"field 'a\[\]' is null, and Protobuf has no null",
    "both_of_one": "field 'b' and another one of the same Protobuf oneof are both not null",
    "beyond_uint32": "field 'a' is out of the range of its Protobuf type",
    "unknown_symbol": "field 'a' is none of the values of its Protobuf enum",
    "unknown_number": "field 'a' is none of the values of its Protobuf enum",
    "not_utf8": "field 'a' is a string that is not UTF-8",
}
REFUSED = {
    "decimal_as_double": r"'a' has the Arrow type decimal128\(2, 1\), .* 'a' \(double\) cannot",
    "ntz": r"timestamp\[us\], which the Protobuf field 'a' \(google\.protobuf\.Timestamp\) cannot",
    "text_as_bytes": r"string, which the Protobuf field 'a' \(bytes\) cannot hold",
    "no_field": r"message pkg\.Root has no field for 'b'",
    "no_column": r"message pkg\.Root requires the field 'b'",
}
SAME = [name for name in SPARKS_CASES if name not in {**OTHERWISE, **FAULTS, **REFUSED}]


def read_case(name):
    found = json.loads((SPARKS / f"{name}.json").read_text(encoding="utf-8"))
    return found, arrow_batch(found)


def of_case(case, batch):
    schema = read_descriptor_set(base64.b64decode(case["descriptors"]), "pkg.Root").schema
    return protobuf_encoder(batch.schema, schema)


@pytest.mark.parametrize("name", SAME)
def test_rows_are_as_spark_writes_them(name):
    case, batch = read_case(name)
    encoded = of_case(case, batch).encode(batch)
    faults = [] if encoded.faults is None else np.flatnonzero(encoded.faults).tolist()
    assert faults == BEYOND.get(name, [])
    expected = [None if row in faults else text for row, text in enumerate(case["rows"])]
    values = encoded.values.to_pylist()
    assert [None if value is None else value.hex().upper() for value in values] == expected


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_what_is_written_otherwise_than_by_spark(name):
    case, batch = read_case(name)
    found = of_case(case, batch).encode(batch).values.to_pylist()
    assert found == OTHERWISE[name]
    assert case["rows"] != [value.hex().upper() for value in found]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_is_a_fault_of_its_row_here(name):
    case, batch = read_case(name)
    made = of_case(case, batch)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None]
    assert re.match(FAULTS[name], made.fault_text(int(faults[0])))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_both_refuse(name):
    case, batch = read_case(name)
    with pytest.raises(FormatError, match=REFUSED[name]):
        of_case(case, batch)
    assert case["rows"][0].startswith("error")
