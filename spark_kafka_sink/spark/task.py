"""Write a task's rows with a producer, and with exactly-once delivery in a transaction.

:func:`write_rows` takes a producer from the pool and begins the transaction. Each Arrow batch goes
through the interceptors and, with a format, through the encoder to the producer. At the end the
task waits for all acknowledgements.

A user's interceptor is a class with ``on_send(arrow_batch) -> arrow_batch``, which gets Arrow
batches before they are appended, ``on_acknowledgement(summary)``, or both.
Source: ``ProducerInterceptor``, ``ProducerInterceptors``.

Imported in tasks only, because it loads NumPy, pyarrow and the kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import pyarrow as pa

from spark_kafka_sink.base.entry_points import (
    Hook,
    RefusedRowsError,
    load,
    methods_of,
    refused_rows,
    run,
)
from spark_kafka_sink.base.errors import SupersededError, warn
from spark_kafka_sink.base.model import ColumnPositions, UnusedProducerIdentity
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.plan import RowSpec
from spark_kafka_sink.producer.producer import POOL, ThreadedProducer, compile_protocol
from spark_kafka_sink.record.columns import ArrowBatch, RowsDigest
from spark_kafka_sink.record.compiled.calls import load_kernels
from spark_kafka_sink.record.compression import create_compressor
from spark_kafka_sink.record.dead_letters import FROM_INTERCEPTORS, FROM_SPARK
from spark_kafka_sink.security.references import resolve
from spark_kafka_sink.spark.commit import KafkaCommitMessage, TimedInput
from spark_kafka_sink.spark.dead_letters import DeadLetters
from spark_kafka_sink.spark.worker import ensure_log_handler, freeze_loaded, keep_large_blocks
from spark_kafka_sink.transactions.crash_points import reached
from spark_kafka_sink.transactions.model import (
    TRANSACTIONAL_IDS,
    RowSummary,
    TaskTransaction,
    TransactionPlan,
    driver_transactional_id,
)

LARGE_BYTES = 32 << 20
"""Half of Spark's default of ``spark.sql.execution.arrow.maxBytesPerBatch``."""
_MIB = 1 << 20

logger = logging.getLogger(__name__)


class ArrowSizeWarning:
    """Logs once per process that Arrow batches are too large."""

    def __init__(self) -> None:
        self._has_warned = False

    def check(self, arrow_batch: ArrowBatch) -> None:
        """Check the size of an Arrow batch from Spark."""
        # The exact size of a slice takes 25 µs, that of whole buffers 0.1 µs.
        if self._has_warned or arrow_batch.get_total_buffer_size() < LARGE_BYTES:
            return
        size_bytes = arrow_batch.nbytes
        if size_bytes < LARGE_BYTES:
            return
        self._has_warned = True
        warn(
            logger,
            "SPARK-009",
            f"Arrow batches of {size_bytes / _MIB:.0f} MiB ({arrow_batch.num_rows} rows): with "
            "spark.sql.execution.arrow.maxBytesPerBatch=4m, Spark hands values of 10 KB over in "
            "about two thirds of the time, and a worker takes less memory",
        )


ARROW_SIZE_WARNING = ArrowSizeWarning()


OnRefused = Callable[[ArrowBatch, Mapping[int, str]], None]
"""Function of an Arrow batch, as an interceptor got it, and row -> reason of its rejection."""


