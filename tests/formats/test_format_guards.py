"""Memory of the kernels, slices, zones, faults, and the rows that are appended: what no format decides.

Most cases fail without the guard they are about.
"""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.formats import encoder as encoders
from spark_kafka_sink.formats.encoder import RowEncoder, RowsEncoder, rows_as_json
from spark_kafka_sink.formats.layout import Node, Table
from spark_kafka_sink.formats.plan import (
    AVRO,
    JSON,
    PROTOBUF,
    FieldSpec,
    FormatError,
    FormatSpec,
    JsonOptions,
    PartSpec,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    RowSpec,
)
from spark_kafka_sink.formats.times import zone_table
from spark_kafka_sink.record.compiled import nodes
from tests.formats import avro_rows, protobuf_files
from tests.formats.rows import json_encoder

GUARD = 4096
INT = pa.int32()
UTC = pa.timestamp("us", "UTC")
MARKED = [pa.field("value", pa.binary(), False, {b"variant": b"true"}), ("metadata", pa.binary())]
VARIANT = pa.struct(MARKED)
EMPTY = b"\1\0\0"


def texts(batch, **options):
    values = json_encoder(batch.schema, **options).encode(batch).values.to_pylist()
    return [None if value is None else json.loads(value) for value in values]


def struct(*fields):
    return pa.StructArray.from_arrays(list(fields), [f"f{n}" for n in range(len(fields))])


def test_fields_of_slices_of_slices_are_those_of_their_rows():
    """The offsets of a struct and those of its fields add up, at each depth."""
    numbers = pa.array(range(100), INT)
    inner = struct(numbers.slice(3, 60), pa.array([[n] for n in range(60)]))
    outer = struct(inner.slice(2, 50), pa.array(map(str, range(50)))).slice(1, 40)
    expected = outer.slice(2, 7).to_pylist()
    found = texts(pa.record_batch({"c": outer}).slice(2, 7))
    assert [row["c"] for row in found] == expected
    assert expected[0] == {"f0": {"f0": 8, "f1": [5]}, "f1": "3"}


def test_no_bitmap_is_read_of_a_column_whose_rows_are_all_there():
    array = pa.array([None, 1, 2])
    table = Table(Node(nodes.STRUCT, children=(Node(nodes.INT64),)))
    for column, is_read in ((array, True), (array.slice(1), False)):
        table.point_at([column])
        assert (table.numbers[1, nodes.VALIDITY] != 0) == is_read


def test_all_addresses_of_a_table_are_of_memory_that_it_keeps():
    """Kernels read names eight bytes at a time."""
    table = Table(
        Node(
            nodes.STRUCT,
            children=(
                Node(nodes.STRING, b"name", symbols=("a", "bc"), numbers=(1, 2)),
                Node(nodes.DATE, b"last", pattern=((1, 4),)),
            ),
        )
    )
    kept = {array.ctypes.data: array for array in (table._names, *table._kept)}
    names = table.numbers[:, nodes.NAME]
    assert names[0] + len(b"namelast") + 8 <= names[0] + kept[int(names[0])].nbytes
    symbols, steps = (kept[int(table.numbers[n, nodes.PARAMETER])] for n in (1, 2))
    assert steps.tolist() == [1, 1, 4]
    assert symbols.tolist() == [2, symbols[1], 1, symbols[1] + 1, 2, 1, 2]
    assert kept[int(symbols[1])].tobytes() == b"abc"


def nested(depth):
    kind, value = INT, 1
    for _ in range(depth):
        kind, value = pa.list_(kind), [value]
    return pa.record_batch({"c": pa.array([value], kind)})


LONG = "n" * 700
DECIMAL = {"type": "fixed", "name": "D", "size": 900, "logicalType": "decimal", "precision": 5}
PREFIX = b"p" * 700


def avro(batch, kind, prefix=b""):
    return avro_rows.encoder(batch.schema, avro_rows.record(c=kind), prefix)


def protobuf(batch, kind, prefix=b""):
    schema = protobuf_files.schema_of(protobuf_files.one_message(c=kind))
    return protobuf_files.protobuf_encoder(batch.schema, schema, prefix)


def column(values, kind=INT):
    return pa.record_batch({"c": pa.array(values, kind)})


NUMBERS = column([1, 2])
NAMED = pa.record_batch({LONG: pa.array([1, 2], INT)})
DEEP, WIDE = nested(300), column([-1.7976931348623157e308] * 2, pa.float64())
TIMES = column([0, 1], pa.timestamp("us"))
MANY = column([[*range(300)], []], pa.list_(pa.int64()))
KEYS = column([[("k" * 900, 1)], []], pa.map_(pa.string(), INT))
TEXTS = column(["é" * 900, ""], pa.string())
ESCAPED = column(["x" * 900, '"' * 300, "\x01" * 100, "é" * 300], pa.string())
BYTES = column([bytes(900), b""], pa.binary())
DECIMALS = column([1, 2], pa.decimal128(5, 0))
CONSTANT = avro_rows.record(c="int", d=("string", "d" * 900))


