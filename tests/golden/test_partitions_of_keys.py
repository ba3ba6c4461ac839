"""Keys go to the partitions to which the Java producer sends them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.columns.record_columns import bytes_view
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.record.compiled.calls import (
    ABSENT_INTEGERS,
    ALL_ASSIGNED,
    MURMUR2,
    Topics,
    assign_slots,
)
from tests import twin
from tests.golden import case_files as cases
from tests.golden.producing import Golden, Topic

CASES = cases.load("keys")
KEYS = [cases.blob(case["key"]) for case in CASES]
COUNTS = [int(count) for count in CASES[0]["partitions"]]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("data_type", [pa.binary(), pa.large_binary()], ids=str)
def test_partitions_are_javas(count, data_type):
    slots = np.full(len(KEYS), -99, np.int32)
    keys = pa.array(KEYS, data_type)
    topics = Topics(None, np.array([0], np.int32), np.array([count], np.int32))
    bad = assign_slots(topics, ABSENT_INTEGERS, None, bytes_view(keys), MURMUR2, slots)
    assert bad == ALL_ASSIGNED
    assert slots.tolist() == [case["partitions"][str(count)] for case in CASES]


@pytest.mark.parametrize("count", [7, 30])
def test_producer_sends_keys_to_javas_partitions(count):
    rows = [
        cases.Row(0, key, str(index).encode(), [], partition=None) for index, key in enumerate(KEYS)
    ]
    golden = Golden({"t": Topic(partitions_count=count)})
    found = {}
    for sent in golden.write(rows):
        for partition in sent.decode(ProduceRequest).topic_data[0].partition_data:
            assert partition.records is not None
            for record in twin.decode_batch(b"".join(partition.records.buffers)).records:
                found[int(record.value or b"-1")] = partition.index
    assert found == {i: case["partitions"][str(count)] for i, case in enumerate(CASES)}


def test_the_twin_of_other_tests_is_java_as_well():
    for key, case in zip(KEYS, CASES):
        assert twin.murmur2(key) == case["murmur2"] & 0xFFFFFFFF
