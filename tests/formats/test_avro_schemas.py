"""Given schemas of Avro: which branch of a union, which field, and schemas that are wrong."""

import io
import json
import re
import struct
import sys
import tracemalloc
from contextlib import contextmanager
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from spark_kafka_sink.formats.avro_layout import checked_types
from spark_kafka_sink.formats.avro_schema import derived_schema, has_field, parsed_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FieldSpec, FormatError, FormatSpec
from tests.formats.avro_rows import encoder, record, written
from tests.formats.generate_avro_schemas import VERDICTS, all_cases
from tests.formats.generate_avro_schemas import record as judged
from tests.tables import each_row
from tests.twin import zigzag_varint


def records_of(count):
    """So many records, each with a field of another name."""
    return [record(**{f"x{n}": "int"}) | {"name": f"R{n}"} for n in range(count)]


@pytest.mark.parametrize("count", [63, 64, 65, 129, 8191, 8192])
def test_numbers_of_branches_are_varints(count):
    """Values and nulls, the last branch being that of both."""
    kind = pa.struct([(f"x{count - 1}", pa.int32())])
    array = pa.array([{f"x{count - 1}": 7}, None, {f"x{count - 1}": -1}], kind)
    value = zigzag_varint(count)
    expected = [value + b"\x0e", b"\x00", value + b"\x01"]
    assert written(array, ["null", *records_of(count)]) == expected
    value = zigzag_varint(count - 1)
    expected = [value + b"\x0e", zigzag_varint(count), value + b"\x01"]
    assert written(array, [*records_of(count), "null"]) == expected
    batch = pa.record_batch({"b": ["x"]})
    schema = record(a=[*records_of(count), "null"], b="string")
    [found] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    assert found == zigzag_varint(count) + b"\x02x", "a field without a column"


FLAG = {"type": "enum", "name": "E", "symbols": ["B"]}
MICROS = {"type": "long", "logicalType": "time-micros"}
MILLIS = {"type": "int", "logicalType": "time-millis"}
FIXED = {"type": "fixed", "name": "F", "size": 2}
DECIMAL = {"logicalType": "decimal", "precision": 4, "scale": 0}


@pytest.mark.parametrize(
    ("value", "kind", "branches", "expected"),
    [
        (2**53 + 1, pa.int64(), ["null", "double", "long"], b"\x04" + zigzag_varint(2**53 + 1)),
        (2**53 - 1, pa.int64(), ["float", "double"], b"\x02" + struct.pack("<d", 2**53 - 1)),
        (2**24 + 1, pa.int32(), ["null", "float", "double", "long", "int"], b"\x08\x82\x80\x80\x10"),
        (2**24 + 1, pa.int32(), ["null", "float", "double", "long"], b"\x06\x82\x80\x80\x10"),
        (3, pa.int8(), ["float", "null", "double"], b"\x04" + struct.pack("<d", 3)),
        (1.5, pa.float32(), ["double", "float"], b"\x02" + struct.pack("<f", 1.5)),
        ("hi", pa.string(), ["null", "bytes", "string"], b"\x04\x04hi"),
        ("B", pa.string(), ["null", FLAG, "string"], b"\x04\x02B"),
        ("B", pa.string(), ["null", FLAG], b"\x02\x00"),
        (b"hi", pa.binary(), [FIXED, "bytes"], b"\x02\x04hi"),
        (3_000_000, pa.time64("ns"), [MILLIS, MICROS], b"\x02" + zigzag_varint(3_000)),
        (Decimal(5), pa.decimal128(3, 0), [{**FIXED, **DECIMAL}, {"type": "bytes", **DECIMAL}], b"\x00\x00\x05"),
        ([1], pa.list_(pa.int64()), [{"type": "array", "items": ["double", "long"]}], b"\x00\x02\x02\x02\x00"),
        (
            {"x": [7]},
            pa.struct([("x", pa.list_(pa.int64()))]),
            [
                "null",
                record(x={"type": "array", "items": "double"}) | {"name": "D"},
                record(x={"type": "array", "items": ["null", "long"]}) | {"name": "L"},
            ],
            b"\x04\x02\x02\x0e\x00",
        ),
        ([("k", 7)], pa.map_(pa.string(), pa.int32()), ["null", {"type": "map", "values": ["float", "int"]}], b"\x02\x02\x02k\x02\x0e\x00"),
    ],
)  # fmt: skip
def test_the_branch_that_loses_least_is_taken(value, kind, branches, expected):
    assert written(pa.array([value], kind), branches) == [expected]


