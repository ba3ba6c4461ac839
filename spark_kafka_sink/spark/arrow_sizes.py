"""Whether Spark's Arrow batches are larger than is good for the job."""

from __future__ import annotations

import logging

from spark_kafka_sink.columns.record_columns import ArrowBatch

LARGE_BYTES = 32 << 20
"""Half of Spark's default of ``spark.sql.execution.arrow.maxBytesPerBatch``."""
_MIB = 1 << 20

logger = logging.getLogger(__name__)


class ArrowSizes:
    """Looks at the Arrow batches of a process, and says once that they are too large."""

    def __init__(self) -> None:
        self._is_told = False

    def look_at(self, arrow_batch: ArrowBatch) -> None:
        """An Arrow batch as it came from Spark."""
        if self._is_told or (size_bytes := arrow_batch.nbytes) < LARGE_BYTES:
            return
        self._is_told = True
        logger.warning(
            f"Arrow batches of {size_bytes / _MIB:.0f} MiB ({arrow_batch.num_rows} rows): with "
            "spark.sql.execution.arrow.maxBytesPerBatch=4m, Spark hands values of 10 KB over in "
            "about two thirds of the time, and a worker takes less memory"
        )


ARROW_SIZES = ArrowSizes()
