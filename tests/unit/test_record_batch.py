"""Record batches v2: the header byte by byte, CRC-32C against a table of its own, and every codec against
a decoder that is not the one it is made of, and in Kafka's framing.

gzip is read by the standard library, lz4, zstd and snappy by pyarrow's own libraries.
"""

import gzip
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.record.compression import CODEC_IDS, create_compressor, decompress
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


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            # The Castagnoli polynomial, bits reversed.
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c_by_table(data):
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


def written(header, *parts):
    """A batch whose records are ``parts``, the first in the header's buffer."""
    first = bytearray(b"\xee" * RECORD_BATCH_OVERHEAD + (parts[0] if parts else b""))
    buffers = [memoryview(first), *(memoryview(bytearray(part)) for part in parts[1:])]
    write_header(header, buffers, sum(len(buffer) for buffer in buffers))
    return b"".join(buffers)


def test_crc32c_of_known_values_and_sizes_of_the_header():
    """RFC 3720, B.4."""
    assert crc32c(b"123456789") == 0xE3069283 == crc32c_by_table(b"123456789")
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0
    assert (CODEC_MASK, TRANSACTIONAL_FLAG, RECORD_BATCH_OVERHEAD) == (0b111, 1 << 4, 61)
    with pytest.raises(struct.error):
        read_header(written(HEADER)[:60])


@PROPERTY
@given(st.binary(max_size=200), st.integers(0, 200))
def test_crc32c_can_be_continued(data, cut):
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c_by_table(data)
    assert crc32c(memoryview(data)) == crc32c(bytearray(data))


def test_every_field_by_hand():
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


def test_the_crc_does_not_cover_what_the_broker_fills_in():
    """Base offset and leader epoch: the broker writes them without computing the CRC again."""
    data = bytearray(written(HEADER, b"records"))
    struct.pack_into(">q", data, 0, 4711)
    struct.pack_into(">i", data, 12, 17)
    assert is_crc_valid(data)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (4711, 17)


@pytest.mark.parametrize("at", [21, 22, 26, 40, 60, 61, 67])
def test_the_crc_covers_everything_else(at):
    data = bytearray(written(HEADER, b"records"))
    assert is_crc_valid(data)
    data[at] ^= 1
    assert not is_crc_valid(data)


@PROPERTY
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_buffers_are_one_batch(parts):
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
def test_what_is_written_is_read(header, records):
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


def test_a_sealed_batch_is_read_by_the_twin():
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


SIZES = [1, 100, 32_767, 32_768, 32_769, 65_536, 65_537, 262_144, 262_145, 300_000, 1 << 20]
LEVELS = {
    "gzip": [None, -1, *range(1, 10)],
    "snappy": [None],
    "lz4": [None, 1, 2, 3, 9, 12, 17],
    "zstd": [None, -131072, -5, 1, 3, 19, 22],
}
CODECS = [*LEVELS]
_LZ4_MAGIC = 0x184D2204


def text(size):
    """Compressible, and not periodic within a block."""
    rng = random.Random(size)
    words = [f"flight-{rng.randrange(500)},".encode() for _ in range(size // 8 + 1)]
    return b"".join(words)[:size]


def noise(size):
    return random.Random(size).randbytes(size)


def compress(codec, data, level=None):
    compressor = create_compressor(codec, level)
    return bytes(compressor.compress(data))


def snappy_blocks(data):
    """The blocks of snappy-java's stream: 16 bytes of header, then length and block."""
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        assert 0 < size <= len(data) - at - 4
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def unsnappy(data, size):
    out = b""
    for block in snappy_blocks(data):
        out += pa.Codec("snappy").decompress(block, uvarint(block), asbytes=True)
    return out


def uvarint(block):
    """A raw snappy block begins with its uncompressed length."""
    value = 0
    for index, byte in enumerate(block):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise AssertionError("no length")


DECODERS = {
    "gzip": lambda data, size: gzip.decompress(data),
    "snappy": unsnappy,
    "lz4": lambda data, size: pa.Codec("lz4").decompress(data, size, asbytes=True),
    "zstd": lambda data, size: pa.Codec("zstd").decompress(data, size, asbytes=True),
}


def test_codec_ids_are_kafkas():
    assert CODEC_IDS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert create_compressor("none", None) is None
    assert decompress(0, memoryview(b"abc"), 3) == b"abc"
    for codec in CODECS:
        compressor = create_compressor(codec, None)
        assert (compressor.codec, compressor.codec_id) == (codec, CODEC_IDS[codec])


@pytest.mark.parametrize("make", [text, noise])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_every_size(codec, size, make):
    data = make(size)
    compressed = compress(codec, data)
    assert DECODERS[codec](compressed, size) == data
    assert decompress(CODEC_IDS[codec], compressed, size) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(codec, level) for codec in LEVELS for level in LEVELS[codec]]
)
def test_every_level(codec, level):
    data = text(100_000)
    compressed = compress(codec, data, level)
    assert DECODERS[codec](compressed, len(data)) == data
    if level != -131072:  # zstd's lowest level only just copies
        assert len(compressed) < len(data)