def test_a_union_in_a_union_is_tried_once():
    """As often as it is nested, not two to the power of that."""
    schema, kind, value = "long", pa.int64(), 1
    for level in range(40):
        schema = ["null", record(x=schema) | {"name": f"R{level}"}]
        kind, value = pa.struct([("x", kind)]), {"x": value}
    assert written(pa.array([value], kind), schema) == [b"\x02" * 41]


@pytest.mark.parametrize("names", [("ID", "id"), ("id", "ID"), ("iD", "id", "ID")])
def test_a_field_of_exactly_the_column_s_name_comes_first(names):
    batch = pa.record_batch({"id": ["x"]})
    schema = record(**{name: (["null", "string"], None) for name in names})
    [found] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    assert found == b"".join(b"\x02\x02x" if name == "id" else b"\x00" for name in names)
    batch = pa.record_batch({"id": [1], "ID": [2], "Name": ["n"]})
    others = encoder(batch.schema, record(name="string", ID="long", id="long"))
    assert others.encode(batch).values.to_pylist() == [b"\x02n\x04\x02"]


@pytest.mark.parametrize(
    ("columns", "fields", "words"),
    [
        (
            ["Id"],
            ["ID", "id"],
            r"columns ['Id'] and fields ['ID', 'id'] of record R differ only by",
        ),
        (["x", "iD", "id"], ["x", "id", "ID", "Id"], r"columns ['iD'] and fields ['ID', 'Id'] of"),
        (["Ab", "aB"], ["ab"], r"columns ['Ab', 'aB'] and fields ['ab'] of"),
        (["Ab", "aB"], ["ab", "AB"], r"columns ['Ab', 'aB'] and fields ['ab', 'AB'] of"),
    ],
)
def test_names_that_differ_only_by_case_are_refused(columns, fields, words):
    schema = record(**{name: (["null", "long"], None) for name in fields})
    with pytest.raises(FormatError, match=re.escape(words)):
        encoder(pa.schema([(name, pa.int64()) for name in columns]), schema)
    kind = pa.struct([(name, pa.int64()) for name in columns])
    with pytest.raises(FormatError, match=r"columns \['c\..* of c differ"):
        written(pa.array([], kind), schema | {"name": "I"})


def test_aliases_are_for_readers():
    """docs/formats.md says so."""
    schema = record(new="long")
    schema["fields"][0]["aliases"] = ["old"]
    with pytest.raises(FormatError, match=r"no field for \['old'\]"):
        encoder(pa.schema([("old", pa.int64())]), schema)


PORT = record(c="string") | {"name": "Port"}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((["null", PORT], None), b"\x00"),
        (["null", PORT], b"\x00"),
        (({"type": "array", "items": PORT}, []), b"\x00"),
        (({"type": "map", "values": ["null", PORT]}, {}), b"\x00"),
        ((record(inner=(["null", PORT], None)) | {"name": "O"}, {}), b"\x00"),
        ((["int", PORT], 3), b"\x00\x06"),
    ],
)
def test_a_type_may_be_defined_in_a_field_without_a_column(before, expected):
    kind = pa.struct([("c", pa.string())])
    batch = pa.record_batch({"bill": pa.array([{"c": "x"}, None], kind)})
    schema = record(ship=before, bill=["null", "Port"])
    found = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    assert found == [expected + b"\x02\x02x", expected + b"\x00"]


@pytest.mark.parametrize("logical", [{}, {"logicalType": "unknown"}])
def test_null_as_an_object_is_null(logical):
    null = {"type": "null", **logical}
    assert written(pa.nulls(2), null) == [b"", b""]
    assert written(pa.array([1, None], pa.int32()), [null, "int"]) == [b"\x02\x02", b"\x00"]
    batch = pa.record_batch({"b": ["x"]})
    schema = record(a=null, c=["int", null], d=(null, None), b="string")
    assert encoder(batch.schema, schema).encode(batch).values.to_pylist() == [b"\x02\x02x"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        *({"precision": wrong} for wrong in (0, "5", True)),
        *({"precision": 2, "scale": wrong} for wrong in (3, -1, "1")),
    ],
)
def test_a_decimal_that_is_none_is_its_bytes(wrong):
    """As Avro's specification wants it of logical types that are not valid."""
    kind = {"type": "bytes", "logicalType": "decimal", **wrong}
    assert written(pa.array([b"ab"]), kind) == [b"\x04ab"]
    with pytest.raises(
        FormatError, match="column 'c' .* 'decimal' .* no valid precision and scale"
    ):
        written(pa.array([Decimal(5)], pa.decimal128(2, 0)), kind)