def roomy_cases():
    """Encoders and rows, of which something is long: a name, ends, a pattern, a prefix, a text …"""
    return [
        (json_encoder(NAMED.schema), NAMED),
        (json_encoder(DEEP.schema), DEEP),
        (json_encoder(WIDE.schema), WIDE),
        (json_encoder(ESCAPED.schema), ESCAPED),
        (json_encoder(BYTES.schema), BYTES),
        (json_encoder(TIMES.schema, timestamp_ntz_format=repr("x" * 900)), TIMES),
        (json_encoder(NUMBERS.schema, PREFIX), NUMBERS),
        (avro(DECIMALS, DECIMAL), DECIMALS),
        (avro(NUMBERS, "int", PREFIX), NUMBERS),
        (avro_rows.encoder(NUMBERS.schema, CONSTANT), NUMBERS),
        (avro(MANY, {"type": "array", "items": "long"}), MANY),
        (avro(KEYS, {"type": "map", "values": "int"}), KEYS),
        (avro(TEXTS, "string"), TEXTS),
        (protobuf(NUMBERS, "int32", PREFIX), NUMBERS),
        *((protobuf(MANY, f"repeated {kind}"), MANY) for kind in ("int64", "sfixed64")),
        (protobuf(KEYS, "map string int32"), KEYS),
        (protobuf(TEXTS, "string"), TEXTS),
    ]


@pytest.mark.parametrize("number", range(18))
def test_nothing_is_written_beyond_rooms_of_any_size(number):
    made, batch = roomy_cases()[number]
    expected = made.encode(batch).values.to_pylist()
    for size in range(0, sum(map(len, expected)) + 1300, 17):
        memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        made._room = memory[GUARD : GUARD + size]
        assert made.encode(batch).values.to_pylist() == expected
        assert (memory[:GUARD] == 0xA5).all(), size
        assert (memory[GUARD + size :] == 0xA5).all(), size


def test_memory_for_rows_alike_is_taken_once_and_four_times_as_much_beyond_what_is_guessed(
    monkeypatch,
):
    rows = pa.record_batch({"s": ["x" * 500] * 2000})
    least, guessed = Rooms(monkeypatch, PLANS[JSON], rows).sizes
    assert 1_000_000 < guessed < 1_200_000
    monkeypatch.setattr(encoders, "_GUESSED_BYTES", 1)
    assert Rooms(monkeypatch, PLANS[JSON], rows).sizes[:3] == [least, 4 * least, 16 * least]


def test_rows_that_are_null_stay_so_beside_those_that_cannot_be_written_and_faults_are_counted_anew():
    batch = pa.record_batch(
        {"c": pa.array([None, 1, 2, 3]), "gone": pa.array([None, True, None, False])}
    )
    schema = json.dumps(avro_rows.record(c="long"))
    plan = FormatSpec(AVRO, (FieldSpec(("c",), "c"),), avro_schema=schema, null_when="gone")
    made = RowEncoder(plan, batch.schema)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None, None, b"\4", b"\6"]
    assert faults.astype(bool).tolist() == [True, False, False, False]
    values, faults = made.encode(batch.slice(1))
    assert values.to_pylist() == [None, b"\4", b"\6"]
    assert faults is None


def test_a_zone_is_asked_for_where_something_has_times():
    """One that is not known is an error of timestamps, and of VARIANTs alone."""
    unknown = "No/Zone"
    assert texts(NUMBERS, time_zone=unknown) == [{"c": 1}, {"c": 2}]
    at = pa.record_batch({"c": pa.array([0], UTC)})
    assert texts(at, time_zone=None) == [{"c": "1970-01-01T00:00:00.000Z"}]
    for kind in (VARIANT, UTC):
        with pytest.raises(FormatError, match=unknown):
            json_encoder(pa.schema([("c", kind)]), time_zone=unknown)


@pytest.mark.parametrize("mark", [b"variant", b"geometry", b"geography"])
def test_only_a_struct_that_says_true_is_of_a_type_of_spark_s(mark):
    for said, is_struct in ((b"true", False), (b"false", True)):
        fields = [pa.field("srid", INT, metadata={mark: said})]
        schema = pa.schema([("c", pa.struct(fields))])
        if is_struct:
            json_encoder(schema)
        else:
            with pytest.raises(FormatError, match=mark.decode().upper()):
                json_encoder(schema)


OUTER = pa.struct([("x", INT)])
REQUIRED = json.dumps(avro_rows.record(x="int"))


