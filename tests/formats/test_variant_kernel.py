"""VARIANT as JSON against its twin."""

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import (
    AVRO,
    JSON,
    PROTOBUF,
    FieldSpec,
    FormatError,
    FormatSpec,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
)
from spark_kafka_sink.record.compiled import nodes as kernel
from spark_kafka_sink.record.kernels import json_rows, variant
from tests.formats import variants as twin
from tests.formats.rows import json_encoder
from tests.formats.variants import (
    KIND,
    Guarded,
    Inner,
    Variant,
    decimal,
    long_text,
    metadata_of,
    mutated,
    number,
    primitive,
    short_text,
    variants,
    written,
)
from tests.tables import each_row

ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Europe/London"]
EMPTY = metadata_of([])


def array_of(found):
    return pa.array([None if v is None else v._asdict() for v in found], KIND)


def of_column(array, **options):
    """What was written of each row, None for rows with a fault."""
    made = json_encoder(pa.schema([("c", array.type)]), ignore_null_fields=False, **options)
    values, _ = made.encode(pa.record_batch([array], ["c"]))
    texts = [None if value is None else value.decode() for value in values.to_pylist()]
    return [t and t.removeprefix('{"c":').removesuffix("}") for t in texts]


def fault_of(found):
    made = json_encoder(pa.schema([("c", KIND)]))
    values, faults = made.encode(pa.record_batch([array_of([found])], ["c"]))
    assert values.to_pylist() == [None]
    return made.fault_text(int(faults[0]))


def of_value(value, names=None):
    return of_column(array_of([Variant(value, metadata_of(names or []))]))[0]


@given(st.lists(variants(), min_size=1, max_size=5), st.sampled_from(ZONES), st.integers(0, 4))
def test_variants_equal_their_twin(made, zone, first):
    """Sliced batches, too."""
    first = min(first, len(made) - 1)
    found = of_column(array_of(made).slice(first), time_zone=zone)
    assert found == [twin.twin_text(*one, zone) for one in made[first:]]
    for text in found:
        json.loads(text)


@given(st.lists(st.one_of(st.none(), variants()), min_size=1, max_size=6), st.booleans())
def test_in_structs_arrays_and_maps(made, is_null_left_out):
    texts = ["null" if v is None else twin.twin_text(*v, "UTC") for v in made]
    array = array_of(made)
    offsets = pa.array([0, len(made)], pa.int32())
    columns = {
        "l": pa.ListArray.from_arrays(offsets, array),
        "m": pa.MapArray.from_arrays(offsets, [f"k{n}" for n in range(len(made))], array),
        "s": pa.StructArray.from_arrays([array, array], ["x", "y"]).slice(len(made) - 1),
        "n": pa.array([1]),
    }
    batch = pa.record_batch([*columns.values()], [*columns])
    made_encoder = json_encoder(batch.schema, ignore_null_fields=is_null_left_out)
    entries = ",".join(f'"k{n}":{text}' for n, text in enumerate(texts))
    last = texts[-1]
    in_struct = f'"x":{last},"y":{last}'
    if made[-1] is None and is_null_left_out:
        in_struct = ""
    expected = f'{{"l":[{",".join(texts)}],"m":{{{entries}}},"s":{{{in_struct}}},"n":1}}'
    assert made_encoder.encode(batch).values.to_pylist() == [expected.encode()]


VALUES, METADATA = Guarded(), Guarded()


@settings(max_examples=1000)
@given(st.one_of(mutated(), st.builds(Variant, st.binary(max_size=40), st.binary(max_size=20))))
def test_damaged_bytes_have_the_fault_of_the_twin_and_none_behind_them_is_read(found):
    parts = [VALUES.at_the_end(found.value), METADATA.at_the_end(found.metadata)]
    array = pa.StructArray.from_arrays(parts, fields=[*KIND])
    made = json_encoder(pa.schema([("c", KIND)]))
    values, faults = made.encode(pa.record_batch([array], ["c"]))
    expected = _verdict(found)
    if isinstance(expected, int):
        assert int(faults[0]) % kernel.FAULT_CAUSES == expected
    else:
        assert faults is None
        _assert_same(values.to_pylist()[0].decode(), f'{{"c":{expected}}}')


def _verdict(found):
    """The text, or the number of the fault."""
    try:
        return twin.twin_text(*found, "UTC")
    except twin.VariantError as error:
        return int(error.args[0])


def _assert_same(found, expected):
    # Python replaces each byte of half a surrogate pair, Java all three at once.
    if "\ufffd" in expected:
        found, expected = found.replace("\ufffd", ""), expected.replace("\ufffd", "")
    assert found == expected


