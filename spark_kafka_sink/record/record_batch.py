"""Write and read the header of a record batch, format v2 (magic 2), and read the records in it.

    base_offset            | int64  | 0 for the producer; the broker sets it
    batch_length           | int32  | bytes after this field
    partition_leader_epoch | int32  | -1 for the producer; not covered by the CRC
    magic                  | int8   | 2
    crc                    | uint32 | CRC-32C of all bytes after this field
    attributes             | int16  | bits 0-2 codec, bit 3 timestamp type, bit 4 transactional
    last_offset_delta      | int32  |
    base_timestamp         | int64  |
    max_timestamp          | int64  |
    producer_id            | int64  |
    producer_epoch         | int16  |
    base_sequence          | int32  |
    records_count          | int32  |
    records                |        | compressed as a whole if a codec is set

``record/kernels/records.py`` writes the records of the producer. This module writes only their
header. The driver must not load kernels, so :func:`encode_batch` encodes a small batch in plain
Python. Fetched batches are read in plain Python, which is fast enough for few records.

Any client with write access chooses what a reader gets, and 6 KB of a compressed batch may be
hundreds of megabytes of headers. A reader therefore builds one record at a time, within limits.

Source: ``DefaultRecordBatch``, ``ByteBufferLogInputStream``, ``DefaultRecord``,
``DefaultRecord.writeTo``, ``MemoryRecordsBuilder``, ``ControlRecordType``,
``EndTransactionMarker``; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import crc32c as _crc32c

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.base.text import java_text
from spark_kafka_sink.protocol.types import Buffer, write_unsigned_varint
from spark_kafka_sink.record.compression import (
    TooLargeError,
    create_compressor,
    decompress,
    decompress_start,
)

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
    """The header fields that the producer sets; offsets and lengths are computed."""

    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer: ProducerIdAndEpoch
    base_sequence: int
    records_count: int


def write_header(header: BatchHeader, buffers: Sequence[memoryview], size_bytes: int) -> None:
    """Write the header into the first 61 bytes of ``buffers[0]``, with the CRC of all buffers.

    size_bytes: size of the whole batch, header included.
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
    """All fields of a batch header."""

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
        """Return the size of the whole batch."""
        return self.batch_length + _LENGTH_END


def read_header(data: Buffer, at: int = 0) -> ParsedHeader:
    """Return the batch header at ``at``. Raises struct.error if it is truncated."""
    return ParsedHeader(*_HEADER.unpack_from(data, at))


def is_crc_valid(data: Buffer) -> bool:
    """Return True if the CRC of the single batch in ``data`` is correct."""
    return read_header(data).crc == crc32c(memoryview(data)[_CRC_END:])


MOST_UNCOMPRESSED_BYTES = 256 << 20
"""Limit of a batch's uncompressed records."""
MOST_HEADERS = 100_000
"""Limit of a record's headers. Programs set dozens; this is a thousand times as many."""
MOST_OBJECTS = 4 << 20
"""Limit of a batch's records and headers together.

A batch of 1 MB, Kafka's default limit, has a million records if it compresses to a tenth, and a
record takes 10 bytes.
"""
MOST_KEYED_BYTES = 16 << 20
"""Limit of the uncompressed records of a batch of several in which keys are searched.

Producers fill batches of up to 1 MB. A larger record is alone in its batch.
"""
MOST_KEYED_RECORDS = 100_000
"""Limit of the records of such a batch: 1 MB has as many of ten bytes."""

_MOST_KEY_BYTES = 1 << 16
# Attributes, and the varints of size, timestamp, offset, and lengths of key and value.
_MOST_BYTES_BESIDE_KEY = 1 + 5 * 10
_ABORT_TYPE = 0
_COMMIT_TYPE = 1
_LOG_APPEND_TIME_FLAG = 0x08
_CONTROL_FLAG = 0x20
_LONGEST_VARINT_BITS = 63
_MAGIC_AT = 16
_LENGTH_AND_OFFSET = struct.Struct(">qi")
_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION_VALUE = struct.Struct(">hi")


class Record(NamedTuple):
    """One record. Keys of headers may repeat; invalid UTF-8 in keys is replaced."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction on this partition: commit or abort."""

    is_commit: bool
    coordinator_epoch: int


class RecordLimitError(RemoteProtocolError):
    """A record, or the rest of a batch, is larger than a reader accepts.

    offset: of the record, or the base offset of a batch that cannot be decompressed
    problem: what is beyond a limit, and what to do
    """

    code = "DEADLETTER-010"

    def __init__(self, offset: int, problem: str) -> None:
        self.offset = offset
        self.problem = problem
        super().__init__(f"the record at offset {offset} cannot be read: {problem}")


def _raise(error: RecordLimitError) -> None:
    raise error