def test_a_decimal_fits_the_bytes_of_its_digits():
    kind = {"type": "fixed", "name": "F", **DECIMAL, "precision": 7}
    array = pa.array([Decimal(9_999_999)], pa.decimal128(7, 0))
    assert written(array, kind | {"size": 4}) == [b"\x00\x98\x96\x7f"]
    with pytest.raises(FormatError, match="cannot hold"):
        written(array, kind | {"size": 3})  # 3 bytes end at 8,388,607
    # Digits that only the schema has need no bytes.
    with pytest.raises(FormatError, match=r"decimal\(4,0\)"):
        written(pa.array([b"ab"]), {"type": "bytes", **DECIMAL})  # bytes are no decimal
    few = pa.array([Decimal(-2)], pa.decimal128(4, 0))
    assert written(few, kind | {"size": 2}) == [b"\xff\xfe"]


def test_a_column_is_written_as_it_is_beside_another_of_the_same_path():
    """A name with a dot looks like a field of a struct; and faults name their own column."""
    schema = record(c="long", a=record(b="long") | {"name": "I"}, d="int", e="int")
    ints = [pa.array([n, -n], pa.int32()) for n in (2, 3, 4)]
    inner = pa.StructArray.from_arrays(ints[:1], ["b"])
    names = {"a.b": "c", "a": "a", "d": "d", "e": "e"}
    batch = pa.record_batch([pa.array([1, -1]), inner, *ints[1:]], list(names))
    fields = tuple(FieldSpec((name,), field) for name, field in names.items())
    made = RowEncoder(FormatSpec(AVRO, fields, avro_schema=json.dumps(schema)), batch.schema)
    assert made.encode(batch).values.to_pylist() == [b"\2\4\6\x08", b"\1\3\5\7"]
    without = batch.set_column(3, "e", pa.nulls(2, pa.int32()))
    assert made.fault_text(made.encode(without).faults[0]).startswith("field 'e' is null")


def test_names_without_a_namespace_are_found_behind_those_that_have_one():
    """Of types with the same own name each is the one that its place and its name say."""

    def enum(symbol, name="E", **more):
        return {"type": "enum", "name": name, "symbols": [symbol], **more}

    new = {
        "a": enum("none", namespace=""),
        "b": enum("mn", namespace="m.n"),
        "c": enum("n", namespace="n"),
        "d": enum("f", "F", namespace=""),
    }
    schema = {**record(**new, e="n.E", f="F", g=enum("m"), h="E"), "namespace": "m"}
    symbols = ["none", "mn", "n", "f", "n", "f", "m", "m"]
    batch = pa.record_batch({name: [symbol] for name, symbol in zip("abcdefgh", symbols)})
    assert encoder(batch.schema, schema).encode(batch).values.to_pylist() == [bytes(8)]


def test_names_in_arrays_maps_and_defaults_are_found_in_their_namespace():
    enum = {"type": "enum", "name": "E", "symbols": ["s", "t"]}
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "E"}]}
    array, values = {"type": "array", "items": "E"}, {"type": "map", "values": "E"}
    schema = {**record(a=enum, b=array, c=values), "namespace": "m"}
    schema["fields"] += [
        {"name": "d", "type": array, "default": ["t"]},
        {"name": "e", "type": inner, "default": {"x": "t"}},
    ]
    columns = {"a": pa.array(["t"]), "b": pa.array([["t"]])}
    batch = pa.record_batch(
        {**columns, "c": pa.array([[("k", "t")]], pa.map_(pa.string(), pa.string()))}
    )
    row = bytes.fromhex("02  02 02 00  02 02 6b 02 00  02 02 00  02")
    assert encoder(batch.schema, schema).encode(batch).values.to_pylist() == [row]


