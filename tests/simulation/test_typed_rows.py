"""Rows whose values are made of columns, on a simulated cluster: interceptors, dead letters, digests."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_kafka_sink import RefusedRowsError
from spark_kafka_sink.base.errors import RecordError, SchemaError
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.formats.plan import (
    FieldSpec,
    FormatSpec,
    PartSpec,
    RowSpec,
)
from spark_kafka_sink.record.columns import RowsDigest
from spark_kafka_sink.record.dead_letters import CAUSE
from spark_kafka_sink.spark import task
from spark_kafka_sink.spark.task import Interceptors
from tests.simulation import test_dead_letters as dead_letters
from tests.snippets import load_documented
from tests.tables import each_row

FIELDS = (FieldSpec(("n",), "n"), FieldSpec(("name",), "name"))
MADE = RowSpec(
    PartSpec(plan=FormatSpec("json", FIELDS, null_when="gone")),
    PartSpec(0, is_text=True),
    (("partition", 3),),
)
POSITIONS = ColumnPositions(value=0, key=1, partition=2, topic_option="t")
HERE = __name__


def columns(count):
    return pa.record_batch(
        {
            "n": pa.array(range(count), pa.int64()),
            "name": pa.array([f"x{n}" if n % 3 else None for n in range(count)]),
            "gone": pa.array([n % 5 == 4 for n in range(count)]),
            "part": pa.array([n % 2 for n in range(count)], pa.int32()),
        }
    )


def made(n):
    name = {"name": f"x{n}"} if n % 3 else {}
    return None if n % 5 == 4 else json.dumps({"n": n, **name}, separators=(",", ":")).encode()


class Doubles:
    """Sees the columns before anything is made of them; refuses 13."""

    def on_send(self, arrow_batch):
        numbers = arrow_batch.column(0)
        refused = {row: "unlucky" for row, n in enumerate(numbers.to_pylist()) if n == 13}
        if refused:
            raise RefusedRowsError(refused)
        return arrow_batch.set_column(0, "n", pc.multiply(numbers, 2))


class LeavesOutTen:
    """The first rows, whatever they are."""

    def on_send(self, arrow_batch):
        return arrow_batch.slice(10)


class RefusesTwice:
    """7, and when that is gone, 13."""

    def on_send(self, arrow_batch):
        numbers = arrow_batch.column(0).to_pylist()
        for n in (7, 13):
            if n in numbers:
                raise RefusedRowsError({numbers.index(n): f"unlucky {n}"})
        return arrow_batch


class Task(dead_letters.Task):
    def __init__(self, plan=MADE, positions=POSITIONS, **more):
        options = {"errors_tolerance": "none", **more}
        super().__init__(positions, TopicLimits(), plan, **options)


DEAD = {"errors_tolerance": "all", **dead_letters.ALL}


def test_values_and_keys_are_made_of_columns():
    given = Task()
    written = given.write(columns(1000), columns(7).slice(3))
    found = sorted((int(r.key), r.value) for r in given.records("t"))
    numbers = sorted([*range(1000), 3, 4, 5, 6])
    assert found == [(n, made(n)) for n in numbers]
    for partition, records in given.simulation.cluster.records("t").items():
        assert {int(r.key) % 2 for r in records} == {partition}
    digest = RowsDigest(POSITIONS)
    for batch in written:
        digest.add(batch)
    assert digest.records == 1004
    assert digest.data_bytes == sum(len(r.key) + len(r.value or b"") for r in given.records("t"))


@pytest.mark.parametrize("made_of", [MADE, None], ids=["json", "raw"])
def test_the_documented_interceptor(monkeypatch, made_of):
    """With value.format=json it gets the columns, of which none needs to be called value."""
    load_documented("masking", "docs/your-own-code.md", monkeypatch)
    hooks = Interceptors(["masking:DropEmails"])
    names = pa.array([f"to ann{n}@example.org now" for n in range(3)], pa.string())
    if made_of is None:
        changed = hooks.on_send(pa.record_batch({"key": pa.array(["a"] * 3), "value": names}))
        assert changed.column("value").to_pylist() == ["to *** now"] * 3
        return
    given = Task(interceptors="masking:DropEmails")
    given.write(columns(3).set_column(1, "name", names))
    found = {r.value for r in given.records("t")}
    assert found == {f'{{"n":{n},"name":"to *** now"}}'.encode() for n in range(3)}


def test_rows_that_an_interceptor_refuses_are_dead_letters_with_the_value_that_they_had():
    given = Task(interceptors=f"{HERE}:Doubles", **DEAD)
    written = given.write(columns(20))
    (letter,) = given.records("dead")
    assert (letter.key, letter.value) == (b"13", made(13))
    found = {int(r.key): r.value for r in given.records("t")}
    assert {*found} == {2 * n for n in range(20) if n != 13}
    assert found[2] == b'{"n":2,"name":"x1"}'
    assert sum(batch.num_rows for batch in written) == 20


def faulty(count):
    names = [None if n % 10 == 3 else "x" for n in range(count)]
    return columns(count).set_column(1, "name", pa.array(names, pa.string()))


AVRO = (
    '{"type":"record","name":"R","fields":[{"name":"n","type":"long"},'
    '{"name":"name","type":"string"}]}'
)
STRICT = MADE._replace(value=PartSpec(plan=FormatSpec("avro", FIELDS, avro_schema=AVRO)))


def test_a_row_of_which_no_value_can_be_made_fails_the_task_or_is_a_dead_letter_as_json():
    with pytest.raises(RecordError, match="row 3 of an Arrow batch: its value cannot be written"):
        Task(STRICT).write(faulty(20))
    given = Task(STRICT, **DEAD)
    written = given.write(faulty(20))
    letters = {int(r.key): r for r in given.records("dead")}
    assert {*letters} == {3, 13}
    told = json.loads(letters[13].value)
    assert told == {"n": 13, "name": None, "gone": False, "part": 1}
    assert dict(letters[3].headers)[CAUSE] == b"not-encodable"
    assert {int(r.key) for r in given.records("t")} == {*range(20)} - {3, 13}
    assert given.message.dead_letters == {"not-encodable": 2}
    assert sum(batch.num_rows for batch in written) == 20


def test_a_prefix_goes_before_bytes_and_headers_beside_those_that_are_there():
    batch = pa.record_batch(
        {
            "value": pa.array([b"a", None, b""], pa.binary()),
            "headers": pa.array(
                [[{"key": "own", "value": b"1"}], None, []],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    value = PartSpec(0, prefix=b"\0\0\0\0\5", header=("id", b"\1"))
    plan = RowSpec(value, None, (("headers", 1),))
    given = Task(plan, ColumnPositions(value=0, headers=1, topic_option="t"))
    given.write(batch)
    found = sorted((r.value or b"-", [*r.headers]) for r in given.records("t"))
    assert found == [
        (b"\0\0\0\0\5", [("id", b"\1")]),
        (b"\0\0\0\0\5a", [("own", b"1"), ("id", b"\1")]),
        (b"-", []),  # a tombstone follows no schema
    ]


def test_a_column_whose_text_nobody_can_write_is_refused():
    batch = columns(3).set_column(0, "n", pa.array([0.5, 1, 2]))
    with pytest.raises(SchemaError, match="column 'n' of the Arrow type double has no text"):
        Task(RowSpec(PartSpec(0, is_text=True))).write(batch)


def test_rows_are_told_by_their_numbers_in_the_arrow_batch(caplog):
    names = [None if n in (0, 1, 4) else "x" for n in range(10)]
    parts = pa.array([99 if n in (5, 7) else 0 for n in range(10)], pa.int32())
    batch = columns(10).set_column(1, "name", pa.array(names, pa.string()))
    given = Task(STRICT, errors_log_enable="true", **DEAD)
    given.write(batch.set_column(3, "part", parts))
    told = {dict(r.headers)[CAUSE]: int(r.key) for r in reversed(given.records("dead"))}
    assert told == {b"not-encodable": 0, b"bad-partition": 5}
    found = re.findall(r"([a-z-]+) \(row (\d+) of an Arrow batch", caplog.text)
    assert found == [("not-encodable", "0"), ("bad-partition", "5")]


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_a_header_that_is_null_stays_null_beside_an_id(is_tolerant):
    """Also where there are data below it."""
    entries = pa.StructArray.from_arrays(
        [pa.array(["own", "hidden"]), pa.array([b"1", b"secret"])],
        fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
        mask=pa.array([False, True]),
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": headers})
    told = []
    for added in (None, ("id", b"\1")):
        plan = RowSpec(PartSpec(0, header=added), None, (("headers", 1),))
        positions = ColumnPositions(value=0, headers=1, topic_option="t")
        given = Task(plan, positions, **(DEAD if is_tolerant else {}))
        if is_tolerant:
            given.write(batch)
            assert [(r.value, r.headers[0]) for r in given.records("t")] == [(b"a", ("own", b"1"))]
            (letter,) = given.records("dead")
            told.append((letter.value, dict(letter.headers)[CAUSE]))
            assert "hidden" not in dict(letter.headers)
        else:
            with pytest.raises(RecordError) as refused:
                given.write(batch)
            told.append(str(refused.value))
    assert told[0] == told[1]


AS_RETURNED = "of an Arrow batch as the interceptors have returned it"


def test_rows_that_interceptors_have_left_are_told_by_their_numbers_there(caplog):
    """Which row that was before, only the interceptor knows: 13 is the third one that is left."""
    given = {"interceptors": f"{HERE}:LeavesOutTen"}
    with pytest.raises(RecordError, match=f"^row 3 {AS_RETURNED}: its value cannot be written"):
        Task(STRICT, **given).write(faulty(20))
    task_of_letters = Task(STRICT, errors_log_enable="true", **given, **DEAD)
    task_of_letters.write(faulty(20))
    assert f"1 not-encodable (row 3 {AS_RETURNED}: its value" in caplog.text
    assert [int(r.key) for r in task_of_letters.records("dead")] == [13]


def test_rows_that_an_interceptor_refuses_are_told_by_their_numbers_as_it_got_them(caplog):
    """Also those of the second time, when it gets fewer."""
    given = Task(interceptors=f"{HERE}:RefusesTwice", errors_log_enable="true", **DEAD)
    given.write(columns(20))
    found = re.findall(r"\((row \d+ .*?): unlucky (\d+)\)", caplog.text)
    got = "of an Arrow batch as the interceptor got it"
    assert found == [(f"row 7 {got}", "7"), (f"row 13 {got}", "13")]
    assert sorted(int(r.key) for r in given.records("dead")) == [7, 13]
    assert {int(r.key) for r in given.records("t")} == {*range(20)} - {7, 13}
    assert len(given.records("t")) == 18


# --- rows of which no value can be made ---------------------------------------------------------

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


def not_utf8(*values):
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


@each_row(("column", "told"), CASES)
def test_whatever_is_in_the_row(column, told):
    batch = pa.record_batch([pa.array([None, 5], pa.int64()), column], ["n", "other"])
    given = Task(N_OF_AVRO, TO_T, **DEAD)
    given.write(batch)
    (letter,) = given.records("dead")
    assert letter.value.decode() == f'{{"n":null,"other":{told}}}'
    json.loads(letter.value)
    assert [r.value for r in given.records("t")] == [b"\x0a"]
    with pytest.raises(RecordError, match="row 0 of an Arrow batch: .* field 'n' is null"):
        Task(N_OF_AVRO, TO_T).write(batch)


def test_a_row_that_is_cut_may_have_a_time_of_any_year():
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
    [{"value": b"\x0c\7", "metadata": b"\1\0\0"}, {"value": b"\x0c", "metadata": b"\1\0\0"}, None],
    VARIANT,
)
V_AS_JSON = RowSpec(PartSpec(plan=FormatSpec("json", (FieldSpec(("v",), "v"),))))


def test_a_damaged_variant_is_told_by_its_parts():
    given = Task(V_AS_JSON, TO_T, **DEAD)
    given.write(pa.record_batch([DAMAGED], ["v"]))
    assert [r.value for r in given.records("t")] == [b'{"v":7}', b"{}"]
    (letter,) = given.records("dead")
    assert letter.value == b'{"v":{"value":"DA==","metadata":"AQAA"}}'
    told = "its value cannot be written: the bytes of the VARIANT 'v' are damaged"
    assert told.encode() in dict(letter.headers).values()
    with pytest.raises(RecordError, match=f"row 1 of an Arrow batch: {told}"):
        Task(V_AS_JSON, TO_T).write(pa.record_batch([DAMAGED], ["v"]))


def test_a_time_in_a_variant_without_a_known_time_zone():
    value = b"\x30" + bytes(8)
    times = pa.array([{"value": value, "metadata": b"\1\0\0"}], VARIANT)
    part = PartSpec(plan=V_AS_JSON.value.plan, takes_session_zone=True)
    unknown = [b'{"v":{"value":"MAAAAAAAAAAA","metadata":"AQAA"}}']
    for zone, letters in ((None, unknown), ("UTC", [])):
        given = Task(RowSpec(part, session_zone=zone), TO_T, **DEAD)
        given.write(pa.record_batch([times], ["v"]))
        assert [r.value for r in given.records("dead")] == letters
        texts = [r.value for r in given.records("t")]
        assert texts == ([] if letters else [b'{"v":"1970-01-01 00:00:00+00:00"}'])


# --- the memory that rows are encoded to is used again ------------------------------------------


@pytest.mark.parametrize("has_header", [False, True])
@pytest.mark.parametrize("is_transaction", [False, True])
def test_of_rows_in_order(has_header, is_transaction):
    plan = MADE._replace(value=MADE.value._replace(header=("id", b"\1"))) if has_header else MADE
    positions = POSITIONS._replace(headers=3) if has_header else POSITIONS
    check(Task(plan, positions), columns(1000), is_transaction)


def test_of_rows_with_dead_letters():
    check(Task(STRICT, **DEAD), faulty(1000), False)


def check(given, batch, is_transaction):
    rooms = []

    def batches():
        for _ in range(5):
            parts = given.rows._encoder._parts.values()
            rooms.append([p._encoder._room.ctypes.data for p in parts if p._encoder is not None])
            yield batch

    task._write_all(batches(), given.rows, RowsDigest(POSITIONS) if is_transaction else None)
    assert rooms[0] == []
    assert rooms[1] == rooms[2] == rooms[3] == rooms[4] != []