class Interceptors:
    """The user's interceptors of one task, in the order of the option."""

    def __init__(self, entry_points: Sequence[str]) -> None:
        self._on_send: list[Hook] = []
        self._on_acknowledgement: list[Hook] = []
        for entry_point in entry_points:
            creation = Hook(
                f"the creation of interceptor '{entry_point}'", load(entry_point, "interceptor")
            )
            methods = methods_of(run(creation, lambda created: created), entry_point)
            hooks = {"on_send": self._on_send, "on_acknowledgement": self._on_acknowledgement}
            for name, method in methods.items():
                hooks[name].append(Hook(f"{name} of interceptor '{entry_point}'", method))

    @property
    def row_origin(self) -> str:
        """Return what a row's number refers to, for messages.

        Rows that an interceptor drops or moves cannot be traced back to Spark's batch.
        """
        return FROM_INTERCEPTORS if self._on_send else FROM_SPARK

    def on_send(self, arrow_batch: ArrowBatch, on_refused: OnRefused | None = None) -> ArrowBatch:
        """Call all interceptors in turn and return the resulting Arrow batch.

        on_refused: gets rows that an interceptor rejects, which then gets the other rows again.
        Without it, raises RefusedRowsError
        """
        for hook in self._on_send:
            arrow_batch = self._run_hook(hook, arrow_batch, on_refused)
        return arrow_batch

    def _run_hook(
        self, hook: Hook, arrow_batch: ArrowBatch, on_refused: OnRefused | None
    ) -> ArrowBatch:
        original = arrow_batch
        remaining: Sequence[int] = range(arrow_batch.num_rows)
        while arrow_batch.num_rows:
            try:
                check = partial(_check_columns, arrow_batch)
                changed: ArrowBatch = run(hook, check, arrow_batch)
            except RefusedRowsError as error:
                if on_refused is None:
                    raise
                reasons = refused_rows(hook, error, arrow_batch.num_rows)
                on_refused(original, {remaining[row]: reason for row, reason in reasons.items()})
                remaining = [number for row, number in enumerate(remaining) if row not in reasons]
                arrow_batch = original.take(pa.array(remaining, pa.int64()))
            else:
                return changed
        return arrow_batch

    def on_acknowledgement(self, summarize: Callable[[], dict[str, Any]]) -> None:
        """Pass the summary of acknowledged records to all interceptors; each may change it."""
        if not self._on_acknowledgement:
            return
        summary = summarize()
        for hook in self._on_acknowledgement:
            run(hook, lambda got: got, summary)


def _check_columns(before: ArrowBatch, after: Any) -> ArrowBatch:
    """Return ``after`` if its columns have the names and types of ``before``; ignore nullability.

    Raises TypeError.
    """
    if not isinstance(after, pa.RecordBatch):
        raise TypeError(f"it returned {_type_name(after)}, not a pyarrow.RecordBatch")
    if after.schema.names != before.schema.names:
        raise TypeError(
            f"it changed the columns from {before.schema.names} to {after.schema.names}"
        )
    for expected, actual in zip(before.schema, after.schema):
        if _may_be_null(actual.type) != _may_be_null(expected.type):
            raise TypeError(
                f"it changed the type of column '{actual.name}' from {expected.type} to "
                f"{actual.type}: cast the column to the type that it had"
            )
    checked: ArrowBatch = after
    return checked


def _may_be_null(kind: Any) -> Any:
    """Return the type with all nested fields nullable, as pyarrow's functions return them."""
    if isinstance(kind, pa.StructType):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(field.name, _may_be_null(field.type)) for field in fields])
    if isinstance(kind, pa.MapType):
        return pa.map_(_may_be_null(kind.key_type), _may_be_null(kind.item_type))
    if isinstance(kind, pa.ListType):
        return pa.list_(_may_be_null(kind.value_type))
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(_may_be_null(kind.value_type))
    return kind


def _type_name(value: Any) -> str:
    """Return the type's name: ``pyarrow.Table``, ``None``, ``list``."""
    if value is None:
        return "None"
    kind = type(value)
    module = kind.__module__.split(".")[0]
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


def load_all() -> None:
    """Load all modules and kernels that a task needs later, but for the codec of its options.

    Spark collects garbage after each task, and visits what was loaded after ``freeze_loaded``:
    3,000 objects take half a millisecond.

    pyarrow imports pandas, if installed, with 25,000 objects, when it builds an array of Python
    objects, as Spark does for the commit message.

    Raises ConfigError if the package has no kernels for this platform.
    """
    ensure_log_handler()
    load_kernels()
    compile_protocol()
    import_module("encodings.idna")  # which Python loads to look up the first host name
    pa.array([b""])


@cache
def prepare_process(compression_type: str = "none") -> None:
    """Load the task's modules and codec, and configure garbage collection and malloc.

    Call it before a producer exists: frozen objects of a producer could not be freed when the pool
    closes it.
    """
    load_all()
    create_compressor(compression_type, None)
    if not POOL.idle_count:
        freeze_loaded()
    keep_large_blocks()


