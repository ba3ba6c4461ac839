"""Arrow batches → views: every view is read back by its addresses, in plain Python.

A view keeps nothing alive: its array must stay in a variable until the view has been read.
"""

import ctypes
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import RecordError, SchemaError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import (
    arrow_records,
    bytes_view,
    headers_view,
    integers_view,
    timestamps_ms,
)
from spark_kafka_sink.record.compiled.calls import ABSENT_BYTES, ABSENT_HEADERS, ABSENT_INTEGERS

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True, database=None)
NOW_MS = 1_700_000_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


# --- a reader of views, written from the format's description -------------------------------------


def _integer(address, width):
    return int.from_bytes(ctypes.string_at(address, width), "little", signed=True)


def _is_valid(address, offset, row):
    bit = offset + row
    return address == 0 or bool(ctypes.string_at(address + bit // 8, 1)[0] >> bit % 8 & 1)


def _range(address, width, row):
    return _integer(address + width * row, width), _integer(address + width * (row + 1), width)


def read_bytes(view, row):
    if view.offset_bytes == 0 or not _is_valid(view.validity_address, view.validity_offset, row):
        return None
    start, end = _range(view.offsets_address, view.offset_bytes, row)
    return ctypes.string_at(view.data_address + start, end - start) if end > start else b""


def read_headers(view, row):
    if view.offset_bytes == 0 or not _is_valid(view.validity_address, view.validity_offset, row):
        return []
    start, end = _range(view.offsets_address, view.offset_bytes, row)
    return [(read_bytes(view.keys, i), read_bytes(view.values, i)) for i in range(start, end)]


def read_integer(view, row):
    if view.values_address == 0 or not _is_valid(view.validity_address, view.validity_offset, row):
        return None
    return _integer(view.values_address + 4 * row, 4)


# --- columns --------------------------------------------------------------------------------------


def encoded(value):
    return value.encode() if isinstance(value, str) else value


@st.composite
def slices(draw, values):
    """(values, offset, length) of a slice of at least one row."""
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=20))
    offset = draw(st.integers(0, len(rows) - 1))
    return rows, offset, draw(st.integers(1, len(rows) - offset))


@pytest.mark.parametrize(
    "arrow_type", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
)
def test_bytes_of_any_slice(arrow_type):
    is_text = arrow_type in (pa.string(), pa.large_string())

    @PROPERTY
    @given(slices(st.text(max_size=4) if is_text else st.binary(max_size=4)))
    def check(case):
        rows, offset, length = case
        array = pa.array(rows, arrow_type).slice(offset, length)
        view = bytes_view(array)
        expected = [encoded(value) for value in rows[offset : offset + length]]
        assert [read_bytes(view, row) for row in range(length)] == expected

    check()


def test_nothing_is_copied():
    array = pa.array([b"abc", b"de"], pa.binary())
    view = bytes_view(array)
    assert view.data_address == array.buffers()[2].address
    assert view.offsets_address == array.buffers()[1].address


@pytest.mark.parametrize("rows", [[None, None], [b"", b""], [None, b""]])
def test_bytes_without_any_data(rows):
    array = pa.array(rows, pa.binary())
    view = bytes_view(array)
    assert [read_bytes(view, row) for row in range(2)] == rows


@PROPERTY
@given(slices(st.integers(-(2**31), 2**31 - 1)))
def test_integers_of_any_slice(case):
    rows, offset, length = case
    array = pa.array(rows, pa.int32()).slice(offset, length)
    view = integers_view(array)
    assert [read_integer(view, row) for row in range(length)] == rows[offset : offset + length]


header_lists = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    max_size=3,
)


@pytest.mark.parametrize("list_type", [pa.list_(HEADER), pa.large_list(HEADER)])
def test_headers_of_any_slice(list_type):
    @PROPERTY
    @given(slices(header_lists))
    def check(case):
        rows, offset, length = case
        array = pa.array(rows, list_type).slice(offset, length)
        view = headers_view(array)
        expected = [
            [(header["key"].encode(), header["value"]) for header in headers or []]
            for headers in rows[offset : offset + length]
        ]
        assert [read_headers(view, row) for row in range(length)] == expected

    check()


def test_headers_whose_entries_are_a_slice():
    """The entries' array has an offset of its own, as after a concatenation or in a nested view."""
    keys, values = pa.array(["x", "a", "b", "c"]), pa.array([b"0", b"1", None, b"3"])
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"]).slice(1)
    array = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), entries)
    view = headers_view(array)
    assert read_headers(view, 0) == [(b"a", b"1"), (b"b", None)]
    assert read_headers(view, 1) == [(b"c", b"3")]


def test_no_headers_at_all():
    for rows in ([[], []], [None, None]):
        assert headers_view(pa.array(rows, pa.list_(HEADER))) == ABSENT_HEADERS


