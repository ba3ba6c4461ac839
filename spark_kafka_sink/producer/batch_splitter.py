"""A batch that is too large, as several that are not; one without records that a broker refuses.

Two reasons for the first: the broker answered MESSAGE_TOO_LARGE, or the codec did worse than
estimated and the batch came out larger than ``max.request.size``. The parts live outside the buffer
pool, as in the Java client: they are rare, and must not wait for the memory that they are to free.

Source: ``RecordAccumulator.splitAndReenqueue``, ``ProducerBatch.split``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from spark_kafka_sink.base.model import NO_SEQUENCE
from spark_kafka_sink.producer.producer_batch import ProducerBatch, increment_sequence
from spark_kafka_sink.record.compiled.records import take_records
from spark_kafka_sink.record.compression import Compressor, decompress
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD, read_header
from spark_kafka_sink.record.record_reader import Record, read_record, record_bounds


class Divided(NamedTuple):
    """A batch without some of its records: parts of the rest, none if there is no rest.

    left_out: in their order; ``offset`` is the number in the batch
    """

    parts: list[ProducerBatch]
    left_out: list[Record]


class BatchSplitter:
    """Splits batches. Used by one thread at a time, like its compressor."""

    def __init__(self, compressor: Compressor | None) -> None:
        self._compressor = compressor

    def split_to_fit(self, batch: ProducerBatch, max_bytes: int) -> list[ProducerBatch]:
        """Parts of at most ``max_bytes`` each as they are sent, if their records allow."""
        if batch.size_bytes <= max_bytes or batch.records_count == 1:
            return [batch]
        share = min(0.9 * max_bytes / batch.size_bytes, 0.5)
        parts = self.split(batch, int(batch.records_bytes * share))
        return [fitting for part in parts for fitting in self.split_to_fit(part, max_bytes)]

    def split(self, batch: ProducerBatch, target_bytes: int) -> list[ProducerBatch]:
        """Parts of at most ``target_bytes`` of records before compression, one record at least.

        Their sequence numbers, if the batch has any, take the place of the batch's own. The parts
        count as not tried yet, but may be appended where the batch may be; their delivery time goes
        on. The batch keeps its memory.
        """
        return self._parts(batch, _records_of(batch), batch.records_count, target_bytes)

    def leave_out(self, batch: ProducerBatch, rows: Collection[int]) -> Divided:
        """``batch``, which was sent, without ``rows``: numbers of its records, ascending.

        Record by record in Python: for batches of which a broker has refused some.
        """
        data = _records_of(batch)
        bounds = record_bounds(data, batch.records_count)
        header = read_header(batch.buffers[0])
        left_out = [read_record(header, data, bounds[row]) for row in rows]
        starts = [0, *(bounds[row + 1] for row in rows)]
        ends = [*(bounds[row] for row in rows), len(data)]
        kept = b"".join(data[start:end] for start, end in zip(starts, ends))
        count = batch.records_count - len(rows)
        return Divided(self._parts(batch, kept, count, len(kept)), left_out)

    def _parts(
        self, batch: ProducerBatch, data: bytes, count: int, target_bytes: int
    ) -> list[ProducerBatch]:
        """``data``: ``count`` of the batch's records, as they are in it."""
        if not count:
            return []
        records = np.frombuffer(data, np.uint8)
        # What take_records may write: target_bytes, or one record, which does not grow.
        out = np.empty(max(target_bytes, len(records)), np.uint8)
        address, sequence = records.ctypes.data, batch.base_sequence
        parts: list[ProducerBatch] = []
        left = count
        while left:
            taken, read, written, base_timestamp, max_timestamp = take_records(
                address, left, batch.base_timestamp, target_bytes, out.ctypes.data
            )
            assert written <= len(out), f"{written} bytes for {len(out)}: take_records' bound"
            part = self._part(batch, out[:written].data, taken, base_timestamp, max_timestamp)
            if sequence != NO_SEQUENCE:
                part.set_producer_state(batch.producer, sequence, batch.transactional_id)
                sequence = increment_sequence(sequence, taken)
            part.is_probe = batch.may_be_appended and not parts
            parts.append(part)
            address += read
            left -= taken
        return parts

    def _part(
        self,
        batch: ProducerBatch,
        records: memoryview,
        records_count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> ProducerBatch:
        payload = records if self._compressor is None else self._compressor.compress(records)
        data = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + bytes(payload))
        return ProducerBatch(
            topic_partition=batch.topic_partition,
            buffers=[data],
            pages=[],
            size_bytes=len(data),
            uncompressed_bytes=RECORD_BATCH_OVERHEAD + len(records),
            records_count=records_count,
            codec_id=batch.codec_id,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            created_at_ms=batch.created_at_ms,
            opened_at_ms=batch.opened_at_ms,
            may_be_appended=batch.may_be_appended,
        )


def _records_of(batch: ProducerBatch) -> bytes:
    """The batch's records, uncompressed and in one piece."""
    data = b"".join(batch.buffers)[RECORD_BATCH_OVERHEAD:]
    return decompress(batch.codec_id, data, batch.records_bytes)
