"""Batches read and written in plain Python: against the twin, and against bytes that are wrong."""

import gzip
import struct

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.record import record_batch
from spark_kafka_sink.record.compression import CODEC_IDS, decompress
from spark_kafka_sink.record.record_batch import (
    BatchHeader,
    EndTransactionMarker,
    crc32c,
    read_batches,
    write_header,
)
from spark_kafka_sink.record.record_writer import NewRecord, encode_batch
from tests import twin

PROPERTY = settings(max_examples=100, deadline=None, derandomize=True, database=None)
NOON = 1_700_000_000_000
SOME = ProducerIdAndEpoch(4711, 3)
CODECS = list(CODEC_IDS)
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
    header = BatchHeader(attributes, NOON, NOON + 9, producer, 0, count)
    write_header(header, [memoryview(data)], len(data))
    return bytes(data)


def read_one(data):
    (batch,) = read_batches(data)
    return batch


# Written here, read by the twin


@PROPERTY
@given(st.lists(new_records, min_size=1, max_size=5), st.sampled_from(CODECS), st.booleans())
def test_the_twin_reads_what_is_written(records, codec, is_transactional):
    data = encode_batch(records, NOON, SOME, 7, is_transactional=is_transactional, codec=codec)
    batch = twin.decode_batch(data)
    assert [(r.key, r.value, r.headers) for r in batch.records] == records
    assert {record.timestamp for record in batch.records} == {NOON}
    header = batch.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*SOME, 7)
    assert batch.codec == codec
    assert header.attributes == CODEC_IDS[codec] | (TRANSACTIONAL if is_transactional else 0)


@PROPERTY
@given(st.lists(new_records, min_size=1, max_size=5), st.sampled_from(CODECS))
def test_what_is_written_is_read(records, codec):
    batch = read_one(encode_batch(records, NOON, SOME, 7, codec=codec))
    assert [(r.key, r.value, r.headers) for r in batch.records] == records
    assert [record.offset for record in batch.records] == list(range(len(records)))
    assert (batch.base_offset, batch.last_offset) == (0, len(records) - 1)
    assert (batch.producer_id, batch.producer_epoch) == SOME
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.marker is None


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(LocalProtocolError, match="without records"):
        encode_batch([], NOON, SOME, 0)


def test_a_transaction_needs_a_producer():
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
    assert batch.records == [(o, NOON + t, *record) for t, o, record in rows]


def test_offsets_count_from_the_batchs():
    data = bytearray(batch_of(twin.encode_record(0, 2, b"k", None), 3))
    struct.pack_into(">q", data, 0, 1 << 40)
    # The records' count is not the offsets': compaction took two of three.
    struct.pack_into(">i", data, 57, 1)
    batch = read_one(with_crc(data))
    assert [record.offset for record in batch.records] == [(1 << 40) + 2]
    assert batch.last_offset == (1 << 40) + 2


def with_crc(data):
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def test_a_header_key_that_is_no_text_is_read():
    body = bytes(3) + b"\x01\x01" + b"\x02" + b"\x04a\xff" + b"\x01"
    batch = read_one(batch_of(bytes([len(body) * 2]) + body))
    assert batch.records[0].headers == (("a�", None),)


# Control records


def control(key, value):
    return batch_of(twin.encode_record(0, 0, key, value), 1, CONTROL | TRANSACTIONAL)


@pytest.mark.parametrize(
    ("key", "value", "marker"),
    [
        ("00000001", "000000000005", EndTransactionMarker(True, 5)),
        ("00000000", "00007fffffff", EndTransactionMarker(False, 2**31 - 1)),
        ("00010001", "000100000005ffff", EndTransactionMarker(True, 5)),
        ("0000000100", "000000000005", EndTransactionMarker(True, 5)),
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
        list(read_batches(control(key, value)))


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
            list(read_batches(broken))


def test_batches_before_a_broken_one_are_read():
    data = encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0)
    batches = read_batches(data + data[:-1] + b"!")
    assert next(batches).records[0].value == b"value"
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(data)}: wrong CRC"):
        next(batches)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_below_the_headers(length):
    data = bytearray(encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(RemoteProtocolError, match=f"length {length}"):
        list(read_batches(data))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_are_refused(magic):
    data = bytearray(encode_batch([NewRecord(b"key", b"value")], NOON, SOME, 0))
    data[16] = magic
    with pytest.raises(RemoteProtocolError, match=f"magic {magic}"):
        list(read_batches(data))


RECORD = twin.encode_record(0, 0, b"k", b"v")


@pytest.mark.parametrize(
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
        list(read_batches(batch_of(body, count)))
    assert message in str(raised.value)


def test_a_codec_that_is_not_known():
    with pytest.raises(RemoteProtocolError, match="unknown codec 5"):
        list(read_batches(batch_of(RECORD, attributes=5)))


def test_an_emptied_batch_may_keep_its_codec():
    for codec_id in CODEC_IDS.values():
        assert read_one(batch_of(b"", 0, codec_id)).records == []


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


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_comes_out_than_may(codec):
    compressed = compressed_by(codec)
    size = len(twin.decompress(codec, compressed))
    assert len(decompress(CODEC_IDS[codec], compressed, size)) == size
    with pytest.raises(ValueError, match="more than"):
        decompress(CODEC_IDS[codec], compressed, size - 1)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_bytes_that_the_codec_cannot_read(codec, monkeypatch):
    compressed = compressed_by(codec)
    for broken in (b"", b"\xff" * 40, compressed[: len(compressed) // 2], compressed[:-1]):
        with pytest.raises(RemoteProtocolError):
            list(read_batches(batch_of(broken, 1, CODEC_IDS[codec])))
    monkeypatch.setattr(record_batch, "MOST_UNCOMPRESSED_BYTES", 1000)
    with pytest.raises(RemoteProtocolError, match="more than 100[01] bytes"):
        list(read_batches(batch_of(compressed, 1, CODEC_IDS[codec])))


def test_snappy_that_announces_gigabytes():
    huge = b"\xff\xff\xff\xff\x0f" + bytes(20)
    for data in (huge, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(huge)) + huge):
        with pytest.raises(ValueError, match="a block of more than"):
            decompress(CODEC_IDS["snappy"], data, 1 << 20)
