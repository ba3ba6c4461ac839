"""Names of topics that are in the rows, and are no UTF-8."""

import pyarrow as pa
import pytest

from spark_kafka_sink.columns.dead_letters import INVALID_TOPIC, content_faults, is_legal
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import arrow_records, shown_texts

POSITIONS = ColumnPositions(value=1, topic=0)
NOW_MS = 1_700_000_000_000


def rows(kind):
    names = pa.array([b"good", b"\xff\xfe", b"good", b"caf\xc3"], pa.large_binary())
    text = names.cast(pa.binary()).view(pa.string()) if kind == pa.string() else names.view(kind)
    return pa.record_batch({"topic": text, "value": pa.array([b"v"] * 4)})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_they_are_told_and_are_no_topics(kind):
    records = arrow_records(rows(kind), POSITIONS, NOW_MS)
    assert records.topics == ["good", "\ufffd\ufffd", "caf\ufffd"]
    assert [is_legal(topic) for topic in records.topics] == [True, False, False]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_their_rows_are_refused_and_no_others(kind):
    faults = content_faults(rows(kind), POSITIONS).faults
    assert faults.good.tolist() == [0, 2]
    assert [faults.found[row].cause for row in (1, 3)] == [INVALID_TOPIC] * 2


@pytest.mark.parametrize(
    ("topic", "expected"),
    [(".", False), ("..", False), ("...", True), ("a" * 249, True), ("a" * 250, False)],
)
def test_which_names_are_legal(topic, expected):
    assert is_legal(topic) is expected


def test_slices():
    assert shown_texts(pa.array(["a", "b", "c"]).slice(1, 1)) == ["b"]
