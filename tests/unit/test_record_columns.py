"""Arrow batches → views, read back by their addresses in plain Python; digests of rows; dead letters.

A view keeps nothing alive: its array must stay in a variable until the view has been read.
"""

import ctypes
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink import RefusedRowsError
from spark_kafka_sink.base.errors import RecordError, SchemaError, sentence
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.record import dead_letters
from spark_kafka_sink.record.columns import (
    RowsDigest,
    arrow_records,
    bytes_view,
    headers_view,
    integers_view,
    timestamps_ms,
    with_valid_keys,
)
from spark_kafka_sink.record.compiled.calls import ABSENT_BYTES, ABSENT_HEADERS, ABSENT_INTEGERS
from spark_kafka_sink.record.dead_letters import INVALID_TOPIC, content_faults, is_legal
from spark_kafka_sink.transactions.model import RowSummary

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True, database=None)
NOW_MS = 1_700_000_000_000
VALUE_ALONE = ColumnPositions(value=0, topic_option="t")
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


def raw_headers(list_type, rows):
    """Headers whose keys are any bytes."""
    keys = [key for row in rows for key, _ in row or []]
    entries = pa.StructArray.from_arrays(
        [
            pa.array(keys, pa.binary()).view(pa.string()),
            pa.array([value for row in rows for _, value in row or []], pa.binary()),
        ],
        fields=[*HEADER],
    )
    offsets = np.cumsum([0, *(len(row or []) for row in rows)])
    is_large = pa.types.is_large_list(list_type)
    kind, width = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    mask = pa.array([row is None for row in rows])
    return kind.from_arrays(pa.array(offsets, width), entries, mask=mask)


@pytest.mark.parametrize("list_type", [pa.list_(HEADER), pa.large_list(HEADER)], ids=str)
def test_keys_that_are_no_utf8_are_repaired_and_the_rest_stays(list_type):
    rows = [
        [(b"\xff", b"out of the slice")],
        [(b"a", b"1"), (b"\xffA", None)],
        None,
        [],
        [("größe".encode(), b"2"), (b"\xed\xa0\x80", b""), (b"", b"3")],
    ]
    array = raw_headers(list_type, rows).slice(1)
    batch = pa.record_batch({"value": pa.array([b"v"] * 4), "headers": array})
    plan = ColumnPositions(value=0, headers=1, topic_option="t")
    records = arrow_records(batch, plan, NOW_MS)
    replacement = "\ufffd".encode()
    expected = [
        [(b"a", b"1"), (replacement + b"A", None)],
        [],
        [],
        [("größe".encode(), b"2"), (replacement, b""), (b"", b"3")],
    ]
    assert [read_headers(records.columns.headers, row) for row in range(4)] == expected


def test_valid_keys_are_not_copied():
    rows = [[("größe".encode(), b"1")], [(b"a", b"2")]]
    array = raw_headers(pa.list_(HEADER), rows)
    assert with_valid_keys(array) is array
    # A character that is cut between two keys is no character.
    cut = with_valid_keys(raw_headers(pa.list_(HEADER), [[(b"\xc3", b"1")], [(b"\xb6", b"2")]]))
    assert cut.flatten().field(0).to_pylist() == ["\ufffd", "\ufffd"]


def test_headers_whose_entries_are_a_slice():
    """The entries' array has an offset of its own, as after a concatenation or in a nested view."""
    keys, values = pa.array(["x", "a", "b", "c"]), pa.array([b"0", b"1", None, b"3"])
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"]).slice(1)
    array = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), entries)
    view = headers_view(array)
    assert read_headers(view, 0) == [(b"a", b"1"), (b"b", None)]
    assert read_headers(view, 1) == [(b"c", b"3")]


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


def test_columns_that_are_absent_and_all_columns():
    batch = pa.record_batch({"value": pa.array(["a", "b"])})
    records = arrow_records(batch, VALUE_ALONE, NOW_MS)
    assert (records.rows_count, records.topics, records.topic_indices) == (2, ["t"], None)
    assert (records.columns.key, records.columns.headers) == (ABSENT_BYTES, ABSENT_HEADERS)
    assert (records.partition, records.timestamps) == (ABSENT_INTEGERS, None)
    assert records.owner is batch
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
    for overridden in (pa.array(["a", None, "b"], arrow_type), pa.array([1, 2, 3])):
        assert topics_of(overridden, option="t") == ["t"] * 3


