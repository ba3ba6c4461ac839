"""Hashes that decide a key's partition, each that of some client. Inlined into the kernels.

- murmur2: Kafka's Java client. Seed 0x9747b28c. Not murmur3 (mmh3).
- murmur3: x86, 32 bits, seed 0, as ``mmh3.hash(key, signed=False)``.
- CRC-32: zlib's polynomial, as librdkafka's ``consistent`` partitioners.

Source: ``org.apache.kafka.common.utils.Utils.murmur2``; A. Appleby's MurmurHash3; librdkafka.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.declared import inlined
from spark_kafka_sink.record.kernels.memory import load_uint8, load_uint32

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
    """Kafka's hash of ``length`` bytes, as uint32."""
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
    """MurmurHash3_x86_32 of ``length`` bytes with seed 0, as uint32."""
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
    """CRC-32 of ``length`` bytes, as ``zlib.crc32``, as uint32."""
    crc = np.uint32(0xFFFFFFFF)
    for position in range(length):
        index = (crc ^ np.uint32(load_uint8(address + position))) & np.uint32(0xFF)
        crc = _CRC32_TABLE[index] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
