"""Given schemas of Avro whose records are in each other many times: what is made of them, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pyarrow as pa
import pytest

from spark_kafka_sink.formats.plan import FormatError
from tests.formats.avro_written import encoder, record, written

LEVELS = 40


@contextmanager
def few_calls(most: int = 20_000) -> Iterator[None]:
    """Of the package's functions of formats; one more than ``most`` ends what is inside."""
    left = most

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event == "call" and "/spark_kafka_sink/formats/" in frame.f_code.co_filename:
            left -= 1
            assert left >= 0, f"more than {most} calls"

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def chosen(last: object, **default: object) -> list[object]:
    """A union of two records, each with a union of the two of the next level, the last ``last``.

    default: of these fields, where they have one
    """
    inner: list[object] = [last]
    for level in reversed(range(LEVELS)):
        names = [one.get("name", one) if isinstance(one, dict) else one for one in inner]
        kinds = [(k, *default.values()) if default else k for k in (inner, names)]
        inner = [record(x=kind) | {"name": f"{n}{level}"} for n, kind in zip("PQ", kinds)]
    return inner


def repeated(last: object, default: object) -> object:
    """A record with two of a record with two, and so on, each by default."""
    kind, value = last, default
    for level in range(LEVELS):
        name = kind["name"] if isinstance(kind, dict) else kind
        kind, value = record(a=(kind, value), b=(name, value)) | {"name": f"D{level}"}, {}
    return kind


def default_of(kind: object) -> bytes:
    """What is written of a field without a column, whose default is an empty object."""
    batch = pa.record_batch({"a": ["x"]})
    encode = encoder(batch.schema, record(f=(kind, {}), a="string")).encode
    [found] = encode(batch).values.to_pylist()
    return bytes(found.removesuffix(b"\x02x"))


def test_a_column_is_tried_once_with_each_record():
    kind, value = pa.int64(), 1
    for _ in range(LEVELS):
        kind, value = pa.struct([("x", kind)]), {"x": value}
    array = pa.array([value], kind)
    with few_calls():
        assert written(array, chosen("double")) == [b"\0" * (LEVELS + 1) + b"\0" * 6 + b"\xf0\x3f"]
    with few_calls(), pytest.raises(FormatError, match=r"'c' .* type of this field \(record P0, "):
        written(array, chosen("boolean"))


def test_a_default_is_tried_once_with_each_record():
    with few_calls():
        found = default_of(chosen({"type": "map", "values": "int"}, default={}))
        assert found == b"\0" * (LEVELS + 2)
    with few_calls(), pytest.raises(FormatError, match="default of field 'f' .* is no union of"):
        default_of(chosen("string", default={}))


def test_a_default_that_is_in_another_many_times_is_made_once():
    with few_calls():
        assert default_of(repeated("null", None)) == b""


def test_a_default_of_too_many_bytes_is_told():
    """A row has all of them."""
    with few_calls(), pytest.raises(FormatError, match=r"field 'f[.a]*' .* 1,048,576 bytes"):
        default_of(repeated("int", 1))
    many = {"type": "array", "items": "string"}
    batch = pa.record_batch({"a": ["x"]})
    schema = record(f=(many, ["x" * 1023] * 1024), a="string")
    with pytest.raises(FormatError, match="default of field 'f' of the Avro schema has more than"):
        encoder(batch.schema, schema)


@pytest.mark.parametrize("before", [[], ["null"], ["string"]])
@pytest.mark.parametrize("after", [[], ["null"], [record(z=("int", 1)) | {"name": "C"}]])
def test_records_that_are_in_each_other_by_default_have_no_end(before, after):
    after = [branch for branch in after if branch not in before]
    b = record(x=(["A", *before, *after], {}), y=(["A", "B"], {})) | {"name": "B"}
    a = record(x=([*before, b], {}), y=(["B", "A"], {})) | {"name": "A"}
    with (
        few_calls(),
        pytest.raises(
            FormatError, match="default of field 'f[.xy]+' .* has itself in it without an end"
        ),
    ):
        default_of(a)


def test_a_default_without_an_end_is_not_needed_where_there_is_a_column():
    schema = record(x=(["null", "R"], {}), a="string")
    batch = pa.record_batch({"a": ["x"], "x": pa.nulls(1)})
    assert encoder(batch.schema, schema).encode(batch).values.to_pylist() == [b"\0\x02x"]