def test_a_null_topic():
    names = pa.array(["a", None, "b"])
    with pytest.raises(RecordError) as raised:
        topics_of(names)
    assert "Use the topic option for setting a default topic." in str(raised.value)
    assert "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent" in str(raised.value)
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


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pa.table({"value": VALUES}), "rows must come as a pyarrow.RecordBatch, not "),
        (None, "rows must come as a pyarrow.RecordBatch, not "),
        (batch_of()[0], "column 'key' is missing in an Arrow batch"),
    ],
    ids=range(3),
)
def test_what_is_no_record_batch_or_lacks_a_column_is_an_error(rows, words):
    with pytest.raises(SchemaError, match=words):
        arrow_records(rows, ColumnPositions(0, key=1, topic_option="t"), NOW_MS)


# --- the digest of a task's rows: what it tells apart, and what it must not ----------------------


SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("headers", pa.list_(HEADER)),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us")),
        ("ignored", pa.float64()),
    ]
)


PLAN = ColumnPositions(
    key=0, value=1, headers=2, topic=3, partition=4, timestamp=5, topic_option=None
)


def digest(*batches, positions=PLAN):
    """Of record batches, or of lists of rows."""
    made = RowsDigest(positions)
    for batch in batches:
        made.add(rows_batch(batch) if isinstance(batch, list) else batch)
    return made.records, made.data_bytes, made.contents


def rows_batch(data):
    return pa.RecordBatch.from_pylist(data, SCHEMA)


def test_columns_that_are_absent_or_overridden():
    batch = pa.record_batch([pa.array(["a", "b"]), pa.nulls(2, pa.binary())], ["value", "key"])
    nulls = VALUE_ALONE._replace(key=1)
    assert digest(batch, positions=VALUE_ALONE) == digest(batch, positions=nulls)
    batch = pa.record_batch([pa.array(["a"]), pa.array(["t"])], ["value", "topic"])
    plan = ColumnPositions(value=0, topic=1)
    assert digest(batch, positions=plan)[1] == 2
    assert digest(batch, positions=plan._replace(topic_option="o"))[1] == 1
    assert digest([]) == digest() == (0, 0, 0)


