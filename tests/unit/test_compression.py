"""Every codec against a decoder that is not the one it is made of, and in Kafka's framing.

gzip is read by the standard library, lz4, zstd and snappy by pyarrow's own libraries.
"""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.record.compression import CODEC_IDS, create_compressor, decompress

SIZES = [1, 100, 32_767, 32_768, 32_769, 65_536, 65_537, 262_144, 262_145, 300_000, 1 << 20]
LEVELS: list[tuple[str, int | None]] = [
    ("gzip", None),
    ("gzip", -1),
    *(("gzip", level) for level in range(1, 10)),
    ("snappy", None),
    ("lz4", None),
    ("lz4", 1),
    ("lz4", 2),
    ("lz4", 3),
    ("lz4", 9),
    ("lz4", 12),
    ("lz4", 17),
    ("zstd", None),
    ("zstd", -131072),
    ("zstd", -5),
    ("zstd", 1),
    ("zstd", 3),
    ("zstd", 19),
    ("zstd", 22),
]
CODECS = ["gzip", "snappy", "lz4", "zstd"]
_LZ4_MAGIC = 0x184D2204


def text(size: int) -> bytes:
    """Compressible, and not periodic within a block."""
    rng = random.Random(size)
    words = [f"flight-{rng.randrange(500)},".encode() for _ in range(size // 8 + 1)]
    return b"".join(words)[:size]


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def compress(codec: str, data: object, level: int | None = None) -> bytes:
    compressor = create_compressor(codec, level)
    assert compressor is not None
    return bytes(compressor.compress(data))  # type: ignore[arg-type]


def snappy_blocks(data: bytes) -> Iterator[bytes]:
    """The blocks of snappy-java's stream: 16 bytes of header, then length and block."""
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        assert 0 < size <= len(data) - at - 4
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def unsnappy(data: bytes, size: int) -> bytes:
    out = b""
    for block in snappy_blocks(data):
        out += pa.Codec("snappy").decompress(block, uvarint(block), asbytes=True)
    return out


def uvarint(block: bytes) -> int:
    """A raw snappy block begins with its uncompressed length."""
    value = 0
    for index, byte in enumerate(block):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise AssertionError("no length")


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": lambda data, size: gzip.decompress(data),
    "snappy": unsnappy,
    "lz4": lambda data, size: pa.Codec("lz4").decompress(data, size, asbytes=True),
    "zstd": lambda data, size: pa.Codec("zstd").decompress(data, size, asbytes=True),
}


def test_codec_ids_are_kafkas() -> None:
    assert CODEC_IDS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    for codec in CODECS:
        compressor = create_compressor(codec, None)
        assert compressor is not None
        assert (compressor.codec, compressor.codec_id) == (codec, CODEC_IDS[codec])


def test_none_has_no_compressor() -> None:
    assert create_compressor("none", None) is None


@pytest.mark.parametrize("make", [text, noise])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_every_size(codec: str, size: int, make: Callable[[int], bytes]) -> None:
    data = make(size)
    compressed = compress(codec, data)
    assert DECODERS[codec](compressed, size) == data
    assert decompress(CODEC_IDS[codec], compressed, size) == data


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_every_level(codec: str, level: int | None) -> None:
    data = text(100_000)
    compressed = compress(codec, data, level)
    assert DECODERS[codec](compressed, len(data)) == data
    if level != -131072:  # zstd's lowest level only just copies
        assert len(compressed) < len(data)


@pytest.mark.parametrize(
    ("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", 1, 19)]
)
def test_levels_make_a_difference(codec: str, fast: int, small: int) -> None:
    data = text(200_000)
    assert len(compress(codec, data, small)) < len(compress(codec, data, fast))


def test_default_levels() -> None:
    data = text(50_000)
    for codec, level in (("gzip", -1), ("lz4", 9), ("zstd", 3)):
        assert compress(codec, data) == compress(codec, data, level)


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer(codec: str) -> None:
    data = text(40_000)
    expected = compress(codec, data)
    array = np.frombuffer(data, np.uint8)
    for buffer in (bytearray(data), memoryview(data), array.data, memoryview(b"x" + data)[1:]):
        assert compress(codec, buffer) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressor_is_used_again(codec: str) -> None:
    """What it gave before must not change, and no state may leak into what it gives next."""
    compressor = create_compressor(codec, None)
    assert compressor is not None
    first_data, second_data = text(70_000), noise(70_000)
    first = compressor.compress(first_data)
    compressor.compress(second_data)
    assert bytes(first) == bytes(compressor.compress(first_data))
    assert DECODERS[codec](bytes(first), 70_000) == first_data


@pytest.mark.parametrize("codec", CODECS)
def test_noise_grows_by_little(codec: str) -> None:
    assert len(compress(codec, noise(100_000))) < 100_500


def test_decompressing_none_copies() -> None:
    assert decompress(0, memoryview(b"abc"), 3) == b"abc"


# --- framing --------------------------------------------------------------------------------------


def test_gzip_is_one_member_with_trailer() -> None:
    data = text(10_000)
    for level in (-1, 6):
        compressed = compress("gzip", data, level)
        assert compressed[:3] == b"\x1f\x8b\x08"
        assert struct.unpack("<I", compressed[-4:]) == (len(data),)
        member = zlib.decompressobj(wbits=31)
        assert member.decompress(compressed) == data
        assert (member.eof, member.unused_data) == (True, b"")


def test_snappy_blocks_are_32_kib() -> None:
    blocks = list(snappy_blocks(compress("snappy", text(100_000))))
    assert [uvarint(block) for block in blocks] == [32_768, 32_768, 32_768, 100_000 - 3 * 32_768]


def lz4_blocks(data: bytes) -> Iterator[tuple[bool, bytes]]:
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
def test_lz4_header_is_one_that_kafkas_reader_accepts(
    level: int, size: int, block_size_id: int, blocks: int
) -> None:
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
def test_lz4_blocks_can_be_read_alone(level: int) -> None:
    data = text(600_000)
    raw = pa.Codec("lz4_raw")
    for index, (is_compressed, block) in enumerate(lz4_blocks(compress("lz4", data, level))):
        part = data[index * 262_144 : (index + 1) * 262_144]
        assert (raw.decompress(block, len(part), asbytes=True) if is_compressed else block) == part


def test_lz4_blocks_that_do_not_compress_are_stored() -> None:
    [(is_compressed, block)] = lz4_blocks(compress("lz4", noise(1_000)))
    assert not is_compressed
    assert block == noise(1_000)


def test_zstd_is_one_frame() -> None:
    assert compress("zstd", text(1_000))[:4] == b"\x28\xb5\x2f\xfd"


def test_a_codec_loads_only_its_own_library() -> None:
    """The driver and most tasks need none of them: they are imported where they are used."""
    script = (
        "import sys; from spark_kafka_sink.record.compression import create_compressor;"
        "create_compressor('zstd', None);"
        "print([m for m in ('isal', 'pyarrow', 'lz4.frame', 'zstandard') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert printed.stdout.strip() == "['zstandard']", printed.stderr
