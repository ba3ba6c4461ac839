"""Codecs of record batches, each in the framing that Kafka's Java readers expect.

A compressor keeps its context; only one thread at a time may use it. All codecs release the GIL.

A new codec needs an id, a compressor and a bounded decompressor here. Its name (``CODECS``) and its
level are in ``config/producer_config.py``. Its frame must fit the bound of
``largest_when_compressed`` in ``producer/appender.py``.

Source: ``CompressionType`` and ``org.apache.kafka.common.compress``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from spark_kafka_sink.protocol.types import Buffer

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_GZIP_DEFAULT_LEVEL = -1
_ISAL_HIGHEST_LEVEL = 3
_ISAL_DEFAULT_LEVEL = 2
_GZIP_WINDOW_BITS = 31
_LZ4_FAST_LEVEL = 9
_LZ4_LOWEST_HC_LEVEL = 3
_LZ4_HIGHEST_HC_LEVEL = 12
_SNAPPY_BLOCK_BYTES = 32768
# snappy-java's stream header: magic, version 1, compatible with version 1.
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_LENGTH = struct.Struct(">i")
_SNAPPY_SIZE_MOST_BYTES = 5
_SNAPPY_HIGHEST_RATIO = 64


class Compressor(NamedTuple):
    """One codec at one level. ``compress`` takes a contiguous buffer."""

    codec: str
    codec_id: int
    compress: Callable[[Buffer], Buffer]


def create_compressor(codec: str, level: int | None) -> Compressor | None:
    """Return the compressor for Kafka's ``compression.type`` and level; None for ``none``."""
    if codec == "none":
        return None
    factories: dict[str, Callable[[int | None], Callable[[Buffer], Buffer]]] = {
        "gzip": _gzip,
        "snappy": _snappy,
        "lz4": _lz4,
        "zstd": _zstd,
    }
    return Compressor(codec, CODEC_IDS[codec], factories[codec](level))


def _gzip(level: int | None) -> Callable[[Buffer], Buffer]:
    """Use ISA-L up to its level 3 and for the default: several times faster than zlib."""
    from isal import igzip_lib

    if level is None or level == _GZIP_DEFAULT_LEVEL:
        level = _ISAL_DEFAULT_LEVEL
    if level <= _ISAL_HIGHEST_LEVEL:
        compress: Callable[..., bytes] = igzip_lib.compress
        return lambda data: compress(data, level, igzip_lib.COMP_GZIP)

    def compress_zlib(data: Buffer) -> bytes:
        stream = zlib.compressobj(level, wbits=_GZIP_WINDOW_BITS)
        return stream.compress(data) + stream.flush()

    return compress_zlib


def _snappy(level: int | None) -> Callable[[Buffer], Buffer]:
    """Write raw snappy blocks in snappy-java's (xerial's) stream framing."""
    import pyarrow as pa

    codec = pa.Codec("snappy")

    def compress(data: Buffer) -> bytes:
        out = bytearray(_SNAPPY_HEADER)
        view = memoryview(data)
        for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
            block: Any = codec.compress(view[start : start + _SNAPPY_BLOCK_BYTES])
            out += _SNAPPY_LENGTH.pack(len(block))
            out += memoryview(block)
        return bytes(out)

    return compress


def _lz4(level: int | None) -> Callable[[Buffer], Buffer]:
    """Write LZ4 frames of independent blocks: Kafka's Java reader rejects linked blocks.

    Blocks of 256 KiB find repetitions over a longer distance than the Java producer's blocks of
    64 KiB, and text of random digits (UUIDs) takes 0.6 of the time, because liblz4 searches less
    often. Up to 64 KiB of data, liblz4 uses 64 KiB blocks. Lz4BlockInputStream reads blocks of
    64 KiB to 4 MiB; other clients read all sizes.
    """
    import lz4.frame

    if level is None or level == _LZ4_FAST_LEVEL:
        level = 0
    else:
        level = min(max(level, _LZ4_LOWEST_HC_LEVEL), _LZ4_HIGHEST_HC_LEVEL)
    compress: Callable[..., bytes] = lz4.frame.compress
    return lambda data: compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        store_size=False,
    )


