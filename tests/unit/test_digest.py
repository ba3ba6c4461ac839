"""The digest of a task's rows: what it tells apart, and what it must not."""

from __future__ import annotations

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


Digest = tuple[int, int, int]


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
    made = RowsDigest(positions)
    for batch in batches:
        made.add(batch)
    return made.records, made.data_bytes, made.contents


def batch_of(data):
    return pa.RecordBatch.from_pylist(data, SCHEMA)


def test_the_cut_into_arrow_batches_does_not_matter():
    whole = batch_of(rows(300))
    parts = [whole.slice(0, 1), whole.slice(1, 150), whole.slice(151, 149)]
    apart = [batch_of(part.to_pylist()) for part in parts]
    assert digest(whole) == digest(*parts) == digest(*apart)


@pytest.mark.parametrize("column", ["key", "value", "headers", "topic", "partition", "timestamp"])
def test_every_column_that_is_written_counts(column):
    other = {
        "key": b"other",
        "value": "other",
        "headers": [{"key": "k", "value": b"other"}],
        "topic": "other",
        "partition": 9,
        "timestamp": 5,
    }
    data = rows(50)
    changed = [dict(row) for row in data]
    changed[17][column] = other[column]
    assert digest(batch_of(data)) != digest(batch_of(changed))


def test_columns_that_are_not_written_do_not_count():
    data = rows(50)
    changed = [{**row, "ignored": 0.0} for row in data]
    assert digest(batch_of(data)) == digest(batch_of(changed))


def test_nulls_and_boundaries_count_and_order_does_not():
    plan = ColumnPositions(value=0, topic_option="t")

    def of(*values):
        return digest(pa.record_batch([pa.array(values, pa.string())], ["v"]), positions=plan)

    assert of("a", "b", None) == of(None, "b", "a")
    different = {of("a", "b"), of("ab", ""), of("ab", None), of("ab"), of("a", "b", ""), of("", "")}
    assert len(different) == 6


def test_bytes_do_not_move_between_columns_unseen():
    data = {"key": None, "value": None, "headers": None, "topic": "t", "partition": None}
    empty = {**data, "timestamp": None, "ignored": 0.0}
    headers = [{"key": "a", "value": None}], [{"key": "", "value": b"a"}]
    several = [
        {**empty, "key": b"a"},
        {**empty, "value": "a"},
        {**empty, "topic": "ta"},
        {**empty, "key": b"a", "value": ""},
        {**empty, "key": b"", "value": "a"},
        *({**empty, "headers": some} for some in headers),
        {**empty, "headers": [{"key": "a", "value": b""}]},
        {**empty, "partition": 1},
        {**empty, "timestamp": 1000},
    ]
    assert len({digest(batch_of([row])) for row in several}) == len(several)
    # In Kafka there is no difference between a record without headers and one with none.
    assert digest(batch_of([{**empty, "headers": []}])) == digest(batch_of([empty]))


def test_a_column_that_is_absent_is_one_of_nulls():
    value = pa.array(["a", "b"])
    nulls = pa.nulls(2, pa.binary())
    batch = pa.record_batch([value, nulls], ["value", "key"])
    plain = ColumnPositions(value=0, topic_option="t")
    assert digest(batch, positions=plain) == digest(batch, positions=plain._replace(key=1))


def test_the_topic_column_counts_unless_the_option_overrides_it():
    batch = pa.record_batch([pa.array(["a"]), pa.array(["t"])], ["value", "topic"])
    plan = ColumnPositions(value=0, topic=1)
    assert digest(batch, positions=plan)[1] == 2
    assert digest(batch, positions=plan._replace(topic_option="o"))[1] == 1


def test_timestamps_count_in_milliseconds_as_they_are_written():
    [row] = rows(1)
    of = [digest(batch_of([{**row, "timestamp": us}])) for us in (5000, 5999, 6000, None)]
    assert of[0] == of[1]
    assert len(set(of)) == 3


VALUES = st.one_of(st.none(), st.binary(max_size=70))
ROWS = st.fixed_dictionaries(
    {
        "key": VALUES,
        "value": st.one_of(st.none(), st.text(max_size=40)),
        "headers": st.one_of(
            st.none(),
            st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": VALUES})),
        ),
        "topic": st.sampled_from(["t", "t2"]),
        "partition": st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        "timestamp": st.one_of(st.none(), st.integers(0, 2**40).map(lambda ms: ms * 1000)),
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
    is_same = _as_written(changed[index]) == _as_written(data[index])
    assert (digest(batch_of(changed)) == digest(batch_of(data))) is is_same
    assert digest(batch_of([*data, data[index]]))[2] != digest(batch_of(data))[2]


def _as_written(row):
    """Without headers, or with none of them, is the same."""
    return {**row, "headers": row["headers"] or []}


def test_large_types_give_the_same_digest():
    data = batch_of(rows(40))
    large = data.set_column(1, "value", data.column(1).cast(pa.large_string()))
    assert digest(data) == digest(large)


def binary(values, data):
    """An array whose values lie in ``data`` one after the other, nulls included."""
    lengths = [len(data) // len(values)] * len(values)
    offsets = [sum(lengths[:index]) for index in range(len(values) + 1)]
    valid = sum((value is not None) << index for index, value in enumerate(values))
    buffers = [
        pa.py_buffer(valid.to_bytes(1, "little")),
        pa.array(offsets, pa.int32()).buffers()[1],
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


@pytest.mark.parametrize("behind", [b"one", b"two", b"xyz"])
def test_bytes_behind_nulls_do_not_count(behind):
    """Arrow lets a null have any bytes: what an operator left there says nothing about rows."""
    values = [b"abc", None, b"def"]
    plan = ColumnPositions(value=0, topic_option="t")
    left = pa.record_batch([binary(values, b"abc" + behind + b"def")], ["value"])
    plain = pa.record_batch([pa.array(values, pa.binary())], ["value"])
    assert digest(left, positions=plan) == digest(plain, positions=plan)


def test_no_rows_are_no_rows():
    assert digest(batch_of([])) == digest() == (0, 0, 0)
