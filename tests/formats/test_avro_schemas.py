"""Given schemas of Avro: which branch of a union, which field, and schemas that are wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.formats.avro_written import encoder, record, written
from tests.twin import zigzag_varint


def records_of(count: int) -> list[object]:
    """So many records, each with a field of another name."""
    return [record(**{f"x{n}": "int"}) | {"name": f"R{n}"} for n in range(count)]


@pytest.mark.parametrize("count", [63, 64, 65, 129, 8191, 8192])
def test_numbers_of_branches_are_varints(count):
    """Values and nulls, the last branch being that of both."""
    kind = pa.struct([(f"x{count - 1}", pa.int32())])
    array = pa.array([{f"x{count - 1}": 7}, None, {f"x{count - 1}": -1}], kind)
    value = zigzag_varint(count)
    expected = [value + b"\x0e", b"\x00", value + b"\x01"]
    assert written(array, ["null", *records_of(count)]) == expected
    value = zigzag_varint(count - 1)
    expected = [value + b"\x0e", zigzag_varint(count), value + b"\x01"]
    assert written(array, [*records_of(count), "null"]) == expected


@pytest.mark.parametrize("count", [63, 64, 130])
def test_the_null_of_a_field_without_a_column_is_a_varint(count):
    batch = pa.record_batch({"b": ["x"]})
    schema = record(a=[*records_of(count), "null"], b="string")
    [found] = encoder(batch.schema, schema).encode(batch).values.to_pylist()
    assert found == zigzag_varint(count) + b"\x02x"
