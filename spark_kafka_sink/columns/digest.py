"""A digest of the rows that a task writes: did a replay have the same rows in the same order?

Two CRC-32Cs, over all bytes and over all lengths and integers, besides the counts. They go on from
one Arrow batch to the next, so that the cut into batches does not matter. Bytes behind nulls do
not count.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.record.record_batch import crc32c

_NULL_LENGTH = -1


class RowsDigest:
    """Add Arrow batches, then ask for the digest."""

    def __init__(self, positions: ColumnPositions) -> None:
        places = (
            positions.key,
            positions.value,
            positions.headers,
            positions.topic,
            positions.partition,
            positions.timestamp,
        )
        self._columns = {place: _ColumnDigest() for place in places if place is not None}
        self._rows = 0
        self._bytes = 0

    def add(self, arrow_batch: ArrowBatch) -> None:
        """Take in the rows of a pyarrow.RecordBatch.

        5 ns per row of 100 B, 34 ns of 1 KB: a quarter of what appending them takes.
        """
        for place, digest in self._columns.items():
            self._bytes += digest.add(arrow_batch.column(place))
        self._rows += arrow_batch.num_rows

    def __str__(self) -> str:
        """``rows-bytes-crc.crc-crc.crc…``, a pair of CRCs for each column."""
        columns = "-".join(str(column) for column in self._columns.values())
        return f"{self._rows}-{self._bytes}-{columns}"


class _ColumnDigest:
    """The digest of one column; of a list's or struct's column, its children besides."""

    def __init__(self) -> None:
        self._data = 0
        self._shape = 0
        self._children: list[_ColumnDigest] = []

    def __str__(self) -> str:
        own = f"{self._data:08x}.{self._shape:08x}"
        return "+".join([own, *(str(child) for child in self._children)])

    def add(self, array: pa.Array) -> int:
        """Take in ``array``; returns how many bytes of data it has."""
        kind = array.type
        if pa.types.is_struct(kind):
            return sum(self._child(i).add(child) for i, child in enumerate(array.flatten()))
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._add_integers(pc.list_value_length(array))
            return self._child(0).add(array.flatten())
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            self._add_integers(array)
            return 0
        lengths = pc.binary_length(array)
        self._add_integers(lengths)
        return self._add_bytes(array, pc.sum(lengths).as_py() or 0)

    def _child(self, index: int) -> _ColumnDigest:
        while len(self._children) <= index:
            self._children.append(_ColumnDigest())
        return self._children[index]

    def _add_integers(self, array: pa.Array) -> None:
        """Integers of any width, with -1 for nulls."""
        array = array.cast(pa.int64())
        if array.null_count:
            array = pc.fill_null(array, _NULL_LENGTH)
        if len(array):
            self._shape = crc32c(array.to_numpy(zero_copy_only=False).data.cast("B"), self._shape)

    def _add_bytes(self, array: pa.Array, count: int) -> int:
        """The ``count`` bytes of all values that are not null."""
        _, offsets, data = array.buffers()
        if data is None or count == 0:
            return 0
        large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        ends = np.frombuffer(offsets, np.int64 if large else np.int32)
        first, last = int(ends[array.offset]), int(ends[array.offset + len(array)])
        if last - first != count:
            # Bytes lie behind nulls, which is rare: values without them are copied together.
            return self._add_bytes(array.drop_null(), count)
        self._data = crc32c(memoryview(data)[first:last], self._data)
        return count
