"""Record batches with broken bytes inside: RemoteProtocolError is all that comes of reading them.

The CRC is made right again after each change, or nothing behind it would be reached.
"""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.record.compression import CODEC_IDS
from spark_kafka_sink.record.record_batch import ReadBatch, crc32c, read_batches
from spark_kafka_sink.record.record_writer import NewRecord, encode_batch
from tests.property.test_protocol_fuzz import SEED, mutated

CASES_PER_CODEC = 1500
_CRC_AT, _CRC_END, _HEADER_END = 17, 21, 61
_CONTROL_FLAG = 0x20


def with_lengths_and_crc(data: bytes) -> bytes:
    """The same with the length that it has, and the CRC of what is in it."""
    right = bytearray(data.ljust(_HEADER_END, b"\0"))
    struct.pack_into(">i", right, 8, len(right) - 12)
    right[16] = 2
    struct.pack_into(">I", right, _CRC_AT, crc32c(memoryview(right)[_CRC_END:]))
    return bytes(right)


def valid_batch(codec: str, rng: random.Random) -> bytes:
    records = [
        NewRecord(b"\0\0\0" + rng.choice((b"\0", b"\1")), b"\0\0" + rng.randbytes(4)),
        NewRecord(None, rng.randbytes(60), [("h", None), ("größe", b"x")]),
        NewRecord(b"k" * 70, None),
    ]
    data = encode_batch(records, 1_700_000_000_000, ProducerIdAndEpoch(7, 0), 0, codec=codec)
    if rng.random() < 0.3:
        data = data[:22] + bytes([data[22] | _CONTROL_FLAG]) + data[23:]
    return with_lengths_and_crc(data)


def read(data: bytes) -> list[ReadBatch] | None:
    """None if refused. Lets any other exception out."""
    try:
        return list(read_batches(data))
    except RemoteProtocolError:
        return None


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_broken_batches_raise_nothing_but_remote_protocol_error(codec: str) -> None:
    rng = random.Random(SEED)
    accepted = 0
    for case in range(CASES_PER_CODEC):
        data = valid_batch(codec, rng)
        assert read(data) is not None
        broken = with_lengths_and_crc(data[:_CRC_END] + mutated(data[_CRC_END:], rng))
        try:
            accepted += read(broken) is not None
        except Exception as error:
            pytest.fail(f"{error!r} from bytes.fromhex({broken.hex()!r}) ({codec}, case {case})")
    assert CASES_PER_CODEC * 0.02 < accepted < CASES_PER_CODEC * 0.9


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 7), st.integers(0, 5), st.binary(max_size=60))
def test_arbitrary_records(attributes: int, count: int, body: bytes) -> None:
    header = struct.pack(">hiqqqhii", attributes, 0, 0, 0, 1, 1, 0, count)
    read(with_lengths_and_crc(bytes(_CRC_END) + header + body))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=100))
def test_arbitrary_bytes(data: bytes) -> None:
    read(data)


def test_lies_about_counts_take_no_memory() -> None:
    """At every position of the records: the largest numbers that a varint can say."""
    data = valid_batch("none", random.Random(SEED))
    lie = b"\xfe\xff\xff\xff\x0f"
    for at in range(57, len(data)):
        broken = with_lengths_and_crc(data[:at] + lie + data[at + len(lie) :])
        tracemalloc.start()
        read(broken)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * len(data), at
