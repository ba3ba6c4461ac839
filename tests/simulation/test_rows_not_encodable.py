"""Rows of which no value can be made, whatever else is in them: each is a dead letter, told as JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import RecordError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.formats.plan import (
    FieldSpec,
    FormatSpec,
    PartSpec,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    RowSpec,
)
from tests.simulation.test_typed_rows import DEAD, Task

NEEDS_N = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'
N_OF_AVRO = RowSpec(
    PartSpec(plan=FormatSpec("avro", (FieldSpec(("n",), "n"),), avro_schema=NEEDS_N))
)
TO_T = ColumnPositions(value=0, topic_option="t")
FAR = 2**63 - 1
LITTLE = {"kafka_max_request_size": "3000", "kafka_compression_type": "none"}
PAIR = pa.struct([("x", pa.int8()), ("x", pa.int8())])
PAIRS = pa.StructArray.from_arrays([pa.array([1, 2], pa.int8())] * 2, fields=[*PAIR])
PART_OF_ONE = pa.struct([pa.field("value", pa.binary(), False, {b"variant": b"true"})])
VARIANT = pa.struct([*PART_OF_ONE, pa.field("metadata", pa.binary(), False)])


def not_utf8(*values: bytes) -> Any:
    return pa.array(values, pa.binary()).view(pa.string())


CASES = [
    (not_utf8(b"\xff", b""), '"\ufffd"'),
    (pa.array([2**31 - 1, 0], pa.date32()), '"+5881580-07-11"'),
    (pa.array([FAR, 0], pa.timestamp("us")), '"+294247-01-10T04:00:54.775"'),
    (pa.array([0, 0], pa.timestamp("us", "GMT+1")), '"1970-01-01T01:00:00.000+01:00"'),
    (pa.array([0, 0], pa.timestamp("us", "GMT-01:30")), '"1969-12-31T22:30:00.000-01:30"'),
    (pa.array([0, 0], pa.timestamp("us", "No/Zone")), '"1970-01-01T00:00:00.000Z"'),
    (pa.array([float("nan"), 0]), '"NaN"'),
    (pa.array([b"\x00\x01", b""]), '"AAE="'),
    (PAIRS, '{"x":1,"x":1}'),
    (pa.array([[(b"k", 1)], None], pa.map_(pa.binary(), pa.int8())), '[{"key":"aw==","value":1}]'),
    (pa.array([[[(b"k", 1)]], None], pa.list_(pa.map_(pa.binary(), pa.int8()))),
     '[[{"key":"aw==","value":1}]]'),
    (pa.array([{"value": b"\0"}, None], PART_OF_ONE), '{"value":"AA=="}'),
    (pa.array([{"value": b"\x0c\7", "metadata": b"\1\0\0"}, None], VARIANT), "7"),
    (pa.array([{"value": b"\x0c", "metadata": b"\1\0\0"}, None], VARIANT),
     '{"value":"DA==","metadata":"AQAA"}'),
    (pa.array([[{"value": b"\x0c", "metadata": b""}, None], None], pa.list_(VARIANT)),
     '[{"value":"DA==","metadata":""},null]'),
    (pa.array([[("k", {"value": b"", "metadata": b""})], None], pa.map_(pa.string(), VARIANT)),
     '[{"key":"k","value":{"value":"","metadata":""}}]'),
    (pa.array([7, 0], pa.uint8()), '"7"'),
    (pa.array(["a", "b"]).dictionary_encode(), '"a"'),
    (pa.array([[1], [2]], pa.list_(pa.int8(), 1)), '"(fixed_size_list<item: int8>[1]: not shown)"'),
]  # fmt: skip


@pytest.mark.parametrize(("column", "told"), CASES)
def test_whatever_is_in_the_row(column: Any, told: str) -> None:
    batch = pa.record_batch([pa.array([None, 5], pa.int64()), column], ["n", "other"])
    given = Task(N_OF_AVRO, TO_T, **DEAD)
    given.write(batch)
    (letter,) = given.records("dead")
    assert letter.value.decode() == f'{{"n":null,"other":{told}}}'
    json.loads(letter.value)
    assert [r.value for r in given.records("t")] == [b"\x0a"]


@pytest.mark.parametrize("column", [column for column, _ in CASES])
def test_without_dead_letters_the_task_fails_by_the_field_that_is_at_fault(column: Any) -> None:
    batch = pa.record_batch([pa.array([None, 5], pa.int64()), column], ["n", "other"])
    with pytest.raises(RecordError, match="row 0 of an Arrow batch: .* field 'n' is null"):
        Task(N_OF_AVRO, TO_T).write(batch)


def test_columns_of_one_name_are_all_told() -> None:
    numbers = pa.array([None, 5], pa.int64())
    batch = pa.record_batch([numbers, pa.array([1, 2]), pa.array(["a", "b"])], ["n", "x", "x"])
    given = Task(N_OF_AVRO, TO_T, **DEAD)
    given.write(batch)
    assert [r.value for r in given.records("dead")] == [b'{"n":null,"x":1,"x":"a"}']


def test_text_of_a_protobuf_field_that_is_not_utf8() -> None:
    message = ProtobufMessage("M", (ProtobufField("s", 1, "string"),))
    schema = ProtobufSchema("M", (message,))
    plan = FormatSpec("protobuf", (FieldSpec(("s",), "s"),), protobuf_schema=schema)
    batch = pa.record_batch([not_utf8(b"ok", b"a\xff\xfeb")], ["s"])
    given = Task(RowSpec(PartSpec(plan=plan)), TO_T, **DEAD)
    given.write(batch)
    assert [r.value.decode() for r in given.records("dead")] == ['{"s":"a\ufffd\ufffdb"}']
    assert len(given.records("t")) == 1
    with pytest.raises(RecordError, match="row 1 of .* field 's' is a string that is not UTF-8"):
        Task(RowSpec(PartSpec(plan=plan)), TO_T).write(batch)


def test_a_row_that_is_cut_may_have_a_time_of_any_year() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([None, 5], pa.int64()),
            "blob": [b"z" * 9000, b""],
            "at": pa.array([FAR, 0], pa.timestamp("us", "UTC")),
        }
    )
    positions = TO_T._replace(timestamp=1)
    given = Task(N_OF_AVRO._replace(kept=(("timestamp", 2),)), positions, **DEAD, **LITTLE)
    given.write(batch)
    (letter,) = given.records("dead")
    assert letter.timestamp == FAR // 1000
    assert len(letter.value) < 3000
    assert letter.value.startswith(b'{"n":null,"blob":"enp6')


DAMAGED = pa.array(
    [
        {"value": b"\x0c\7", "metadata": b"\1\0\0"},
        {"value": b"\x0c", "metadata": b"\1\0\0"},
        None,
    ],
    VARIANT,
)
V_AS_JSON = RowSpec(PartSpec(plan=FormatSpec("json", (FieldSpec(("v",), "v"),))))


def test_a_damaged_variant_is_told_by_its_parts() -> None:
    given = Task(V_AS_JSON, TO_T, **DEAD)
    given.write(pa.record_batch([DAMAGED], ["v"]))
    assert [r.value for r in given.records("t")] == [b'{"v":7}', b"{}"]
    (letter,) = given.records("dead")
    assert letter.value == b'{"v":{"value":"DA==","metadata":"AQAA"}}'
    assert (
        b"its value cannot be written: the bytes of the VARIANT 'v' are damaged"
        in dict(letter.headers).values()
    )


def test_without_dead_letters_a_damaged_variant_fails_the_task() -> None:
    told = "row 1 of an Arrow batch: its value cannot be written: the bytes of the VARIANT 'v' are"
    with pytest.raises(RecordError, match=told):
        Task(V_AS_JSON, TO_T).write(pa.record_batch([DAMAGED], ["v"]))


def test_a_time_in_a_variant_without_a_known_time_zone() -> None:
    value = b"\x30" + bytes(8)
    times = pa.array([{"value": value, "metadata": b"\1\0\0"}], VARIANT)
    part = PartSpec(plan=V_AS_JSON.value.plan, takes_session_zone=True)
    for zone, letters in (
        (None, [b'{"v":{"value":"MAAAAAAAAAAA","metadata":"AQAA"}}']),
        ("UTC", []),
    ):
        given = Task(RowSpec(part, session_zone=zone), TO_T, **DEAD)
        given.write(pa.record_batch([times], ["v"]))
        assert [r.value for r in given.records("dead")] == letters
        texts = [r.value for r in given.records("t")]
        assert texts == ([] if letters else [b'{"v":"1970-01-01 00:00:00+00:00"}'])
