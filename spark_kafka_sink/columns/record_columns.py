"""Arrow RecordBatch → what the kernels read: no copy of keys, values or headers.

Slices, 32- and 64-bit offsets, absent columns and all-null columns all take the one form of
:mod:`spark_kafka_sink.record.views`. Only small per-row integers (topic index, milliseconds) are
computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import RecordError
from spark_kafka_sink.columns.arrow_types import (
    ArrowArray,
    ArrowBatch,
    ArrowBuffer,
    ArrowListArray,
    check_types,
    shown_texts,
)
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.record.views import (
    ABSENT_BYTES,
    ABSENT_HEADERS,
    ABSENT_INTEGERS,
    BytesView,
    HeadersView,
    IntegersView,
    RecordColumns,
)

_US_PER_MS = 1000
# Both sentences of Spark's own sink: up to 4.0, and since.
NULL_TOPIC = (
    "null topic present in the data. Use the topic option for setting a default topic. "
    "Since Spark 4.1 Spark's own sink calls it [KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data "
    "sent to the producer contains a null topic. Use the `topic` option for setting a default "
    "topic."
)


class ArrowRecords(NamedTuple):
    """One Arrow batch of at least one row, ready to be appended.

    topics: names that occur; topic_indices: int32[n] into them, None when there is one topic
    fields: of ``columns``
    timestamps: int64[n] ms since 1970, None when the DataFrame has no timestamp column
    owner: the Arrow batch, which must outlive the addresses
    """

    rows_count: int
    topics: list[str]
    topic_indices: npt.NDArray[np.int32] | None
    partition: IntegersView
    columns: RecordColumns
    fields: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64] | None
    owner: ArrowBatch
    positions: ColumnPositions

    def partition_at(self, row: int) -> int:
        """The explicit partition of ``row``, for error messages."""
        assert self.positions.partition is not None
        partition: int = self.owner.column(self.positions.partition)[row].as_py()
        return partition


def arrow_records(
    arrow_batch: ArrowBatch, positions: ColumnPositions, timestamp_ms: int
) -> ArrowRecords:
    """Views of ``arrow_batch`` by ``positions``. ``timestamp_ms`` stands in for null timestamps.

    Raises SchemaError for a type that cannot be read; RecordError for what a type cannot rule out:
    a null topic, a null header key, a timestamp before 1970.
    """
    check_types(arrow_batch, positions)
    columns = key_value_headers(arrow_batch, positions)
    timestamps = None
    if positions.timestamp is not None:
        timestamps = timestamps_ms(arrow_batch.column(positions.timestamp), timestamp_ms)
    topics, topic_indices = _topics(arrow_batch, positions)
    fields = np.array(columns.fields(), np.int64)
    return ArrowRecords(
        arrow_batch.num_rows,
        topics,
        topic_indices,
        explicit_partition(arrow_batch, positions),
        columns,
        fields,
        timestamps,
        arrow_batch,
        positions,
    )


def highest_partitions(records: ArrowRecords) -> dict[str, int]:
    """Return the highest partition that rows of a topic name, for topics where rows name any."""
    if records.positions.partition is None:
        return {}
    column = records.owner.column(records.positions.partition)
    if column.null_count == len(column):
        return {}
    named = column.fill_null(-1).to_numpy(zero_copy_only=False)
    if records.topic_indices is None:
        return {records.topics[0]: int(named.max())}
    highest = np.full(len(records.topics), -1)
    np.maximum.at(highest, records.topic_indices, named)
    return dict(zip(records.topics, highest.tolist()))


def key_value_headers(arrow_batch: ArrowBatch, positions: ColumnPositions) -> RecordColumns:
    """Views of what a record is made of, absent ones where there is no such column."""
    key, headers = ABSENT_BYTES, ABSENT_HEADERS
    if positions.key is not None:
        key = bytes_view(arrow_batch.column(positions.key))
    if positions.headers is not None:
        headers = headers_view(arrow_batch.column(positions.headers))
    return RecordColumns(key, bytes_view(arrow_batch.column(positions.value)), headers)


def explicit_partition(arrow_batch: ArrowBatch, positions: ColumnPositions) -> IntegersView:
    """A view of the partition column, an absent one where there is none."""
    if positions.partition is None:
        return ABSENT_INTEGERS
    return integers_view(arrow_batch.column(positions.partition))


def bytes_view(array: ArrowArray) -> BytesView:
    """A view of a (large_)binary or (large_)string array, sliced or not."""
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    offset_bytes, offsets_address = _offsets(array, offsets, is_large)
    # An array of nulls or empty values alone may come without a data buffer.
    data_address = 0 if data is None else data.address
    return BytesView(offset_bytes, offsets_address, data_address, *_validity(array))


def headers_view(array: ArrowListArray) -> HeadersView:
    """A view of a (large_)list<struct<key, value>> array. Raises RecordError for a null key."""
    entries = array.values
    if len(entries) == 0:
        return ABSENT_HEADERS
    if entries.null_count or entries.field(0).null_count:
        _check_headers(array)
    offset_bytes, offsets_address = _offsets(
        array, array.buffers()[1], pa.types.is_large_list(array.type)
    )
    keys, values = bytes_view(entries.field(0)), bytes_view(entries.field(1))
    return HeadersView(offset_bytes, offsets_address, *_validity(array), keys, values)


def integers_view(array: ArrowArray) -> IntegersView:
    """A view of an int32 array, sliced or not."""
    values = _present(array.buffers()[1])
    return IntegersView(values.address + 4 * array.offset, *_validity(array))


def timestamps_view(array: ArrowArray) -> IntegersView:
    """A view of a timestamp[us] array, sliced or not."""
    values = _present(array.buffers()[1])
    return IntegersView(values.address + 8 * array.offset, *_validity(array))


def timestamps_ms(array: ArrowArray, timestamp_ms: int) -> npt.NDArray[np.int64] | None:
    """Milliseconds of a timestamp[us] array, ``timestamp_ms`` for nulls; None if all are null.

    Raises RecordError for an instant before 1970: Kafka has none.
    """
    if array.null_count == len(array):
        return None
    data = memoryview(_present(array.buffers()[1]))
    micros = np.frombuffer(data, np.int64)[array.offset : array.offset + len(array)]
    millis: npt.NDArray[np.int64] = micros // _US_PER_MS
    if array.null_count:
        millis[array.is_null().to_numpy(zero_copy_only=False)] = timestamp_ms
    if millis.min() < 0:
        first = int(millis[np.argmax(millis < 0)])
        raise RecordError(
            f"Invalid timestamp: {first} ms since 1970-01-01 00:00:00 UTC. Timestamps of Kafka "
            "records must not be negative; null stands for the current time."
        )
    return millis


def _validity(array: ArrowArray) -> tuple[int, int]:
    """(address, bit of row 0) of the validity bitmap; (0, 0) when nothing is null."""
    if array.null_count == 0:
        return 0, 0
    return _present(array.buffers()[0]).address, array.offset


def _offsets(array: ArrowArray, buffer: ArrowBuffer | None, is_large: bool) -> tuple[int, int]:
    offset_bytes = 8 if is_large else 4
    return offset_bytes, _present(buffer).address + offset_bytes * array.offset


def _present(buffer: ArrowBuffer | None) -> ArrowBuffer:
    """A buffer that pyarrow makes no array of this type and length without."""
    assert buffer is not None
    return buffer


def _check_headers(array: ArrowListArray) -> None:
    """Nulls that no row refers to are legal: look again, at those that a row does."""
    entries = array.flatten()
    if entries.null_count:
        raise RecordError("null header in the data. Each header must be a struct of key and value.")
    if entries.field(0).null_count:
        raise RecordError("null header key in the data. Each header of a record must have a key.")


def _topics(
    arrow_batch: ArrowBatch, positions: ColumnPositions
) -> tuple[list[str], npt.NDArray[np.int32] | None]:
    if positions.topic_option is not None:
        return [positions.topic_option], None
    assert positions.topic is not None
    column = arrow_batch.column(positions.topic)
    if column.null_count:
        raise RecordError(NULL_TOPIC)
    encoded = pc.dictionary_encode(column)
    topics = shown_texts(encoded.dictionary)
    if len(topics) == 1:
        return topics, None
    return topics, encoded.indices.to_numpy(zero_copy_only=True)
