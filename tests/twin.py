"""Plain-Python twins of what the package does in kernels: slow, obvious, written independently."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from typing import NamedTuple

import crc32c
import lz4.frame
import zstandard
from cramjam import snappy

from spark_kafka_sink.record.record_batch import ParsedHeader, read_header

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class Record(NamedTuple):
    """One Kafka record, as a consumer would see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class RecordBatch:
    header: ParsedHeader
    codec: str
    records: list[Record]


def zigzag_varint(value):
    rest = (value << 1) ^ (value >> 63)
    rest &= 2**64 - 1
    out = bytearray()
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field_bytes(data):
    return zigzag_varint(-1) if data is None else zigzag_varint(len(data)) + data


def encode_record(timestamp_delta, offset_delta, key, value, headers=None):
    body = bytes([0]) + zigzag_varint(timestamp_delta) + zigzag_varint(offset_delta)
    body += field_bytes(key) + field_bytes(value)
    headers = headers or []
    body += zigzag_varint(len(headers))
    for name, content in headers:
        body += field_bytes(name.encode()) + field_bytes(content)
    return zigzag_varint(len(body)) + body


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def varint(self):
        at = self.at
        byte = self.data[at]
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            at += 1
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            shift += 7
        self.at = at + 1
        return (value >> 1) ^ -(value & 1)

    def field(self):
        length = self.varint()
        if length < 0:
            return None
        data = self.data[self.at : self.at + length]
        assert len(data) == length
        self.at += length
        return data

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]


def decompress(codec, data):
    if codec == "gzip":
        return gzip.decompress(data)
    if codec == "lz4":
        return lz4.frame.decompress(data)
    if codec == "zstd":
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 28)
    if codec == "snappy":
        assert data[:8] == b"\x82SNAPPY\x00"
        out, at = b"", 16
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    return data


def decode_batch(data):
    """The one record batch that ``data`` holds; every length and the CRC are checked."""
    header = read_header(data)
    assert header.magic == 2
    assert header.size_bytes == len(data)
    assert header.crc == crc32c.crc32c(data[21:])
    codec = CODECS[header.attributes & 7]
    reader = Reader(decompress(codec, data[61:]))
    records = []
    for index in range(header.records_count):
        length = reader.varint()
        end = reader.at + length
        assert reader.byte() == 0
        timestamp = header.base_timestamp + reader.varint()
        assert reader.varint() == index
        key, value = reader.field(), reader.field()
        headers = []
        for _ in range(reader.varint()):
            name = reader.field()
            assert name is not None
            headers.append((name.decode(), reader.field()))
        assert reader.at == end
        offset = header.base_offset + index
        records.append(Record(offset, timestamp, key, value, tuple(headers)))
    assert reader.at == len(reader.data)
    assert header.last_offset_delta == header.records_count - 1
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.base_timestamp == records[0].timestamp
    return RecordBatch(header, codec, records)


def murmur2(data):
    """Kafka's murmur2 (``Utils.murmur2``) as an unsigned 32-bit integer."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def partition_for_key(key, partitions_count):
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count


_WYHASH_SECRET = (
    0x2D358DCCAA6C78A5,
    0x8BB84B93962EACC9,
    0x4B33A62ED433D4A3,
    0x4D5A2DA51DE1AA47,
)


def _fold(left, right):
    product = left * right
    return (product ^ (product >> 64)) & (2**64 - 1)


def wyhash(data, seed):
    """W. Yi's wyhash, final version 4."""

    def word(at, size=8):
        return int.from_bytes(data[at : at + size], "little")

    secret, length = _WYHASH_SECRET, len(data)
    seed ^= _fold(seed ^ secret[0], secret[1])
    first = second = 0
    if length > 16:
        at = 0
        if length >= 48:
            lanes = [seed] * 3
            while length - at >= 48:
                for lane in range(3):
                    left = word(at + 16 * lane) ^ secret[lane + 1]
                    lanes[lane] = _fold(left, word(at + 16 * lane + 8) ^ lanes[lane])
                at += 48
            seed = lanes[0] ^ lanes[1] ^ lanes[2]
        while length - at > 16:
            seed = _fold(word(at) ^ secret[1], word(at + 8) ^ seed)
            at += 16
        first, second = word(length - 16), word(length - 8)
    elif length >= 4:
        middle = length // 8 * 4
        first = word(0, 4) << 32 | word(middle, 4)
        second = word(length - 4, 4) << 32 | word(length - 4 - middle, 4)
    elif length > 0:
        first = data[0] << 16 | data[length // 2] << 8 | data[-1]
    product = (first ^ secret[1]) * (second ^ seed)
    low, high = product & (2**64 - 1), product >> 64
    return _fold(low ^ secret[0] ^ length, high ^ secret[1])


def row_hash(key, value, headers=(), topic=None, partition=None, timestamp_ms=None):
    """What the digest kernel adds up."""
    hashed = 1
    fields = [(2, key), (3, value)]
    for header_key, header_value in headers:
        fields += [(4, header_key), (5, header_value)]
    for kind, data in [*fields, (6, topic)]:
        if data is not None:
            hashed = wyhash(data, hashed ^ kind)
    for kind, number in ((7, partition), (8, timestamp_ms)):
        if number is not None:
            hashed = _fold(hashed ^ _WYHASH_SECRET[2] ^ kind, number ^ _WYHASH_SECRET[3])
    return hashed
