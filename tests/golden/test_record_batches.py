"""Record batches without a codec: the bytes of our producer are those of Kafka's Java client."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.producer.producer_batch import BatchSplitter, ProducerBatch
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD
from tests.golden import case_files as cases
from tests.golden.producing import Golden

CASES = cases.load("batches")
# All of memory in pages of 4 KiB instead of 32.
SMALL_MEMORY = 65536


def golden(case: dict[str, Any], **options: object) -> Golden:
    """A producer that puts any of the cases into one batch."""
    producer = case["producer"]
    given = {"batch_size": 1 << 25, "max_request_size": 1 << 25, **options}
    if producer is None:
        return Golden(**given)
    identity = ProducerIdAndEpoch(producer["id"], producer["epoch"])
    return Golden(producer=identity, first_sequence=producer["first_sequence"], **given)


def assert_java_wrote(ours: bytes, batch: dict[str, Any]) -> None:
    cases.assert_same_bytes(ours[RECORD_BATCH_OVERHEAD:], batch["records"])
    assert ours[:RECORD_BATCH_OVERHEAD].hex() == batch["header"]


@pytest.mark.parametrize("is_large", [False, True], ids=["32-bit offsets", "64-bit offsets"])
@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_batch_is_javas(case, is_large):
    ours = golden(case)
    for batch in case["batches"]:
        written = ours.write_batch(cases.rows(batch["rows"]), is_large)
        assert_java_wrote(written, batch)


def fits_small_memory(case):
    return all(
        isinstance(batch["records"], str) or batch["records"]["size"] < SMALL_MEMORY // 2
        for batch in case["batches"]
    )


@pytest.mark.parametrize("case", [c for c in CASES if fits_small_memory(c)], ids=cases.name_of)
def test_batch_over_many_small_pages_is_javas(case):
    ours = golden(case, buffer_memory=SMALL_MEMORY)
    assert ours.producer.pool.page_size == 4096
    for batch in case["batches"]:
        assert_java_wrote(ours.write_batch(cases.rows(batch["rows"])), batch)


def test_batch_of_rows_that_came_one_by_one_is_javas():
    (case,) = (case for case in CASES if case["name"] == "1000 records")
    (batch,) = case["batches"]
    ours = golden(case)
    *rows, last = cases.rows(batch["rows"])
    for row in rows:
        ours.producer.append(cases.arrow_batch([row]), cases.PLAN)
    assert_java_wrote(ours.write_batch([last]), batch)


def test_batch_of_a_slice_is_javas():
    (case,) = (case for case in CASES if case["name"] == "headers on some rows")
    (batch,) = case["batches"]
    rows = cases.rows(batch["rows"])
    other = cases.Row(1, b"other", b"row", [("h", b"x")])
    arrow_batch = cases.arrow_batch([other, other, other, *rows, other])
    ours = golden(case)
    ours.producer.append(arrow_batch.slice(3, len(rows) - 1), cases.PLAN)
    assert_java_wrote(ours.write_batch(rows[-1:]), batch)


def test_parts_of_a_split_batch_are_javas():
    """Java's batches of one record each, whose sequences wrap, out of one batch of them all."""
    name = "sequence wraps between single records"
    (case,) = (case for case in CASES if case["name"] == name)
    rows = [row for batch in case["batches"] for row in cases.rows(batch["rows"])]
    whole = bytearray(golden(case).write_batch(rows))
    numbers = case["producer"]
    batch = ProducerBatch(
        TopicPartition("t", 0),
        [memoryview(whole)],
        [],
        len(whole),
        len(whole),
        len(rows),
        0,
        rows[0].timestamp,
        max(row.timestamp for row in rows),
        0,
        0,
    )
    producer = ProducerIdAndEpoch(numbers["id"], numbers["epoch"])
    batch.set_producer_state(producer, numbers["first_sequence"])
    parts = BatchSplitter(None).split(batch, 1)
    assert len(parts) == len(case["batches"])
    for part, javas in zip(parts, case["batches"]):
        part.seal()
        assert_java_wrote(b"".join(part.buffers), javas)
