"""write_avro against its twin and Spark's to_avro, and columns that are matched with given schemas."""

import json
import struct
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, StructField, StructType

from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FieldSpec, FormatError, FormatSpec
from tests.formats.avro_rows import block, encoder, record, row_bytes, sized, twin_schema, written
from tests.formats.rows import CASES, TYPES, arrow_batch, read, rows, types_of
from tests.twin import zigzag_varint

ROWS = rows(types_of(TYPES, st.sampled_from([pa.string(), pa.large_string()])))


@given(ROWS, st.integers(0, 5))
def test_rows_equal_their_twin(made, first):
    """Sliced batches, too."""
    first = min(first, len(made.values) - 1)
    schema = twin_schema(pa.struct(list(made.schema)), "R")
    encoded = encoder(made.schema, schema, b"\0\0\0\0\1").encode(made.batch.slice(first))
    assert encoded.faults is None
    encoded.values.validate(full=True)
    expected = [b"\0\0\0\0\1" + row_bytes(row, made.schema) for row in made.values]
    assert encoded.values.to_pylist() == expected[first:]


def test_intervals_of_months_are_the_number_of_months():
    """As to_avro writes them; sliced rows, too."""
    rows = arrow_batch(read("months")).slice(1).select(["a"])
    [found, _] = written(rows.column(0), {"type": "array", "items": ["null", "int"]})
    assert found == block([b"\x02" + zigzag_varint(14), b"\x00", b"\x02" + zigzag_varint(-1)])


@pytest.mark.parametrize(
    ("value", "kind", "avro", "expected"),
    [
        (7, pa.int32(), "float", struct.pack("<f", 7)),
        (2**53 + 1, pa.int64(), "double", struct.pack("<d", 2**53 + 1)),
        (2**60 + 1, pa.int64(), "float", struct.pack("<f", 2**60)),
        (1.5, pa.float32(), "double", struct.pack("<d", 1.5)),
        ("é", pa.string(), "bytes", b"\x04\xc3\xa9"),
        (b"abc", pa.binary(), {"type": "fixed", "name": "F", "size": 3}, b"abc"),
        (20, pa.date32(), "int", b"\x28"),
        (-1, pa.timestamp("us"), "long", b"\x01"),
        (1999, pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}, b"\x02"),
        (3_000_000, pa.time64("ns"), {"type": "int", "logicalType": "time-millis"}, b"\x06"),
        ("two", pa.string(), {"type": "enum", "name": "E", "symbols": ["one", "two", "three"]}, b"\x02"),
        ("s", pa.string(), {"type": "string", "logicalType": "uuid"}, b"\x02s"),
        ("s", pa.string(), ["string"], b"\x00\x02s"),
        ("s", pa.string(), ["int", "null", "string"], b"\x04\x02s"),
        (1, pa.int64(), ["int", "null", "double"], b"\x04" + struct.pack("<d", 1)),
        (None, pa.null(), ["int", "null"], b"\x02"),
        (None, pa.null(), "null", b""),
        ({"x": 1}, pa.struct([("x", pa.int8())]), record(x="int") | {"name": "I"}, b"\x02"),
    ],
)  # fmt: skip
def test_what_fits_a_given_type(value, kind, avro, expected):
    assert written(pa.array([value], kind), avro) == [expected]


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals_as_bytes_have_no_more_than_they_need(number):
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}
    value = Decimal(number).scaleb(-3, context=Context(prec=60))
    [found] = written(pa.array([value], pa.decimal128(38, 3)), kind)
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    assert found == sized(number.to_bytes(size, "big", signed=True))


@pytest.mark.parametrize("size", [20, 5000])
def test_a_decimal_in_more_bytes_than_it_has(size):
    kind = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 40}
    found = written(pa.array([Decimal(-2), Decimal(3)] * 50, pa.decimal128(5, 0)), kind)
    assert found == [n.to_bytes(size, "big", signed=True) for n in (-2, 3)] * 50


def test_fields_in_another_order_without_columns_and_in_another_case():
    schema = record(
        z=("long", 5),
        b="string",
        text=("string", "é"),
        A="long",
        none=["null", "int"],
        some=(["null", "int"], None),
        list=({"type": "array", "items": "int"}, [1, 2]),
        map=({"type": "map", "values": "boolean"}, {"k": True}),
        inner=(record(x="int", y=("double", 1.5)) | {"name": "I"}, {"x": 3}),
        raw=("bytes", "\x00\xff"),
        kind=({"type": "enum", "name": "E", "symbols": ["p", "q"]}, "q"),
        fixed=({"type": "fixed", "name": "F", "size": 2}, "ab"),
    )
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    [found] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    defaults = b"\x04\x02\x04\x00", b"\x02\x02k\x01\x00", b"\x06" + struct.pack("<d", 1.5)
    start = b"\x0a" + b"\x02x" + b"\x04\xc3\xa9" + b"\x02" + b"\x00" + b"\x00"
    assert found == start + b"".join(defaults) + b"\x04\x00\xff" + b"\x02" + b"ab"