def write_rows(
    arrow_batches: Iterable[ArrowBatch],
    options: SinkOptions,
    positions: ColumnPositions,
    message: KafkaCommitMessage,
    plan: TransactionPlan | None = None,
    encoding_plan: RowSpec | None = None,
) -> None:
    """Write all ``arrow_batches`` and set the acknowledged records in ``message``.

    positions: of the appended columns
    plan: with exactly-once delivery
    encoding_plan: how the appended columns are built, None if Spark's columns are appended

    Raises the producer's errors; the producer is closed then, not kept for the next task.
    """
    rows = TimedInput.of(arrow_batches)
    interceptors = Interceptors(options.interceptors)
    topics = [] if positions.topic_option is None else [positions.topic_option]
    config = with_own_rack(options.producer)
    producer = POOL.acquire(config, topics, options.topics_plan)
    transaction = None
    try:
        if plan is not None:
            transaction = _TaskTransaction(producer, plan, positions)
        arguments = interceptors, producer, positions, options, message
        writer = (
            _RowWriter(*arguments)
            if encoding_plan is None
            else _EncodingWriter(*arguments, encoding_plan)
        )
        _write_all(rows, writer, transaction)
        message.partitions = dict(producer.report)
        _copy_metrics(message, producer, rows)
        if transaction is not None:
            message.transaction = transaction.prepared(message)
            message.open_ms = producer.transaction_open_ms
        interceptors.on_acknowledgement(message.summary)
    except BaseException as error:
        producer.close()
        if transaction is not None:
            transaction.abort(options, error)
        raise
    _return_to_pool(producer, config, is_job=message.query_id is None)


_RACK_ADVICE = (
    "Every machine with executors needs its own value; the driver needs none: "
    "pykafka-sink docs racks"
)


def with_own_rack(config: ProducerConfig) -> ProducerConfig:
    """Return the configuration with the rack of this machine, on which a task runs.

    A rack that a file names may change, so each task resolves it. Raises ConfigError.
    """
    if not config.client_rack:
        return config
    rack = resolve(config.client_rack, "kafka.client.rack", _RACK_ADVICE)
    return replace(config, client_rack=rack.strip())


def _write_all(
    rows: Iterable[ArrowBatch], writer: _RowWriter, transaction: _TaskTransaction | None
) -> None:
    for arrow_batch in rows:
        ARROW_SIZE_WARNING.check(arrow_batch)
        _write_batch(arrow_batch, writer, transaction)
    writer.finish()


def _write_batch(
    arrow_batch: ArrowBatch, writer: _RowWriter, transaction: _TaskTransaction | None
) -> None:
    """Write one Arrow batch.

    A separate function drops all references to the written rows before the next Arrow batch, whose
    rows are encoded to the same memory.
    """
    for written in writer.write(arrow_batch):
        if transaction is not None:
            transaction.add(written)


def _copy_metrics(
    message: KafkaCommitMessage, producer: ThreadedProducer, rows: TimedInput
) -> None:
    """Copy the figures to the message: the producer continues to count for the next task."""
    message.metrics = producer.metrics.copy()
    message.longest_wait = producer.longest_wait
    rows.note_in(message.metrics)
    message.started_at_ms = rows.started_at_ms
    message.nodes = {
        node_id: node.copy()
        for node_id, node in sorted(producer.nodes.items())
        if node.requests or node.connections
    }


def _return_to_pool(producer: ThreadedProducer, config: ProducerConfig, is_job: bool) -> None:
    """Return the producer to the pool for the next task.

    is_job: a next task may never come; a query has one soon, with the same client for brokers

    All rows are acknowledged, so an error of the pool does not fail this task.
    """
    try:
        if is_job:
            producer.push_final_telemetry()
        POOL.release(config, producer)
    except Exception:
        text = "the next task will have a producer of its own"
        warn(logger, "DELIVERY-005", text, exc_info=True)
        with suppress(Exception):
            producer.close()


