"""The writers that Spark pickles: one Spark partition in a task, commit and abort on the driver.

For the data source and for ``frames``, :func:`write_partition` writes a partition, and the driver
calls :func:`commit_batch` or :func:`abort_batch`. Messages of ``transactions/`` contain commands
with the prefix; this module adds the cluster's address, so that users can paste and run them.

The module imports nothing expensive because Spark loads it several times per micro-batch in
driver-side processes. The task imports the producer and its kernels.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError, code_of, coded, sentence, warn
from spark_kafka_sink.base.model import ColumnPositions, format_address
from spark_kafka_sink.config.sink_keys import LINEAGE_PROPERTIES, SINK_OPTIONS
from spark_kafka_sink.config.sink_options import SinkOptions, effective_settings
from spark_kafka_sink.formats.plan import RowSpec
from spark_kafka_sink.spark.commit import (
    AT_LEAST_ONCE_JOB_NOTE,
    AT_LEAST_ONCE_NOTE,
    UNKNOWN_NOTE,
    BatchSummary,
    Enveloped,
    KafkaCommitMessage,
    PlanningSpan,
    TimedInput,
    common_plan,
    report_abort,
    report_commit,
)
from spark_kafka_sink.spark.versions import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from spark_kafka_sink.spark.worker import (
    address_limit,
    freeze_loaded,
    is_process_of_spark,
    keep_one_arena,
    sentence_first,
    set_up,
)
from spark_kafka_sink.transactions.model import TransactionPlan, Unit

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_COMMAND = r"(pykafka-sink transactions [a-z]+)"


def complete_commands(text: str, options: SinkOptions) -> str:
    """Add address, prefix and decision log to each ``pykafka-sink transactions …`` in ``text``."""
    if options.exactly_once is None:
        return text
    servers = ",".join(format_address(*address) for address in options.producer.bootstrap_servers)
    prefix = options.exactly_once.prefix
    arguments = ["--bootstrap-server", servers, "--prefix", prefix]
    if options.exactly_once.log_topic != SINK_OPTIONS.keys["transaction.log.topic"].default:
        arguments += ["--log-topic", options.exactly_once.log_topic]
    command = rf"{_COMMAND}( --prefix {re.escape(prefix)})?"
    return re.sub(command, lambda match: f"{match[1]} {shlex.join(arguments)}", text)


@contextmanager
def completed_commands(options: SinkOptions) -> Iterator[None]:
    """Complete the commands in the message of an error raised inside."""
    try:
        yield
    except KafkaSinkError as error:
        error.args = tuple(
            complete_commands(argument, options) if isinstance(argument, str) else argument
            for argument in error.args
        )
        raise


QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Spark's name for the id of the query whose micro-batch runs."""
BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""Spark's name for the number of that micro-batch."""
_SESSION_ZONE_PROPERTY = "spark.sql.session.timeZone"
_ANSI_PROPERTY = "spark.sql.ansi.enabled"
_SPECULATION_PROPERTY = "spark.speculation"
_IGNORES_NULLS_PROPERTY = "spark.sql.jsonGenerator.ignoreNullFields"
"""Settings of the session, which Spark passes to tasks as properties if the user has set them."""
_SPECULATION = (
    "spark.speculation is on: if Spark runs a copy of a slow task, the slower of the two may write "
    "older rows of a key behind newer ones, and these stay the last of their key. Set "
    "spark.speculation=false, or use delivery.guarantee=exactly-once"
)


_NO_THREAD = "can't start new thread"


class TooFewAddressesError(KafkaSinkError):
    """The limit of spark.executor.pyspark.memory is too small for this task."""

    code = "SPARK-011"


@contextmanager
def within_addresses() -> Iterator[None]:
    """Take few addresses if Spark limits those of this process (spark.executor.pyspark.memory).

    Arrow's own pool reserves 128 MiB at once.

    Raises TooFewAddressesError if the limit is too small nevertheless.
    """
    limit_bytes = address_limit()
    if limit_bytes is None:
        yield
        return
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    keep_one_arena()
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and _NO_THREAD not in str(error):
            raise
        raise TooFewAddressesError(
            f"spark.executor.pyspark.memory leaves {limit_bytes >> 20} MiB of addresses to this "
            f"Python worker, which are used up ({type(error).__name__}: {error}). Spark divides it "
            "by the task slots of an executor: raise it, or set fewer slots, smaller Arrow batches "
            "(spark.sql.execution.arrow.maxBytesPerBatch) or a smaller kafka.buffer.memory"
        ) from None


