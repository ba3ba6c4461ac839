"""Record batches v2: the header byte by byte, CRC-32C against a table of its own, and every codec against
a decoder that is not the one it is made of, and in Kafka's framing.

gzip is read by the standard library, snappy by cramjam, lz4 and zstd by pyarrow's own libraries.
"""

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.appender import single_record_sizes
from spark_kafka_sink.protocol.types import write_unsigned_varint
from spark_kafka_sink.record import record_batch
from spark_kafka_sink.record.compression import CODEC_IDS, create_compressor, decompress
from spark_kafka_sink.record.record_batch import NewRecord, encode_batch
from tests import twin
from tests.tables import each_row

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


HEADER = record_batch.BatchHeader(
    attributes=4,
    base_timestamp=1_700_000_000_000,
    max_timestamp=1_700_000_000_999,
    producer=ProducerIdAndEpoch(0x0102030405060708, 0x1112),
    base_sequence=0x21222324,
    records_count=3,
)


def written(header, *parts):
    """A batch whose records are ``parts``, the first in the header's buffer."""
    first = bytearray(b"\xee" * record_batch.RECORD_BATCH_OVERHEAD + (parts[0] if parts else b""))
    buffers = [memoryview(first), *(memoryview(bytearray(part)) for part in parts[1:])]
    record_batch.write_header(header, buffers, sum(len(buffer) for buffer in buffers))
    return b"".join(buffers)


def test_crc32c_of_a_known_value_and_a_header_that_is_cut():
    """RFC 3720, B.4; the table is that of the other tests."""
    assert record_batch.crc32c(b"123456789") == 0xE3069283 == crc32c_by_table(b"123456789")
    with pytest.raises(struct.error):
        record_batch.read_header(written(HEADER)[:60])


@PROPERTY
@given(st.binary(max_size=200), st.integers(0, 200))
def test_crc32c_can_be_continued(data, cut):
    assert record_batch.crc32c(data[cut:], record_batch.crc32c(data[:cut])) == crc32c_by_table(data)
    assert record_batch.crc32c(memoryview(data)) == record_batch.crc32c(bytearray(data))


@PROPERTY
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_buffers_are_one_batch(parts):
    assert written(HEADER, *parts) == written(HEADER, b"".join(parts))


@PROPERTY
@given(
    st.builds(
        record_batch.BatchHeader,
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
    parsed = record_batch.read_header(b"before" + data, 6)
    assert (parsed.magic, parsed.base_offset, parsed.size_bytes) == (2, 0, len(data))
    assert parsed.last_offset_delta == header.records_count - 1
    producer = ProducerIdAndEpoch(parsed.producer_id, parsed.producer_epoch)
    times = (parsed.attributes, parsed.base_timestamp, parsed.max_timestamp)
    assert (*times, producer, parsed.base_sequence, parsed.records_count) == header
    assert record_batch.is_crc_valid(data)


SIZES = [1, 100, 32_767, 32_768, 32_769, 65_536, 65_537, 262_144, 262_145, 300_000, 1 << 20]
CODECS = ["gzip", "snappy", "lz4", "zstd"]
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


def decoded(codec, data, size):
    if codec in ("gzip", "snappy"):
        return twin.decompress(codec, data)
    return pa.Codec(codec).decompress(data, size, asbytes=True)


@each_row("make", [text, noise])
@each_row("size", SIZES)
@each_row("codec", CODECS)
def test_every_size(codec, size, make):
    data = make(size)
    compressed = compress(codec, data)
    assert decoded(codec, compressed, size) == data
    assert decompress(CODEC_IDS[codec], compressed, size) == data


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
    assert decoded(codec, bytes(first), 70_000) == first_data


# --- framing --------------------------------------------------------------------------------------


def test_gzip_is_one_member_with_trailer():
    data = text(10_000)
    compressed = compress("gzip", data)
    member = zlib.decompressobj(wbits=31)
    assert member.decompress(compressed) == data
    assert (member.eof, member.unused_data) == (True, b"")


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


@each_row("level", [9, 12])
@each_row(
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


# --- batches read and written in plain Python: against the twin, and bytes that are wrong --------

NOON = 1_700_000_000_000
SOME = ProducerIdAndEpoch(4711, 3)
ALL_CODECS = list(CODEC_IDS)
TRANSACTIONAL, CONTROL = 0x10, 0x20

headers = st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4))
new_records = st.builds(
    NewRecord,
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=300),
    st.lists(headers, max_size=3).map(tuple),
)


