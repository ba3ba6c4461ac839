"""The digest of a task's rows: what it tells apart, and what it must not."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.columns.digest import RowsDigest
from spark_kafka_sink.columns.positions import ColumnPositions

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


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
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


def digest(*batches: pa.RecordBatch) -> str:
    made = RowsDigest(PLAN)
    for batch in batches:
        made.add(batch)
    return str(made)


def batch_of(data: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(data, SCHEMA)


def test_the_cut_into_arrow_batches_does_not_matter() -> None:
    whole = batch_of(rows(300))
    parts = [whole.slice(0, 1), whole.slice(1, 150), whole.slice(151, 149)]
    apart = [batch_of(part.to_pylist()) for part in parts]
    assert digest(whole) == digest(*parts) == digest(*apart)


@pytest.mark.parametrize("column", ["key", "value", "headers", "topic", "partition", "timestamp"])
def test_every_column_that_is_written_counts(column: str) -> None:
    other: dict[str, Any] = {
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


def test_columns_that_are_not_written_do_not_count() -> None:
    data = rows(50)
    changed = [{**row, "ignored": 0.0} for row in data]
    assert digest(batch_of(data)) == digest(batch_of(changed))


def test_order_nulls_and_boundaries_count() -> None:
    plan = ColumnPositions(None, 0, None, None, None, None, "t")

    def of(*values: str | None) -> str:
        made = RowsDigest(plan)
        made.add(pa.record_batch([pa.array(values, pa.string())], ["value"]))
        return str(made)

    different = {of("a", "b"), of("b", "a"), of("ab", ""), of("", "ab"), of("ab", None), of("ab")}
    assert len(different) == 6


def test_large_types_give_the_same_digest() -> None:
    data = batch_of(rows(40))
    large = data.set_column(1, "value", data.column(1).cast(pa.large_string()))
    assert digest(data) == digest(large)


def binary(values: list[bytes | None], data: bytes) -> pa.Array:
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
def test_bytes_behind_nulls_do_not_count(behind: bytes) -> None:
    """Arrow lets a null have any bytes: what an operator left there says nothing about rows."""
    values = [b"abc", None, b"def"]
    made = RowsDigest(ColumnPositions(value=0, topic_option="t"))
    made.add(pa.record_batch([binary(values, b"abc" + behind + b"def")], ["value"]))
    plain = RowsDigest(ColumnPositions(value=0, topic_option="t"))
    plain.add(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    assert str(made) == str(plain)
