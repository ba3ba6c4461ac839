"""Avro schemas that are no record: the type of one column, and unions of which one branch fits."""

import io
import json
import re

import pyarrow as pa
import pytest

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FieldSpec, FormatError, FormatSpec
from tests.formats.avro_rows import encoder, record
from tests.twin import zigzag_varint

PREFIX = b"\0\0\0\0\7"


def written(schema, columns, record_name=None):
    batch = pa.record_batch(columns)
    fields = tuple(FieldSpec((name,), name) for name in batch.schema.names)
    plan = FormatSpec(AVRO, fields, PREFIX, json.dumps(schema), avro_record=record_name)
    found = RowEncoder(plan, batch.schema).encode(batch)
    assert found.faults is None
    found.values.validate(full=True)
    return [value and value.removeprefix(PREFIX) for value in found.values.to_pylist()]


def refusal(schema, columns, record_name=None):
    with pytest.raises(FormatError) as refused:
        written(schema, columns, record_name)
    return str(refused.value)


@pytest.mark.parametrize(
    ("schema", "column", "expected"),
    [
        ("long", pa.array([1, None, -1]), [b"\x02", None, b"\x01"]),
        ({"type": "string"}, pa.array(["", None, "é"]), [b"\x00", None, b"\x04\xc3\xa9"]),
        ("double", pa.array([1.5, None]), [b"\0\0\0\0\0\0\xf8\x3f", None]),
        (["null", "string"], pa.array(["a", None]), [b"\x02\x02a", None]),
        (["int", "null", "long"], pa.array([7, None]), [b"\x04\x0e", None]),
        ({"type": "array", "items": "long"}, pa.array([[1, 2], None, []]), [b"\x04\x02\x04\0", None, b"\0"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.array(["B", None]), [b"\x02", None]),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"ab"]), [b"ab"]),
    ],
)  # fmt: skip
def test_one_column_is_the_value(schema, column, expected):
    """Its null is no value, as Confluent's serializers and to_avro have it."""
    assert written(schema, {"c": column}) == expected
    sliced = pa.concat_arrays([column, column])[len(column) - 1 : -1]
    assert written(schema, {"c": sliced}) == [expected[-1], *expected[:-1]]


def test_a_null_and_a_row_that_deletes_are_no_value():
    fields = (FieldSpec(("home", "c"), "c"),)
    plan = FormatSpec(AVRO, fields, PREFIX, '"long"', null_when="gone")
    home = pa.array([{"c": 1}, {"c": 2}, {"c": None}, None], pa.struct([("c", pa.int64())]))
    batch = pa.record_batch({"home": home, "gone": [None, True, False, False]})
    found = RowEncoder(plan, batch.schema).encode(batch).values.to_pylist()
    assert found == [PREFIX + b"\x02", None, None, None]