class ReadBatch(NamedTuple):
    """A batch, whose records are built when they are asked for.

    compressed: the records; compaction may have removed some or all
    marker: set for a control batch that ends a transaction. Brokers, not producers, write the
    records of control batches.
    """

    header: ParsedHeader
    compressed: Buffer
    marker: EndTransactionMarker | None = None

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """Return the last offset, also if compaction removed its record; read on after it."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def is_transactional(self) -> bool:
        return bool(self.header.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.header.attributes & _CONTROL_FLAG)

    def records(self, refused: Callable[[RecordLimitError], None] = _raise) -> Iterator[Record]:
        """Yield the records, one at a time.

        refused: called for a record, or the rest of the batch, that is beyond a limit and left out

        Raises RemoteProtocolError for wrong lengths or an unknown codec.
        """
        with _remote_errors(self.base_offset):
            yield from _read_records(self.header, self.compressed, refused)

    def keyed_records(
        self, key: bytes | None, most_bytes: int
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield key and value of each record that has a key.

        key: only this key is wanted; None for any key
        most_bytes: a longer value is cut to one byte more

        Headers are not read, and of a single record only what is wanted is decompressed. Batches of
        several are copies by other clients: a larger one than ``MOST_KEYED_BYTES``, and records
        after ``MOST_KEYED_RECORDS``, are left out.

        Raises RemoteProtocolError for wrong lengths or an unknown codec.
        """
        if self.is_control or not (self.header.records_count or self.compressed):
            return
        if self.header.records_count == 1:
            found = self._only_record(key, most_bytes)
            if found is not None:
                yield found
            return
        with _remote_errors(self.base_offset):
            data = self._records_to_search()
            # Other prefixes' records are the rule, and a search of bytes is fast.
            if key is None or key in data:
                yield from self._keyed(data, key, most_bytes)

    def _records_to_search(self) -> bytes:
        try:
            return decompress(
                self.header.attributes & CODEC_MASK, self.compressed, MOST_KEYED_BYTES
            )
        except TooLargeError:
            return b""

    def _keyed(
        self, data: bytes, key: bytes | None, most_bytes: int
    ) -> Iterator[tuple[bytes, bytes | None]]:
        at = 0
        for _ in range(min(self.header.records_count, MOST_KEYED_RECORDS) if data else 0):
            key_at, length = _key_of(data, at)
            size, at = _read_varint(data, at)
            at += size
            if not key_at + max(length, 0) <= at <= len(data):
                raise ValueError(f"record of {size} bytes does not fit")
            found, value_at = _read_bytes(data, key_at)
            if found is not None and key in (None, found):
                value_bytes, value_at = _read_varint(data, value_at)
                if value_at + value_bytes > at:
                    raise ValueError(f"value of {value_bytes} bytes in a record of {size}")
                end = value_at + min(value_bytes, most_bytes + 1)
                yield found, None if value_bytes < 0 else data[value_at:end]

    def _only_record(self, key: bytes | None, most_bytes: int) -> tuple[bytes, bytes | None] | None:
        codec_id, most = self.header.attributes & CODEC_MASK, _MOST_BYTES_BESIDE_KEY
        with _remote_errors(self.base_offset):
            start = decompress_start(codec_id, self.compressed, most + _MOST_KEY_BYTES)
            key_at, length = _key_of(start, 0)
            if not 0 <= length <= _MOST_KEY_BYTES:
                return None
            found, at = _read_bytes(start, key_at)
            if found is None or key not in (None, found):
                return None
            data = decompress_start(codec_id, self.compressed, most + length + most_bytes + 1)
            value_bytes, at = _read_varint(data, at)
            if value_bytes < 0:
                return found, None
            return found, data[at : at + min(value_bytes, most_bytes + 1)]


def read_batches(data: Buffer) -> Iterator[ReadBatch]:
    """Yield the batches of a fetch response.

    A broker may truncate the last batch, which is skipped. The first batch may begin before the
    requested offset because brokers send whole batches.

    Raises RemoteProtocolError for a wrong CRC, wrong lengths, or an older format.
    """
    view = memoryview(data)
    at = 0
    while (end := _batch_end(view, at)) is not None:
        try:
            yield _read_batch(view[at:end])
        except (struct.error, IndexError, ValueError) as error:
            raise RemoteProtocolError(f"record batch at byte {at}: {error}") from error
        at = end


def record_bounds(data: bytes, records_count: int) -> list[int]:
    """Return the start of each of ``records_count`` records, and the end of the last record."""
    bounds = [0]
    for _ in range(records_count):
        size, at = _read_varint(data, bounds[-1])
        bounds.append(at + size)
    return bounds


def read_record(header: ParsedHeader, data: bytes, at: int) -> Record:
    """Return the record at index ``at`` of a batch's uncompressed records."""
    record, _ = _read_record(header, data, at)
    return record