ANY_BYTES = st.one_of(st.none(), st.binary(max_size=70))
ANY_HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": ANY_BYTES})
ROWS = st.fixed_dictionaries(
    {
        "key": ANY_BYTES,
        "value": st.none() | st.text(max_size=40),
        "headers": st.none() | st.lists(ANY_HEADER),
        "topic": st.sampled_from(["t", "t2"]),
        "partition": st.none() | st.integers(0, 2**31 - 1),
        "timestamp": st.none() | st.integers(0, 2**40).map(lambda ms: ms * 1000),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.data())
def test_any_order_and_any_division_give_the_same_digest(data, choices):
    whole = digest(rows_batch(data))
    shuffled = rows_batch(choices.draw(st.permutations(data)))
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    edges = list(zip([0, *cuts], [*cuts, len(data)]))
    tasks = [digest(shuffled.slice(first, last - first)) for first, last in edges]
    total = RowSummary.total(RowSummary(*task) for task in tasks)
    assert total == RowSummary(*whole)
    assert RowSummary.of_task(total.text) == total


@given(st.lists(ROWS, min_size=1, max_size=4), ROWS, st.data())
def test_another_row_gives_another_digest(data, other, choices):
    index = choices.draw(st.integers(0, len(data) - 1))
    column = choices.draw(st.sampled_from(sorted(other)))
    changed = [dict(row) for row in data]
    changed[index][column] = other[column]
    # Without headers, or with none of them, is the same.
    before, after = ({**d[index], "headers": d[index]["headers"] or []} for d in (data, changed))
    assert (digest(changed) == digest(data)) is (before == after)
    assert digest([*data, data[index]])[2] != digest(data)[2]


@pytest.mark.parametrize("behind", [b"one", b"two", b"xyz"])
def test_bytes_behind_nulls_do_not_count(behind):
    """Arrow lets a null have any bytes: what an operator left there says nothing about rows."""
    buffers = [
        pa.py_buffer(bytes([0b101])),
        pa.array([0, 3, 6, 9], pa.int32()).buffers()[1],
        pa.py_buffer(b"abc" + behind + b"def"),
    ]
    left = pa.Array.from_buffers(pa.binary(), 3, buffers)
    plain = pa.array([b"abc", None, b"def"], pa.binary())
    found = [
        digest(pa.record_batch([array], ["value"]), positions=VALUE_ALONE)
        for array in (left, plain)
    ]
    assert found[0] == found[1]


# --- dead letters with texts that are no UTF-8 ---------------------------------------------------

POSITIONS = ColumnPositions(value=0, key=1, headers=2, topic_option="t")
ODD = b"caf\xe9\xff"
VALID = "caf\ufffd\ufffd".encode()


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
    faults = [dead_letters.Fault(dead_letters.NOT_ENCODABLE, why)] * batch.num_rows
    made = dead_letters.DeadLetterColumns(most_bytes, dead_letters.Origin(0, None, None)).of(
        batch, POSITIONS, faults
    )
    made.validate()
    return made


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()])
def test_header_keys_that_are_not_utf_8_are_repaired_where_the_value_is_cut_off(key_type):
    own = [(ODD, b"1"), (b"h", b"2")]
    made = letters_of(rows(key_type, (bytes(5000), b"k", own), (b"v", b"k", own), (b"w", b"k", [])))
    by_value = {
        len(value): n for n, value in enumerate(made.column(0).to_pylist()) if value != b"w"
    }
    assert sorted(by_value)[0] == 1
    cut = headers_of(made, by_value[max(by_value)])
    assert max(by_value) < 2000
    assert (cut[VALID], cut[b"h"]) == (b"1", b"2")
    assert cut[dead_letters.VALUE_SIZE.encode()] == b"5000"
    assert cut[dead_letters.MESSAGE.encode()] == b"why"
    assert headers_of(made, by_value[1])[VALID] == b"1"


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()])
def test_header_keys_that_are_not_utf_8_are_left_out_with_their_headers(key_type):
    made = letters_of(rows(key_type, (b"v", b"k" * 3000, [(ODD * 500, b"1"), (b"h", b"2")])))
    found = headers_of(made, 0)
    assert all(key.startswith(dead_letters.PREFIX.encode()) for key in found)
    assert found[dead_letters.HEADERS_DROPPED.encode()] == b"2"
    assert found[dead_letters.KEY_SIZE.encode()] == b"3000"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("bad \udcff", rb"bad \udcff"),  # what is no Unicode, as of bytes that were not UTF-8
        (
            "€" * dead_letters.MAX_REASON_BYTES,
            "€".encode() * (dead_letters.MAX_REASON_BYTES // 3) + b" [cut off]",
        ),
        ("x" * dead_letters.MAX_REASON_BYTES, b"x" * dead_letters.MAX_REASON_BYTES),
    ],
)
def test_reasons_of_interceptors_may_be_any_text(why, told):
    """An own reason may have what it complains of in it."""
    made = letters_of(rows(pa.string(), (b"v", b"k", [])), why, 100_000)
    assert headers_of(made, 0)[dead_letters.MESSAGE.encode()] == told


def test_an_error_with_such_a_reason_can_be_sent_to_the_driver():
    error = RefusedRowsError({3: "bad \udcff"})
    assert str(error) == r"1 row(s) refused: row 3: bad \udcff [PKS-ROW-008]"
    assert error.rows == {3: r"bad \udcff"}


# --- names of topics that are no UTF-8 -----------------------------------------------------------

WITH_TOPIC = ColumnPositions(value=1, topic=0)


def rows_of_topics(kind):
    names = pa.array([b"good", b"\xff\xfe", b"good", b"caf\xc3"], pa.large_binary())
    text = names.cast(pa.binary()).view(pa.string()) if kind == pa.string() else names.view(kind)
    return pa.record_batch({"topic": text, "value": pa.array([b"v"] * 4)})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_they_are_no_topics_and_their_rows_are_refused(kind):
    records = arrow_records(rows_of_topics(kind), WITH_TOPIC, NOW_MS)
    assert records.topics == ["good", "\ufffd\ufffd", "caf\ufffd"]
    assert [is_legal(topic) for topic in records.topics] == [True, False, False]
    faults = content_faults(rows_of_topics(kind), WITH_TOPIC).faults
    assert faults.good.tolist() == [0, 2]
    assert [faults.found[row].cause for row in (1, 3)] == [INVALID_TOPIC] * 2


@pytest.mark.parametrize(
    ("topic", "expected"),
    [(".", False), ("..", False), ("...", True), ("a" * 249, True), ("a" * 250, False)],
)
def test_which_names_are_legal(topic, expected):
    assert is_legal(topic) is expected