def test_a_value_that_cannot_be_written_is_a_fault():
    schema = {"type": "fixed", "name": "F", "size": 2}
    batch = pa.record_batch({"c": [b"ab", b"abc", None]})
    made = encoder(batch.schema, schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [b"ab", None, None]
    assert faults.astype(bool).tolist() == [False, True, False]
    assert made.fault_text(int(faults[1])).startswith("field 'c' does not have the 2 bytes")


@pytest.mark.parametrize(
    ("schema", "columns", "words"),
    [
        ("long", {"a": [1], "b": [2]}, "is no record but long, the type of one column, and there are the columns ['a', 'b']"),
        (["null", "int"], {"a": [1], "b": [2]}, "no record but union of null and int, the type of"),
        ("int", {"a": [1]}, "column 'a' has the Arrow type int64, which the Avro schema's type of this field (int)"),
        ([], {"a": [1]}, "column 'a' has the Arrow type int64"),
        (["null"], {"a": [1]}, "column 'a' has the Arrow type int64"),
    ],
)  # fmt: skip
def test_what_is_no_column_of_the_type_is_refused(schema, columns, words):
    assert words in refusal(schema, columns)


ORDER = record(id="long", amount="double") | {"name": "Order", "namespace": "n"}
CANCELLED = record(id="long", reason=(["null", "string"], None)) | {"name": "n.Cancelled"}
RETURNED = record(id="long", reason="string", at=("int", 3)) | {"name": "n.Returned"}
EVENTS = ["null", ORDER, CANCELLED, RETURNED, "string", "long"]


@pytest.mark.parametrize(
    ("schema", "columns", "expected"),
    [
        (["null", ORDER], {"id": [1], "amount": [0.0]}, b"\x02\x02" + bytes(8)),
        ([ORDER, "null"], {"ID": [1], "amount": [0.0]}, b"\x00\x02" + bytes(8)),
        (EVENTS, {"id": [1], "amount": [0.0]}, b"\x02\x02" + bytes(8)),
        (EVENTS[:3], {"id": [1]}, b"\x04\x02\x00"),
        (EVENTS, {"reason": ["x"], "id": [1], "at": [4]}, b"\x06\x02\x02x\x08"),
        (EVENTS, {"text": ["x"]}, b"\x08\x02x"),
        ([record(x=("int", 1)) | {"name": f"R{n}"} for n in range(70)] + [ORDER], {"id": [1], "amount": [0.0]}, zigzag_varint(70) + b"\x02" + bytes(8)),
    ],
)  # fmt: skip
def test_the_branch_that_fits_the_columns_is_written(schema, columns, expected):
    typed = {name: pa.array(v, pa.int32()) if name == "at" else v for name, v in columns.items()}
    assert written(schema, typed) == [expected]
    fastavro = pytest.importorskip("fastavro")
    found = fastavro.schemaless_reader(io.BytesIO(expected), fastavro.parse_schema(schema))
    values = {name.lower(): value for name, [value] in columns.items()}
    if isinstance(found, dict):
        assert {name: found[name] for name in values} == values
    else:
        assert [found] == [*values.values()]


def test_a_branch_may_be_the_name_of_a_type_in_another():
    pair = record(a=PART_OF, b=("int", 1)) | {"name": "Pair", "namespace": "n"}
    assert written([pair, "n.Part"], {"x": pa.array([3], pa.int32())}) == [b"\x02\x06"]
    words = refusal([pair, "n.Part"], {"y": [1]})
    assert "n.Pair: " in words
    assert "n.Part: " in words


PART_OF = record(x="int") | {"name": "Part"}


def test_columns_that_fit_no_branch_are_told_with_the_reasons():
    words = refusal(EVENTS, {"id": [1], "more": [2]})
    assert "no branch of the Avro schema's union fits the columns ['id', 'more']. n.Order:" in words
    assert re.search(
        r"n\.Cancelled: the Avro schema has no field for \['more'\].*n\.Returned:", words
    )
    words = refusal(EVENTS, {"id": [1.5]})
    assert "string or long: column 'id' has the Arrow type double" in words
    many = [record(x="int") | {"name": f"R{n}"} for n in range(30)]
    words = refusal(many, {"y": [1]})
    assert "R9: " in words
    assert "; and 20 more" in words


def test_a_single_record_beside_null_is_told_as_if_it_were_alone():
    words = refusal(["null", ORDER], {"id": [1], "more": [2]})
    assert words.startswith("the Avro schema has no field for ['more']")


def test_columns_that_fit_several_branches_need_the_record_s_name():
    columns = {"id": [1], "reason": ["x"]}
    words = refusal(EVENTS, columns)
    assert "several branches of the Avro schema's union fit the columns ['id', 'reason']" in words
    assert "n.Cancelled, n.Returned. Set avro.record.name and avro.namespace to the" in words
    assert written(EVENTS, columns, "n.Cancelled") == [b"\x04\x02\x02\x02x"]
    assert written(EVENTS, columns, "n.Returned") == [b"\x06\x02\x02x\x06"]
    assert "n.Cancelled, string or long. Set" in refusal(EVENTS, {"id": [1]})
    assert written(EVENTS, {"id": [1]}, "n.Cancelled") == [b"\x04\x02\x00"]


def test_a_name_of_no_branch_is_that_of_another_schema():
    """avro.record.name is for keys and values, of which the other may be derived."""
    assert written(EVENTS, {"id": [1], "amount": [0.0]}, "Other") == [b"\x02\x02" + bytes(8)]
    assert "no field for ['amount']" in refusal(EVENTS, {"id": [1], "amount": [0.0]}, "n.Cancelled")