def _batch_end(view: memoryview, at: int) -> int | None:
    """Return the end of the batch that begins at ``at``; None if the batch is truncated."""
    if len(view) - at <= _MAGIC_AT:
        return None
    _, length = _LENGTH_AND_OFFSET.unpack_from(view, at)
    if view[at + _MAGIC_AT] != MAGIC:
        raise RemoteProtocolError(f"record batch at byte {at}: magic {view[at + _MAGIC_AT]}")
    end = at + _LENGTH_AND_OFFSET.size + int(length)
    if end - at < RECORD_BATCH_OVERHEAD:
        raise RemoteProtocolError(f"record batch at byte {at}: length {length}")
    return end if end <= len(view) else None


def _read_batch(batch: memoryview) -> ReadBatch:
    if not is_crc_valid(batch):
        raise ValueError("wrong CRC")
    header = read_header(batch)
    if header.records_count < 0:
        raise ValueError(f"{header.records_count} records")
    read = ReadBatch(header, batch[RECORD_BATCH_OVERHEAD:])
    first = next(read.records(), None) if read.is_control else None
    return read if first is None else read._replace(marker=_read_marker(first))


@contextmanager
def _remote_errors(base_offset: int) -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError, ValueError) as error:
        raise RemoteProtocolError(f"record batch at offset {base_offset}: {error}") from error


def _read_records(
    header: ParsedHeader, compressed: Buffer, refused: Callable[[RecordLimitError], None]
) -> Iterator[Record]:
    # A batch without records after compaction is a header alone, whatever its codec.
    if not header.records_count and not compressed:
        return
    try:
        data = decompress(header.attributes & CODEC_MASK, compressed, MOST_UNCOMPRESSED_BYTES)
    except TooLargeError as error:
        refused(RecordLimitError(header.base_offset, str(error)))
        return
    at = objects = 0
    for _ in range(header.records_count):
        before = at
        try:
            record, at = _read_record(header, data, at)
        except RecordLimitError as error:
            refused(error)
            size, at = _read_varint(data, before)
            at += size
            continue
        objects += 1 + len(record.headers)
        if objects > MOST_OBJECTS:
            problem = f"its batch has more than {MOST_OBJECTS} records and headers"
            refused(RecordLimitError(record.offset, problem))
            return
        yield record
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after the last of {header.records_count} records")


def _key_of(data: bytes, at: int) -> tuple[int, int]:
    """Return where the length of the key is, of the record at ``at``, and the length."""
    _, at = _read_varint(data, at)
    _, at = _read_varint(data, at + 1)
    _, at = _read_varint(data, at)
    return at, _read_varint(data, at)[0]


def _read_record(header: ParsedHeader, data: bytes, at: int) -> tuple[Record, int]:
    """Return the record at ``at``, whose size must be exact, and the index of the next."""
    size, at = _read_varint(data, at)
    end = at + size
    if end > len(data):
        raise ValueError(f"record of {size} bytes, {len(data) - at} left")
    # Skip the record's attributes, one unused byte.
    timestamp_delta, at = _read_varint(data, at + 1)
    offset_delta, at = _read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    headers, at = _read_headers(data, at, header.base_offset + offset_delta)
    if at != end:
        raise ValueError(f"record of {size} bytes ends {at - end:+} bytes off")
    if header.attributes & _LOG_APPEND_TIME_FLAG:
        timestamp_ms = header.max_timestamp
    else:
        timestamp_ms = header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), at


def _read_headers(
    data: bytes, at: int, offset: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _read_varint(data, at)
    if count > MOST_HEADERS:
        raise RecordLimitError(offset, f"it has {count} headers, more than {MOST_HEADERS}")
    # A header has at least two bytes: reject a larger count before it takes memory.
    if not 0 <= count <= (len(data) - at) // 2:
        raise ValueError(f"{count} headers in {len(data) - at} bytes")
    headers = []
    for _ in range(count):
        key, at = _read_bytes(data, at)
        if key is None:
            raise ValueError("null key of a header")
        value, at = _read_bytes(data, at)
        headers.append((java_text(key), value))
    return tuple(headers), at


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return bytes that follow their length, and the next index; a negative length is null."""
    length, at = _read_varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise ValueError(f"{length} bytes announced, {len(data) - at} left")
    return data[at:end], end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of at most 64 bits, and the next index."""
    value = 0
    for shift in range(0, _LONGEST_VARINT_BITS + 1, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("varint longer than 64 bits")


def _read_marker(record: Record) -> EndTransactionMarker | None:
    """Return the marker; None for other control records. Later versions only append fields."""
    version, kind = _CONTROL_KEY.unpack_from(record.key or b"")
    if version < 0:
        raise ValueError(f"control record of version {version}")
    if kind not in (_ABORT_TYPE, _COMMIT_TYPE):
        return None
    version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(record.value or b"")
    if version < 0:
        raise ValueError(f"end of a transaction of version {version}")
    return EndTransactionMarker(kind == _COMMIT_TYPE, coordinator_epoch)


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
