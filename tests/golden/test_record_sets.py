"""Logs as Java's classes write them, and what our reader makes of them; batches of our writer."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.record.record_batch import (
    RECORD_BATCH_OVERHEAD,
    EndTransactionMarker,
    read_batches,
)
from spark_kafka_sink.record.record_writer import NewRecord, encode_batch
from tests.golden import case_files as cases

CASES = cases.load("record_sets")
CODEC_CASES = cases.load("codecs")
TRANSACTIONAL = cases.load("transactional")
END_OF_TRANSACTION = ("COMMIT", "ABORT")


def told(batch):
    """A batch of ours in the words of the cases."""
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.header.base_sequence,
        "leader_epoch": batch.header.partition_leader_epoch,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "records": [told_record(record) for record in batch.records],
    }


def told_record(record):
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": hex_of(record.key),
        "value": hex_of(record.value),
        "headers": [[key, hex_of(value)] for key, value in record.headers],
    }


def hex_of(data):
    return None if data is None else data.hex()


def marker_of(batch):
    """The marker that Java found in a batch, if it ends a transaction."""
    if batch.get("type") not in END_OF_TRANSACTION:
        return None
    return EndTransactionMarker(batch["type"] == "COMMIT", batch["coordinator_epoch"])


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_what_java_reads_of_a_log(case):
    ours = list(read_batches(bytes.fromhex(case["records"])))
    about_markers = {"type", "coordinator_epoch"}
    javas = [
        {name: value for name, value in batch.items() if name not in about_markers}
        for batch in case["batches"]
    ]
    assert [told(batch) for batch in ours] == javas
    assert [batch.marker for batch in ours] == [marker_of(batch) for batch in case["batches"]]


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_a_batch_that_is_cut_short_is_left_out(case):
    """Wherever a fetch's limit cuts: all before is read."""
    data = bytes.fromhex(case["records"])
    whole = list(read_batches(data))
    ends = [0]
    for batch in whole:
        ends.append(ends[-1] + batch.header.size_bytes)
    for cut in range(len(data)):
        complete = sum(end <= cut for end in ends) - 1
        assert list(read_batches(data[:cut])) == whole[:complete]


@pytest.mark.parametrize("case", CODEC_CASES, ids=cases.name_of)
def test_what_java_compressed_is_read(case):
    (batch,) = case["batches"]
    data = bytes.fromhex(batch["header"]) + bytes.fromhex(batch["records"])
    (ours,) = read_batches(memoryview(data))
    rows = cases.rows(batch["rows"])
    read = [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in ours.records]
    assert read == [(row.timestamp, row.key, row.value, row.headers) for row in rows]
    assert [record.offset for record in ours.records] == list(range(len(rows)))


@pytest.mark.parametrize("case", TRANSACTIONAL, ids=cases.name_of)
def test_a_batch_written_without_kernels_is_javas(case):
    numbers = case["producer"]
    assert numbers["transactional"] is True
    producer = ProducerIdAndEpoch(numbers["id"], numbers["epoch"])
    sequence = numbers["first_sequence"]
    for batch in case["batches"]:
        rows = cases.rows(batch["rows"])
        records = [NewRecord(row.key, row.value, row.headers) for row in rows]
        ours = encode_batch(records, rows[0].timestamp, producer, sequence)
        cases.assert_same_bytes(ours[RECORD_BATCH_OVERHEAD:], batch["records"])
        assert ours[:RECORD_BATCH_OVERHEAD].hex() == batch["header"]
        sequence += len(rows)


def test_the_cases_have_all_that_a_log_may_have():
    batches = [batch for case in CASES for batch in case["batches"]]
    assert {batch.get("type") for batch in batches} == {None, "COMMIT", "ABORT", "LEADER_CHANGE"}
    gaps = [b for b in batches if len(b["records"]) <= b["last_offset"] - b["base_offset"]]
    assert any(b["records"] for b in gaps)
    assert any(not b["records"] for b in gaps)
