"""The partition kernel: which partition each row goes to.

murmur2 is Kafka's: seed 0x9747b28c, and the sign bit dropped. It is not murmur3 (mmh3).

Source: ``Utils.murmur2``, ``BuiltInPartitioner.partitionForKey``.
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
from spark_kafka_sink.record.kernels.jit import (
    inlined,
    kernel,
    load_int32,
    load_uint8,
    load_uint32,
)

ALL_ASSIGNED = -1
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24


@inlined
def murmur2(address: int, length: int) -> Any:
    """Kafka's hash of ``length`` bytes, as uint32."""
    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ np.uint32(length)
    for _ in range(length >> 2):
        k = np.uint32(load_uint32(address) * m)
        k ^= k >> np.uint32(_R)
        h = np.uint32(h * m) ^ np.uint32(k * m)
        address += 4
    rest = length & 3
    if rest == 3:
        h ^= np.uint32(load_uint8(address + 2)) << np.uint32(16)
    if rest >= 2:
        h ^= np.uint32(load_uint8(address + 1)) << np.uint32(8)
    if rest >= 1:
        h = np.uint32((h ^ np.uint32(load_uint8(address))) * m)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * m)
    h ^= h >> np.uint32(15)
    return h


@kernel
def assign_slots(
    topic_indices_address: int,
    topic_first_slots: Any,
    topic_partitions_counts: Any,
    partition: Any,
    key: Any,
    ignore_keys: bool,
    out_slots: Any,
) -> int:
    """Fill ``out_slots`` (int32[n]) with each row's slot: topic's first slot + partition.

    topic_indices_address: of int32[n] into the two arrays after it, or 0: all rows are topic 0
    topic_first_slots, topic_partitions_counts: int32[topics]
    partition: IntegersView; a valid entry decides
    key: BytesView; else a non-null key decides by murmur2, unless ``ignore_keys``
    A row with neither gets ``-1 - topic``: its topic's sticky partition.

    Returns the first row whose explicit partition does not exist, or ALL_ASSIGNED.
    """
    for row in range(len(out_slots)):
        topic = np.int64(0)
        if topic_indices_address != 0:
            topic = np.int64(load_int32(topic_indices_address + 4 * row))
        count = np.int64(topic_partitions_counts[topic])
        has_partition = partition.values_address != 0 and is_valid(
            partition.validity_address, partition.validity_offset, row
        )
        if has_partition:
            chosen = np.int64(load_int32(partition.values_address + 4 * row))
            if chosen < 0 or chosen >= count:
                return np.int64(row)
        else:
            length = np.int64(NULL_LENGTH) if ignore_keys else bytes_length(key, row)
            if length == NULL_LENGTH:
                out_slots[row] = np.int32(-1 - topic)
                continue
            hashed = murmur2(bytes_address(key, row), length)
            chosen = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
        out_slots[row] = np.int32(np.int64(topic_first_slots[topic]) + chosen)
    return np.int64(ALL_ASSIGNED)
