"""The sizing kernels: how large the largest record of an Arrow batch can get, how large each is.

Source: ``DefaultRecord.recordSizeUpperBound``, ``AbstractRecords.estimateSizeInBytesUpperBound``:
the same records are refused as by the Java producer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.encoding import bytes_length, content_size
from spark_kafka_sink.record.kernels.jit import (
    INT64,
    INT64_ARRAY,
    RECORD_COLUMNS,
    kernel,
)

MAX_RECORD_OVERHEAD = 21
"""Length, attributes, timestamp delta and offset delta at their widest."""


@kernel(INT64, RECORD_COLUMNS)
def largest_record(rows_count: int, columns: Any) -> Any:
    """(upper bound of the size in bytes without batch header, row) of the largest record."""
    largest = np.int64(-1)
    largest_row = np.int64(-1)
    for row in range(rows_count):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        size = MAX_RECORD_OVERHEAD + content_size(columns, row, key_length, value_length)
        if size > largest:
            largest = size
            largest_row = np.int64(row)
    return largest, largest_row


@kernel(RECORD_COLUMNS, INT64_ARRAY)
def content_sizes(columns: Any, out_sizes: Any) -> None:
    """Fill ``out_sizes`` (int64[n]) with the bytes of key, value and headers of each row.

    Lengths are included. A record has at most MAX_RECORD_OVERHEAD bytes more.
    """
    for row in range(len(out_sizes)):
        key_length = bytes_length(columns.key, row)
        value_length = bytes_length(columns.value, row)
        out_sizes[row] = content_size(columns, row, key_length, value_length)