@sentence_first
@within_addresses()
def write_partition(
    arrow_batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    positions: ColumnPositions,
    transactions: TransactionPlan | None,
    planned: PlanningSpan | None = None,
    encoding_plan: RowSpec | None = None,
) -> KafkaCommitMessage:
    """Write one Spark partition; return when every record is acknowledged, raise otherwise.

    positions: of the appended columns
    encoding_plan: how the columns are built, None if Spark's are appended
    transactions: with exactly-once delivery; the task's transaction stays open for the driver
    planned: start and duration of the driver's planning
    """
    message = _message()
    if message.partition_id == 0:
        message.planned = planned
        if options.metrics.openlineage:
            message.origin = json.dumps({name: _property(name) for name in LINEAGE_PROPERTIES})
    if transactions is not None:
        message.belong_to(transactions)
    elif positions.key is not None:
        message.is_unordered = (_property(_SPECULATION_PROPERTY) or "").lower() == "true"
    if transactions is not None and transactions.is_repeated:
        # The rows are written already: only count them.
        message.dropped_rows = sum(arrow_batch.num_rows for arrow_batch in arrow_batches)
        return message
    rows = TimedInput(arrow_batches)
    if not rows.has_rows():
        return message  # an empty Spark partition needs no producer

    with rows.loading():
        from spark_kafka_sink.spark.task import prepare_process, write_rows

        set_up(options)
        prepare_process(options.producer.compression_type)
    if encoding_plan is not None:
        ansi = _property(_ANSI_PROPERTY)
        encoding_plan = encoding_plan._replace(
            session_zone=_property(_SESSION_ZONE_PROPERTY),
            is_ansi=encoding_plan.is_ansi if ansi is None else ansi.lower() == "true",
            ignores_nulls=(_property(_IGNORES_NULLS_PROPERTY) or "true").lower() == "true",
        )
    write_rows(rows, options, positions, message, transactions, encoding_plan)
    return message


def _message() -> KafkaCommitMessage:
    """Return the empty commit message of this task."""
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
    """Return a local property of this task, or None."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    value: str | None = context.getLocalProperty(name)
    return value


def with_names(
    arrow_batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return the Arrow batches with their columns renamed to ``names``."""
    import pyarrow as pa

    def named(arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        fields = [field.with_name(name) for field, name in zip(arrow_batch.schema, names)]
        return pa.RecordBatch.from_arrays(arrow_batch.columns, schema=pa.schema(fields))

    # Not a generator, which would keep an Arrow batch while it waits for the next.
    return map(named, arrow_batches)


_MAX_ERROR_LENGTH = 500
_MIN_BEGINNING_LENGTH = 100
_CUT = " … "
# package.module.NameOfAnError: message. Lines of Spark's stack traces begin with white space.
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): \S")
_TRACE_ID_BYTES = 16
# container_e17_1410901177871_0001_01_000005; the epoch of the resource manager is optional.
_YARN_CONTAINER = re.compile(r"container_(?:e[0-9]+_)?([0-9]+_[0-9]+)_")


def commit_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    unit: Unit,
    batch_id: int | None = None,
    query_id: str | None = None,
) -> None:
    """Commit the tasks' transactions, if any, and report the batch.

    batch_id: of a micro-batch whose ``unit`` is a job
    query_id: of the query, if it is known without messages, because there may be no message
    """
    set_up(options)
    more: dict[str, Any] = _begun(options)
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import commit_unit

        written = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        transactions = [m.transaction for m in written if m.transaction is not None]
        open_ms = {m.transaction.transactional_id: m.open_ms for m in written if m.transaction}
        with completed_commands(options):
            plan, dropped_rows = common_plan(written), sum(m.dropped_rows for m in written)
            done = commit_unit(options, plan, unit, transactions, open_ms, dropped_rows)
            more.update(done)
    batch_id = unit.batch_id if batch_id is None else batch_id
    summary = BatchSummary.merge(messages)
    summary.query_id = summary.query_id or query_id
    if any(isinstance(m, KafkaCommitMessage) and m.is_unordered for m in messages):
        from spark_kafka_sink.spark.preflight import log_once, query_text

        log_once([f"{_SPECULATION} ({query_text(options, summary.query_id)})"], "DELIVERY-009")
    line = report_commit(summary, batch_id, options.metrics_log, options.metrics, **more)
    _report_lineage(options, line, summary)


def abort_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None] | BatchSummary,
    batch_id: int | None,
    plan: TransactionPlan | None = None,
    error: BaseException | None = None,
) -> None:
    """Abort the transactions of a failed batch, and report it.

    plan: of the batch, if known; transactions of later plans are then not aborted
    error: the cause, if known
    """
    set_up(options)
    more = _begun(options)
    if error is not None:
        more["error"] = shortened(f"{type(error).__name__}: {error}")
    note = AT_LEAST_ONCE_JOB_NOTE if batch_id is None else AT_LEAST_ONCE_NOTE
    if isinstance(messages, BatchSummary):
        note = UNKNOWN_NOTE
    summary = messages if isinstance(messages, BatchSummary) else BatchSummary.merge(messages)
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import abort_unit

        note = complete_commands(abort_unit(options, None if plan is None else plan.token), options)
    line = report_abort(summary, batch_id, options.metrics, note, **more)
    _report_lineage(options, line, summary)


def _report_lineage(options: SinkOptions, line: dict[str, Any], summary: BatchSummary) -> None:
    if not options.metrics.openlineage:
        return
    # One process starts all of Spark's own that commit, and ends with the driver.
    driver_id = os.getppid() if is_process_of_spark() else os.getpid()
    try:  # the records are in Kafka, even if no file can be opened any more
        from spark_kafka_sink.metrics.lineage import report_lineage
    except Exception as error:
        text = f"lineage events are not sent: {type(error).__name__}. They are lost"
        warn(logger, "METRICS-012", text)
    else:
        report_lineage(options, line, summary.origin, driver_id)