def batch_of(body, count=1, attributes=0, producer=SOME):
    """A batch with a right header and any body."""
    data = bytearray(61) + body
    header = record_batch.BatchHeader(attributes, NOON, NOON + 9, producer, 0, count)
    record_batch.write_header(header, [memoryview(data)], len(data))
    return bytes(data)


def read_one(data):
    (batch,) = record_batch.read_batches(data)
    return batch


def records_of(data):
    return list(read_one(data).records())


# Written here, read by the twin:


@PROPERTY
@given(st.lists(new_records, min_size=1, max_size=5), st.sampled_from(ALL_CODECS), st.booleans())
def test_the_twin_reads_what_is_written(records, codec, is_transactional):
    data = encode_batch(records, NOON, SOME, 7, is_transactional=is_transactional, codec=codec)
    batch = twin.decode_batch(data)
    assert [(r.key, r.value, r.headers) for r in batch.records] == records
    assert {record.timestamp for record in batch.records} == {NOON}
    header = batch.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*SOME, 7)
    assert batch.codec == codec
    assert header.attributes == CODEC_IDS[codec] | (TRANSACTIONAL if is_transactional else 0)


def test_a_batch_needs_records_and_a_transaction_needs_a_producer():
    with pytest.raises(LocalProtocolError, match="without records"):
        encode_batch([], NOON, SOME, 0)
    record = NewRecord(b"k", b"v")
    with pytest.raises(LocalProtocolError, match="producer id"):
        encode_batch([record], NOON, NO_PRODUCER, -1)
    plain = encode_batch([record], NOON, NO_PRODUCER, -1, is_transactional=False)
    assert not read_one(plain).is_transactional


# Written by the twin, read here


@PROPERTY
@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**31 - 1), new_records), max_size=5
    )
)
def test_what_the_twin_writes_is_read(rows):
    """Timestamps and offsets far from the batch's own, as after compaction."""
    body = b"".join(twin.encode_record(t, o, *record[:2], list(record[2])) for t, o, record in rows)
    batch = read_one(batch_of(body, len(rows)))
    assert list(batch.records()) == [(o, NOON + t, *record) for t, o, record in rows]


def test_a_header_key_that_is_no_text_is_read():
    body = bytes(3) + b"\x01\x01" + b"\x02" + b"\x04a\xff" + b"\x01"
    batch = read_one(batch_of(bytes([len(body) * 2]) + body))
    assert next(batch.records()).headers == (("a�", None),)


# Control records


def control(key, value):
    return batch_of(twin.encode_record(0, 0, key, value), 1, CONTROL | TRANSACTIONAL)


@pytest.mark.parametrize(
    ("key", "value", "marker"),
    [
        ("00000001", "000000000005", record_batch.EndTransactionMarker(True, 5)),
        ("00000000", "00007fffffff", record_batch.EndTransactionMarker(False, 2**31 - 1)),
        ("00010001", "000100000005ffff", record_batch.EndTransactionMarker(True, 5)),
        ("0000000100", "000000000005", record_batch.EndTransactionMarker(True, 5)),
        ("00000002", "0000", None),
        ("00007fff", None, None),
        ("0000ffff", None, None),
    ],
)
def test_control_records(key, value, marker):
    """Versions that are not known yet are read like the last one that is."""
    batch = read_one(control(bytes.fromhex(key), None if value is None else bytes.fromhex(value)))
    assert batch.is_control
    assert batch.marker == marker


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\5"),
        (b"", b"\0\0\0\0\0\5"),
        (b"\0\0\0", b"\0\0\0\0\0\5"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\5"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\5"),
    ],
)
def test_broken_control_records(key, value):
    with pytest.raises(RemoteProtocolError):
        list(record_batch.read_batches(control(key, value)))


def test_a_record_that_looks_like_a_marker_is_none():
    data = batch_of(twin.encode_record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\5"), 1, TRANSACTIONAL)
    assert read_one(data).marker is None


# Bytes that are wrong


def test_every_changed_byte_that_the_crc_covers_is_noticed():
    data = encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0)
    for at in range(16, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(RemoteProtocolError):
            list(record_batch.read_batches(broken))


def test_batches_before_a_broken_one_are_read():
    data = encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0)
    batches = record_batch.read_batches(data + data[:-1] + b"!")
    assert next(next(batches).records()).value == b"value"
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(data)}: wrong CRC"):
        next(batches)


@each_row(
    ("at", "layout", "value", "message"),
    [
        *((8, ">i", length, f"length {length}") for length in (-(2**31), -1, 0, 48)),
        *((16, "B", magic, f"magic {magic}") for magic in (0, 1, 3, 255)),
    ],
)
def test_lengths_below_the_headers_and_other_formats_are_refused(at, layout, value, message):
    data = bytearray(encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0))
    struct.pack_into(layout, data, at, value)
    with pytest.raises(RemoteProtocolError, match=message):
        list(record_batch.read_batches(data))


