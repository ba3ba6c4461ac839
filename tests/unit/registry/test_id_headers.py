"""Headers with a schema's id: only keys and values that this schema has encoded have them."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from spark_kafka_sink.formats.encoder import RowsEncoder
from spark_kafka_sink.record.dead_letters import DeadLetterColumns, Fault
from tests.unit.registry.server import columns_of, planned_rows

KEY_ID, VALUE_ID = "__key_schema_id", "__value_schema_id"
IN_HEADERS = {"value_schema_id_location": "header", "key_schema_id_location": "header"}
AVRO = {"value_format": "avro", "key_format": "avro", "value_columns": "a,b", "key_columns": "k"}
NEEDS_A = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
}
KINDS = {"k": t.LongType(), "a": t.LongType(), "b": t.StringType(), "gone": t.BooleanType()}
COLUMNS = columns_of(**KINDS)
ARROW = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("gone", pa.bool_())])


def encoder(registry, columns=COLUMNS, **more):
    """As a task with dead letters has it, and the positions of what it makes."""
    planned = planned_rows(registry, columns, **{**AVRO, **IN_HEADERS, **more})
    return RowsEncoder(planned.plan, returns_faulty_rows=True), planned.positions


def headers_of(rows):
    return [[header["key"] for header in headers] for headers in rows["headers"].to_pylist()]


def test_only_what_the_schema_has_encoded_has_the_header_of_its_id(registry):
    """A tombstone has no value, and the value of a dead letter is JSON: its key is as ever."""
    encode, _ = encoder(registry, value_avro_schema=json.dumps(NEEDS_A), value_null_when="gone")
    rows = [
        {"k": 1, "a": 1, "b": "x", "gone": False},
        {"k": 2, "a": 1, "b": None, "gone": True},
        {"k": 3, "a": None, "b": "secret", "gone": None},
    ]
    found = encode.encode(pa.RecordBatch.from_pylist(rows, schema=ARROW))
    assert [*found.faults.found] == [2]
    assert headers_of(found.rows) == [[VALUE_ID, KEY_ID], [KEY_ID], [KEY_ID]]
    assert json.loads(found.rows["value"][2].as_py())["b"] == "secret"


def test_a_key_that_cannot_be_encoded_leaves_the_value_as_json(registry):
    key = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}
    encode, _ = encoder(registry, key_avro_schema=json.dumps(key))
    rows = [{"k": None, "a": 1, "b": "x", "gone": None}]
    found = encode.encode(pa.RecordBatch.from_pylist(rows, schema=ARROW))
    assert headers_of(found.rows) == [[]]


RAW_COLUMNS = columns_of(key=t.BinaryType(), value=t.BinaryType())
OF_BOTH = {"format": "raw", "schema_id_prefix": "true", "columns": ""}
RAW = {f"{part}_{name}": value for part in ("key", "value") for name, value in OF_BOTH.items()}
RAW |= {"use_schema_id": "1", "key_use_schema_id": "1"}


def test_null_keys_and_values_that_are_encoded_already(registry):
    registry.add("s", {"schema": '"string"'})
    encode, _ = encoder(registry, RAW_COLUMNS, **RAW)
    rows = {"key": [b"\2k", None, b"\2k"], "value": [b"\2v", b"\2v", None]}
    found = encode.encode(pa.record_batch({n: pa.array(v, pa.binary()) for n, v in rows.items()}))
    assert headers_of(found.rows) == [[VALUE_ID, KEY_ID], [VALUE_ID], [KEY_ID]]


def test_an_id_that_a_row_brings_along_is_not_that_of_the_schema(registry):
    """As in a copy of a topic: some consumers take the first of two headers, others the last."""
    entry = columns_of(key=t.StringType(), value=t.BinaryType())
    columns = columns_of(**KINDS, headers=t.ArrayType(entry))
    encode, _ = encoder(registry, columns, value_null_when="gone")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    old = [("x", b"1"), (VALUE_ID, b"old"), (KEY_ID, b"old")]
    own = [{"key": name, "value": value} for name, value in old]
    rows = [
        {"k": 1, "a": 1, "b": "x", "gone": False, "headers": own},
        {"k": 2, "a": 1, "b": "x", "gone": True, "headers": own},
        {"k": 3, "a": 1, "b": "x", "gone": False, "headers": None},
    ]
    arrow = ARROW.append(pa.field("headers", kind))
    found = encode.encode(pa.RecordBatch.from_pylist(rows, schema=arrow)).rows
    assert headers_of(found) == [
        ["x", VALUE_ID, KEY_ID],
        ["x", KEY_ID],
        [VALUE_ID, KEY_ID],
    ]
    assert not any(h["value"] == b"old" for one in found["headers"].to_pylist() for h in one)


def test_confluents_deserializer_reads_values_and_refuses_dead_letters(registry):
    """It has read `{"a":null, …` as a number: by the header it was bytes of the schema."""
    confluent = pytest.importorskip("confluent_kafka.schema_registry")
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    serialization = pytest.importorskip("confluent_kafka.serialization")
    needs_a = json.dumps({**NEEDS_A, "fields": NEEDS_A["fields"][:1]})
    encode, positions = encoder(registry, value_avro_schema=needs_a, value_columns="a")
    one, two = 1 << 50, 1 << 51  # it takes no bytes that are fewer than those of an id
    rows = [{"k": one, "a": two}, {"k": two, "a": None}]
    found = encode.encode(pa.RecordBatch.from_pylist(rows, schema=ARROW))
    letters = DeadLetterColumns(1_000_000, None)
    letters = letters.of(found.rows.slice(1), positions, [found.faults.found[1]])
    with confluent.SchemaRegistryClient({"url": registry.url}) as client:
        by_header = {"schema.id.deserializer": confluent.dual_schema_id_deserializer}
        deserializer = avro.AvroDeserializer(client, conf=by_header)

        def read(rows, part):
            (record,) = rows.to_pylist()
            headers = [(header["key"], header["value"]) for header in record["headers"]]
            context = serialization.SerializationContext("t", part, headers)
            return deserializer(record[part], context)

        good = found.rows.slice(0, 1)
        assert (read(good, "key"), read(good, "value")) == ({"k": one}, {"a": two})
        assert read(letters, "key") == {"k": two}
        with pytest.raises(serialization.SerializationError, match="magic byte"):
            read(letters, "value")


def test_what_was_cut_has_no_header_of_its_schema(registry):
    """Protobuf would read no bytes at all as a message."""
    encode, positions = encoder(registry)
    rows = [{"k": 1, "a": 1, "b": "x" * 5_000, "gone": False}]
    found = encode.encode(pa.RecordBatch.from_pylist(rows, schema=ARROW)).rows
    letters = DeadLetterColumns(2_000, None).of(found, positions, [Fault("too-large", "")])
    (names,) = headers_of(letters)
    assert VALUE_ID not in names
    assert KEY_ID in names
    headers = {header["key"]: header["value"] for header in letters["headers"].to_pylist()[0]}
    assert headers["__connect.errors.headers.dropped"] == b"1"
