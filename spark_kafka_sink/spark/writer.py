"""The writers that Spark pickles: ``write`` runs in each task, the rest on the driver.

Nothing heavy is imported here: Spark loads this module several times per micro-batch in driver-side
processes. The producer and its kernels are imported in the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.plan import RowsPlan
from spark_kafka_sink.spark.commit import KafkaCommitMessage, Planned
from spark_kafka_sink.spark.envelope import Enveloped
from spark_kafka_sink.spark.outcome import abort_batch, commit_batch
from spark_kafka_sink.spark.partition import write_partition
from spark_kafka_sink.spark.versions import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from spark_kafka_sink.spark.worker import freeze_loaded
from spark_kafka_sink.transactions.model import Plan, Unit

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_NOT_HANDED_OVER = (
    "{count} of {total} tasks of epoch {epoch} never ran the sink: Spark drops all rows for a "
    "Python sink when the trigger is continuous. Nothing was written, and the epoch is not "
    "committed. Stop the query, and start it with trigger(processingTime=...) or "
    "trigger(availableNow=True), and with a new checkpoint: Spark does not go on from a "
    "continuous one"
)


class RowsNotHandedOverError(KafkaSinkError):
    """Spark wants to commit what it has not given to the sink's tasks."""


class TaskWriter(Enveloped):
    """What both writers have: a task does the same for a job and for a micro-batch."""

    def __init__(
        self,
        options: SinkOptions,
        positions: ColumnPositions,
        transactions: Plan | None = None,
        planned: Planned | None = None,
        made: RowsPlan | None = None,
    ) -> None:
        self._options = options
        self._made = made
        self._positions = positions
        self._transactions = transactions
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, in a task."""
        return write_partition(
            iterator,
            self._options,
            self._positions,
            self._transactions,
            self._planned,
            self._made,
        )


class KafkaBatchWriter(TaskWriter, DataSourceArrowWriter):
    """``df.write.format("pykafka-sink")``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written everything."""
        job_id = None if self._transactions is None else self._transactions.job_id
        commit_batch(self._options, messages, Unit(None, None, job_id))
        freeze_loaded()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good."""
        abort_batch(self._options, messages, None, self._transactions)


class KafkaStreamWriter(TaskWriter, DataSourceStreamArrowWriter):
    """``df.writeStream.format("pykafka-sink")``."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks of the micro-batch have written everything.

        Raises RowsNotHandedOverError with a continuous trigger: Spark's writer for Python sinks
        (``PythonBatchWriterFactory.write``) makes an exception for each row, does not throw it, and
        has no message to commit. What is raised here is only logged, but the epoch's offsets are
        not committed.
        """
        missing = messages.count(None)
        if missing:
            text = _ROWS_NOT_HANDED_OVER
            raise RowsNotHandedOverError(
                text.format(count=missing, total=len(messages), epoch=batchId)
            )
        query_ids = (m.query_id for m in messages if isinstance(m, KafkaCommitMessage))
        commit_batch(self._options, messages, Unit(next(query_ids, None), batchId, None))
        freeze_loaded()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task of the micro-batch failed for good.

        Spark makes this writer anew, without a plan; a query has one micro-batch at a time.
        """
        abort_batch(self._options, messages, batchId)