RECORD = twin.encode_record(0, 0, b"k", b"v")


@each_row(
    ("body", "count", "message"),
    [
        (RECORD, -1, "-1 records"),
        (RECORD, 2, "index out of range"),
        (RECORD, 0, "9 bytes after the last of 0 records"),
        (RECORD + b"\0", 1, "1 bytes after the last"),
        (RECORD[:-1], 1, "record of 8 bytes, 7 left"),
        (b"\x01" + RECORD[1:], 1, "record of -1 bytes"),
        (b"\x0e" + RECORD[1:], 1, "record of 7 bytes ends +1 bytes off"),
        (b"\x12" + RECORD[1:] + b"\0", 1, "record of 9 bytes ends -1 bytes off"),
        (b"\x80" * 10 + b"\x01", 1, "longer than 64 bits"),
        (b"\x10" + bytes(3) + b"\x7e" + RECORD[5:], 1, "63 bytes announced"),
        (RECORD[:-1] + b"\x02", 1, "1 headers in 0 bytes"),
        (RECORD[:-1] + b"\x01", 1, "-1 headers"),
        (b"\x14" + RECORD[1:-1] + b"\x02\x01\x01", 1, "null key of a header"),
    ],
)
def test_broken_records(body, count, message):
    with pytest.raises(RemoteProtocolError) as raised:
        records_of(batch_of(body, count))
    assert message in str(raised.value)


def test_a_codec_that_is_not_known_and_that_of_an_emptied_batch():
    with pytest.raises(RemoteProtocolError, match="unknown codec 5"):
        records_of(batch_of(RECORD, attributes=5))
    for codec_id in CODEC_IDS.values():
        batch = read_one(batch_of(b"", 0, codec_id))
        assert list(batch.records()) == []
        assert list(batch.keyed_records(None, 1)) == []


# Records that are larger than a reader accepts


def record_with_headers(offset, count):
    """Each header is empty: two bytes."""
    head = twin.encode_record(0, offset, b"k%d" % offset, b"v")[1:-1]
    size = bytearray()
    write_unsigned_varint(count * 2, size)
    body = head + size + bytes(2 * count)
    size = bytearray()
    write_unsigned_varint(len(body) * 2, size)
    return bytes(size) + body


def test_a_record_of_many_headers_is_left_out_and_the_others_are_read():
    counts = (1, record_batch.MOST_HEADERS + 1, record_batch.MOST_HEADERS)
    body = b"".join(record_with_headers(offset, count) for offset, count in enumerate(counts))
    batch = read_one(batch_of(zstandard.compress(body), 3, CODEC_IDS["zstd"]))
    refused = []
    assert [r.key for r in batch.records(refused.append)] == [b"k0", b"k2"]
    assert [error.offset for error in refused] == [1]
    records = batch.records()
    assert next(records).key == b"k0"
    with pytest.raises(record_batch.RecordLimitError, match="offset 1 .* 100001 headers"):
        next(records)


def test_records_and_headers_of_a_batch_have_a_limit(monkeypatch):
    body = b"".join(record_with_headers(offset, 3) for offset in range(4))
    batch, refused = read_one(batch_of(body, 4)), []
    monkeypatch.setattr(record_batch, "MOST_OBJECTS", 11)
    assert [r.key for r in batch.records(refused.append)] == [b"k0", b"k1"]
    assert [error.offset for error in refused] == [2]


