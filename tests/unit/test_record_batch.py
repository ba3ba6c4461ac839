"""The header of record batches v2, byte by byte, and CRC-32C against a table of its own."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.record.record_batch import (
    CODEC_MASK,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc32c,
    is_crc_valid,
    read_header,
    write_header,
)
from tests.twin import decode_batch, encode_record
from tests.unit.batches import T0, make_batch

PROPERTY = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            # The Castagnoli polynomial, bits reversed.
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c_by_table(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


HEADER = BatchHeader(
    attributes=4,
    base_timestamp=1_700_000_000_000,
    max_timestamp=1_700_000_000_999,
    producer=ProducerIdAndEpoch(0x0102030405060708, 0x1112),
    base_sequence=0x21222324,
    records_count=3,
)


def written(header: BatchHeader, *parts: bytes) -> bytes:
    """A batch whose records are ``parts``, the first in the header's buffer."""
    first = bytearray(b"\xee" * RECORD_BATCH_OVERHEAD + (parts[0] if parts else b""))
    buffers = [memoryview(first), *(memoryview(bytearray(part)) for part in parts[1:])]
    write_header(header, buffers, sum(len(buffer) for buffer in buffers))
    return b"".join(buffers)


def test_crc32c_of_known_values() -> None:
    """RFC 3720, B.4."""
    assert crc32c(b"123456789") == 0xE3069283 == crc32c_by_table(b"123456789")
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@PROPERTY
@given(st.binary(max_size=200), st.integers(0, 200))
def test_crc32c_can_be_continued(data: bytes, cut: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c_by_table(data)
    assert crc32c(memoryview(data)) == crc32c(bytearray(data))


def test_every_field_by_hand() -> None:
    data = written(HEADER, b"records")
    after_crc = bytes.fromhex(
        "0004"  # attributes: zstd
        "00000002"  # last offset delta
        "0000018bcfe56800"  # base timestamp
        "0000018bcfe56be7"  # max timestamp
        "0102030405060708"  # producer id
        "1112"  # producer epoch
        "21222324"  # base sequence
        "00000003"  # records count
    )
    assert data[21:61] == after_crc
    assert data[:8] == bytes(8), "base offset"
    assert data[8:12] == struct.pack(">i", len(data) - 12), "batch length"
    assert data[12:16] == b"\xff" * 4, "partition leader epoch"
    assert data[16:17] == b"\x02", "magic"
    assert data[17:21] == struct.pack(">I", crc32c_by_table(data[21:]))
    assert data[61:] == b"records"


def test_the_crc_does_not_cover_what_the_broker_fills_in() -> None:
    """Base offset and leader epoch: the broker writes them without computing the CRC again."""
    data = bytearray(written(HEADER, b"records"))
    struct.pack_into(">q", data, 0, 4711)
    struct.pack_into(">i", data, 12, 17)
    assert is_crc_valid(data)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (4711, 17)


@pytest.mark.parametrize("at", [21, 22, 26, 40, 60, 61, 67])
def test_the_crc_covers_everything_else(at: int) -> None:
    data = bytearray(written(HEADER, b"records"))
    assert is_crc_valid(data)
    data[at] ^= 1
    assert not is_crc_valid(data)


@PROPERTY
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_buffers_are_one_batch(parts: list[bytes]) -> None:
    assert written(HEADER, *parts) == written(HEADER, b"".join(parts))


@PROPERTY
@given(
    st.builds(
        BatchHeader,
        st.integers(0, 2**15 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.builds(ProducerIdAndEpoch, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1)),
        st.integers(-1, 2**31 - 1),
        st.integers(1, 2**31 - 1),
    ),
    st.binary(max_size=20),
)
def test_what_is_written_is_read(header: BatchHeader, records: bytes) -> None:
    data = written(header, records)
    parsed = read_header(b"before" + data, 6)
    assert parsed.magic == 2
    assert parsed.base_offset == 0
    assert parsed.size_bytes == len(data)
    assert parsed.last_offset_delta == header.records_count - 1
    assert (
        parsed.attributes,
        parsed.base_timestamp,
        parsed.max_timestamp,
        (parsed.producer_id, parsed.producer_epoch),
        parsed.base_sequence,
        parsed.records_count,
    ) == header
    assert is_crc_valid(data)


def test_a_header_cut_short() -> None:
    with pytest.raises(struct.error):
        read_header(written(HEADER)[:60])


def test_attributes() -> None:
    assert CODEC_MASK == 0b111
    assert TRANSACTIONAL_FLAG == 1 << 4
    assert RECORD_BATCH_OVERHEAD == 61


def test_a_sealed_batch_is_read_by_the_twin() -> None:
    records = encode_record(0, 0, b"k", b"v") + encode_record(-5, 1, None, b"w", [("h", None)])
    batch = make_batch(T0, 2, RECORD_BATCH_OVERHEAD + len(records))
    batch.buffers[0][RECORD_BATCH_OVERHEAD:] = records
    batch.base_timestamp, batch.max_timestamp = 100, 100
    batch.close()
    assert batch.is_closed
    decoded = decode_batch(b"".join(batch.buffers))
    assert [(r.timestamp, r.key, r.value) for r in decoded.records] == [
        (100, b"k", b"v"),
        (95, None, b"w"),
    ]
    header = decoded.header
    assert (header.producer_id, header.producer_epoch) == NO_PRODUCER
    assert header.base_sequence == -1
    assert header.attributes == 0