def test_a_row_whose_struct_is_null_is_null_whatever_its_fields_cannot_be():
    plan = FormatSpec(AVRO, (FieldSpec(("s", "x"), "x"),), avro_schema=REQUIRED)
    rows = pa.record_batch({"s": pa.array([{"x": 1}, None, {"x": None}], OUTER)})
    found = RowsEncoder(RowSpec(PartSpec(0, plan))).encode(rows)
    assert found.rows.column(0).to_pylist() == [b"\2", None, None]
    assert found.faults.bad.tolist() == [2]
    plan = FormatSpec(JSON, plan.fields)
    found = RowsEncoder(RowSpec(PartSpec(0, plan))).encode(rows)
    assert found.rows.column(0).to_pylist() == [b'{"x":1}', None, b"{}"]


def test_a_row_that_cannot_be_written_is_told_only_where_it_becomes_a_dead_letter():
    plan = FormatSpec(AVRO, (FieldSpec(("x",), "x"),), avro_schema=REQUIRED)
    rows = pa.record_batch({"x": pa.array([None, 1], INT), "other": ["a", "b"]})
    for tells, value in ((False, None), (True, b'{"x":null,"other":"a"}')):
        found = RowsEncoder(RowSpec(PartSpec(plan=plan)), tells).encode(rows)
        assert found.rows.column(0).to_pylist() == [value, b"\2"]


@pytest.mark.parametrize(("takes", "hour"), [(True, "09"), (False, "01")])
def test_the_zone_of_an_option_comes_before_that_of_the_column(takes, hour):
    options = JsonOptions(time_zone="+01:00")
    plan = FormatSpec(JSON, (FieldSpec(("at",), "at"),), json_options=options)
    at = pa.array([datetime.datetime(1970, 1, 1)], pa.timestamp("us", "Asia/Tokyo"))
    made = RowsEncoder(RowSpec(PartSpec(plan=plan, takes_session_zone=takes)))
    [value] = made.encode(pa.record_batch({"at": at})).rows.column(0).to_pylist()
    assert f"T{hour}:00".encode() in value


@pytest.mark.parametrize(
    ("takes", "ignores", "value"),
    [(True, True, b"{}"), (True, False, b'{"x":null}'), (False, False, b"{}")],
)
def test_null_fields_of_json_go_by_the_session_unless_an_option_says_it(takes, ignores, value):
    part = PartSpec(plan=FormatSpec(JSON, (FieldSpec(("x",), "x"),)), takes_session_nulls=takes)
    rows = pa.record_batch({"x": pa.array([None], INT)})
    found = RowsEncoder(RowSpec(part, part, ignores_nulls=ignores)).encode(rows)
    assert found.rows.to_pydict() == {"value": [value], "key": [value]}


def test_null_fields_that_a_registered_schema_may_not_have_are_refused():
    plan = FormatSpec(JSON, (FieldSpec(("x",), "x"),))
    part = PartSpec(plan=plan, takes_session_nulls=True, has_id=True)
    RowsEncoder(RowSpec(PartSpec(0), part))
    with pytest.raises(ConfigError, match="Set key.json.ignoreNullFields"):
        RowsEncoder(RowSpec(PartSpec(0), part, ignores_nulls=False))


@pytest.mark.parametrize(("is_ansi", "text"), [(True, "0.0000001"), (False, "1E-7")])
def test_texts_of_keys_and_values_go_by_ansi(is_ansi, text):
    part = PartSpec(0, is_text=True)
    number = pa.array(["0.0000001"]).cast(pa.decimal128(10, 7))
    found = RowsEncoder(RowSpec(part, part, is_ansi=is_ansi)).encode(pa.record_batch({"n": number}))
    assert found.rows.to_pydict() == {"value": [text], "key": [text]}


def told(zone, **columns):
    return [json.loads(row) for row in rows_as_json(pa.record_batch(columns), zone).to_pylist()]


def test_whatever_is_in_a_row_it_is_told():
    """Zones that Python does not know, types without text, nulls, damaged VARIANTs and times."""
    at = pa.array([0], UTC)
    [row] = told("No/Zone", at=at, none=pa.array([None], INT))
    assert row == {"at": "1970-01-01T00:00:00.000Z", "none": None}
    odd = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    assert told(None, odd=odd) == [{"odd": "(month_day_nano_interval: not shown)"}]
    good, bad = ({"value": value, "metadata": EMPTY} for value in (b"\x0c\7", b"\xff"))
    assert told(None, v=pa.array([good, bad], VARIANT)) == [
        {"v": 7},
        {"v": {"value": "/w==", "metadata": "AQAA"}},
    ]
    nullable = pa.struct([MARKED[0].with_nullable(True), MARKED[1]])
    assert told(None, v=pa.array([bad], nullable)) == [{"v": {"value": "/w==", "metadata": "AQAA"}}]
    times = pa.array([0, -1], pa.int64()).view(pa.time64("ns"))
    rows = told(None, t=times)
    assert rows[0] == {"t": "00:00:00"}
    assert isinstance(rows[1]["t"], str)