def test_what_is_not_wanted_is_not_built():
    """64 MiB in 6 KB: its key and the beginning of its value take little memory."""
    record = twin.encode_record(0, 0, b"key", bytes(64 << 20))
    batch = read_one(batch_of(zstandard.compress(record), 1, CODEC_IDS["zstd"]))
    del record
    tracemalloc.start()
    assert [*batch.keyed_records(b"other", 1 << 40)] == []
    assert [*batch.keyed_records(b"key", 10)] == [(b"key", bytes(11))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@PROPERTY
@given(st.lists(new_records, min_size=1, max_size=2), st.sampled_from(ALL_CODECS))
def test_records_by_key(records, codec):
    batch = read_one(encode_batch(records, NOON, SOME, 7, codec=codec))
    keyed = [record[:2] for record in records if record[0] is not None]
    for wanted in (None, records[0][0], b"another"):
        expected = [found for found in keyed if wanted in (None, found[0])]
        assert [*batch.keyed_records(wanted, 300)] == expected


def test_a_key_that_no_prefix_can_be_is_not_found():
    for size in (1 << 16, (1 << 16) + 1):
        found = read_one(encode_batch([NewRecord(bytes(size), b"v")], NOON, SOME, 7))
        assert len([*found.keyed_records(None, 1)]) == (size <= 1 << 16)


def test_headers_of_a_batch_of_several_are_not_looked_at():
    """They may be a million objects in a kilobyte; a record that has too many counts nevertheless."""
    headers = record_batch.MOST_HEADERS + 1
    body = b"".join(record_with_headers(offset, headers) for offset in range(2))
    batch = read_one(batch_of(zstandard.compress(body), 2, CODEC_IDS["zstd"]))
    assert [*batch.keyed_records(None, 1)] == [(b"k0", b"v"), (b"k1", b"v")]
    assert [*batch.keyed_records(b"k1", 1)] == [(b"k1", b"v")]


def test_the_records_of_a_batch_without_the_key_are_not_looked_at():
    batch = read_one(batch_of(b"\xff" * 100, 2))  # no records
    assert [*batch.keyed_records(b"key", 1)] == []
    with pytest.raises(RemoteProtocolError):
        [*batch.keyed_records(None, 1)]


def test_what_is_looked_at_of_a_batch_of_several_has_limits(monkeypatch):
    body = b"".join(record_with_headers(offset, 0) for offset in range(4))
    batch = read_one(batch_of(body, 4))
    monkeypatch.setattr(record_batch, "MOST_KEYED_RECORDS", 3)
    assert [key for key, _ in batch.keyed_records(None, 1)] == [b"k0", b"k1", b"k2"]
    assert [*batch.keyed_records(b"k3", 1)] == []
    monkeypatch.setattr(record_batch, "MOST_KEYED_BYTES", len(body) - 1)
    assert [*batch.keyed_records(None, 1)] == []


# Codecs as others write them

TEXT = b"flights of a day, " * 5000


OTHERS = {
    "gzip of the standard library": ("gzip", gzip.compress),
    "snappy without framing, as of librdkafka": (
        "snappy",
        lambda data: pa.Codec("snappy").compress(data, asbytes=True),
    ),
    "lz4 with linked blocks": ("lz4", lambda data: lz4.frame.compress(data, block_linked=True)),
    "lz4 of another library": ("lz4", lambda data: pa.Codec("lz4").compress(data, asbytes=True)),
    "zstd that does not say its size": (
        "zstd",
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_framings(name):
    codec, compress = OTHERS[name]
    for data in (b"x", TEXT):
        assert decompress(CODEC_IDS[codec], compress(data), len(data)) == data


def compressed_by(codec):
    record = NewRecord(None, TEXT)
    return encode_batch([record], NOON, SOME, 0, codec=codec)[61:]


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_no_more_comes_out_than_may(codec):
    compressed = compressed_by(codec)
    size = len(twin.decompress(codec, compressed))
    assert len(decompress(CODEC_IDS[codec], compressed, size)) == size
    with pytest.raises(ValueError, match="more than"):
        decompress(CODEC_IDS[codec], compressed, size - 1)


@pytest.mark.parametrize("codec", [codec for codec in ALL_CODECS if codec != "none"])
def test_bytes_that_the_codec_cannot_read(codec, monkeypatch):
    compressed = compressed_by(codec)
    for broken in (b"", b"\xff" * 40, compressed[: len(compressed) // 2], compressed[:-1]):
        with pytest.raises(RemoteProtocolError):
            records_of(batch_of(broken, 1, CODEC_IDS[codec]))
    monkeypatch.setattr(record_batch, "MOST_UNCOMPRESSED_BYTES", 1000)
    with pytest.raises(record_batch.RecordLimitError, match="offset 0 .* than 100[01] bytes"):
        records_of(batch_of(compressed, 1, CODEC_IDS[codec]))


def test_snappy_that_announces_gigabytes():
    huge = b"\xff\xff\xff\xff\x0f" + bytes(20)
    for data in (huge, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(huge)) + huge):
        with pytest.raises(ValueError, match="a block of more than"):
            decompress(CODEC_IDS["snappy"], data, 1 << 20)


@each_row("size", [0, *range(54, 64), *range(8177, 8187)])
def test_the_size_of_a_batch_with_one_record_is_known_before(size):
    """Around the sizes at which the record's length takes another byte."""
    batch = encode_batch([NewRecord(None, bytes(size))], 0, NO_PRODUCER, -1, is_transactional=False)
    # A null key, the value's length, the value, and no headers.
    content = 1 + (1 if size < 64 else 2) + size + 1
    assert single_record_sizes(np.array([content, 0]))[0] == len(batch)
