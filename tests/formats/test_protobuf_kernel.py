"""write_protobuf against its twin and the official package, and columns matched with messages."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats.plan import PROTOBUF, FormatError, FormatPlan, PlannedField
from spark_kafka_sink.formats.protobuf_descriptors import read_descriptor_set
from tests.formats import official
from tests.formats.protobuf_encoding import PREFIX, encoder, schema_of, written
from tests.formats.protobuf_files import add_field, file_of, one_message
from tests.formats.protobuf_rows_made import made_rows
from tests.formats.protobuf_twin import Twin, sized, varint


@settings(max_examples=300)
@given(made_rows(), st.integers(0, 4))
def test_rows_equal_their_twin_and_the_official_package(made, first):
    """Sliced batches, too."""
    first = min(first, len(made.rows.values) - 1)
    data = official.descriptor_set(made.files)
    schema = read_descriptor_set(data, "pkg.Root").schema
    encoded = encoder(made.rows.schema, schema, PREFIX).encode(made.rows.batch.slice(first))
    assert encoded.faults is None
    encoded.values.validate(full=True)
    found = encoded.values.to_pylist()
    twin = Twin(schema)
    rows = made.rows.values[first:]
    assert found == [PREFIX + twin.row(row) for row in rows]
    kind = official.message_class(data, "pkg.Root")
    for value, row in zip(found, rows):
        expected = official.fill(kind(), row)
        body = value[len(PREFIX) :]
        read = kind.FromString(body)
        bytes_of = [m.SerializeToString(deterministic=True) for m in (read, expected)]
        assert bytes_of[0] == bytes_of[1]
        if not official.has_maps(expected):
            assert body == bytes_of[1]


@pytest.mark.parametrize(
    ("value", "kind", "field", "expected"),
    [
        (-1, pa.int8(), "int32", b"\x08" + b"\xff" * 9 + b"\x01"),
        (-1, pa.int32(), "uint32", b"\x08\xff\xff\xff\xff\x0f"),
        (-1, pa.int32(), "fixed32", b"\x0d\xff\xff\xff\xff"),
        (-1, pa.int64(), "uint64", b"\x08" + b"\xff" * 9 + b"\x01"),
        (-1, pa.int64(), "sint32", b"\x08\x01"),
        (2**32 - 1, pa.int64(), "uint32", b"\x08\xff\xff\xff\xff\x0f"),
        (Decimal(2**64 - 1), pa.decimal128(20, 0), "uint64", b"\x08" + b"\xff" * 9 + b"\x01"),
        (5, pa.decimal128(4, 0), "fixed64", b"\x09\x05" + bytes(7)),
        (1.5, pa.float32(), "double", b"\x09" + struct.pack("<d", 1.5)),
        (-0.0, pa.float64(), "double", b"\x09" + struct.pack("<d", -0.0)),
        (0.0, pa.float64(), "double", b""),
        (0, pa.int32(), "int32", b""),
        (False, pa.bool_(), "bool", b""),
        ("", pa.string(), "string", b""),
        ("ZERO", pa.string(), "enum pkg.Kind", b""),
        ("FAR", pa.string(), "enum pkg.Kind", b"\x08\xa0\x8d\x06"),
        (100_000, pa.int32(), "enum pkg.Kind", b"\x08\xa0\x8d\x06"),
        (1, pa.int8(), "enum pkg.Kind", b"\x08\x01"),
        (20, pa.date32(), "int32", b"\x08\x14"),
        (0, pa.timestamp("us", "UTC"), "google.protobuf.Timestamp", b"\x0a\x00"),
        (
            -1,  # seconds downwards, nanoseconds upwards
            pa.timestamp("us", "UTC"),
            "google.protobuf.Timestamp",
            b"\x0a" + sized(b"\x08" + varint(-1) + b"\x10" + varint(999_999_000)),
        ),
        (-1, pa.duration("us"), "google.protobuf.Duration", b"\x0a\x0b\x10" + varint(-1000)),
        (0, pa.int64(), "google.protobuf.Int64Value", b"\x0a\x00"),
        (None, pa.int64(), "google.protobuf.Int64Value", b""),
        ("", pa.string(), "google.protobuf.StringValue", b"\x0a\x00"),
        ("a", pa.string(), "google.protobuf.StringValue", b"\x0a\x03\x0a\x01a"),
        (
            {"value": 7},
            pa.struct([("value", pa.int8())]),
            "google.protobuf.Int64Value",
            b"\x0a\x02\x08\x07",
        ),
        ({"x": 0}, pa.struct([("x", pa.int8())]), "pkg.Inner", b"\x0a\x00"),
        (None, pa.struct([("x", pa.int8())]), "pkg.Inner", b""),
        (None, pa.null(), "pkg.Inner", b""),
        ([], pa.list_(pa.int8()), "repeated int32", b""),
        (None, pa.list_(pa.int8()), "repeated int32", b""),
        ([0, 1], pa.list_(pa.int8()), "repeated int32", b"\x0a\x02\x00\x01"),
        ([0.0], pa.list_(pa.float32()), "repeated float", b"\x0a\x04" + bytes(4)),
        (["", "a"], pa.list_(pa.string()), "repeated string", b"\x0a\x00\x0a\x01a"),
        (
            [{"x": 0}, {"x": 1}],
            pa.list_(pa.struct([("x", pa.int8())])),
            "repeated pkg.Inner",
            b"\x0a\x00\x0a\x02\x08\x01",
        ),
        ([0], pa.list_(pa.int64()), "repeated google.protobuf.Int64Value", b"\x0a\x00"),
        (
            [(0, "")],
            pa.map_(pa.int32(), pa.string()),
            "map int32 string",
            b"\x0a\x04\x08\x00\x12\x00",
        ),
        (
            [(2, 0), (1, 1)],
            pa.map_(pa.int32(), pa.int8()),
            "map int32 sint32",
            b"\x0a\x04\x08\x02\x10\x00\x0a\x04\x08\x01\x10\x02",
        ),
    ],
)
def test_what_fits_a_field(value, kind, field, expected):
    assert written(pa.array([value], kind), field) == [expected]


def test_proto2_has_presence_and_does_not_pack():
    assert written(pa.array([0, None]), "int64", "proto2") == [b"\x08\x00", b""]
    assert written(pa.array([[0, 1]]), "repeated int64", "proto2") == [b"\x08\x00\x08\x01"]


def test_fields_are_found_without_regard_to_case_and_may_have_no_column():
    file = file_of()
    root = file.message_type.add(name="Root")
    for name, number in (("userId", 3), ("a", 5), ("A", 7), ("absent", 1)):
        add_field(root, name, "int32", number)
    batch = pa.record_batch({"A": [1], "userid": [2], "a": [3]})
    [found] = encoder(batch.schema, schema_of(file)).encode(batch).values.to_pylist()
    assert found == b"\x18\x02\x28\x03\x38\x01"


def test_a_name_that_is_like_those_of_two_fields_is_neither():
    schema = schema_of(one_message(ab="int32", AB="int32"))
    with pytest.raises(FormatError, match="has no field for 'Ab'"):
        encoder(pa.schema([("Ab", pa.int32())]), schema)


def test_the_tag_of_many_elements_has_as_many_bytes_as_its_number_needs():
    file = file_of()
    add_field(file.message_type.add(name="Root"), "c", "repeated int64", 3000)
    batch = pa.record_batch({"c": pa.array([[1, 2]], pa.list_(pa.int64()))})
    [found] = encoder(batch.schema, schema_of(file)).encode(batch).values.to_pylist()
    assert found == varint(3000 << 3 | 2) + b"\x02\x01\x02"


def test_recursive_messages_are_as_deep_as_their_columns():
    file = one_message(x="int32", next="pkg.Root", all="repeated pkg.Root")
    inner = pa.struct([("x", pa.int32())])
    kind = pa.struct([("x", pa.int32()), ("next", inner), ("all", pa.list_(inner))])
    value = {"x": 1, "next": {"x": 2}, "all": [{"x": 3}, {"x": None}]}
    batch = pa.record_batch([pa.array([value], kind)], ["next"])
    [found] = encoder(batch.schema, schema_of(file)).encode(batch).values.to_pylist()
    assert found == b"\x12" + sized(b"\x08\x01\x12\x02\x08\x02\x1a\x02\x08\x03\x1a\x00")


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        (
            pa.string(),
            "int32",
            r"column 'c' has the Arrow type string, which the Protobuf field 'c' \(int32\) cannot hold",
        ),
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
        (
            pa.map_(pa.string(), pa.string()),
            "map string int32",
            r"column 'c\[\]'.* field 'value' \(int32\)",
        ),
        (pa.map_(pa.string(), pa.int32()), "map int32 int32", r"column 'c's key'"),
        (
            pa.struct([("y", pa.int32())]),
            "pkg.Inner",
            r"message pkg\.Inner has no field for 'c\.y': it has \['x'\]",
        ),
        (pa.struct([("x", pa.string())]), "pkg.Inner", r"column 'c\.x'"),
        (pa.uint64(), "uint64", "the Arrow type uint64, which cannot be written"),
    ],
)
def test_what_does_not_fit_a_field(kind, field, message):
    schema = schema_of(one_message(c=field))
    with pytest.raises(FormatError, match=message):
        encoder(pa.schema([("c", kind)]), schema)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["other", "c"], r"message pkg\.Root has no field for 'other': it has \['c', 'd'\]"),
        (["c", "C"], r"has more than one column for 'C'"),
        (["d"], r"message pkg\.Root requires the field 'c', and there is no column 'c'"),
    ],
)
def test_columns_that_a_message_has_not_and_the_other_way_round(names, message):
    schema = schema_of(one_message("proto2", c="required int32", d="int32"))
    with pytest.raises(FormatError, match=message):
        encoder(pa.schema([(name, pa.int32()) for name in names]), schema)


def test_groups_are_refused():
    file = one_message("proto2", c="group", d="int32")
    group = file.message_type[0].nested_type.add(name="C")
    add_field(group, "x", "int32")
    file.message_type[0].field[0].type_name = ".pkg.Root.C"
    with pytest.raises(FormatError, match="field 'c' is a group"):
        encoder(pa.schema([("c", pa.struct([("x", pa.int32())]))]), schema_of(file))
    encoder(pa.schema([("d", pa.int32())]), schema_of(file))


def test_rows_that_cannot_be_written_are_told_and_the_others_are():
    file = one_message(
        "proto2",
        n="required int32",
        e="enum pkg.Kind",
        s="string",
        a="repeated int32",
        m="map string int32",
        p="int32",
        q="int64",
        u="uint64",
    )
    file.message_type[0].oneof_decl.add(name="choice")
    for name in ("p", "q"):
        next(f for f in file.message_type[0].field if f.name == name).oneof_index = 0
    good = {"n": 1, "e": "ONE", "s": b"ok", "a": [1], "m": [("k", 1)], "p": 1, "q": None, "u": 1}
    wrong = [{}, {"n": None}, {"n": 2**31}, {"n": -(2**31) - 1}, {"e": "one"}, {"s": b"\xff"}]
    wrong += [{"a": [1, None]}, {"m": [("k", None)]}, {"q": 1}, {"u": -1}, {"p": None, "q": 2}]
    types = {
        "n": pa.int64(),
        "e": pa.string(),
        "s": pa.binary(),
        "a": pa.list_(pa.int32()),
        "m": pa.map_(pa.string(), pa.int32()),
        "p": pa.int32(),
        "q": pa.int64(),
        "u": pa.int32(),
    }
    rows = [{**good, **change} for change in wrong]
    arrays = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    arrays["s"] = arrays["s"].view(pa.string())
    batch = pa.record_batch(arrays)
    made = encoder(batch.schema, schema_of(file), PREFIX)
    values, faults = made.encode(batch)
    values.validate(full=True)
    twin = Twin(schema_of(file))
    last = {**good, "s": "ok", "p": None, "q": 2}
    expected = [PREFIX + twin.row({**good, "s": "ok"}), *[None] * 9, PREFIX + twin.row(last)]
    assert values.to_pylist() == expected
    texts = [made.fault_text(fault) if fault else None for fault in faults.tolist()]
    needed = "is null, and Protobuf has no null for required fields, elements and values of maps"
    out_of_range = "is out of the range of its Protobuf type"
    assert texts == [
        None,
        f"field 'n' {needed}",
        f"field 'n' {out_of_range}",
        f"field 'n' {out_of_range}",
        "field 'e' is none of the values of its Protobuf enum",
        "field 's' is a string that is not UTF-8",
        f"field 'a[]' {needed}",
        f"field 'm[]' {needed}",
        "field 'q' and another one of the same Protobuf oneof are both not null",
        f"field 'u' {out_of_range}",
        None,
    ]


def test_numbers_that_an_enum_has_not_and_decimals_beyond_64_bits():
    schema = schema_of(one_message(c="enum pkg.Kind", d="uint64"))
    columns = [pa.array([1, 2], pa.int32()), pa.array([-1, 1], pa.decimal128(5, 0))]
    batch = pa.record_batch(columns, ["c", "d"])
    made = encoder(batch.schema, schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None, None]
    assert [made.fault_text(fault).split("'")[1] for fault in faults.tolist()] == ["d", "c"]


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
    plan = FormatPlan(
        PROTOBUF,
        (PlannedField(("c",), "c"),),
        protobuf_schema=schema_of(one_message(c="int64")),
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
    made = encoder(batch.schema, schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None, b""]
    text = "field 'c' is none of the values of its Protobuf enum"
    assert made.fault_text(int(faults[0])) == text


@pytest.mark.parametrize(
    ("kind", "name", "first", "last"),
    [
        (
            pa.timestamp("us", "UTC"),
            "Timestamp",
            -62_135_596_800 * 10**6,
            253_402_300_800 * 10**6 - 1,
        ),
        (pa.duration("us"), "Duration", -315_576_000_001 * 10**6 + 1, 315_576_000_001 * 10**6 - 1),
    ],
)
def test_times_that_their_message_does_not_have(kind, name, first, last):
    """The years 1 to 9999, and 10,000 years: readers refuse others, or show another time."""
    values = [first, last, first - 1, last + 1, -(2**63), 2**63 - 1]
    batch = pa.record_batch([pa.array(values, pa.int64()).cast(kind)], ["c"])
    made = encoder(batch.schema, schema_of(one_message(c=f"google.protobuf.{name}")))
    found, faults = made.encode(batch)
    assert [value is None for value in found.to_pylist()] == [False] * 2 + [True] * 4
    texts = {made.fault_text(fault) for fault in faults[2:].tolist()}
    assert texts == {"field 'c' is out of the range of its Protobuf type"}
