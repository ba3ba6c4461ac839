"""Hash keys to find the partitions of rows, and hash rows for a digest that ignores their order.

Each hash that decides a key's partition is the hash of an existing client or library:

- murmur2: Kafka's Java client. Seed 0x9747b28c. Not murmur3 (mmh3).
- murmur3: x86, 32 bits, seed 0, as ``mmh3.hash(key, signed=False)``.
- CRC-32: zlib's polynomial, as librdkafka's ``consistent`` partitioners.

The digest is the sum, modulo 2**64, of the hashes of all rows. So digests of Arrow batches and
tasks can be added, and a duplicate row counts twice. A row's hash covers the written fields: key,
value, headers, topic, explicit partition, timestamp in ms. Null and absent fields add nothing. All
other fields are hashed in this order, each with its length and its kind, so that the hash depends
on boundaries and columns. Two different sets of rows have the same sum with a probability of 1 in
2**64. The digest detects accidents, not attacks.

Source: ``org.apache.kafka.common.utils.Utils.murmur2``; A. Appleby's MurmurHash3; librdkafka;
``KafkaProducer.partition``, ``BuiltInPartitioner.partitionForKey``; W. Yi's wyhash, final version
4, with its default secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.calls import (
    ALL_ASSIGNED,
    CRC32,
    MURMUR2,
    MURMUR3,
    NO_KEY_HASH,
)
from spark_kafka_sink.record.kernels.memory import (
    called,
    inlined,
    int32_array,
    kernel,
    load_int32,
    load_int64,
    load_uint8,
    load_uint32,
    load_uint64,
    multiply_wide,
    uint64_array,
)
from spark_kafka_sink.record.kernels.records import (
    BYTES_FIELDS,
    INTEGERS_FIELDS,
    NULL_LENGTH,
    RECORD_FIELDS,
    bytes_address,
    bytes_length,
    bytes_view,
    headers_count,
    integers_view,
    is_valid,
    load_offset,
    record_columns,
)

_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_MURMUR2_R = 24
_MURMUR3_C1 = 0xCC9E2D51
_MURMUR3_C2 = 0x1B873593
_CRC32_POLYNOMIAL = 0xEDB88320


def _crc32_table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = (table & 1).astype(bool)
        table = np.where(odd, (table >> 1) ^ np.uint32(_CRC32_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_CRC32_TABLE = _crc32_table()


@inlined
def murmur2(address: int, length: int) -> Any:
    """Return Kafka's hash of ``length`` bytes, as uint32."""
    m = np.uint32(_MURMUR2_M)
    h = np.uint32(_MURMUR2_SEED) ^ np.uint32(length)
    for _ in range(length >> 2):
        k = np.uint32(load_uint32(address) * m)
        k ^= k >> np.uint32(_MURMUR2_R)
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


@inlined
def _rotate_left(value: Any, bits: int) -> Any:
    return np.uint32(value << np.uint32(bits)) | np.uint32(value >> np.uint32(32 - bits))


@inlined
def _murmur3_mix(k: Any) -> Any:
    k = np.uint32(k * np.uint32(_MURMUR3_C1))
    return np.uint32(_rotate_left(k, 15) * np.uint32(_MURMUR3_C2))


@inlined
def murmur3(address: int, length: int) -> Any:
    """Return MurmurHash3_x86_32 of ``length`` bytes with seed 0, as uint32."""
    h = np.uint32(0)
    for _ in range(length >> 2):
        h ^= _murmur3_mix(np.uint32(load_uint32(address)))
        h = np.uint32(_rotate_left(h, 13) * np.uint32(5) + np.uint32(0xE6546B64))
        address += 4
    rest = length & 3
    k = np.uint32(0)
    if rest == 3:
        k ^= np.uint32(load_uint8(address + 2)) << np.uint32(16)
    if rest >= 2:
        k ^= np.uint32(load_uint8(address + 1)) << np.uint32(8)
    if rest >= 1:
        k ^= np.uint32(load_uint8(address))
        h ^= _murmur3_mix(k)
    h ^= np.uint32(length)
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    h ^= h >> np.uint32(16)
    return h


@inlined
def crc32(address: int, length: int) -> Any:
    """Return the CRC-32 of ``length`` bytes as uint32, like ``zlib.crc32``."""
    crc = np.uint32(0xFFFFFFFF)
    for position in range(length):
        index = (crc ^ np.uint32(load_uint8(address + position))) & np.uint32(0xFF)
        crc = _CRC32_TABLE[index] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


@kernel
def murmur3_hash(address: int, length: int) -> int:
    """Return murmur3 of one key, for comparison with other implementations."""
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
    """Fill the slots of ``assign_slots``, and return its result.

    fields_address: of int64[]: the fields of the key, then the fields of the partition
    """
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


_SECRET_0 = np.uint64(0x2D358DCCAA6C78A5)
_SECRET_1 = np.uint64(0x8BB84B93962EACC9)
_SECRET_2 = np.uint64(0x4B33A62ED433D4A3)
_SECRET_3 = np.uint64(0x4D5A2DA51DE1AA47)

# Kinds of the parts of a row. The hash of a row begins with _ROW.
_ROW = np.uint64(1)
_KEY = np.uint64(2)
_VALUE = np.uint64(3)
_HEADER_KEY = np.uint64(4)
_HEADER_VALUE = np.uint64(5)
_TOPIC = np.uint64(6)
_PARTITION = np.uint64(7)
_TIMESTAMP = np.uint64(8)

