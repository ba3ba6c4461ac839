"""The writers that Spark pickles: ``write`` runs in each task, the rest on the driver.

Nothing heavy is imported here: Spark loads this module several times per micro-batch in driver-side
processes. The producer and its kernels are imported in the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.commands import complete_commands, completed_commands
from spark_kafka_sink.spark.commit import (
    AT_LEAST_ONCE_JOB_NOTE,
    AT_LEAST_ONCE_NOTE,
    KafkaCommitMessage,
    common_plan,
    report_abort,
    report_commit,
)
from spark_kafka_sink.spark.worker import freeze_loaded
from spark_kafka_sink.transactions.model import Plan, Unit

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID_PROPERTY = "sql.streaming.queryId"
_ROWS_NOT_HANDED_OVER = (
    "{count} of {total} tasks of epoch {epoch} never ran the sink: Spark drops all rows for a "
    "Python sink when the trigger is continuous. Nothing was written, and the epoch is not "
    "committed. Stop the query, and start it with trigger(processingTime=...) or "
    "trigger(availableNow=True), and with a new checkpoint: Spark does not go on from a "
    "continuous one"
)


class RowsNotHandedOverError(KafkaSinkError):
    """Spark wants to commit what it has not given to the sink's tasks."""


def write_partition(
    iterator: Iterator[pa.RecordBatch],
    options: SinkOptions,
    positions: ColumnPositions,
    transactions: Plan | None,
) -> KafkaCommitMessage:
    """Write one Spark partition. Returns when every record is acknowledged, raises otherwise.

    transactions: with exactly-once delivery; the task's transaction is left open for the driver
    """
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    message = KafkaCommitMessage(
        partition_id=context.partitionId(),
        attempt_number=context.attemptNumber(),
        query_id=context.getLocalProperty(_QUERY_ID_PROPERTY),
    )
    if transactions is not None:
        message.belong_to(transactions)
    if transactions is not None and transactions.is_repeated:
        for _ in iterator:  # these rows are written already: they are only read
            pass
        return message
    arrow_batches = (arrow_batch for arrow_batch in iterator if arrow_batch.num_rows)
    first = next(arrow_batches, None)
    if first is None:
        return message  # an empty Spark partition needs no producer

    from spark_kafka_sink.spark.task import prepare_process, write_rows

    prepare_process(options.worker_tuning)
    rows = chain((first,), arrow_batches)
    del first
    write_rows(rows, options, positions, message, transactions)
    return message


class TaskWriter:
    """What both writers have: a task does the same for a job and for a micro-batch."""

    def __init__(
        self, options: SinkOptions, positions: ColumnPositions, transactions: Plan | None = None
    ) -> None:
        self._options = options
        self._positions = positions
        self._transactions = transactions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, in a task."""
        return write_partition(iterator, self._options, self._positions, self._transactions)


class KafkaBatchWriter(TaskWriter, DataSourceArrowWriter):
    """``df.write.format("pykafka-sink")``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written everything."""
        job_id = None if self._transactions is None else self._transactions.job_id
        _commit(self._options, messages, Unit(None, None, job_id))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good."""
        _abort(self._options, messages, None)


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
        _commit(self._options, messages, Unit(next(query_ids, None), batchId, None))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task of the micro-batch failed for good."""
        _abort(self._options, messages, batchId)


def _commit(options: SinkOptions, messages: list[WriterCommitMessage | None], unit: Unit) -> None:
    more: dict[str, Any] = {}
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import commit_unit

        written = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        transactions = [m.transaction for m in written if m.transaction is not None]
        with completed_commands(options):
            more = commit_unit(options, common_plan(written), unit, transactions)
    report_commit(messages, unit.batch_id, options.metrics_log, options.metrics_path, **more)
    if options.worker_tuning:
        freeze_loaded()


def _abort(
    options: SinkOptions, messages: list[WriterCommitMessage | None], batch_id: int | None
) -> None:
    note = AT_LEAST_ONCE_JOB_NOTE if batch_id is None else AT_LEAST_ONCE_NOTE
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import abort_unit

        note = complete_commands(abort_unit(options), options)
    report_abort(messages, batch_id, options.metrics_path, note)
