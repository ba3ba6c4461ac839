"""One Spark partition in a task, whoever has started it.

Nothing heavy is imported here: Spark loads this module several times per micro-batch in driver-side
processes. The producer and its kernels are imported in the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.plan import RowsPlan
from spark_kafka_sink.spark.commit import KafkaCommitMessage, Planned
from spark_kafka_sink.spark.logs import set_up
from spark_kafka_sink.spark.timed_input import TimedInput
from spark_kafka_sink.transactions.model import Plan

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Spark's name for the id of the query whose micro-batch runs."""
BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""Spark's name for the number of that micro-batch."""
_SESSION_ZONE_PROPERTY = "spark.sql.session.timeZone"
_ANSI_PROPERTY = "spark.sql.ansi.enabled"
"""Tasks have settings of the session among their properties, where they were set."""


def write_partition(
    arrow_batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    positions: ColumnPositions,
    transactions: Plan | None,
    planned: Planned | None = None,
    made: RowsPlan | None = None,
) -> KafkaCommitMessage:
    """Write one Spark partition. Returns when every record is acknowledged, raises otherwise.

    positions: of what is appended; made: how that is made of Spark's columns, if it is
    transactions: with exactly-once delivery; the task's transaction is left open for the driver
    planned: when the driver did that
    """
    message = _message()
    if message.partition_id == 0:
        message.planned = planned
    if transactions is not None:
        message.belong_to(transactions)
    if transactions is not None and transactions.is_repeated:
        for _ in arrow_batches:  # these rows are written already: they are only read
            pass
        return message
    rows = TimedInput(arrow_batches)
    if not rows.has_rows():
        return message  # an empty Spark partition needs no producer

    with rows.loading():
        from spark_kafka_sink.spark.task import prepare_process, write_rows

        set_up(options)
        prepare_process()
    if made is not None:
        given = _property(_ANSI_PROPERTY)
        made = made._replace(
            session_zone=_property(_SESSION_ZONE_PROPERTY),
            is_ansi=made.is_ansi if given is None else given.lower() == "true",
        )
    write_rows(rows, options, positions, message, transactions, made)
    return message


def _message() -> KafkaCommitMessage:
    """Of this task, with nothing written yet."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    batch_id = _property(BATCH_ID_PROPERTY)
    return KafkaCommitMessage(
        partition_id=context.partitionId(),
        attempt_number=context.attemptNumber(),
        query_id=_property(QUERY_ID_PROPERTY),
        batch_id=None if batch_id is None else int(batch_id),
    )


def _property(name: str) -> str | None:
    """What Spark tells this task, None if it has nothing of that name."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    value: str | None = context.getLocalProperty(name)
    return value


def with_names(
    arrow_batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The same Arrow batches, their columns called ``names``."""
    import pyarrow as pa

    def named(arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        fields = [field.with_name(name) for field, name in zip(arrow_batch.schema, names)]
        return pa.RecordBatch.from_arrays(arrow_batch.columns, schema=pa.schema(fields))

    # Not a generator: that would keep an Arrow batch while it waits for the next one.
    return map(named, arrow_batches)
