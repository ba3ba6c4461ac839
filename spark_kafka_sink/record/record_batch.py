"""The header of a record batch, format v2 (magic 2).

::

    base_offset             int64     0 for the producer; the broker fills it in
    batch_length            int32     bytes after this field
    partition_leader_epoch  int32     -1 for the producer; not covered by the CRC
    magic                   int8      2
    crc                     uint32    CRC-32C of everything after this field
    attributes              int16     bits 0-2 codec, bit 3 timestamp type, bit 4 transactional
    last_offset_delta       int32
    base_timestamp          int64
    max_timestamp           int64
    producer_id             int64
    producer_epoch          int16
    base_sequence           int32
    records_count           int32
    records                 compressed as a whole when a codec is set

Source: ``DefaultRecordBatch``; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c as _crc32c

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.protocol.types import Buffer

MAGIC = 2
RECORD_BATCH_OVERHEAD = 61
CODEC_MASK = 0x07
TRANSACTIONAL_FLAG = 0x10
_NO_PARTITION_LEADER_EPOCH = -1
_LENGTH_END = 12
_CRC_END = 21
_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")


class BatchHeader(NamedTuple):
    """What the producer knows about a batch; offsets and lengths follow from it."""

    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer: ProducerIdAndEpoch
    base_sequence: int
    records_count: int


def write_header(header: BatchHeader, buffers: Sequence[memoryview], size_bytes: int) -> None:
    """Write the header into the first 61 bytes of ``buffers[0]``, the CRC over all of them.

    size_bytes: of the whole batch, header included.
    """
    first = buffers[0]
    _AFTER_CRC.pack_into(
        first,
        _CRC_END,
        header.attributes,
        header.records_count - 1,
        header.base_timestamp,
        header.max_timestamp,
        header.producer.producer_id,
        header.producer.producer_epoch,
        header.base_sequence,
        header.records_count,
    )
    crc = crc32c(first[_CRC_END:])
    for buffer in buffers[1:]:
        crc = crc32c(buffer, crc)
    length = size_bytes - _LENGTH_END
    _BEFORE_CRC.pack_into(first, 0, 0, length, _NO_PARTITION_LEADER_EPOCH, MAGIC, crc)


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``."""
    checksum: int = _crc32c.crc32c(data, value)
    return checksum


class ParsedHeader(NamedTuple):
    """A batch header as it was read; for tests and tools."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch."""
        return self.batch_length + _LENGTH_END


def read_header(data: Buffer, at: int = 0) -> ParsedHeader:
    """The batch header at ``at``. Raises struct.error when it is cut short."""
    return ParsedHeader(*_HEADER.unpack_from(data, at))


def is_crc_valid(data: Buffer) -> bool:
    """Whether the CRC of the one batch that ``data`` holds is right."""
    return read_header(data).crc == crc32c(memoryview(data)[_CRC_END:])
