"""The sizing kernels: how large the largest record of an Arrow batch can get, how large each is.

Source: ``DefaultRecord.recordSizeUpperBound``, ``AbstractRecords.estimateSizeInBytesUpperBound``:
the same records are refused as by the Java producer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.record.kernels.declared import address_of, int64s, kernel
from spark_kafka_sink.record.kernels.encoding import bytes_length, content_size, record_columns
from spark_kafka_sink.record.kernels.memory import int64_array
from spark_kafka_sink.record.views import RecordColumns

MAX_RECORD_OVERHEAD = 21
"""Length, attributes, timestamp delta and offset delta at their widest."""


def largest_record(rows_count: int, columns: RecordColumns) -> tuple[int, int]:
    """(upper bound of the size in bytes without batch header, row) of the largest record."""
    fields, size = int64s(columns.fields()), np.empty(1, np.int64)
    row = find_largest_record(rows_count, address_of(fields), address_of(size))
    return int(size[0]), row


def content_sizes(columns: RecordColumns, out_sizes: npt.NDArray[np.int64]) -> None:
    """Fill ``out_sizes`` (int64[n]) with the bytes of key, value and headers of each row.

    Lengths are included. A record has at most MAX_RECORD_OVERHEAD bytes more.
    """
    fields = int64s(columns.fields())
    fill_content_sizes(len(out_sizes), address_of(fields), address_of(out_sizes))


@kernel
def find_largest_record(rows_count: int, fields_address: int, size_address: int) -> int:
    """See ``largest_record``: returns the row. size_address: of int64[1]."""
    columns = record_columns(fields_address)
    largest = np.int64(-1)
    largest_row = np.int64(-1)
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        size = MAX_RECORD_OVERHEAD + content_size(columns, row, key_length, value_length)
        if size > largest:
            largest = size
            largest_row = np.int64(row)
    int64_array(size_address, 1)[0] = largest
    return largest_row


@kernel
def fill_content_sizes(rows_count: int, fields_address: int, sizes_address: int) -> int:
    """See ``content_sizes``: returns the number of rows. sizes_address: of int64[rows_count]."""
    columns = record_columns(fields_address)
    sizes = int64_array(sizes_address, rows_count)
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        sizes[row] = content_size(columns, row, key_length, value_length)
    return rows_count