def test_a_long_schema_or_default_is_told_in_few_words():
    long = {"type": "bytes", "logicalType": "decimal", "scale": "x" * 9999}
    with pytest.raises(FormatError, match="no valid precision and scale") as told:
        written(pa.array([Decimal(5)], pa.decimal128(2, 0)), long)
    assert len(str(told.value)) < 400
    schema = record(a="int")
    schema["fields"].append({"name": "b", "type": "int", "default": "x" * 9999})
    with pytest.raises(FormatError, match="the default of field 'b'") as told:
        encoder(pa.schema([("a", pa.int32())]), schema)
    assert len(str(told.value)) < 400


def test_an_integer_is_no_decimal():
    kind = {"type": "int", **DECIMAL}
    assert written(pa.array([3], pa.int32()), kind) == [b"\x06"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"type": "array"}, "field 'c' of the Avro schema has an array without items"),
        ({"type": "map"}, "field 'c' of the Avro schema has a map without values"),
        ({"type": "record", "name": "X"}, "field 'c' .* record 'X' without a list of fields"),
        ({"type": "record", "name": "X", "fields": [5]}, "record 'X' with a field .* name: 5"),
        ({"type": "record", "name": "X", "fields": [{"name": "a"}]}, r"field 'c\.a' .* no type"),
        ({"type": "enum", "name": "E"}, "enum 'E' without a list of symbols"),
        ({"type": "fixed", "name": "F"}, "fixed 'F' without a size"),
        ({"type": "fixed", "size": 2}, "field 'c' of the Avro schema has a fixed without a name"),
        ({"type": ["null", "int"]}, "field 'c' of the Avro schema has no type"),
        (None, "field 'c' of the Avro schema has no type"),
        (["null", ["int"]], "field 'c' of the Avro schema has a union in a union"),
        (["null", {"type": "array", "items": "X"}], r"field 'c\[\]' .* type 'X' .* not define"),
        (record(x=FIXED, y=FIXED | {"size": 3}) | {"name": "X"}, r"'c\.y' .* another type 'F'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_column", [True, False])
def test_schemas_that_are_none_are_told_with_their_field(kind, message, has_column):
    """Also where no column is written as what is wrong."""
    batch = pa.record_batch({"c" if has_column else "a": [1]})
    schema = record(a=("int", 1), c=(kind, None))
    with pytest.raises(FormatError, match=message):
        encoder(batch.schema, schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "record", "name": "R"}, "the Avro schema has a record 'R' without a list of"),
        ({"fields": []}, "the Avro schema has no type"),
        (5, "the Avro schema has no type .*: 5"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "record 'R' with two fields 'a'"),
    ],
)  # fmt: skip
def test_roots_that_are_no_records_are_told(schema, message):
    with pytest.raises(FormatError, match=message):
        encoder(pa.schema([("a", pa.int32())]), schema)


@each_row(
    ("kind", "default"),
    [
        ("float", 1e300),
        ("int", 2**31),
        ("int", True),
        ("double", 10**400),
        ("double", True),
        ("long", 2**63),
        ("bytes", "\u20ac"),
        ("string", None),
        (FIXED, 5),
        (FIXED, "a"),
        (FLAG, "C"),
        ({"type": "array", "items": "string"}, "ab"),
        ({"type": "array", "items": "string"}, {"a": 1}),
        ({"type": "map", "values": "int"}, [1]),
        (record(x=("int", 1)) | {"name": "X"}, ""),
        (record(x="int") | {"name": "X"}, {}),
    ],
)
def test_defaults_that_are_none_of_their_type_are_told(kind, default):
    batch = pa.record_batch({"a": ["x"]})
    for given in (kind, [kind]):
        with pytest.raises(FormatError, match="default of field 'f' of the Avro schema is no "):
            encoder(batch.schema, record(f=(given, default), a="string"))


def test_a_record_has_another_default_in_each_field_and_each_branch():
    inner = record(x="int") | {"name": "X"}
    other = record(y=("int", 3)) | {"name": "Y"}
    batch = pa.record_batch({"a": ["x"]})
    schema = record(f=(inner, {"x": 1}), g=("X", {"x": 2}), h=(["X", other], {}), a="string")
    [found] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    assert found == b"\x02\x04\x02\x06\x02x"