@pytest.mark.parametrize(
    ("kind", "avro", "message"),
    [
        (pa.int64(), "int", r"column 'c' has the Arrow type int64, .* type of this field \(int\)"),
        (pa.float64(), "float", r"\(float\)"),
        (pa.binary(), "string", r"\(string\)"),
        (pa.string(), ["null", "int", "long"], r"\(null, int, long\)"),
        (pa.null(), "int", r"type null, .*\(int\)"),
        (pa.int8(), ["null", record(x="int") | {"name": "I"}], r"\(record I\)"),
        (pa.decimal128(5, 2), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, r"decimal\(4,2\)"),
        (pa.decimal128(5, 2), {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, r"decimal\(9,3\)"),
        (pa.decimal128(5, 2), "bytes", r"\(bytes\)"),
        (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-nanos"}, "long of timestamp-nanos"),
        (pa.list_(pa.string()), {"type": "array", "items": "int"}, r"column 'c\[\]' has the Arrow type string"),
        (pa.struct([("x", pa.string())]), record(x="int") | {"name": "I"}, r"column 'c\.x' has the Arrow type string"),
        (pa.struct([("y", pa.string())]), record(x="int") | {"name": "I"}, r"no field for \['c\.y'\]: .*\. c has \['x'\]"),
        (pa.map_(pa.int8(), pa.int8()), {"type": "map", "values": "int"}, "keys of the map 'c'"),
        (pa.uint64(), "long", "the Arrow type uint64, which cannot be written as Avro"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_given_type(kind, avro, message):
    with pytest.raises(FormatError, match=message):
        encoder(pa.schema([("c", kind)]), record(c=avro))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(c="int", d="string"), r"field 'd' of the Avro schema \(string\) has no default"),
        (record(d=("int", 1)), r"has no field for \['c'\]: .*\. record R has \['d'\]"),
        (record(c="int", d=("int", "x")), "the default of field 'd' of the Avro schema is no int: x"),
        (record(c="int", d=(["int"], "x")), "is no union of int: x"),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(schema, message):
    with pytest.raises(FormatError, match=message):
        encoder(pa.schema([("c", pa.int8())]), schema)


def test_rows_that_cannot_be_written_are_told_and_the_others_are():
    batch = pa.record_batch(
        {
            "n": pa.array([1, None, 3, 4, 5], pa.int32()),
            "f": [b"ab", b"ab", b"abc", b"ab", b"ab"],
            "s": [{"e": "one"}, {"e": "one"}, {"e": "one"}, {"e": "other"}, {"e": "one"}],
        }
    )
    enum = {"type": "enum", "name": "E", "symbols": ["one"]}
    inner = record(e=enum) | {"name": "I"}
    schema = record(n="int", f={"type": "fixed", "name": "F", "size": 2}, s=inner)
    made = encoder(batch.schema, schema)
    values, faults = made.encode(batch)
    values.validate(full=True)
    assert values.to_pylist() == [b"\x02ab\x00", None, None, None, b"\x0aab\x00"]
    assert faults.astype(bool).tolist() == [False, True, True, True, False]
    causes = ("'n' is null", "'f' does not have the 2 bytes", "'s.e' is none of the symbols")
    for fault, cause in zip(faults[1:4].tolist(), causes):
        assert made.fault_text(fault).startswith(f"field {cause}")


def test_an_enum_without_symbols_has_no_rows():
    """Java's Avro accepts such a schema."""
    enum = {"type": "enum", "name": "E", "symbols": []}
    batch = pa.record_batch({"c": ["one", "", None]})
    made = encoder(batch.schema, record(c=["null", enum]))
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None, None, b"\0"]
    texts = {made.fault_text(fault) for fault in faults[:2].tolist()}
    assert texts == {"field 'c' is none of the symbols of the Avro schema's enum"}


@pytest.mark.parametrize("scale", [-8, -1])
def test_decimals_with_a_negative_scale_are_refused(scale):
    """As by Java's Avro, and so by Spark's to_avro."""
    avro = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": scale}
    with pytest.raises(FormatError, match="no valid precision and scale"):
        encoder(pa.schema([("c", pa.decimal128(3, scale))]), record(c=avro))
    with pytest.raises(FormatError, match=f"Spark type decimal.3,{scale}., which Avro has no"):
        derived_schema(StructType([StructField("c", DecimalType(3, scale))]).json())


WITH_AVRO = [name for name in CASES if "avro" in read(name)]
WITHOUT_AVRO = [name for name in CASES if "avro" not in read(name)]


def sparks_plan(case):
    fields = tuple(FieldSpec((f["name"],), f["name"]) for f in case["schema"]["fields"])
    schema = derived_schema(json.dumps(case["schema"]))
    return FormatSpec(AVRO, fields, avro_schema=schema)


@pytest.mark.parametrize("name", WITH_AVRO)
def test_the_schema_is_the_one_that_spark_derives(name):
    case = read(name)
    assert derived_schema(json.dumps(case["schema"])) == case["avro"]["schema"]


@pytest.mark.parametrize("name", WITH_AVRO)
def test_rows_are_as_spark_writes_them(name):
    case = read(name)
    rows = arrow_batch(case)
    encoded = RowEncoder(sparks_plan(case), rows.schema).encode(rows)
    assert encoded.faults is None
    found = [value.hex().upper() for value in encoded.values.to_pylist()]
    assert found == case["avro"]["rows"]


@pytest.mark.parametrize("name", WITHOUT_AVRO)
def test_what_spark_does_not_write_is_refused(name):
    with pytest.raises(
        FormatError, match=r"transform_keys|withColumnRenamed|which Avro has no type"
    ):
        derived_schema(json.dumps(read(name)["schema"]))