def nested(levels):
    """Arrays and objects in turns."""
    value = number(3, 1, 5)
    for level in range(levels):
        value = written(Inner(["a"] if level % 2 else None, [value], 1, False), ["a"])
    return value


def test_as_deep_as_can_be():
    text = of_value(nested(2000), ["a"])
    assert text.count("[") == text.count('{"a":') == 1000


DAMAGED = "the bytes of the VARIANT 'c' are damaged"
REUSED = primitive(0)  # forty levels of arrays, each twice what is below it: a terabyte of text
for _ in range(40):
    REUSED = b"\x0f\x02" + bytes(8) + len(REUSED).to_bytes(4, "little") + REUSED


@each_row(
    ("value", "message"),
    [
        (nested(2001), "the VARIANT 'c' has more than 2000 objects and arrays in one another"),
        (primitive(17, bytes(8)), "the VARIANT 'c' has a value of a type that is not known"),
        (primitive(63), "a type that is not known"),
        (b"", DAMAGED),
        (number(6, 8, 1)[:-1], DAMAGED),
        (short_text(b"abc")[:-1], DAMAGED),
        (long_text(b"abc")[:-1], DAMAGED),
        (primitive(16, b"\xff\xff\xff\xff" + bytes(20)), DAMAGED),
        (decimal(4, 0, 10**9), DAMAGED),
        (decimal(4, 10, 1), DAMAGED),
        (decimal(8, 0, -(10**18)), DAMAGED),
        (decimal(16, 0, 10**38), DAMAGED),
        (decimal(16, 0, -(2**127)), DAMAGED),
        (decimal(16, 39, 1), DAMAGED),
        (b"\x13\xff\xff\xff\xff" + bytes(40), DAMAGED),
        (REUSED, DAMAGED),
        (long_text(b"x" * (2**24 - 4)), DAMAGED),  # more bytes than Spark takes
    ],
)
def test_what_cannot_be_written(value, message):
    assert message in fault_of(Variant(value, metadata_of(["a"])))


@pytest.mark.parametrize("metadata", [b"", b"\x00\x00\x00", b"\x02\x00\x00", b"\x11\x00"])
def test_metadata_of_another_version(metadata):
    found = of_column(array_of([Variant(primitive(0), metadata)]))
    assert found == (["null"] if metadata[:1] == b"\x11" else [None])


