"""The partition kernel: which partition each row goes to.

Source: ``KafkaProducer.partition``, ``BuiltInPartitioner.partitionForKey``.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.calls import (
    ALL_ASSIGNED,
    CRC32,
    MURMUR2,
    MURMUR3,
    NO_KEY_HASH,
)
from spark_kafka_sink.record.kernels.declared import kernel
from spark_kafka_sink.record.kernels.encoding import (
    BYTES_FIELDS,
    NULL_LENGTH,
    bytes_address,
    bytes_length,
    bytes_view,
    integers_view,
    is_valid,
)
from spark_kafka_sink.record.kernels.hashing import crc32, murmur2, murmur3
from spark_kafka_sink.record.kernels.memory import int32_array, load_int32


@kernel
def murmur3_of(address: int, length: int) -> int:
    """murmur3 of one key, for comparison with other implementations."""
    return np.int64(murmur3(address, length))


@kernel
def fill_slots(
    rows_count: int,
    topic_indices_address: int,
    topics_count: int,
    first_slots_address: int,
    partitions_counts_address: int,
    computed_address: int,
    fields_address: int,
    key_hash: int,
    slots_address: int,
) -> int:
    """See ``assign_slots``. fields_address: of int64[]: those of the key, and the partition."""
    topic_first_slots = int32_array(first_slots_address, topics_count)
    topic_partitions_counts = int32_array(partitions_counts_address, topics_count)
    out_slots = int32_array(slots_address, rows_count)
    key = bytes_view(fields_address)
    partition = integers_view(fields_address + 8 * BYTES_FIELDS)
    for row in range(rows_count):
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