NULL_HEADER = "null header in the data. Each header must be a struct of key and value."
NULL_KEY = "null header key in the data. Each header of a record must have a key."


@pytest.mark.parametrize(
    ("header", "message"), [(None, NULL_HEADER), ({"key": None, "value": b"x"}, NULL_KEY)]
)
def test_headers_that_kafka_does_not_have(header, message):
    array = pa.array([[{"key": "k", "value": b"v"}], [header]], pa.list_(HEADER))
    with pytest.raises(RecordError) as raised:
        headers_view(array)
    assert sentence(raised.value) == message
    # Outside the slice no row refers to them.
    assert read_headers(headers_view(array.slice(0, 1)), 0) == [(b"k", b"v")]


def test_nulls_under_a_null_list_are_nobodys():
    """Arrow allows any content under a null: no row refers to it."""
    keys, values = pa.array([None, "a"]), pa.array([b"0", b"1"])
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    offsets, mask = pa.array([0, 1, 2], pa.int32()), pa.array([True, False])
    array = pa.ListArray.from_arrays(offsets, entries, mask=mask)
    view = headers_view(array)
    assert [read_headers(view, row) for row in range(2)] == [[], [(b"a", b"1")]]


# --- timestamps -----------------------------------------------------------------------------------

TIMESTAMP = pa.timestamp("us", "UTC")


def micros(*values):
    return pa.array(values, pa.int64()).cast(TIMESTAMP)


def milliseconds(array):
    converted = timestamps_ms(array, NOW_MS)
    return None if converted is None else converted.tolist()


LATE = datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc)
LATE_MS = (LATE - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        pytest.param(micros(0, 999, 1_000, 1_999_999), [0, 0, 1, 1_999], id="are cut"),
        pytest.param(pa.array([LATE], TIMESTAMP), [LATE_MS], id="late"),
        pytest.param(micros(5_000, None, 7_000), [5, NOW_MS, 7], id="null stands for now"),
        pytest.param(micros(None, None), None, id="nulls alone"),
        pytest.param(
            micros(-1, None, 5_000, None, -1).slice(1, 3), [NOW_MS, 5, NOW_MS], id="slice"
        ),
    ],
)
def test_timestamps(array, expected):
    """Arrow's memory is not written to."""
    before = array.buffers()[1].to_pybytes()
    assert milliseconds(array) == expected
    assert array.buffers()[1].to_pybytes() == before


@pytest.mark.parametrize(
    ("value", "shown"), [(-1, -1), (-1_000, -1), (-1_001, -2), (-(10**15), -(10**12))]
)
def test_before_1970(value, shown):
    """The first of them is named; rounding towards 1970 must not hide any."""
    with pytest.raises(RecordError, match=f"Invalid timestamp: {shown} ms since 1970-01-01"):
        timestamps_ms(micros(3, value, -(10**14)), NOW_MS)


def test_garbage_under_a_null_is_nobodys():
    validity, data = pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1_000, -5], np.int64))
    array = pa.Array.from_buffers(TIMESTAMP, 2, [validity, data])
    assert milliseconds(array) == [1, NOW_MS]


# --- whole batches --------------------------------------------------------------------------------


def test_absent_columns():
    batch = pa.record_batch({"value": pa.array(["a", "b"])})
    records = arrow_records(batch, ColumnPositions(value=0, topic_option="t"), NOW_MS)
    assert (records.rows_count, records.topics, records.topic_indices) == (2, ["t"], None)
    assert (records.columns.key, records.columns.headers) == (ABSENT_BYTES, ABSENT_HEADERS)
    assert records.partition == ABSENT_INTEGERS
    assert records.timestamps is None
    assert records.owner is batch
    assert [read_bytes(records.columns.value, row) for row in range(2)] == [b"a", b"b"]
    assert read_bytes(records.columns.key, 0) is None
    assert read_headers(records.columns.headers, 0) == []
    assert read_integer(records.partition, 0) is None


def test_all_columns():
    batch = pa.record_batch(
        {
            "partition": pa.array([None, 7], pa.int32()),
            "timestamp": micros(None, 1_000),
            "headers": pa.array([None, [{"key": "h", "value": None}]], pa.list_(HEADER)),
            "value": pa.array([b"a", None]),
            "key": pa.array(["k", None]),
        }
    )
    plan = ColumnPositions(value=3, key=4, headers=2, partition=0, timestamp=1, topic_option="t")
    records = arrow_records(batch, plan, NOW_MS)
    assert [read_bytes(records.columns.key, row) for row in range(2)] == [b"k", None]
    assert [read_bytes(records.columns.value, row) for row in range(2)] == [b"a", None]
    assert read_headers(records.columns.headers, 1) == [(b"h", None)]
    assert [read_integer(records.partition, row) for row in range(2)] == [None, 7]
    assert records.partition_at(1) == 7
    assert records.timestamps is not None
    assert records.timestamps.tolist() == [NOW_MS, 1]


