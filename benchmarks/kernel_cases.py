"""Inputs and stages of the kernel benchmarks: Arrow batches as Spark passes them on.

Eight Arrow batches of 10,000 rows take turns, so that neither source nor destination stays in the
processor's innermost caches, as in a task.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.producer.accumulator import BufferPool
from spark_kafka_sink.producer.open_batches import OpenBatches
from spark_kafka_sink.record.columns import ArrowRecords, arrow_records
from spark_kafka_sink.record.compiled.calls import (
    APPENDED_ALL,
    BATCH_FULL,
    MURMUR2,
    Topics,
    assign_slots,
    largest_record,
)
from spark_kafka_sink.record.compression import CODEC_IDS, create_compressor
from spark_kafka_sink.record.kernels import compiler

# numba's code here has to call code that numba has compiled.
compiler.compile_helpers()
from spark_kafka_sink.record.kernels.hashing import murmur2  # noqa: E402
from spark_kafka_sink.record.kernels.records import (  # noqa: E402
    bytes_address,
    bytes_length,
    bytes_size,
    headers_size,
    put_record,
    varint_size,
)

_ARROW_BATCHES = 8
_ROWS = 10_000
_PARTITIONS = 6
_PAGE_BYTES = 32768
_BUFFER_MEMORY = 64 << 20
# Most bytes of a batch of 128 KiB before compression.
_LIMIT_BYTES = 1 << 20
_PIECE_BYTES = 256 << 10
_TIMESTAMP_MS = 1_700_000_000_000
_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@numba.njit(nogil=True)
def encode_rows(rows_count: int, columns: Any, address: int) -> int:
    """Encode all rows as records of one batch, one after the other."""
    start = address
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        body_size = (
            1
            + varint_size(np.int64(0))
            + varint_size(np.int64(row))
            + bytes_size(key_length)
            + bytes_size(value_length)
            + headers_size(columns.headers, row)
        )
        put_record(
            address, body_size, np.int64(0), np.int64(row), columns, row, key_length, value_length
        )
        address += varint_size(body_size) + body_size
    return address - start


@numba.njit(nogil=True)
def hash_rows(rows_count: int, key: Any) -> int:
    """Hash all keys with murmur2. The sum keeps the compiler from removing the calls."""
    total = np.uint32(0)
    for row in range(rows_count):
        total += murmur2(bytes_address(key, row), bytes_length(key, row))
    return np.int64(total)


class Case:
    """Rows of one kind, and the stages that process them."""

    def __init__(
        self, name: str, value_bytes: int, key_bytes: int = 0, headers: bool = False
    ) -> None:
        self.name = name
        self.rows_count = _ARROW_BATCHES * _ROWS
        self._has_headers = headers
        self._key_bytes = key_bytes
        self._plan = ColumnPositions(
            value=0,
            key=1 if key_bytes else None,
            headers=2 if headers else None,
            topic_option="t",
        )
        rng = random.Random(7)
        self._arrow_batches = [
            _arrow_batch(rng, value_bytes, key_bytes, headers) for _ in range(_ARROW_BATCHES)
        ]
        self._records = [self._view(arrow_batch) for arrow_batch in self._arrow_batches]
        self._slots = [np.empty(_ROWS, np.int32) for _ in self._records]
        self._pool = BufferPool(_BUFFER_MEMORY, _PAGE_BYTES)
        self._open_batches = OpenBatches(self._pool)
        self._open_batches.add_slots("t", _PARTITIONS, _LIMIT_BYTES)
        # Sources and target of memcpy, mapped before any measurement.
        self._sources = [_payload(arrow_batch) for arrow_batch in self._arrow_batches]
        payload_bytes = sum(len(source) for source in self._sources)
        self._flat = np.zeros(payload_bytes + 64 * self.rows_count, np.uint8)

    def stages(self) -> dict[str, Callable[[], object]]:
        """Return the stages by name; each processes all Arrow batches."""
        stages: dict[str, Callable[[], object]] = {
            "memcpy": self.memcpy,
            "size": self.size,
            "group": self.group,
            "encode": self.encode,
            "append": self.append,
            "whole": self.whole,
        }
        if self._key_bytes:
            stages["murmur2"] = self.murmur2
        return stages

    # --- stages --------------------------------------------------------------------------------

    def memcpy(self) -> None:
        """Copy keys, values and headers, Arrow batch by Arrow batch."""
        at = 0
        for source in self._sources:
            np.copyto(self._flat[at : at + len(source)], source)
            at += len(source)

    def size(self) -> None:
        for records in self._records:
            largest_record(records.rows_count, records.columns)

    def murmur2(self) -> None:
        for records in self._records:
            hash_rows(records.rows_count, records.columns.key)

    def group(self) -> None:
        for records, slots in zip(self._records, self._slots, strict=True):
            self._assign(records, slots)

    def encode(self) -> int:
        """Encode all rows; return the bytes written."""
        address = first = self._flat.ctypes.data
        for records in self._records:
            address += encode_rows(records.rows_count, records.columns, address)
        return address - first

    def append(self) -> None:
        """Append the rows that ``group`` has assigned to the open batches of six partitions."""
        for records, slots in zip(self._records, self._slots, strict=True):
            self._append(records, slots)
        self._take_all_out()

    def whole(self) -> None:
        """Run all steps from Arrow batches to open batches."""
        for arrow_batch in self._arrow_batches:
            records = self._view(arrow_batch)
            largest_record(records.rows_count, records.columns)
            slots = np.empty(_ROWS, np.int32)
            self._assign(records, slots)
            self._append(records, slots)
        self._take_all_out()

    # --- internals -----------------------------------------------------------------------------

    def _view(self, arrow_batch: Any) -> ArrowRecords:
        return arrow_records(arrow_batch, self._plan, _TIMESTAMP_MS)

    def _assign(self, records: ArrowRecords, slots: Any) -> None:
        first, counts = np.zeros(1, np.int32), np.full(1, _PARTITIONS, np.int32)
        topics, key = Topics(None, first, counts), records.columns.key
        assign_slots(topics, records.partition, None, key, MURMUR2, slots)

    def _append(self, records: ArrowRecords, slots: Any) -> None:
        row = 0
        self._open_batches.begin(records, slots, np.zeros(1, np.int32))
        while True:
            stop = self._open_batches.append(row, _TIMESTAMP_MS, 0)
            row = stop.row
            if stop.status == APPENDED_ALL:
                return
            if stop.status == BATCH_FULL:
                self._take_out(stop.slot)
            else:
                self._open_batches.fill_reserve(max(stop.pages_needed, 32))

    def _take_out(self, slot: int) -> None:
        """Drop a batch, as if it was sent."""
        self._pool.deallocate(self._pool.chain(self._open_batches.detach(slot).first_page))

    def _take_all_out(self) -> None:
        for slot in self._open_batches.open_slots():
            self._take_out(slot)
        self._open_batches.release_reserve()


class CodecCase:
    """The codecs alone, on the records of another case."""

    def __init__(self, case: Case) -> None:
        self.name = f"{case.name} codec"
        self.rows_count = case.rows_count
        self._case = case
        count = case.encode()
        self._records = case._flat[:count].copy()
        self._copy = np.zeros_like(self._records)

    def stages(self) -> dict[str, Callable[[], object]]:
        """Return memcpy of the records, and each codec."""
        stages: dict[str, Callable[[], object]] = {
            "memcpy": lambda: np.copyto(self._copy, self._records)
        }
        for codec in CODEC_IDS:
            compressor = create_compressor(codec, None)
            if compressor is not None:
                stages[codec] = partial(_compress, compressor.compress, self._records.data)
        return stages


def _compress(compress: Callable[[Any], object], records: memoryview) -> None:
    """Compress pieces as large as record batches."""
    for at in range(0, len(records), _PIECE_BYTES):
        compress(records[at : at + _PIECE_BYTES])


def _arrow_batch(rng: random.Random, value_bytes: int, key_bytes: int, headers: bool) -> Any:
    """Return values like those of :mod:`benchmarks.rows`: half repeating text, half random."""
    half = value_bytes // 2
    text = (b'"status":"delivered","city":"Springfield","carrier":"UA",' * (half // 50 + 1))[:half]
    rest = value_bytes - half
    values = [text + rng.randbytes(rest).hex().encode()[:rest] for _ in range(_ROWS)]
    arrays, names = [pa.array(values, pa.binary())], ["value"]
    keys = [b"%0*d" % (max(key_bytes, 1), rng.randrange(10**7)) for _ in range(_ROWS)]
    arrays.append(pa.array(keys if key_bytes else [None] * _ROWS, pa.binary()))
    names.append("key")
    if headers:
        row = [{"key": "trace", "value": b"0123456789abcdef"}, {"key": "source", "value": b"f"}]
        arrays.append(pa.array([row] * _ROWS, _HEADERS_TYPE))
        names.append("headers")
    return pa.record_batch(arrays, names=names)


def _payload(arrow_batch: Any) -> Any:
    """Return all bytes of keys, values and headers, one after the other."""
    parts = []
    for name in arrow_batch.schema.names:
        column = arrow_batch.column(name)
        leaves = column.values.flatten() if name == "headers" else [column]
        for leaf in leaves:
            data = leaf.buffers()[2]
            if data is not None:
                parts.append(np.frombuffer(data, np.uint8))
    return np.concatenate(parts)


def make_cases() -> list[Any]:
    """Return the cases to measure."""
    plain = Case("100B", 100)
    return [
        plain,
        Case("100B key8", 100, 8),
        Case("100B key36", 100, 36),
        Case("100B headers", 100, headers=True),
        Case("10B key8", 10, 8),
        Case("1KB key8", 1000, 8),
        CodecCase(plain),
    ]