def _zstd(level: int | None) -> Callable[[Buffer], Buffer]:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3 if level is None else level)
    return compressor.compress


class TooLargeError(ValueError):
    """Compressed data are larger than allowed, because a few bytes can announce gigabytes."""


def decompress(codec_id: int, data: Buffer, most_bytes: int) -> bytes:
    """Return the records of a batch that any client may have compressed, in any framing.

    Raises ValueError for an unknown codec and for damaged data, TooLargeError for more than
    ``most_bytes`` of records.
    """
    # One byte above the limit distinguishes a batch that is too large from one that just fits.
    records = _decompress_bounded(codec_id, data, most_bytes + 1)
    if len(records) > most_bytes:
        problem = f"more than {most_bytes} bytes of records in {len(data)} compressed ones"
        raise TooLargeError(problem)
    return records


def decompress_start(codec_id: int, data: Buffer, most_bytes: int) -> bytes:
    """Return the first ``most_bytes`` of the records; all if there are fewer.

    Raises ValueError for an unknown codec and for damaged data.
    """
    # Snappy's blocks are decompressed whole, and none is larger than 64 times its compressed size.
    is_snappy = codec_id == CODEC_IDS["snappy"]
    bound = len(data) * _SNAPPY_HIGHEST_RATIO if is_snappy else most_bytes
    return _decompress_bounded(codec_id, data, bound)[:most_bytes]


def _decompress_bounded(codec_id: int, data: Buffer, most_bytes: int) -> bytes:
    decompressors: dict[int, Callable[[memoryview, int], bytes]] = {
        CODEC_IDS["none"]: lambda view, most: bytes(view[:most]),
        CODEC_IDS["gzip"]: _any_gzip,
        CODEC_IDS["snappy"]: _any_snappy,
        CODEC_IDS["lz4"]: _any_lz4,
        CODEC_IDS["zstd"]: _any_zstd,
    }
    decompress_bounded = decompressors.get(codec_id)
    if decompress_bounded is None:
        raise ValueError(f"unknown codec {codec_id}")
    return decompress_bounded(memoryview(data), most_bytes)


def _any_gzip(data: memoryview, most_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        records = stream.decompress(data, most_bytes)
    except zlib.error as error:
        raise ValueError(f"gzip: {error}") from error
    if not stream.eof and len(records) < most_bytes:
        raise ValueError("gzip: cut short")
    return records


def _any_lz4(data: memoryview, most_bytes: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        records: bytes = stream.decompress(data, max_length=most_bytes)
    except RuntimeError as error:
        raise ValueError(f"lz4: {error}") from error
    if not stream.eof and len(records) < most_bytes:
        raise ValueError("lz4: cut short")
    return records


def _any_zstd(data: memoryview, most_bytes: int) -> bytes:
    """Decompress as a stream: Java's and librdkafka's frames may not contain their size."""
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(most_bytes)
    except zstandard.ZstdError as error:
        raise ValueError(f"zstd: {error}") from error


def _any_snappy(data: memoryview, most_bytes: int) -> bytes:
    """Read snappy-java's stream of blocks, or librdkafka's single block without framing."""
    if data[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        return _snappy_block(data, most_bytes)
    out = bytearray()
    at = len(_SNAPPY_HEADER)
    while at < len(data):
        start = at + _SNAPPY_LENGTH.size
        size = int.from_bytes(data[at:start], "big", signed=True)
        at = start + size
        if size < 0 or at > len(data):
            raise ValueError("snappy: cut short")
        out += _snappy_block(data[start:at], most_bytes - len(out))
    return bytes(out)


def _snappy_block(block: memoryview, most_bytes: int) -> bytes:
    import pyarrow as pa

    size = _snappy_size(block)
    if size > most_bytes:
        raise TooLargeError(f"snappy: a block of more than {most_bytes} bytes")
    try:
        records: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    except OSError as error:  # pyarrow's error for a corrupt block
        raise ValueError(f"snappy: {error}") from error
    return records


def _snappy_size(block: memoryview) -> int:
    """Return the uncompressed size, with which a block begins: an unsigned varint of 32 bits."""
    size = 0
    for index, byte in enumerate(block[:_SNAPPY_SIZE_MOST_BYTES]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("snappy: a block without its size")