@pytest.mark.parametrize("name", ["Europe", "../etc/passwd", "No/Zone", "a\0b"])
def test_names_that_lead_to_no_zone_are_no_zones(name):
    """A folder of zones, a path out of it, nothing: each is another error of Python's."""
    with pytest.raises(FormatError, match="is not known to Python here"):
        zone_table(name)


ROOM_FIELDS = (FieldSpec(("s",), "s"),)
ROOM_RECORD = '{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}'
MESSAGE = ProtobufSchema("M", (ProtobufMessage("M", (ProtobufField("s", 1, "string"),)),))
PLANS = {
    JSON: FormatSpec(JSON, ROOM_FIELDS),
    AVRO: FormatSpec(AVRO, ROOM_FIELDS, avro_schema=ROOM_RECORD),
    PROTOBUF: FormatSpec(PROTOBUF, ROOM_FIELDS, protobuf_schema=MESSAGE),
}
MIB = 2**20


class Rooms:
    """Encodes, and keeps the sizes of all memory that was taken for it."""

    def __init__(self, monkeypatch, plan, batch):
        self.encoder = RowEncoder(plan, batch.schema)
        self.sizes = []
        kernel, state = self.encoder._kernel, self.encoder._state

        def noting(address):
            self.sizes.append(int(state[encoders.nodes.LIMIT] - state[encoders.nodes.OUT]))
            return kernel(address)

        monkeypatch.setattr(self.encoder, "_kernel", noting)
        self.values = self.encoder.encode(batch).values


@pytest.mark.parametrize("name", [JSON, AVRO, PROTOBUF])
@pytest.mark.parametrize("at", [0, 5_000, 9_999])
def test_one_large_row_says_nothing_of_the_others(monkeypatch, name, at):
    rows = ["y" * 500] * 10_000
    rows[at] = "x" * 10 * MIB
    found = Rooms(monkeypatch, PLANS[name], pa.record_batch({"s": rows}))
    assert max(found.sizes) < 80 * MIB
    assert [len(value) > MIB for value in found.values.to_pylist()] == [
        n == at for n in range(10_000)
    ]


@pytest.mark.parametrize("name", [JSON, AVRO, PROTOBUF])
@pytest.mark.parametrize("growing", [1, -1])
def test_rows_of_growing_size_are_copied_a_few_times_at_most(monkeypatch, name, growing):
    rows = ["x" * n for n in range(0, 4000, 2)][::growing]
    found = Rooms(monkeypatch, PLANS[name], pa.record_batch({"s": rows}))
    assert sum(found.sizes[:-1]) <= found.sizes[-1]
    assert found.sizes[-1] < 5 * sum(map(len, rows))
    texts = [value[-len(row) - 2 :] for value, row in zip(found.values.to_pylist(), rows)]
    if name == JSON:
        assert [json.loads(v)["s"] for v in found.values.to_pylist()] == rows
    else:
        assert all(text.endswith(row.encode()) for text, row in zip(texts, rows))


GONE = pa.array([True, False, None])


def written(plan, **columns):
    found = RowsEncoder(plan).encode(pa.record_batch(columns))
    return found.checked("test").to_pydict()


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7"])
def test_a_raw_value_and_a_text_are_null_where_a_column_says_so(prefix):
    plan = RowSpec(PartSpec(0, prefix=prefix), PartSpec(0), null_when=1)
    found = written(plan, v=pa.array([b"a", b"b", None]), gone=GONE)
    assert found == {"value": [None, prefix + b"b", None], "key": [b"a", b"b", None]}
    text = RowSpec(PartSpec(0, is_text=True), null_when=1)
    assert written(text, n=pa.array([1, 2, 3]), gone=GONE) == {"value": [None, "2", "3"]}


def test_batches_of_another_schema_are_made_by_another_encoder():
    encoder = RowsEncoder(RowSpec(PartSpec(plan=FormatSpec(JSON, (FieldSpec(("a",), "a"),)))))
    for array, text in ((pa.array([1]), b'{"a":1}'), (pa.array(["1"]), b'{"a":"1"}')):
        found = encoder.encode(pa.record_batch({"a": array})).checked("test")
        assert found.to_pydict() == {"value": [text]}


@pytest.mark.parametrize(
    ("zone", "text"), [("Asia/Tokyo", "1970-01-01 09:00:00"), (None, "1970-01-01 00:00:00")]
)
def test_texts_of_timestamps_have_the_zone_of_the_column(zone, text):
    at = pa.array([datetime.datetime(1970, 1, 1)], pa.timestamp("us", zone or "UTC"))
    assert written(RowSpec(PartSpec(0, is_text=True)), at=at) == {"value": [text]}