@pytest.mark.parametrize(
    ("codec", "default", "fast", "small"),
    [("gzip", -1, 1, 9), ("lz4", 9, 9, 12), ("zstd", 3, 1, 19)],
)
def test_levels_make_a_difference(codec, default, fast, small):
    data = text(200_000)
    assert len(compress(codec, data, small)) < len(compress(codec, data, fast))
    assert compress(codec, data) == compress(codec, data, default)


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer(codec):
    data = text(40_000)
    expected = compress(codec, data)
    array = np.frombuffer(data, np.uint8)
    for buffer in (bytearray(data), memoryview(data), array.data, memoryview(b"x" + data)[1:]):
        assert compress(codec, buffer) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressor_is_used_again(codec):
    """What it gave before must not change, and no state may leak into what it gives next."""
    compressor = create_compressor(codec, None)
    first_data, second_data = text(70_000), noise(70_000)
    first = compressor.compress(first_data)
    compressor.compress(second_data)
    assert bytes(first) == bytes(compressor.compress(first_data))
    assert DECODERS[codec](bytes(first), 70_000) == first_data
    assert len(compress(codec, noise(100_000))) < 100_500  # noise grows by little


# --- framing --------------------------------------------------------------------------------------


def test_gzip_is_one_member_with_trailer():
    data = text(10_000)
    for level in (-1, 6):
        compressed = compress("gzip", data, level)
        assert compressed[:3] == b"\x1f\x8b\x08"
        assert struct.unpack("<I", compressed[-4:]) == (len(data),)
        member = zlib.decompressobj(wbits=31)
        assert member.decompress(compressed) == data
        assert (member.eof, member.unused_data) == (True, b"")


def test_snappy_blocks_are_32_kib():
    blocks = list(snappy_blocks(compress("snappy", text(100_000))))
    assert [uvarint(block) for block in blocks] == [32_768, 32_768, 32_768, 100_000 - 3 * 32_768]


def lz4_blocks(data):
    """(is compressed, content) of each block, up to the end mark."""
    at = 7
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size == 0:
            assert at == len(data)
            return
        length = size & 0x7FFFFFFF
        yield not size >> 31, data[at : at + length]
        at += length


@pytest.mark.parametrize("level", [9, 12])
@pytest.mark.parametrize(
    ("size", "block_size_id", "blocks"),
    [(1, 4, 1), (65_536, 4, 1), (65_537, 5, 1), (262_144, 5, 1), (600_000, 5, 3)],
)
def test_lz4_header_is_one_that_kafkas_reader_accepts(level, size, block_size_id, blocks):
    """Lz4BlockInputStream: version 1, independent blocks, no dictionary, 64 KiB to 4 MiB."""
    data = compress("lz4", text(size), level)
    magic, flags, block_descriptor = struct.unpack_from("<IBB", data)
    assert magic == _LZ4_MAGIC
    assert flags >> 6 == 1
    assert flags >> 5 & 1 == 1, "blocks depend on each other"
    assert flags & 0b1111 == 0, "content size, content checksum, reserved bit or dictionary"
    assert block_descriptor == block_size_id << 4
    assert len(list(lz4_blocks(data))) == blocks


@pytest.mark.parametrize("level", [9, 12])
def test_lz4_blocks_can_be_read_alone(level):
    data = text(600_000)
    raw = pa.Codec("lz4_raw")
    for index, (is_compressed, block) in enumerate(lz4_blocks(compress("lz4", data, level))):
        part = data[index * 262_144 : (index + 1) * 262_144]
        assert (raw.decompress(block, len(part), asbytes=True) if is_compressed else block) == part


def test_lz4_blocks_that_do_not_compress_are_stored():
    assert compress("zstd", text(1_000))[:4] == b"\x28\xb5\x2f\xfd"  # zstd is one frame
    [(is_compressed, block)] = lz4_blocks(compress("lz4", noise(1_000)))
    assert not is_compressed
    assert block == noise(1_000)


def test_a_codec_loads_only_its_own_library():
    """The driver and most tasks need none of them: they are imported where they are used."""
    script = (
        "import sys; from spark_kafka_sink.record.compression import create_compressor;"
        "create_compressor('zstd', None);"
        "print([m for m in ('isal', 'pyarrow', 'lz4.frame', 'zstandard') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert printed.stdout.strip() == "['zstandard']", printed.stderr
