"""Dead letters whose headers have keys that are not UTF-8, as Spark lets texts be."""

import pyarrow as pa
import pytest

from spark_kafka_sink import RefusedRowsError
from spark_kafka_sink.columns.dead_letters import (
    HEADERS_DROPPED,
    KEY_SIZE,
    MAX_REASON_BYTES,
    MESSAGE,
    NOT_ENCODABLE,
    PREFIX,
    VALUE_SIZE,
    DeadLetterColumns,
    Fault,
    Origin,
)
from spark_kafka_sink.columns.positions import ColumnPositions

POSITIONS = ColumnPositions(value=0, key=1, headers=2, topic_option="t")
ODD = b"caf\xe9\xff"


def rows(key_type, *given):
    """Of values, keys and headers. key_type: of the keys of headers, whose bytes are not looked at"""
    large = pa.types.is_large_string(key_type)
    entries = [header for _, _, headers in given for header in headers]
    keys = pa.array([key for key, _ in entries], pa.large_binary() if large else pa.binary())
    made = pa.StructArray.from_arrays(
        [keys.view(key_type), pa.array([value for _, value in entries], pa.binary())],
        names=["key", "value"],
    )
    offsets = [sum(len(headers) for _, _, headers in given[:n]) for n in range(len(given) + 1)]
    headers = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made)
    values = [pa.array([row[n] for row in given], pa.binary()) for n in (0, 1)]
    return pa.record_batch([*values, headers], names=["value", "key", "headers"])


def headers_of(letters, row):
    entries = letters.column(2)[row].values
    keys = entries.field(0).cast(pa.binary()).to_pylist()
    return dict(zip(keys, entries.field(1).to_pylist()))


def letters_of(batch, why="why", most_bytes=2000):
    faults = [Fault(NOT_ENCODABLE, why)] * batch.num_rows
    made = DeadLetterColumns(most_bytes, Origin(0, None, None)).of(batch, POSITIONS, faults)
    made.validate()
    return made


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()])
def test_header_keys_that_are_not_utf_8_stay_as_they_are_where_the_value_is_cut_off(
    key_type,
):
    own = [(ODD, b"1"), (b"h", b"2")]
    made = letters_of(rows(key_type, (bytes(5000), b"k", own), (b"v", b"k", own), (b"w", b"k", [])))
    by_value = {
        len(value): n for n, value in enumerate(made.column(0).to_pylist()) if value != b"w"
    }
    assert sorted(by_value)[0] == 1
    cut = headers_of(made, by_value[max(by_value)])
    assert max(by_value) < 2000
    assert (cut[ODD], cut[b"h"]) == (b"1", b"2")
    assert cut[VALUE_SIZE.encode()] == b"5000"
    assert cut[MESSAGE.encode()] == b"why"
    assert headers_of(made, by_value[1])[ODD] == b"1"


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()])
def test_header_keys_that_are_not_utf_8_are_left_out_with_their_headers(key_type):
    made = letters_of(rows(key_type, (b"v", b"k" * 3000, [(ODD * 500, b"1"), (b"h", b"2")])))
    found = headers_of(made, 0)
    assert all(key.startswith(PREFIX.encode()) for key in found)
    assert found[HEADERS_DROPPED.encode()] == b"2"
    assert found[KEY_SIZE.encode()] == b"3000"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("bad \udcff", rb"bad \udcff"),  # what is no Unicode, as of bytes that were not UTF-8
        ("€" * MAX_REASON_BYTES, "€".encode() * (MAX_REASON_BYTES // 3) + b" [cut off]"),
        ("x" * MAX_REASON_BYTES, b"x" * MAX_REASON_BYTES),
    ],
)
def test_reasons_of_interceptors_may_be_any_text(why, told):
    """An own reason may have what it complains of in it."""
    made = letters_of(rows(pa.string(), (b"v", b"k", [])), why, 100_000)
    assert headers_of(made, 0)[MESSAGE.encode()] == told


def test_an_error_with_such_a_reason_can_be_sent_to_the_driver():
    error = RefusedRowsError({3: "bad \udcff"})
    assert str(error) == r"1 row(s) refused: row 3: bad \udcff [PKS-ROW-008]"
    assert error.rows == {3: r"bad \udcff"}