def topics_of(names, option=None):
    batch = pa.record_batch({"topic": names, "value": pa.array(["v"] * len(names))})
    plan = ColumnPositions(value=1, topic=0, topic_option=option)
    records = arrow_records(batch, plan, NOW_MS)
    if records.topic_indices is None:
        assert len(records.topics) == 1
        return records.topics * len(names)
    assert records.topic_indices.dtype == np.int32
    return [records.topics[index] for index in records.topic_indices]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string()])
def test_topics(arrow_type):
    names = ["b", "a", "b", "Flughäfen", "a"]
    array = pa.array(names, arrow_type)
    assert topics_of(array) == names
    assert topics_of(array.slice(2, 2)) == names[2:4]
    assert topics_of(array.slice(2, 1)) == ["b"]


def test_the_topic_option_overrides_even_nulls():
    assert topics_of(pa.array(["a", None, "b"]), option="t") == ["t"] * 3


def test_a_null_topic():
    names = pa.array(["a", None, "b"])
    with pytest.raises(RecordError) as raised:
        topics_of(names)
    for words in (
        "null topic present in the data. Use the topic option for setting a default topic.",
        "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a null "
        "topic. Use the `topic` option for setting a default topic.",
    ):
        assert words in str(raised.value)
    assert topics_of(names.slice(2)) == ["b"]


# --- types are checked before addresses are taken -------------------------------------------------

VALUES = pa.array([b"a", None, b"c"])


def batch_of(**columns):
    columns = {"value": VALUES, **columns}
    positions = {name: position for position, name in enumerate(columns)}
    topic = None if "topic" in columns else "t"
    return pa.RecordBatch.from_pydict(columns), ColumnPositions(**positions, topic_option=topic)


def empty_lists(kind):
    return pa.array([[], [], []], kind)


B, N = [b"a", b"b", b"c"], [1, 2, 3]
DICTIONARY = pa.array(["a", "b", "c"]).dictionary_encode()
VIEWS = [getattr(pa, name) for name in ("binary_view", "string_view") if hasattr(pa, name)]
LIST_VIEWS = [pa.list_view(HEADER)] if hasattr(pa, "list_view") else []  # both since pyarrow 16
WRONG = {
    "value": [
        DICTIONARY,
        *(pa.array(B, view()) for view in VIEWS),
        pa.array(B, pa.binary(1)),
        pa.RunEndEncodedArray.from_arrays([3], pa.array([b"a"])),
        pa.array(N),
        pa.nulls(3),
    ],
    "key": [DICTIONARY, pa.nulls(3)],
    "topic": [pa.array(B), DICTIONARY],
    "partition": [pa.array(N, kind) for kind in (pa.int64(), pa.int16(), pa.uint32())],
    "timestamp": [pa.array(N, kind) for kind in (pa.timestamp("ms"), pa.int64())],
    "headers": [
        *map(empty_lists, LIST_VIEWS),
        empty_lists(pa.map_(pa.string(), pa.binary())),
        empty_lists(pa.list_(pa.binary())),
        empty_lists(pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))),
        empty_lists(pa.list_(pa.struct([*HEADER, pa.field("more", pa.string())]))),
    ],
}


@pytest.mark.parametrize(
    ("column", "array"),
    [
        pytest.param(name, a, id=f"{name}-{a.type}")
        for name, arrays in WRONG.items()
        for a in arrays
    ],
)
def test_a_type_that_cannot_be_read_is_an_error(column, array):
    arrow_batch, positions = batch_of(**{column: array})
    with pytest.raises(SchemaError) as raised:
        arrow_records(arrow_batch, positions, NOW_MS)
    beginning = f"column '{column}' has the Arrow type {array.type}: it must be "
    assert str(raised.value).startswith(beginning)


@pytest.mark.parametrize("wrong", ["table", "rows", None])
def test_what_is_no_record_batch_is_an_error(wrong):
    arrow_batch, positions = batch_of()
    rows = pa.table(arrow_batch.to_pydict()) if wrong == "table" else wrong
    with pytest.raises(SchemaError, match="rows must come as a pyarrow.RecordBatch, not "):
        arrow_records(rows, positions, NOW_MS)


def test_a_column_that_is_not_there_is_an_error():
    arrow_batch, _ = batch_of()
    with pytest.raises(SchemaError, match="column 'key' is missing in an Arrow batch"):
        arrow_records(arrow_batch, ColumnPositions(0, key=1, topic_option="t"), NOW_MS)