def test_rows_before_and_behind_damaged_ones_are_written():
    good, bad = Variant(number(3, 1, 7), EMPTY), Variant(b"\x0c", EMPTY)
    batch = pa.record_batch([pa.array(range(4)), array_of([good, bad, good, bad])], ["n", "v"])
    made = json_encoder(batch.schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [b'{"n":0,"v":7}', None, b'{"n":2,"v":7}', None]
    assert [bool(n) for n in faults] == [False, True] * 2
    kind = pa.struct([("inner", pa.list_(KIND))])
    made = json_encoder(pa.schema([("s", kind)]))
    _, faults = made.encode(pa.record_batch([pa.array([{"inner": [bad._asdict()]}], kind)], ["s"]))
    assert "the VARIANT 's.inner[]'" in made.fault_text(int(faults[0]))


@each_row(
    ("value", "text"),
    [
        (decimal(4, 2, 100), "1"),
        (decimal(4, 9, -1), "-0.000000001"),
        (decimal(16, 38, -(10**38) + 1), "-0." + "9" * 38),
        (decimal(16, 0, 10**38 - 1), "9" * 38),
        (primitive(7, struct.pack("<d", float("nan"))), '"NaN"'),
        (primitive(14, struct.pack("<f", float("-inf"))), '"-Infinity"'),
        (number(11, 4, -(2**31)), '"-5877641-06-23"'),
        (number(13, 8, 2**63 - 1), '"+294247-01-10 04:00:54.775807"'),
        (primitive(20, bytes(range(0xF0, 0x100))), '"f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"'),
        (long_text(b"\xff\x00", 15), '"/wA="'),
        (short_text(b"\xff\xfe"), '"\ufffd\ufffd"'),
        (long_text(b"x" * (2**24 - 5)), '"' + "x" * (2**24 - 5) + '"'),  # as many as Spark takes
        (long_text(b""), '""'),
        (b"\x02\x00", "{}"),
        (b"\x03\x00\x00", "[]"),
    ],
)
def test_values(value, text):
    assert of_value(value) == text


@pytest.mark.parametrize(
    ("zone", "micros", "text"),
    [
        ("UTC", 0, '"1970-01-01 00:00:00+00:00"'),
        ("Asia/Kolkata", 1_500_000, '"1970-01-01 05:30:01.5+05:30"'),
        ("America/St_Johns", 10, '"1969-12-31 20:30:00.00001-03:30"'),
        ("Europe/London", -(10**16), '"1653-02-10 06:12:05-00:01"'),
        ("-00:00:20", 0, '"1969-12-31 23:59:40+00:00"'),
    ],
)
def test_times(zone, micros, text):
    assert of_column(array_of([Variant(number(12, 8, micros), EMPTY)]), time_zone=zone) == [text]


def test_a_time_without_a_known_time_zone():
    """Of no other type one is asked for."""
    times = [Variant(number(kind, 8, 0), EMPTY) for kind in (13, 12)]
    assert of_column(array_of(times), time_zone=None) == ['"1970-01-01 00:00:00"', None]
    made = json_encoder(pa.schema([("c", KIND)]), time_zone=None)
    _, faults = made.encode(pa.record_batch([array_of(times)], ["c"]))
    assert "set spark.sql.session.timeZone, or the option value.json" in made.fault_text(faults[1])


@pytest.mark.parametrize("data", [b"x" * 300_000, b'"' * 100_000, b"\x01" * 4096, b"\x01" * 50_000])
def test_long_texts_and_names_get_the_room_that_they_need(data):
    names = [data.decode()]
    rows = [Variant(long_text(data), EMPTY), Variant(long_text(data, 15), EMPTY)]
    tree = Inner(names, [written(Inner(None, [long_text(data)] * 3, 1, False), [])], 1, False)
    rows.append(Variant(written(tree, names), metadata_of(names)))
    found = of_column(array_of(rows * 3))
    assert found == [twin.twin_text(*row, "UTC") for row in rows] * 3


def interpreted(schema):
    """With the kernel as Python runs it."""
    made = json_encoder(schema)
    made._kernel = json_rows.write_json
    return made


def test_more_text_than_java_has_strings_for(monkeypatch):
    """A name of many fields: stepped through with less, for two gigabytes take a minute."""
    monkeypatch.setattr(variant, "MAX_TEXT_BYTES", 1000)
    row = Variant(written(Inner(["n" * 90] * 12, [primitive(0)] * 12, 1, False), ["n" * 90]),
                  metadata_of(["n" * 90]))  # fmt: skip
    batch = pa.record_batch([array_of([row])], ["c"])
    made = interpreted(batch.schema)
    _, faults = made.encode(batch)
    assert made.fault_text(faults[0]) == "the VARIANT 'c' would be more than 2 GiB of text"


def test_large_types_and_other_orders_of_the_parts():
    kind = pa.struct(
        [
            pa.field("metadata", pa.large_binary(), False, {b"variant": b"true"}),
            pa.field("value", pa.large_binary(), False),
        ]
    )
    rows = [{"metadata": EMPTY, "value": number(3, 1, n)} for n in range(3)]
    assert of_column(pa.array(rows, kind)) == ["0", "1", "2"]


def test_a_variant_whose_metadata_somebody_has_lost():
    """Of the type, as functions of pyarrow may do: Spark's type says what it is."""
    plain = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    row = {"value": number(3, 1, 7), "metadata": EMPTY}
    kind = pa.struct([("x", pa.list_(plain))])
    spark_type = {
        "type": "struct",
        "fields": [{"name": "x", "type": {"type": "array", "elementType": "variant"}}],
    }
    fields = (
        FieldSpec(("v",), "v", '"variant"'),
        FieldSpec(("s",), "s", json.dumps(spark_type)),
    )
    batch = pa.record_batch([pa.array([row], plain), pa.array([{"x": [row]}], kind)], ["v", "s"])
    values = RowEncoder(FormatSpec(JSON, fields), batch.schema).encode(batch).values
    assert values.to_pylist() == [b'{"v":7,"s":{"x":[7]}}']


def test_other_formats_have_none():
    schema = pa.schema([("c", KIND)])
    fields = (FieldSpec(("c",), "c"),)
    record = '{"type":"record","name":"R","fields":[{"name":"c","type":"bytes"}]}'
    message = ProtobufSchema("M", (ProtobufMessage("M", (ProtobufField("c", 1, "bytes"),)),))
    what_to_do = r"Make text of it by to_json\(\), or columns by variant_get\(\), or leave it out"
    with pytest.raises(FormatError, match=f"'c' is a VARIANT, .* as Avro. {what_to_do}"):
        RowEncoder(FormatSpec(AVRO, fields, avro_schema=record), schema)
    with pytest.raises(FormatError, match=f"'c' is a VARIANT, .* the Protobuf .* {what_to_do}"):
        RowEncoder(FormatSpec(PROTOBUF, fields, protobuf_schema=message), schema)
    struct = {"type": "struct", "fields": [{"name": "c", "type": "variant", "nullable": True}]}
    with pytest.raises(FormatError, match=f"variant, which Avro has no type for. {what_to_do}"):
        derived_schema(json.dumps(struct))
