"""Compare assign_slots with its twin, and murmur2 with Kafka's own test vectors."""

from __future__ import annotations

import zlib

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.columns.record_columns import bytes_view, integers_view
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

# Source: Kafka's UtilsTest.testMurmur2.
MURMUR2_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


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
        Topics(indices, first_slots, np.array(counts, np.int32)),
        view,
        computed,
        key,
        key_hash,
        out,
    )
    return bad, out.tolist()


@pytest.mark.parametrize(("key", "expected"), MURMUR2_VECTORS.items())
def test_murmur2_is_kafkas(key, expected):
    unsigned = expected & 0xFFFFFFFF
    assert twin.murmur2(key) == unsigned
    bad, slots = assign([key], counts=(2**31 - 1,))
    assert bad == ALL_ASSIGNED
    assert slots == [(unsigned & 0x7FFFFFFF) % (2**31 - 1)]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), min_size=1), st.integers(1, 1000))
def test_keys_go_where_java_sends_them(keys, count):
    bad, slots = assign(keys, counts=(count,))
    assert bad == ALL_ASSIGNED
    assert slots == [-1 if k is None else twin.partition_for_key(k, count) for k in keys]


def test_an_empty_key_is_a_key():
    assert assign([b"", None], counts=(5,))[1] == [twin.partition_for_key(b"", 5), -1]


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


def test_keys_can_be_ignored():
    assert assign([b"a", None], key_hash=NO_KEY_HASH)[1] == [-1, -1]


def test_slices_and_large_offsets_are_read_from_their_start():
    keys = [b"zero", None, b"two", b"three", None, b"five"]
    for type_ in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()):
        values = (
            keys
            if pa.types.is_binary(type_) or type_ == pa.large_binary()
            else [None if k is None else k.decode() for k in keys]
        )
        array = pa.array(values, type_).slice(1, 4)
        out = np.zeros(4, np.int32)
        one = np.zeros(1, np.int32)
        count = np.array([11], np.int32)
        topics = Topics(None, one, count)
        assign_slots(topics, ABSENT_INTEGERS, None, bytes_view(array), MURMUR2, out)
        expected = [-1 if k is None else twin.partition_for_key(k, 11) for k in keys[1:5]]
        assert out.tolist() == expected


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
    slots = assign([b"k", b"k", b"k", None], (9,), partition=partition, computed=computed)[1]
    assert slots == [2, 4, twin.partition_for_key(b"k", 9), -1]


def test_a_computed_partition_that_does_not_exist_is_reported():
    computed = np.array([0, 9], np.int32)
    assert assign([b"k", b"k"], counts=(9,), computed=computed)[0] == 1
