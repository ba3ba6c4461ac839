"""The digest of a task's rows: what it tells apart, and what it must not."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import RowsDigest
from spark_kafka_sink.transactions.model import RowSummary

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("headers", HEADERS),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us")),
        ("ignored", pa.float64()),
    ]
)


PLAN = ColumnPositions(
    key=0, value=1, headers=2, topic=3, partition=4, timestamp=5, topic_option=None
)


VALUE_ALONE = ColumnPositions(value=0, topic_option="t")


def rows(count, seed=0):
    rng = random.Random(seed)

    def maybe(value):
        return None if rng.random() < 0.2 else value

    return [
        {
            "key": maybe(rng.randbytes(rng.randint(0, 5))),
            "value": maybe("v" * rng.randint(0, 9) + str(n)),
            "headers": maybe([{"key": "k", "value": maybe(b"x")}] * rng.randint(0, 2)),
            "topic": "t",
            "partition": maybe(rng.randint(0, 3)),
            "timestamp": maybe(1_700_000_000_000_000 + n),
            "ignored": rng.random(),
        }
        for n in range(count)
    ]


def digest(*batches, positions=PLAN):
    """Of record batches, or of lists of rows."""
    made = RowsDigest(positions)
    for batch in batches:
        made.add(batch_of(batch) if isinstance(batch, list) else batch)
    return made.records, made.data_bytes, made.contents


def batch_of(data):
    return pa.RecordBatch.from_pylist(data, SCHEMA)


def test_the_cut_into_arrow_batches_does_not_matter():
    whole = batch_of(rows(300))
    parts = [whole.slice(0, 1), whole.slice(1, 150), whole.slice(151, 149)]
    assert digest(whole) == digest(*parts) == digest(*(part.to_pylist() for part in parts))
    assert digest([]) == digest() == (0, 0, 0)
    # Large types give the same.
    large = whole.set_column(1, "value", whole.column(1).cast(pa.large_string()))
    assert digest(whole) == digest(large)


@pytest.mark.parametrize(
    ("column", "other", "counts"),
    [
        ("key", b"other", True),
        ("value", "other", True),
        ("headers", [{"key": "k", "value": b"other"}], True),
        ("topic", "other", True),
        ("partition", 9, True),
        ("timestamp", 5, True),
        ("ignored", 0.0, False),
    ],
)
def test_every_column_that_is_written_counts(column, other, counts):
    data = rows(50)
    changed = [dict(row) for row in data]
    changed[17][column] = other
    assert (digest(data) != digest(changed)) == counts


def test_nulls_and_boundaries_count_and_order_does_not():
    def of(*values):
        batch = pa.record_batch([pa.array(values, pa.string())], ["v"])
        return digest(batch, positions=VALUE_ALONE)

    assert of("a", "b", None) == of(None, "b", "a")
    different = {of("a", "b"), of("ab", ""), of("ab", None), of("ab"), of("a", "b", ""), of("", "")}
    assert len(different) == 6


def test_bytes_do_not_move_between_columns_unseen():
    empty = {**dict.fromkeys(SCHEMA.names), "topic": "t", "ignored": 0.0}
    several = (
        {"key": b"a"},
        {"value": "a"},
        {"topic": "ta"},
        {"key": b"a", "value": ""},
        {"key": b"", "value": "a"},
        {"headers": [{"key": "a", "value": None}]},
        {"headers": [{"key": "", "value": b"a"}]},
        {"headers": [{"key": "a", "value": b""}]},
        {"partition": 1},
        {"timestamp": 1000},
    )
    assert len({digest([{**empty, **row}]) for row in several}) == len(several)
    # In Kafka there is no difference between a record without headers and one with none.
    assert digest([{**empty, "headers": []}]) == digest([empty])


def test_columns_that_are_absent_or_overridden():
    batch = pa.record_batch([pa.array(["a", "b"]), pa.nulls(2, pa.binary())], ["value", "key"])
    nulls = VALUE_ALONE._replace(key=1)
    assert digest(batch, positions=VALUE_ALONE) == digest(batch, positions=nulls)
    batch = pa.record_batch([pa.array(["a"]), pa.array(["t"])], ["value", "topic"])
    plan = ColumnPositions(value=0, topic=1)
    assert digest(batch, positions=plan)[1] == 2
    assert digest(batch, positions=plan._replace(topic_option="o"))[1] == 1


def test_timestamps_count_in_milliseconds_as_they_are_written():
    [row] = rows(1)
    of = [digest([{**row, "timestamp": us}]) for us in (5000, 5999, 6000, None)]
    assert of[0] == of[1]
    assert len(set(of)) == 3


VALUES = st.one_of(st.none(), st.binary(max_size=70))
HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": VALUES})
ROWS = st.fixed_dictionaries(
    {
        "key": VALUES,
        "value": st.none() | st.text(max_size=40),
        "headers": st.none() | st.lists(HEADER),
        "topic": st.sampled_from(["t", "t2"]),
        "partition": st.none() | st.integers(0, 2**31 - 1),
        "timestamp": st.none() | st.integers(0, 2**40).map(lambda ms: ms * 1000),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.data())
def test_any_order_and_any_division_give_the_same_digest(data, choices):
    whole = digest(batch_of(data))
    shuffled = batch_of(choices.draw(st.permutations(data)))
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    edges = list(zip([0, *cuts], [*cuts, len(data)]))
    tasks = [digest(shuffled.slice(first, last - first)) for first, last in edges]
    total = RowSummary.total(RowSummary.of_contents(*task) for task in tasks)
    assert total == RowSummary.of_contents(*whole)
    assert RowSummary.of_task(total.records, total.text) == total


@given(st.lists(ROWS, min_size=1, max_size=20), ROWS, st.data())
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