@each_row(
    ("schema", "is_found"),
    [
        ("[]", False),
        ('"int"', True),
        ('["null", {"type": "array"}]', True),
        ("{}", True),
        ('{"fields": 1}', True),
        ('{"fields": [1, {}, {"name": 1}]}', False),
        ('["null", {"fields": [{"name": "b"}]}, {"fields": [{"name": "aB"}]}]', True),
        ('["null", {"fields": [{"name": "b"}]}]', False),
    ],
)
def test_columns_that_a_schema_may_have(schema, is_found):
    """In any case. What is wrong with a schema is told elsewhere."""
    assert has_field(schema, "Ab") is is_found


FOUND = json.loads(VERDICTS.read_text(encoding="utf-8"))["cases"]
ELSE = {
    # Java ignores what is of another JSON type than the specification has.
    '{"type": "record", "name": "R", "fields": [], "namespace": 5}': "no text",
    # A record of a protocol, which no row is.
    '{"type": "error", "name": "R", "fields": []}': "a type 'error'",
    # Java 1.11, which Spark 3.5 has, refuses a name before its definition.
    json.dumps(judged("S", judged(name="S"))): "a type 'S'",
    # They differ in their documentation only.
    json.dumps(judged(*(judged("int", name="S", doc=doc) for doc in "ab"))): "another type 'S'",
}
"""Schemas that Java 1.12 takes and we do not, with a part of what is said."""
LATER = json.dumps(judged(judged("R", name="S", namespace="m")))
"""Java 1.12 refuses it, and 1.11 does not: R, which is around it, is not known before its end."""


def test_the_verdicts_are_those_of_the_cases():
    assert [case[:-1] for case in FOUND] == all_cases()


@each_row(("schema", "verdict"), [c for c in FOUND if len(c) == 2 and c[0] != LATER])
def test_a_schema_is_refused_where_java_refuses_it(schema, verdict):
    refused = ""
    try:
        checked_types(parsed_schema(schema))
    except FormatError as error:
        refused = str(error)
    if schema in ELSE:
        assert not verdict
        assert ELSE[schema] in refused
    else:
        assert bool(refused) is bool(verdict), (refused, verdict)


@each_row(
    "text", ['{"type":"array","items":' * 3000 + '"int"' + "}" * 3000, "[" * 100_000, "{", "NaN"]
)
def test_a_text_that_cannot_be_a_schema_is_told(text):
    """In the words of this sink, whatever Python raises."""
    with pytest.raises(FormatError, match="is no JSON|is nested too deeply|union in a union"):
        encoder(pa.schema([("a", pa.int32())]), text)
    if len(text) < 10_000:
        with pytest.raises(FormatError, match="is no JSON"):
            has_field(text, "a")


def test_a_schema_of_millions_of_values_is_not_parsed():
    """An answer of a registry may escape what it would be recognised by."""
    text = '["int"' + ',"int"' * 2_000_000 + "]"
    tracemalloc.start()
    with pytest.raises(FormatError, match="is no JSON: a JSON text of more than 2000000 values"):
        encoder(pa.schema([("a", pa.int32())]), text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_schema_may_be_too_deep_for_its_checks_alone():
    """Newer Pythons read JSON that is deeper than their functions may call each other."""
    schema = "int"
    for _ in range(3000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(FormatError, match="nested too deeply"):
        checked_types(schema)


@pytest.mark.parametrize("name", ["m²", "𝒜", "Ⅷ", "a b"])
def test_a_name_that_java_refuses_is_not_derived(name):
    field = {"name": name, "type": "long", "nullable": True}
    with pytest.raises(FormatError, match="cannot be a field of an Avro record"):
        derived_schema(json.dumps({"type": "struct", "fields": [field]}))
    with pytest.raises(FormatError, match="avro.record.name="):
        derived_schema('{"type": "struct", "fields": []}', name)


IN_N = '{"type":"record","name":"R","namespace":"n","fields":[%s]}'
SIZED = '{"name":"a","type":{"type":"fixed","name":"F","size":2}}'


def test_a_type_may_be_called_as_a_kind_of_types():
    """By its name alone it is meant then, and no array."""
    named = '{"name":"a","type":{"type":"fixed","name":"array","size":2}}'
    checked_types(json.loads(IN_N % f'{named},{{"name":"b","type":"array"}}'))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (IN_N % f'{SIZED},{{"name":"b","type":["F","n.F"]}}', "a union with 'n.F' twice"),
        ('{"type":"fixed","name":"F","size":2,"namespace":true}', "namespace is no text"),
        (IN_N.replace('"R"', '""') % SIZED, "which is no name"),
        (IN_N % '{"name":"\\ud800","type":"int"}', "with '\\ud800', which is no name"),
        (IN_N % f'{{"type":"{"x" * 9999}"}}', "a field that has no name"),
        (IN_N % f'{{"name":"a","type":{{"x":"{"x" * 9999}"}}}}', "no type that Avro knows"),
    ],
)
def test_what_is_wrong_with_a_name_is_told_in_few_words(schema, words):
    with pytest.raises(FormatError) as told:
        checked_types(json.loads(schema))
    assert words in str(told.value)
    assert len(str(told.value).encode()) < 400