def _begun(options: SinkOptions) -> dict[str, Any]:
    """Return the line's fields about the write itself; call it when the commit begins."""
    return {
        "client_id": options.producer.client_id,
        "query_name": options.query_name,
        "topic": options.topic,
        "application_id": options.application_id or application_of(os.environ),
        "trace_id": token_hex(_TRACE_ID_BYTES) if options.metrics.has_traces else None,
        "commit_started_at_ms": SystemClock().timestamp_ms(),
        "settings": effective_settings(options),
    }


def shortened(error: str) -> str:
    """Return at most ``_MAX_ERROR_LENGTH`` characters of an error, and its code.

    For a task's traceback, they include the reason: the last line that has the form of an error.
    """
    if len(error) <= _MAX_ERROR_LENGTH:
        return error
    error_lines = [line.strip() for line in error.splitlines() if _ERROR_LINE.match(line)]
    code = code_of(error[error.rindex(error_lines[-1]) :] if error_lines else error)
    room = _MAX_ERROR_LENGTH - len(coded("", code))
    return coded(_cut(sentence(error), [sentence(line) for line in error_lines], room), code)


def _cut(error: str, error_lines: Sequence[str], room: int) -> str:
    if not error_lines or error_lines[-1] in error[:room]:
        return error[:room]
    reason = error_lines[-1][: room - _MIN_BEGINNING_LENGTH]
    return f"{error[: room - len(reason) - len(_CUT)]}{_CUT}{reason}"


def application_of(environment: Mapping[str, str]) -> str | None:
    """Return the Spark application id of this process from the environment.

    Kubernetes sets a variable for it, YARN a container id; elsewhere return None.
    """
    name = environment.get("SPARK_APPLICATION_ID")
    if name:
        return name
    container = _YARN_CONTAINER.match(environment.get("CONTAINER_ID", ""))
    return None if container is None else f"application_{container[1]}"


_ROWS_NOT_HANDED_OVER = (
    "{count} of {total} tasks of epoch {epoch} never ran the sink: Spark drops all rows for a "
    "Python sink when the trigger is continuous. Nothing was written, and the epoch is not "
    "committed. Stop the query, and start it with trigger(processingTime=...) or "
    "trigger(availableNow=True), and with a new checkpoint: Spark does not go on from a "
    "continuous one"
)


class RowsNotHandedOverError(KafkaSinkError):
    """Spark commits an epoch whose rows it did not pass to the sink's tasks."""

    code = "SPARK-004"


class TaskWriter(Enveloped):
    """Base of both writers: a task does the same for a job and for a micro-batch."""

    has_shared_values = True

    def __init__(
        self,
        options: SinkOptions,
        positions: ColumnPositions,
        transactions: TransactionPlan | None = None,
        planned: PlanningSpan | None = None,
        encoding_plan: RowSpec | None = None,
    ) -> None:
        self._options = options
        self._encoding_plan = encoding_plan
        self._positions = positions
        self._transactions = transactions
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition in a task."""
        return write_partition(
            iterator,
            self._options,
            self._positions,
            self._transactions,
            self._planned,
            self._encoding_plan,
        )


class KafkaBatchWriter(TaskWriter, DataSourceArrowWriter):
    """``df.write.format("pykafka-sink")``."""

    @sentence_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit after all tasks have succeeded."""
        job_id = None if self._transactions is None else self._transactions.job_id
        commit_batch(self._options, messages, Unit(None, None, job_id))
        freeze_loaded()

    @sentence_first
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort after a task has failed."""
        abort_batch(self._options, messages, None, self._transactions)


class KafkaStreamWriter(TaskWriter, DataSourceStreamArrowWriter):
    """``df.writeStream.format("pykafka-sink")``."""

    @sentence_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit after all tasks of the micro-batch have succeeded.

        Raises RowsNotHandedOverError with a continuous trigger: Spark's writer for Python sinks
        (``PythonBatchWriterFactory.write``) creates an exception for each row, does not throw it,
        and has no message to commit. Spark only logs this error, in a stack trace, but does not
        commit the epoch's offsets.
        """
        missing = messages.count(None)
        if missing:
            total = len(messages)
            text = _ROWS_NOT_HANDED_OVER.format(count=missing, total=total, epoch=batchId)
            set_up(self._options)
            warn(logger, RowsNotHandedOverError.code, text)
            raise RowsNotHandedOverError(text)
        query_ids = (m.query_id for m in messages if isinstance(m, KafkaCommitMessage))
        commit_batch(self._options, messages, Unit(next(query_ids, None), batchId, None))
        freeze_loaded()

    @sentence_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort after a task of the micro-batch has failed.

        Spark creates this writer again, without a plan; a query has one micro-batch at a time.
        """
        abort_batch(self._options, messages, batchId)
