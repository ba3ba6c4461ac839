"""The split kernel writes the same records, and no more bytes than it may."""

from __future__ import annotations

import numpy as np
import pytest

from spark_kafka_sink.producer import producer_batch
from spark_kafka_sink.producer.producer_batch import BatchSplitter, ProducerBatch
from spark_kafka_sink.record.compiled.calls import take_records
from spark_kafka_sink.record.compression import create_compressor
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD
from tests import twin
from tests.unit.batches import T0

FAR_MS = 1 << 45
GUARD = 0xA5
GUARD_BYTES = 256


def records_at(*timestamps: int) -> bytes:
    """Return the smallest possible records, without key and value."""
    return b"".join(
        twin.encode_record(timestamp, offset, None, None)
        for offset, timestamp in enumerate(timestamps)
    )


def taken(records: bytes, count: int, limit_bytes: int) -> tuple[int, int, int]:
    """Return (records taken, bytes written, bytes that were touched)."""
    data = np.frombuffer(records, np.uint8)
    out = np.full(len(records) + limit_bytes + GUARD_BYTES, GUARD, np.uint8)
    count, _, written, _, _ = take_records(data.ctypes.data, count, 0, limit_bytes, out.ctypes.data)
    return count, written, int(np.flatnonzero(out != GUARD)[-1]) + 1


@pytest.mark.parametrize("limit_bytes", [0, 1, 20, 33, 34, 50, 1000])
def test_it_writes_no_more_than_the_limit_or_one_record(limit_bytes: int) -> None:
    # The first timestamp is far from the others, so the deltas of the others grow.
    records = records_at(FAR_MS, *[0] * 9)
    count, written, touched = taken(records, 10, limit_bytes)
    first_size = len(records_at(FAR_MS))
    assert written == touched <= max(limit_bytes, first_size)
    assert count == 10 or written <= limit_bytes or count == 1


def test_records_may_grow_beyond_the_bytes_that_were_read() -> None:
    records = records_at(FAR_MS, *[0] * 9)
    count, written, _ = taken(records, 10, 10_000)
    assert count == 10
    assert written > len(records)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_of_few_tiny_records_stay_within_their_buffer(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A batch header is longer than these records: half the batch exceeds all its records."""
    guarded: list[np.ndarray] = []

    def guarded_empty(size: int, dtype: type) -> np.ndarray:
        guarded.append(np.full(size + GUARD_BYTES, GUARD, dtype))
        return guarded[-1][:size]

    monkeypatch.setattr(producer_batch.np, "empty", guarded_empty)
    records = records_at(FAR_MS, *[0] * (count - 1))
    size_bytes = RECORD_BATCH_OVERHEAD + len(records)
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + records)
    batch = ProducerBatch(T0, [whole], [], size_bytes, size_bytes, count, 0, 0, FAR_MS, 0, 0)
    parts = BatchSplitter(None).split(batch, size_bytes // 2)
    monkeypatch.undo()
    assert all((memory[-GUARD_BYTES:] == GUARD).all() for memory in guarded)
    timestamps = []
    for part in parts:
        part.seal()
        timestamps += [r.timestamp for r in twin.decode_batch(b"".join(part.buffers)).records]
    assert timestamps == [FAR_MS, *[0] * (count - 1)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_tiny_records_that_a_codec_has_made_larger_are_split_to_fit(count: int) -> None:
    records = records_at(*[0] * count)
    compressor = create_compressor("gzip", None)
    assert compressor is not None
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + bytes(compressor.compress(records)))
    sizes = len(whole), RECORD_BATCH_OVERHEAD + len(records)
    batch = ProducerBatch(T0, [whole], [], *sizes, count, compressor.codec_id, 0, 0, 0, 0)
    parts = BatchSplitter(compressor).split_to_fit(batch, len(whole) - 1)
    assert len(parts) > 1
    assert sum(part.records_count for part in parts) == count


def batch_of(count: int, *, may_be_appended: bool) -> ProducerBatch:
    records = records_at(*[0] * count)
    whole = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + records)
    batch = ProducerBatch(T0, [whole], [], len(whole), len(whole), count, 0, 0, 0, 0, 0)
    batch.may_be_appended = may_be_appended
    return batch


def test_a_record_that_does_not_fit_stays_a_batch_of_its_own() -> None:
    batch = batch_of(1, may_be_appended=False)
    assert BatchSplitter(None).split_to_fit(batch, batch.size_bytes - 1) == [batch]


@pytest.mark.parametrize("may_be_appended", [True, False])
def test_only_the_first_part_of_a_batch_that_may_be_appended_is_a_probe(
    may_be_appended: bool,
) -> None:
    parts = BatchSplitter(None).split(batch_of(4, may_be_appended=may_be_appended), 1)
    assert [part.is_probe for part in parts] == [may_be_appended, False, False, False]
    assert {part.may_be_appended for part in parts} == {may_be_appended}
