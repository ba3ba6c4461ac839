"""Encode one small record batch in plain Python, for the driver, which must not load kernels.

Source: ``MemoryRecordsBuilder``, ``DefaultRecord.writeTo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import LocalProtocolError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.protocol.types import write_unsigned_varint
from spark_kafka_sink.record.compression import create_compressor
from spark_kafka_sink.record.record_batch import (
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    write_header,
)


class NewRecord(NamedTuple):
    """A record to be written. Keys of headers may repeat."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode_batch(
    records: Sequence[NewRecord],
    timestamp_ms: int,
    producer: ProducerIdAndEpoch,
    base_sequence: int,
    *,
    is_transactional: bool = True,
    codec: str = "none",
) -> bytes:
    """Return a batch v2 of ``records`` with one timestamp, ready for a produce request.

    base_sequence: of the first record; 0 for a producer id and epoch's first batch to a partition

    Raises LocalProtocolError without a record, or for a transaction without a producer id.
    """
    if not records:
        raise LocalProtocolError("a record batch without records")
    if is_transactional and not producer.is_valid:
        raise LocalProtocolError("a transactional record batch without a producer id")
    body = bytearray()
    for offset_delta, record in enumerate(records):
        _append_record(body, offset_delta, record)
    attributes = TRANSACTIONAL_FLAG if is_transactional else 0
    compressor = create_compressor(codec, level=None)
    if compressor is not None:
        attributes |= compressor.codec_id
        body = bytearray(compressor.compress(body))
    batch = bytearray(RECORD_BATCH_OVERHEAD) + body
    header = BatchHeader(
        attributes, timestamp_ms, timestamp_ms, producer, base_sequence, len(records)
    )
    write_header(header, [memoryview(batch)], len(batch))
    return bytes(batch)


def _append_record(out: bytearray, offset_delta: int, record: NewRecord) -> None:
    body = bytearray(1)  # attributes, all unused
    _append_varint(body, 0)  # every record has the batch's timestamp
    _append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode())
        _append_bytes(body, value)
    _append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _append_varint(out, -1)
    else:
        _append_varint(out, len(data))
        out += data


def _append_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint, which is short for small numbers of either sign."""
    write_unsigned_varint((value << 1) ^ (value >> 31), out)