# The index of each column's first integer.
_TOPIC_FIELDS = RECORD_FIELDS
_PARTITION_FIELDS = _TOPIC_FIELDS + BYTES_FIELDS
_TIMESTAMP_FIELDS = _PARTITION_FIELDS + INTEGERS_FIELDS

_US_PER_MS = 1000


@inlined
def _mix(left: Any, right: Any) -> Any:
    low, high = multiply_wide(left, right)
    return low ^ high


@inlined
def _load_4_bytes(address: int) -> Any:
    return np.uint64(load_uint32(address))


@called
def _wyhash(address: int, length: int, seed: Any) -> Any:
    """Return the hash of ``length`` bytes with ``seed``, a uint64, as uint64."""
    seed = seed ^ _mix(seed ^ _SECRET_0, _SECRET_1)
    first = np.uint64(0)
    second = np.uint64(0)
    if length > 16:
        rest = length
        if rest >= 48:
            seed_1 = seed
            seed_2 = seed
            while rest >= 48:
                seed = _mix(load_uint64(address) ^ _SECRET_1, load_uint64(address + 8) ^ seed)
                word = load_uint64(address + 16) ^ _SECRET_2
                seed_1 = _mix(word, load_uint64(address + 24) ^ seed_1)
                word = load_uint64(address + 32) ^ _SECRET_3
                seed_2 = _mix(word, load_uint64(address + 40) ^ seed_2)
                address += 48
                rest -= 48
            seed ^= seed_1 ^ seed_2
        while rest > 16:
            seed = _mix(load_uint64(address) ^ _SECRET_1, load_uint64(address + 8) ^ seed)
            address += 16
            rest -= 16
        # The loop may have read some of the last 16 bytes already.
        first = load_uint64(address + rest - 16)
        second = load_uint64(address + rest - 8)
    elif length >= 4:
        middle = (length >> 3) << 2
        end = address + length - 4
        first = (_load_4_bytes(address) << np.uint64(32)) | _load_4_bytes(address + middle)
        second = (_load_4_bytes(end) << np.uint64(32)) | _load_4_bytes(end - middle)
    elif length > 0:
        first = np.uint64(load_uint8(address)) << np.uint64(16)
        first |= np.uint64(load_uint8(address + (length >> 1))) << np.uint64(8)
        first |= np.uint64(load_uint8(address + length - 1))
    low, high = multiply_wide(first ^ _SECRET_1, second ^ seed)
    return _mix(low ^ _SECRET_0 ^ np.uint64(length), high ^ _SECRET_1)


@inlined
def _hash_bytes(hashed: Any, kind: Any, column: Any, row: int) -> Any:
    """Add a field of bytes to a row's hash; return (hash, length of the field, 0 for null)."""
    length = bytes_length(column, row)
    if length == NULL_LENGTH:
        length = np.int64(0)
    else:
        hashed = _wyhash(bytes_address(column, row), length, hashed ^ kind)
    return hashed, length


@inlined
def _hash_integer(hashed: Any, kind: Any, value: int) -> Any:
    return _mix(hashed ^ _SECRET_2 ^ kind, np.uint64(value) ^ _SECRET_3)


@inlined
def _has_value(column: Any, row: int) -> bool:
    is_absent = column.values_address == 0
    return not is_absent and is_valid(column.validity_address, column.validity_offset, row)


@kernel
def sum_row_hashes(rows_count: int, fields_address: int, digest_address: int) -> int:
    """Sum the hashes of the rows, and return the rows' bytes; see ``digest_rows``.

    fields_address: of int64[]: the fields of columns, topic, partition and timestamp
    digest_address: of uint64[1], which gets the sum
    """
    columns = record_columns(fields_address)
    topic = bytes_view(fields_address + 8 * _TOPIC_FIELDS)
    partition = integers_view(fields_address + 8 * _PARTITION_FIELDS)
    timestamp = integers_view(fields_address + 8 * _TIMESTAMP_FIELDS)
    digest = np.uint64(0)
    data_bytes = np.int64(0)
    headers = columns.headers
    for row in range(rows_count):
        hashed, length = _hash_bytes(_ROW, _KEY, columns.key, row)
        data_bytes += length
        hashed, length = _hash_bytes(hashed, _VALUE, columns.value, row)
        data_bytes += length
        count = headers_count(headers, row)
        if count > 0:
            first = load_offset(headers.offsets_address, headers.offset_bytes, row)
            for header in range(first, first + count):
                hashed, length = _hash_bytes(hashed, _HEADER_KEY, headers.keys, header)
                data_bytes += length
                hashed, length = _hash_bytes(hashed, _HEADER_VALUE, headers.values, header)
                data_bytes += length
        hashed, length = _hash_bytes(hashed, _TOPIC, topic, row)
        data_bytes += length
        if _has_value(partition, row):
            value = np.int64(load_int32(partition.values_address + 4 * row))
            hashed = _hash_integer(hashed, _PARTITION, value)
        if _has_value(timestamp, row):
            value = load_int64(timestamp.values_address + 8 * row) // np.int64(_US_PER_MS)
            hashed = _hash_integer(hashed, _TIMESTAMP, value)
        digest += hashed
    uint64_array(digest_address, 1)[0] = digest
    return data_bytes
