"""The partition kernel: which partition each row goes to.

Source: ``KafkaProducer.partition``, ``BuiltInPartitioner.partitionForKey``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.encoding import (
    NULL_LENGTH,
    bytes_address,
    bytes_length,
    is_valid,
)
from spark_kafka_sink.record.kernels.hashing import crc32, murmur2, murmur3
from spark_kafka_sink.record.kernels.jit import (
    BYTES_VIEW,
    INT32_ARRAY,
    INT64,
    INTEGERS_VIEW,
    kernel,
    load_int32,
)

ALL_ASSIGNED = -1

# How a key decides. Without a hash, rows with a key stick like rows without.
NO_KEY_HASH = 0
MURMUR2 = 1
MURMUR3 = 2
CRC32 = 3


@kernel(INT64, INT64)
def murmur3_of(address: int, length: int) -> int:
    """murmur3 of one key, for comparison with other implementations."""
    return np.int64(murmur3(address, length))


@kernel(INT64, INT32_ARRAY, INT32_ARRAY, INTEGERS_VIEW, INT64, BYTES_VIEW, INT64, INT32_ARRAY)
def assign_slots(
    topic_indices_address: int,
    topic_first_slots: Any,
    topic_partitions_counts: Any,
    partition: Any,
    computed_address: int,
    key: Any,
    key_hash: int,
    out_slots: Any,
) -> int:
    """Fill ``out_slots`` (int32[n]) with each row's slot: topic's first slot + partition.

    topic_indices_address: of int32[n] into the two arrays after it, or 0: all rows are topic 0
    topic_first_slots, topic_partitions_counts: int32[topics]
    partition: IntegersView, the explicit partition; a valid entry decides
    computed_address: of int32[n], or 0; else an entry >= 0 decides
    key: BytesView; else a non-null key decides by ``key_hash``; CRC32 takes an empty key for none
    A row that nothing decides on gets ``-1 - topic``: its topic's sticky partition.

    Returns the first row whose explicit or computed partition does not exist, or ALL_ASSIGNED.
    """
    for row in range(len(out_slots)):
        topic = np.int64(0)
        if topic_indices_address != 0:
            topic = np.int64(load_int32(topic_indices_address + 4 * row))
        count = np.int64(topic_partitions_counts[topic])
        chosen = np.int64(-1)
        if partition.values_address != 0 and is_valid(
            partition.validity_address, partition.validity_offset, row
        ):
            chosen = np.int64(load_int32(partition.values_address + 4 * row))
            if chosen < 0 or chosen >= count:
                return np.int64(row)
        elif computed_address != 0:
            chosen = np.int64(load_int32(computed_address + 4 * row))
            if chosen >= count:
                return np.int64(row)
        if chosen < 0 and key_hash != NO_KEY_HASH:
            length = bytes_length(key, row)
            if key_hash == MURMUR2 and length != NULL_LENGTH:
                hashed = murmur2(bytes_address(key, row), length)
                chosen = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
            elif key_hash == MURMUR3 and length != NULL_LENGTH:
                chosen = np.int64(murmur3(bytes_address(key, row), length)) % count
            elif key_hash == CRC32 and length > 0:
                chosen = np.int64(crc32(bytes_address(key, row), length)) % count
        if chosen < 0:
            out_slots[row] = np.int32(-1 - topic)
        else:
            out_slots[row] = np.int32(np.int64(topic_first_slots[topic]) + chosen)
    return np.int64(ALL_ASSIGNED)