class _RowWriter:
    """Passes a task's rows from Spark through the interceptors to the producer."""

    def __init__(
        self,
        interceptors: Interceptors,
        producer: ThreadedProducer,
        positions: ColumnPositions,
        options: SinkOptions,
        message: KafkaCommitMessage,
    ) -> None:
        self._interceptors = interceptors
        self._producer = producer
        self._positions = positions
        self._dead_letters: DeadLetters | None = None
        if options.dead_letters is not None:
            row_origin = interceptors.row_origin
            self._dead_letters = DeadLetters(producer, positions, options, message, row_origin)

    def write(self, arrow_batch: ArrowBatch) -> list[ArrowBatch]:
        """Append all rows and return them as appended; dead letters are returned as they came in.

        Thus the digest of a task's rows does not depend on which rows are dead letters.
        """
        letters = self._dead_letters
        if letters is None:
            intercepted = self._interceptors.on_send(arrow_batch)
            self._producer.append(intercepted, self._positions)
            return [intercepted]
        refused: list[ArrowBatch] = []
        intercepted = self._interceptors.on_send(
            arrow_batch, lambda rows, reasons: refused.append(letters.refuse(rows, reasons))
        )
        return [*refused, *letters.write(intercepted)]

    def finish(self) -> None:
        """Wait after the last row for all acknowledgements. Raises TooManyDeadLettersError."""
        if self._dead_letters is None:
            self._producer.flush()
        else:
            self._dead_letters.finish()


class _EncodingWriter(_RowWriter):
    """Encodes keys and values from the rows that the interceptors return."""

    def __init__(
        self,
        interceptors: Interceptors,
        producer: ThreadedProducer,
        positions: ColumnPositions,
        options: SinkOptions,
        message: KafkaCommitMessage,
        encoding_plan: RowSpec,
    ) -> None:
        super().__init__(interceptors, producer, positions, options, message)
        # Imported here because columns that are appended unchanged do not need it.
        from spark_kafka_sink.formats.encoder import RowsEncoder

        self._encoder = RowsEncoder(
            encoding_plan, returns_faulty_rows=self._dead_letters is not None
        )

    def write(self, arrow_batch: ArrowBatch) -> list[ArrowBatch]:
        """Append all rows and return them as appended; dead letters as their encoded rows."""
        encode, letters = self._encoder.encode, self._dead_letters
        if letters is None:
            encoded = encode(self._interceptors.on_send(arrow_batch))
            rows = encoded.checked(self._interceptors.row_origin)
            self._producer.append(rows, self._positions)
            return [rows]
        refused: list[ArrowBatch] = []
        intercepted = self._interceptors.on_send(
            arrow_batch,
            lambda batch, reasons: refused.append(letters.refuse(encode(batch).rows, reasons)),
        )
        encoded = encode(intercepted)
        return [*refused, *letters.write(encoded.rows, encoded.faults)]


class _TaskTransaction:
    """The transaction of one task, until the driver gets its commit message."""

    def __init__(
        self, producer: ThreadedProducer, plan: TransactionPlan, positions: ColumnPositions
    ) -> None:
        self._producer = producer
        self._transactional_id = TRANSACTIONAL_IDS.next_id(plan.prefix, plan.token)
        self._digest = RowsDigest(positions)
        reached("task.begin")
        token = UnusedProducerIdentity(
            driver_transactional_id(plan.prefix), plan.token.producer, plan.coordinator
        )
        producer.begin_transaction(self._transactional_id, plan.timeout_ms, token)

    def add(self, arrow_batch: ArrowBatch) -> None:
        """Add appended rows to the digest."""
        self._digest.add(arrow_batch)
        reached("task.written")

    def prepared(self, message: KafkaCommitMessage) -> TaskTransaction | None:
        """Return the transaction for the driver, after ``flush``; None without rows."""
        reached("task.flushed")
        prepared = self._producer.transaction
        if prepared is None:
            return None
        digest = self._digest
        rows = RowSummary(digest.records, digest.data_bytes, digest.contents)
        return TaskTransaction(*prepared, message.partition_id, message.records, rows.text)

    def abort(self, options: SinkOptions, error: BaseException) -> None:
        """Abort after a failure, so that readers do not wait for the driver's clean-up."""
        from spark_kafka_sink.transactions.session import abort_task

        TRANSACTIONAL_IDS.discard(self._transactional_id)
        abort_task(options, self._transactional_id, isinstance(error, SupersededError))
