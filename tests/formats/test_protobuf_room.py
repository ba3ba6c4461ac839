"""write_protobuf where there is too little room, or just enough: nothing is written beyond it."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats.protobuf_descriptors import read_descriptor_set
from spark_kafka_sink.record.compiled.nodes import WIDEST_FIELD
from tests.formats import official
from tests.formats.protobuf_encoding import PREFIX, encoder, schema_of, written
from tests.formats.protobuf_files import one_message
from tests.formats.protobuf_rows_made import made_rows
from tests.formats.protobuf_twin import Twin, sized, varint

GUARD = 64


def test_many_rows_need_more_room_than_there_was():
    batch = pa.record_batch({"number": range(50_000), "text": ["some text"] * 50_000})
    schema = schema_of(one_message(number="int64", text="string"))
    found = encoder(batch.schema, schema, PREFIX).encode(batch).values
    twin = Twin(schema)
    assert found.to_pylist() == [PREFIX + twin.row(row) for row in batch.to_pylist()]


def test_long_strings_and_many_elements_get_the_room_that_they_need():
    texts = ["x" * 300_000, "", "é" * 200_000]
    found = written(pa.array(texts), "string")
    assert found == [b"\x0a" + sized(t.encode()) if t else b"" for t in texts]
    [found] = written(pa.array([[*range(100_000)]]), "repeated int64")
    assert found == b"\x0a" + sized(b"".join(map(varint, range(100_000))))
    key = "k" * 200_000
    [found] = written(pa.array([[(key, 1)]], pa.map_(pa.string(), pa.int8())), "map string int32")
    assert found == b"\x0a" + sized(b"\x0a" + sized(key.encode()) + b"\x10\x01")


@settings(max_examples=300)
@given(made_rows(), st.integers(0, 150))
def test_nothing_is_written_beyond_the_room_that_there_is(made, missing):
    """The room is as large as needed, or some bytes less; there are guards on both sides."""
    schema = read_descriptor_set(official.descriptor_set(made.files), "pkg.Root").schema
    batch = made.rows.batch
    expected = encoder(batch.schema, schema, PREFIX).encode(batch).values.to_pylist()
    size = max(sum(map(len, expected)) + WIDEST_FIELD + len(PREFIX) - missing, 0)
    memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    made_encoder = encoder(batch.schema, schema, PREFIX)
    made_encoder._room = memory[GUARD : GUARD + size]
    assert made_encoder.encode(batch).values.to_pylist() == expected
    assert (memory[:GUARD] == 0xA5).all()
    assert (memory[GUARD + size :] == 0xA5).all()


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
    """Sliced, and with nulls elsewhere; in too little room."""
    rows = [[1], [*range(30)], [], None, [-1, 0] if field != "float" else [0.5], [7, 8]]
    batch = pa.record_batch([pa.array([[None], *rows], make(kind)), pa.array([1] * 7)], ["c", "d"])
    batch = batch.slice(1)
    schema = schema_of(one_message(c=f"repeated {field}", d="int64"))
    packed = [struct.pack(f"<{len(row or ())}{code}", *(row or ())) for row in rows]
    expected = [(b"\x0a" + sized(p) if p else b"") + b"\x10\x01" for p in packed]
    dense = pa.record_batch([pa.array(rows, make(kind)), pa.array([1] * 6)], ["c", "d"]).slice(1)
    for rows_given, values in ((batch, expected), (dense, expected[1:])):
        for size in range(0, 600, 7):
            memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
            made = encoder(rows_given.schema, schema)
            made._room = memory[GUARD : GUARD + size]
            assert made.encode(rows_given).values.to_pylist() == values
            assert (memory[:GUARD] == 0xA5).all(), size


@pytest.mark.parametrize("kind", ["string", "bytes", "google.protobuf.StringValue"])
def test_a_string_is_not_written_into_less_room_than_it_needs(kind):
    text = pa.array(["x" * 100])
    column = text.cast(pa.binary()) if kind == "bytes" else text
    batch = pa.record_batch([column, pa.array([1])], ["c", "d"])
    schema = schema_of(one_message(c=kind, d="int64"))
    for size in range(300):
        memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        made = encoder(batch.schema, schema)
        made._room = memory[GUARD : GUARD + size]
        [found] = made.encode(batch).values.to_pylist()
        assert len(found) == (106 if "." in kind else 104)
        assert (memory[:GUARD] == 0xA5).all(), size
        assert (memory[GUARD + size :] == 0xA5).all(), size
