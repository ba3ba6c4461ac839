"""The writers that Spark pickles: ``write`` runs in each task, the rest on the driver.

Nothing heavy is imported here: Spark loads this module several times per micro-batch in driver-side
processes. The producer and its kernels are imported in the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_kafka_sink.columns.plan import ColumnPlan
from spark_kafka_sink.commit import KafkaCommitMessage, report_abort, report_commit
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.hooks import Interceptors

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID_PROPERTY = "sql.streaming.queryId"


def write_partition(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, plan: ColumnPlan
) -> KafkaCommitMessage:
    """Write one Spark partition. Returns when every record is acknowledged, raises otherwise."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    message = KafkaCommitMessage(
        partition_id=context.partitionId(),
        attempt_number=context.attemptNumber(),
        query_id=context.getLocalProperty(_QUERY_ID_PROPERTY),
    )
    arrow_batches = (arrow_batch for arrow_batch in iterator if arrow_batch.num_rows)
    first = next(arrow_batches, None)
    if first is None:
        return message  # an empty Spark partition needs no producer

    from spark_kafka_sink.producer.pool import POOL

    interceptors = Interceptors(options.interceptors, options.hooks_on_error)
    topics = [] if plan.topic_option is None else [plan.topic_option]
    producer = POOL.acquire(options.producer, topics)
    try:
        producer.append(interceptors.on_send(first), plan)
        del first
        for arrow_batch in arrow_batches:
            producer.append(interceptors.on_send(arrow_batch), plan)
        producer.flush()
        message.partitions = dict(producer.report)
        message.metrics = replace(producer.metrics)
        interceptors.on_acknowledgement(message.summary())
    except BaseException:
        producer.close()
        raise
    POOL.release(options.producer, producer)
    return message


class KafkaBatchWriter(DataSourceArrowWriter):
    """``df.write.format("pykafka-sink")``."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, in a task."""
        return write_partition(iterator, self._options, self._plan)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written everything."""
        options = self._options
        report_commit(messages, None, options.metrics_log, options.metrics_path)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good."""
        report_abort(messages, None, self._options.metrics_path)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("pykafka-sink")``."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch, in a task."""
        return write_partition(iterator, self._options, self._plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks of the micro-batch have written everything."""
        options = self._options
        report_commit(messages, batchId, options.metrics_log, options.metrics_path)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task of the micro-batch failed for good."""
        report_abort(messages, batchId, self._options.metrics_path)