LEVELS = 40


@contextmanager
def few_calls(most=20_000):
    """Of the package's functions of formats; one more than ``most`` ends what is inside."""
    left = most

    def count(frame, event, _):
        nonlocal left
        if event == "call" and "/spark_kafka_sink/formats/" in frame.f_code.co_filename:
            left -= 1
            assert left >= 0, f"more than {most} calls"

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def nested_choice(last, **default):
    """A union of two records, each with a union of the two of the next level, the last ``last``.

    default: of these fields, where they have one; without it, the second record has one field more
    """
    inner, more = [last], {} if default else {"y": ("int", 0)}
    for level in reversed(range(LEVELS)):
        names = [one.get("name", one) if isinstance(one, dict) else one for one in inner]
        kinds = [(k, *default.values()) if default else k for k in (inner, names)]
        first, second = record(x=kinds[0]), record(x=kinds[1], **more)
        inner = [first | {"name": f"P{level}"}, second | {"name": f"Q{level}"}]
    return inner


def repeated(last, default):
    """A record with two of a record with two, and so on, each by default."""
    kind, value = last, default
    for level in range(LEVELS):
        name = kind["name"] if isinstance(kind, dict) else kind
        kind, value = record(a=(kind, value), b=(name, value)) | {"name": f"D{level}"}, {}
    return kind


def default_of(kind):
    """What is written of a field without a column, whose default is an empty object."""
    batch = pa.record_batch({"a": ["x"]})
    encode = encoder(batch.schema, record(f=(kind, {}), a="string")).encode
    [found] = encode(batch).values.to_pylist()
    return bytes(found.removesuffix(b"\x02x"))


def test_a_column_is_tried_once_with_each_record():
    kind, value = pa.int64(), 1
    for _ in range(LEVELS):
        kind, value = pa.struct([("x", kind)]), {"x": value}
    array = pa.array([value], kind)
    with few_calls():
        assert written(array, nested_choice("double")) == [
            b"\0" * (LEVELS + 1) + b"\0" * 6 + b"\xf0\x3f"
        ]
    with few_calls(), pytest.raises(FormatError, match=r"'c' .* type of this field \(record P0, "):
        written(array, nested_choice("boolean"))


def test_a_default_is_tried_once_with_each_record():
    with few_calls():
        found = default_of(nested_choice({"type": "map", "values": "int"}, default={}))
        assert found == b"\0" * (LEVELS + 2)
    with few_calls(), pytest.raises(FormatError, match="default of field 'f' .* is no union of"):
        default_of(nested_choice("string", default={}))


def test_a_default_that_is_in_another_many_times_is_made_once():
    with few_calls():
        assert default_of(repeated("null", None)) == b""


@pytest.mark.parametrize("fixed_bytes", [1 << 13, (1 << 13) + 1, 2**31 - 9])
def test_what_a_schema_adds_to_each_row_has_a_limit(fixed_bytes):
    """A decimal's fixed type and a default together: 10,000 rows are encoded at a time."""
    fixed = {**FIXED, "size": fixed_bytes, **DECIMAL}
    schema = record(c=fixed, f=(FIXED | {"name": "G", "size": 1 << 13}, "x" * (1 << 13)))
    batch = pa.record_batch({"c": pa.array([Decimal(7)], pa.decimal128(4, 0))})
    if fixed_bytes == 1 << 13:
        [row] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
        assert row == bytes(fixed_bytes - 1) + b"\7" + b"x" * (1 << 13)
    else:
        with pytest.raises(FormatError, match=f"adds {fixed_bytes + (1 << 13):,} bytes"):
            encoder(batch.schema, schema)


