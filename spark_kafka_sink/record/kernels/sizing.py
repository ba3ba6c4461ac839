"""The sizing kernels: how large the largest record of an Arrow batch can get, how large each is.

Source: ``DefaultRecord.recordSizeUpperBound``, ``AbstractRecords.estimateSizeInBytesUpperBound``:
the same records are refused as by the Java producer.
"""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.record.compiled.calls import MAX_RECORD_OVERHEAD
from spark_kafka_sink.record.kernels.declared import kernel
from spark_kafka_sink.record.kernels.encoding import bytes_length, content_size, record_columns
from spark_kafka_sink.record.kernels.memory import int64_array


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
