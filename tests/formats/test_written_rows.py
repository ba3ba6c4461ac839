"""Columns as they come from Spark → the rows that are appended: what no format decides."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from spark_kafka_sink.formats.encoder import RowsEncoder
from spark_kafka_sink.formats.plan import JSON, FormatPlan, PartPlan, PlannedField, RowsPlan

GONE = pa.array([True, False, None])
STRUCT = pa.array([{"x": 1}, None, {"x": 3}], pa.struct([("x", pa.int32())]))
OF_STRUCT = PartPlan(0, FormatPlan(JSON, (PlannedField(("s", "x"), "x"),)))


def written(plan: RowsPlan, **columns: pa.Array) -> dict[str, list[object]]:
    found = RowsEncoder(plan).encode(pa.record_batch(columns))
    return found.checked("test").to_pydict()


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7"])
def test_a_raw_value_is_null_where_a_column_says_so(prefix):
    plan = RowsPlan(PartPlan(0, prefix=prefix), PartPlan(0), null_when=1)
    found = written(plan, v=pa.array([b"a", b"b", None]), gone=GONE)
    assert found == {"value": [None, prefix + b"b", None], "key": [b"a", b"b", None]}


def test_a_text_value_is_null_where_a_column_says_so():
    found = written(
        RowsPlan(PartPlan(0, is_text=True), null_when=1), n=pa.array([1, 2, 3]), gone=GONE
    )
    assert found == {"value": [None, "2", "3"]}


def test_a_struct_that_is_null_is_a_null_and_has_no_fault():
    found = written(RowsPlan(OF_STRUCT), s=STRUCT)
    assert found == {"value": [b'{"x":1}', None, b'{"x":3}']}


def test_batches_of_another_schema_are_made_by_another_encoder():
    encoder = RowsEncoder(RowsPlan(PartPlan(plan=FormatPlan(JSON, (PlannedField(("a",), "a"),)))))
    for array, text in ((pa.array([1]), b'{"a":1}'), (pa.array(["1"]), b'{"a":"1"}')):
        found = encoder.encode(pa.record_batch({"a": array})).checked("test")
        assert found.to_pydict() == {"value": [text]}


@pytest.mark.parametrize(
    ("zone", "text"), [("Asia/Tokyo", "1970-01-01 09:00:00"), (None, "1970-01-01 00:00:00")]
)
def test_texts_of_timestamps_have_the_zone_of_the_column(zone, text):
    at = pa.array([datetime.datetime(1970, 1, 1)], pa.timestamp("us", zone or "UTC"))
    assert written(RowsPlan(PartPlan(0, is_text=True)), at=at) == {"value": [text]}