def test_a_default_of_too_many_bytes_is_told():
    """A row has all of them."""
    with few_calls(), pytest.raises(FormatError, match=r"field 'f[.a]*' .* 1,048,576 bytes"):
        default_of(repeated("int", 1))
    many = {"type": "array", "items": "string"}
    batch = pa.record_batch({"a": ["x"]})
    schema = record(f=(many, ["x" * 1023] * 1024), a="string")
    with pytest.raises(FormatError, match="default of field 'f' of the Avro schema has more than"):
        encoder(batch.schema, schema)


@pytest.mark.parametrize("before", [[], ["null"], ["string"]])
@pytest.mark.parametrize("after", [[], ["null"], [record(z=("int", 1)) | {"name": "C"}]])
def test_records_that_are_in_each_other_by_default_have_no_end(before, after):
    after = [branch for branch in after if branch not in before]
    b = record(x=(["A", *before, *after], {}), y=(["A", "B"], {})) | {"name": "B"}
    a = record(x=([*before, b], {}), y=(["B", "A"], {})) | {"name": "A"}
    with (
        few_calls(),
        pytest.raises(
            FormatError, match="default of field 'f[.xy]+' .* has itself in it without an end"
        ),
    ):
        default_of(a)


def test_a_default_without_an_end_is_not_needed_where_there_is_a_column():
    schema = record(x=(["null", "R"], {}), a="string")
    batch = pa.record_batch({"a": ["x"], "x": pa.nulls(1)})
    assert encoder(batch.schema, schema).encode(batch).values.to_pylist() == [b"\0\x02x"]


CREATED = record(id="long", note=(["null", "string"], None)) | {"name": "Created"}
DELETED = record(id="long") | {"name": "Deleted"}
GONE = record(id="long") | {"name": "Gone"}


@pytest.mark.parametrize("nest", [lambda kind: kind, lambda kind: {"type": "array", "items": kind}])
def test_of_records_the_one_whose_fields_all_have_columns_is_taken(nest):
    """The first one, whose other field has a default, would be another kind of event."""
    kind, value = pa.struct([("id", pa.int64())]), {"id": 1}
    if nest("int") != "int":
        kind, value = pa.list_(kind), [value]
    schema = record(c=nest(["null", CREATED, DELETED]))
    batch = pa.record_batch([pa.array([value], kind)], ["c"])
    [data] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    read = fastavro.schemaless_reader(io.BytesIO(data), schema, return_record_name=True)
    found = read["c"] if isinstance(read["c"], tuple) else read["c"][0]
    assert found == ("Deleted", {"id": 1})


@pytest.mark.parametrize("path", ["c", "c.x"])
def test_records_that_fit_a_column_equally_well_are_refused(path):
    """Also within the branch of another union, which does fit."""
    kind, value = pa.struct([("id", pa.int64())]), {"id": 1}
    branches = ["null", CREATED, DELETED, GONE]
    if path == "c.x":
        kind, value = pa.struct([("x", kind)]), {"x": value}
        branches = [record(x=branches) | {"name": "A"}, "string"]
    words = f"fit column '{path}' equally well: Deleted, Gone"
    with pytest.raises(FormatError, match=words) as caught:
        written(pa.array([value], kind), branches)
    assert caught.value.code == "FORMAT-019"


@pytest.mark.parametrize(
    ("kind", "avro_type", "logical"),
    [
        (pa.date32(), "int", "time-millis"),
        (pa.duration("us"), "long", "time-micros"),
        (pa.duration("us"), "long", "timestamp-micros"),
        (pa.duration("us"), "long", "local-timestamp-millis"),
    ],
)
def test_a_date_or_an_interval_is_no_time(kind, avro_type, logical):
    """A reader would have a time of day, or a moment, of the same number."""
    with pytest.raises(FormatError, match="cannot hold"):
        written(pa.array([1], kind), {"type": avro_type, "logicalType": logical})
