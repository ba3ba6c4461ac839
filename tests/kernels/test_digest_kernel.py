"""Compare digest_rows with its twin, and wyhash with its author's test vectors."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import RowsDigest
from tests import twin

# wyhash's own tests, final version 4. The seed is the position.
VECTORS = [
    (b"", 0x93228A4DE0EEC5A2),
    (b"a", 0xC5BAC3DB178713C4),
    (b"abc", 0xA97F2F7B1D9B3314),
    (b"message digest", 0x786D1F1DF3801DF4),
    (b"abcdefghijklmnopqrstuvwxyz", 0xDCA5A8138AD37C87),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 0xB9E734F117CFAF70),
    (b"1234567890" * 8, 0x6CC5EAB49A92D617),
]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
POSITIONS = ColumnPositions(value=1, key=0, headers=2, topic=3, partition=4, timestamp=5)


VALUE_SEED, KEY_SEED, HEADER_SEED = 2, 3, 5
"""Seeds of a row's first field: its kind XOR the seed of a row."""


def hashed(data: bytes) -> int:
    """Return the kernel's hash of the value of a row, between bytes that must not count."""
    array = pa.array([b"\xa5" * 16, data, b"\xa5" * 16], pa.binary()).slice(1, 1)
    digest = RowsDigest(ColumnPositions(value=0, topic_option="t"))
    digest.add(pa.record_batch([array], ["value"]))
    return digest.contents


@pytest.mark.parametrize(("seed", "data", "expected"), [(n, *v) for n, v in enumerate(VECTORS)])
def test_the_twin_has_the_published_hash(seed, data, expected):
    assert twin.wyhash(data, seed) == expected


def test_the_kernel_has_the_published_hash():
    digest = RowsDigest(POSITIONS._replace(topic_option="t"))
    header = [(VECTORS[HEADER_SEED][0].decode(), None)]
    rows = [
        (None, VECTORS[VALUE_SEED][0], None, "t", None, None),
        (VECTORS[KEY_SEED][0], None, None, "t", None, None),
        (None, None, header, "t", None, None),
    ]
    digest.add(batch_of(rows))
    expected = sum(VECTORS[seed][1] for seed in (VALUE_SEED, KEY_SEED, HEADER_SEED))
    assert digest.contents == expected % 2**64


@given(st.binary(max_size=300))
def test_the_kernel_equals_its_twin(data):
    assert hashed(data) == twin.wyhash(data, VALUE_SEED)


@pytest.mark.parametrize("length", range(1, 130))
def test_each_byte_and_the_length_count(length):
    data = random.Random(length).randbytes(length)
    others = {bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]) for at in range(length)}
    several = [data, data[:-1], data + b"\0", *others]
    assert len({hashed(one) for one in several}) == len(several)


def test_hashes_of_similar_rows_do_not_add_up_to_the_same():
    """Neighbours swap their last digits: the sums of simple hashes would not change."""
    sums = set()
    for number in range(0, 2000, 2):
        for offset in (0, 10_000_000):
            pair = [b"%08d" % (number + offset), b"%08d" % (number + 1 + offset)]
            sums.add(sum(map(hashed, pair)) % 2**64)
    assert len(sums) == 2000


FIELD = st.one_of(st.none(), st.binary(max_size=60))
ROW = st.tuples(
    FIELD,
    FIELD,
    st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=4), FIELD), max_size=3)),
    st.sampled_from(["t", "a-longer-name-of-a-topic", ""]),
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.one_of(st.none(), st.integers(0, 2**50)),
)


def batch_of(rows, is_large=False):
    binary, string = pa.binary(), pa.string()
    if is_large:
        binary, string = pa.large_binary(), pa.large_string()
    headers = [
        None if h is None else [{"key": k, "value": v} for k, v in h] for h in column(rows, 2)
    ]
    arrays = [
        pa.array(column(rows, 0), binary),
        pa.array(column(rows, 1), binary),
        pa.array(headers, HEADERS),
        pa.array(column(rows, 3), string),
        pa.array(column(rows, 4), pa.int32()),
        pa.array(column(rows, 5), pa.timestamp("us")),
    ]
    return pa.record_batch(arrays, ["key", "value", "headers", "topic", "partition", "timestamp"])


def column(rows, index):
    return [row[index] for row in rows]


@given(st.lists(ROW, min_size=1, max_size=12), st.integers(0, 11), st.booleans())
def test_rows_equal_their_twin(rows, first, is_large):
    """Sliced batches are included."""
    first = min(first, len(rows) - 1)
    digest = RowsDigest(POSITIONS)
    digest.add(batch_of(rows, is_large).slice(first))
    expected, size = 0, 0
    for key, value, headers, topic, partition, timestamp in rows[first:]:
        pairs = [(k.encode(), v) for k, v in headers or ()]
        timestamp_ms = None if timestamp is None else timestamp // 1000
        expected += twin.row_hash(key, value, pairs, topic.encode(), partition, timestamp_ms)
        fields = [key, value, topic.encode(), *(part for pair in pairs for part in pair)]
        size += sum(len(field) for field in fields if field is not None)
    found = (digest.records, digest.data_bytes, digest.contents)
    assert found == (len(rows) - first, size, expected % 2**64)
