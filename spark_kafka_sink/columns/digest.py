"""A digest of the rows that a task writes: did a replay have the same rows, in whatever order?"""

from __future__ import annotations

from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import (
    bytes_view,
    explicit_partition,
    key_value_headers,
    timestamps_view,
)
from spark_kafka_sink.record.compiled.records import digest_rows
from spark_kafka_sink.record.views import ABSENT_BYTES, ABSENT_INTEGERS

_MODULUS = 2**64


class RowsDigest:
    """Add Arrow batches; then ``records``, ``data_bytes`` and ``contents`` are those of all rows.

    data_bytes: of keys, values, headers and the topic column; contents: 64 bits, see
    ``record/kernels/digest.py``. Neither the order of rows nor their division into Arrow batches
    matters, nor do bytes behind nulls.
    """

    def __init__(self, positions: ColumnPositions) -> None:
        self._positions = positions
        self.records = 0
        self.data_bytes = 0
        self.contents = 0

    def add(self, arrow_batch: ArrowBatch) -> None:
        """Take in the rows of a pyarrow.RecordBatch that was appended, so its types are right.

        12 ns per row of 100 B with a key of 8, 43 ns of 1 KB; the append kernel takes 15 and 55.
        """
        if arrow_batch.num_rows == 0:
            return
        positions = self._positions
        columns = key_value_headers(arrow_batch, positions)
        partition = explicit_partition(arrow_batch, positions)
        topic, timestamp = ABSENT_BYTES, ABSENT_INTEGERS
        if positions.topic is not None and positions.topic_option is None:
            topic = bytes_view(arrow_batch.column(positions.topic))
        if positions.timestamp is not None:
            timestamp = timestamps_view(arrow_batch.column(positions.timestamp))
        rows_count = arrow_batch.num_rows
        contents, data_bytes = digest_rows(rows_count, columns, topic, partition, timestamp)
        self.records += rows_count
        self.data_bytes += data_bytes
        self.contents = (self.contents + contents) % _MODULUS
