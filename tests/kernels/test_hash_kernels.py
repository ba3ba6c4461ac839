"""Compare digest_rows and assign_slots with their twins, and wyhash with its author's test vectors."""

from __future__ import annotations

import zlib

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.record.columns import RowsDigest, bytes_view, integers_view
from spark_kafka_sink.record.compiled.calls import (
    ABSENT_BYTES,
    ABSENT_INTEGERS,
    ALL_ASSIGNED,
    CRC32,
    MURMUR2,
    MURMUR3,
    NO_KEY_HASH,
    Topics,
    assign_slots,
)
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


def hashed(data):
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


# Source: Kafka's UtilsTest.testMurmur2.


def assign(
    keys, counts=(7,), topics=None, partition=None, key_hash=MURMUR2, firsts=None, computed=None
):
    """Return the slots of all rows by the kernel."""
    rows = len(keys) if keys is not None else len(partition)
    out = np.full(rows, -99, np.int32)
    first_slots = np.array(firsts or np.cumsum([0, *counts[:-1]]), np.int32)
    array = None if keys is None else pa.array(keys, pa.binary())
    key = ABSENT_BYTES if array is None else bytes_view(array)
    chosen = None if partition is None else pa.array(partition, pa.int32())
    view = ABSENT_INTEGERS if chosen is None else integers_view(chosen)
    indices = None if topics is None else np.array(topics, np.int32)
    bad = assign_slots(
        Topics(indices, first_slots, np.array(counts, np.int32)), view, computed, key, key_hash, out
    )
    return bad, out.tolist()


@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), min_size=1), st.integers(1, 1000))
def test_keys_go_where_java_sends_them(keys, count):
    bad, slots = assign(keys, counts=(count,))
    assert bad == ALL_ASSIGNED
    assert slots == [-1 if k is None else twin.partition_for_key(k, count) for k in keys]


def test_a_partition_column_decides_and_null_leaves_it_to_the_key():
    bad, slots = assign([b"k", b"k", None], counts=(10,), partition=[9, None, 0])
    assert bad == ALL_ASSIGNED
    assert slots == [9, twin.partition_for_key(b"k", 10), 0]


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
def test_the_first_row_with_a_partition_that_does_not_exist_is_reported(wrong):
    bad, _ = assign(None, counts=(3,), partition=[0, 2, wrong, wrong])
    assert bad == 2


def test_each_topic_has_its_own_slots_and_sticky_partition():
    bad, slots = assign([b"a", b"a", None, None], counts=(3, 4), topics=[0, 1, 0, 1])
    assert bad == ALL_ASSIGNED
    expected = [twin.partition_for_key(b"a", 3), 3 + twin.partition_for_key(b"a", 4), -1, -2]
    assert slots == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), min_size=1), st.integers(1, 1000))
def test_murmur3_is_that_of_mmh3(keys, count):
    slots = assign(keys, counts=(count,), key_hash=MURMUR3)[1]
    assert slots == [-1 if k is None else mmh3.hash(k, signed=False) % count for k in keys]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), min_size=1), st.integers(1, 1000))
def test_crc32_is_that_of_librdkafka_where_an_empty_key_is_none(keys, count):
    slots = assign(keys, counts=(count,), key_hash=CRC32)[1]
    assert slots == [zlib.crc32(k) % count if k else -1 for k in keys]


def test_a_computed_partition_counts_less_than_the_column_and_more_than_the_key():
    computed = np.array([4, 4, -1, -1], np.int32)
    partition = [2, None, None, None]
    keys = [b"k", b"k", b"k", None]
    slots = assign(keys, (9,), partition=partition, computed=computed)[1]
    assert slots == [2, 4, twin.partition_for_key(b"k", 9), -1]
    assert assign(keys, (9,), None, partition, NO_KEY_HASH)[1] == [2, -1, -1, -1]


def test_a_computed_partition_that_does_not_exist_is_reported():
    computed = np.array([0, 9], np.int32)
    assert assign([b"k", b"k"], counts=(9,), computed=computed)[0] == 1
