"""Write DataFrames without a data source: for Spark 3.5, and for ``foreachBatch`` in all versions.

``mapInArrow`` runs the data source's tasks. Each task returns its commit message as a row. The
caller's process does the work that Spark does around the tasks of a data source: it plans and
commits. So this process must be able to connect to the brokers.

The decision log identifies a micro-batch by its query and number, a named write by its name and
version. If one comes again, its rows are dropped because they were written before. A different
write with the same name and number looks equal in the log, and its rows would be dropped too.
This module refuses such writes of one program; writes of other programs are not known.

A prefix in a cluster has one writer at a time. The writes of one program there wait for each other.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Number
from os import PathLike
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType, ref

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, warn
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions, with_query_name
from spark_kafka_sink.formats.plan import RowSpec
from spark_kafka_sink.record.compiled.library import check_platform
from spark_kafka_sink.spark.commit import (
    BatchSummary,
    Enveloped,
    KafkaCommitMessage,
    PlanningSpan,
    decode_message,
    encode_message,
)
from spark_kafka_sink.spark.planning import (
    NOT_A_QUERY,
    UNNAMED_QUERY,
    PlanningTimer,
    check_surroundings,
    parse_options,
    plan_schemas,
    plan_transactions,
)
from spark_kafka_sink.spark.row_planning import InputLayout, plan_rows, written_columns
from spark_kafka_sink.spark.versions import check_pandas, warn_of_unpickling
from spark_kafka_sink.spark.writer import (
    QUERY_ID_PROPERTY,
    abort_batch,
    commit_batch,
    with_names,
    write_partition,
)
from spark_kafka_sink.transactions.model import TransactionPlan, Unit, Write, is_task_id

_OWN_NAME_ADVICE = (
    "give each write of a function for foreachBatch a transactional.id.prefix of its own, or a "
    "write.id of its own"
)
_OWN_VERSION_ADVICE = (
    "give each write a write.id of its own or, where you set it, a write.version of its own"
)
_TWO_WRITES = "TXN-008"


class FunctionCall(NamedTuple):
    """A call of a function for foreachBatch; Spark repeats one in the next run of the query.

    execution_id: Spark's id, unique per call; None in a thread of the user's, which may also be a
    thread of a job: its session is the program's
    session: of the DataFrame. Spark makes one for each call, and filtered parts share it. With
    Spark Connect one lasts for a run of the query, which has a process of its own

    Source: PySpark's ``ForeachBatchFunction.call``.
    """

    execution_id: str | None
    session: ReferenceType[Any]

    def is_other(self, other: FunctionCall) -> bool:
        """Return True if the two are certainly not the same call."""
        if None not in (self.execution_id, other.execution_id):
            return self.execution_id != other.execution_id
        return self.session != other.session


class Place(NamedTuple):
    """A prefix in a cluster, which has one writer at a time.

    servers: the option kafka.bootstrap.servers, in any order; other servers are another cluster
    """

    servers: tuple[tuple[str, int], ...]
    prefix: str

    @classmethod
    def of(cls, options: SinkOptions) -> Place:
        """Return the place of an exactly-once write."""
        assert options.exactly_once is not None
        return cls(tuple(sorted(options.producer.bootstrap_servers)), options.exactly_once.prefix)


class WriteIdentity(NamedTuple):
    """A write that may be repeated.

    number: of the micro-batch, or write.version; topic: option topic
    query_id: of the micro-batch's query, None if Spark does not report it
    call: of a function for foreachBatch, which Spark may repeat; None for a job in the main thread
    """

    place: Place
    number: int
    topic: str | None
    write_id: str | None = None
    query_id: str | None = None
    call: FunctionCall | None = None

    @property
    def scope(self) -> tuple[Place, str | None]:
        """Return the scope in which ``number`` identifies the write."""
        return self.place, self.write_id

    @property
    def prefix(self) -> str:
        """The ``transactional.id.prefix``."""
        return self.place.prefix

    def may_be_repetition(self, earlier: WriteIdentity) -> bool:
        """Return True if Spark may have repeated the call of ``earlier``."""
        if self.call is None or earlier.call is None:
            return False
        return self.call.is_other(earlier.call)


class WriteRegistry:
    """The writes of this program that may be repeated: running, waiting and finished."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: list[WriteIdentity] = []
        # The last of each scope; and by number, which may come in any order, all jobs of the scope
        # and the writes of its last call.
        self._finished: dict[tuple[Place, str | None], WriteIdentity] = {}
        self._numbers: dict[tuple[Place, str | None], dict[int, WriteIdentity]] = {}

    def begin(self, identity: WriteIdentity) -> None:
        """Mark a write as running, before it waits for others of its place.

        Raises ConfigError for a write with the identity of another running write. A write without
        a name is compared with the finished write too.
        """
        with self._lock:
            for earlier in self._running:
                if (earlier.scope, earlier.number) == (identity.scope, identity.number):
                    _check(identity, earlier)
            if identity.write_id is None and identity.scope in self._finished:
                _check(identity, self._finished[identity.scope])
            self._running.append(identity)

    def check_dropped(self, identity: WriteIdentity) -> None:
        """Raise ConfigError if the decision log would drop a write that is not a repetition.

        The write is named and the log has it as done, but this program wrote something else under
        the name. The command ``release`` removes names from a log.
        """
        with self._lock:
            same = self._numbers.get(identity.scope, {}).get(identity.number)
            for earlier in (same, self._finished.get(identity.scope)):
                if earlier is not None:
                    _check(identity, earlier)

    def finish(self, identity: WriteIdentity) -> None:
        """Mark a write as finished."""
        with self._lock:
            self._finished[identity.scope] = identity
            numbers = self._numbers.setdefault(identity.scope, {})
            if identity.call is not None:  # nothing of a job goes
                for number in [n for n, w in numbers.items() if identity.may_be_repetition(w)]:
                    del numbers[number]
            numbers[identity.number] = identity

    def forget(self, identity: WriteIdentity) -> None:
        """Remove a write from the running ones, so that a failed write may be retried."""
        with self._lock:
            self._running = [running for running in self._running if running is not identity]

    def renew(self) -> None:
        """Forget everything, as a forked child must: it is another program."""
        self.__init__()  # type: ignore[misc]


def _check(identity: WriteIdentity, earlier: WriteIdentity) -> None:
    if identity.write_id is None:
        _check_micro_batch(identity, earlier)
    else:
        _check_named(identity, identity.write_id, earlier)


def _check_micro_batch(identity: WriteIdentity, earlier: WriteIdentity) -> None:
    is_same = (identity.number, identity.query_id) == (earlier.number, earlier.query_id)
    if is_same and not identity.may_be_repetition(earlier):
        raise ConfigError(
            f"micro-batch {identity.number} of query {identity.query_id} is written a second time "
            f"under transactional.id.prefix '{identity.prefix}': {_OWN_NAME_ADVICE}",
            code=_TWO_WRITES,
        )


def _check_named(identity: WriteIdentity, write_id: str, earlier: WriteIdentity) -> None:
    write, before = Write(write_id, identity.number), Write(write_id, earlier.number)
    if identity.number > earlier.number:
        return
    if identity.number == earlier.number and not identity.may_be_repetition(earlier):
        raise ConfigError(
            f"{write} is written a second time under transactional.id.prefix '{identity.prefix}', "
            f"and its rows would be dropped: {_OWN_VERSION_ADVICE}",
            code=_TWO_WRITES,
        )
    if identity.topic != earlier.topic:
        raise ConfigError(
            f"{write} is for {_topic(identity)}, and would be dropped under "
            f"transactional.id.prefix '{identity.prefix}': {before} was for {_topic(earlier)}. A "
            "write.id is for one topic: give this write a write.id of its own, or a "
            "transactional.id.prefix of its own",
            code="TXN-030",
        )


def _topic(identity: WriteIdentity) -> str:
    return "the topics of its rows" if identity.topic is None else f"topic '{identity.topic}'"


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

logger = logging.getLogger(__name__)

_MESSAGE = "message"
# Id of the execution in which Spark calls a function for foreachBatch, unique per call. Unlike a
# job group, the function cannot change it.
_EXECUTION_ID_PROPERTY = "spark.sql.execution.id"
_DESCRIPTION_PROPERTY = "spark.job.description"
_DESCRIPTION = re.compile(r"(?s)(?:(.*)\n)?id = (\S+)\nrunId = \S+\nbatch = \S+")
"""Spark describes the jobs of a micro-batch: the query's name if it has one, its id, and others."""
_RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Id of a micro-batch's run: Spark names the job group of a streaming query after the run."""
_WRITE_ID, _WRITE_VERSION = "write.id", "write.version"
_EXACTLY_ONCE = ("delivery.guarantee", "exactly-once")
_NO_QUERY = (
    "delivery.guarantee=exactly-once needs to know which query a micro-batch belongs to, and "
    "{where} does not tell: give option write.id, a name that is this query's own and stays the "
    "same, e.g. the query's name"
)
_NO_NAME = (
    "{where} does not tell it in foreachBatch: write a name of the query's own into the option"
)
_CHANGED_DESCRIPTION = (
    "the job description of this thread is not Spark's any more, which has the name: call "
    "setJobDescription after the sink, or write a name of the query's own into the option"
)
_STREAM_ADVICE = (
    "this DataFrame is a stream, and is written with "
    "df.writeStream.foreachBatch(spark_kafka_sink.batch_writer(options))"
)

# Per place, one thread at a time writes: planning makes the transactions of other tasks invalid.
_locks: dict[Place, Lock] = {}
os.register_at_fork(after_in_child=_locks.clear)

# The writes of this process that may be repeated.
_writes = WriteRegistry()
os.register_at_fork(after_in_child=_writes.renew)


def write(df: DataFrame, options: Mapping[str, object]) -> None:
    """Write all rows of ``df`` to Kafka; return when brokers have acknowledged every record.

    It does the same as ``df.write.format("pykafka-sink").options(**options).mode("append").save()``
    and also works in Spark 3.5 and in sessions that do not find the data source.

    df: with the columns value, key, headers, topic, partition; or with any columns that
    ``value.format`` encodes as a value
    options: as for ``.option``: names are case-insensitive, values are texts, numbers or booleans;
    None stands for an option that is not set. ``kafka.bootstrap.servers`` is required, and
    ``topic`` unless a topic column exists

    Before a row is written, raises ConfigError for options, SchemaError for columns, BootstrapError
    or TopicError for the cluster. Later, raises Spark's error for a failed job: a part of the rows
    may be written then, but with exactly-once delivery no row is visible.

    Example::

        spark_kafka_sink.write(
            df.selectExpr("id AS key", "to_json(struct(*)) AS value"),
            {"kafka.bootstrap.servers": "broker:9092", "topic": "events"},
        )
    """
    check_pandas()
    _Write(df, parse_options(_as_text(options)), is_job=True).run()


def batch_writer(options: Mapping[str, object]) -> BatchWriter:
    """Return a function for ``df.writeStream.foreachBatch`` that writes each micro-batch to Kafka.

    options: as for ``write``. With exactly-once delivery, query and number identify a micro-batch;
    or ``write.id`` and the number if that option is set

    Raises ConfigError for options, and without pandas. The function raises the same errors as
    ``write``, which end the query.

    Example::

        sink = spark_kafka_sink.batch_writer(
            {"kafka.bootstrap.servers": "broker:9092", "topic": "events"}
        )
        query = events.writeStream.foreachBatch(sink).option("checkpointLocation", "/c/e").start()
    """
    return BatchWriter(options)


class BatchWriter(Enveloped):
    """Writes micro-batches. It can be pickled, and the user's own function may call it."""

    def __init__(self, options: Mapping[str, object]) -> None:
        check_pandas()
        texts = _as_text(options)
        name, value = _EXACTLY_ONCE
        self._has_write_id = _WRITE_ID in texts and texts.get(name, "").strip().lower() == value
        if self._has_write_id:
            if _WRITE_VERSION in texts:
                raise ConfigError(
                    "write.version is the number of the micro-batch here: remove the option",
                    code="OPTION-015",
                )
            texts[_WRITE_VERSION] = "0"
        self._options = parse_options(texts)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; return when brokers have acknowledged every record.

        A micro-batch that Spark repeats after a failure is written again; with exactly-once
        delivery, a committed micro-batch is not.
        """
        options = self._options
        if self._has_write_id:
            options = replace(options, write_version=batch_id)
        _Write(df, options, self._has_write_id, batch_id).run()


class _Write:
    """One write of one DataFrame. is_job: otherwise it is the micro-batch ``batch_id``."""

    def __init__(
        self, df: DataFrame, options: SinkOptions, is_job: bool, batch_id: int | None = None
    ) -> None:
        self._df = df
        self._options = options
        self._is_job = is_job
        self._batch_id = batch_id
        self._query_id = None if batch_id is None else _local_property(df, QUERY_ID_PROPERTY)
        self._planned: PlanningSpan | None = None

    def run(self) -> None:
        """Check, plan, run the tasks, and commit or abort."""
        if _is_connect(self._df):
            warn_of_unpickling()
        if self._df.isStreaming:
            raise ConfigError(_STREAM_ADVICE, code="SPARK-006")
        if _runs_here(self._df):
            check_platform()
        self._options = self._named_options()
        identity = self._write_identity()
        if identity is not None:
            _writes.begin(identity)
        try:
            with self._turn():
                self._write(identity)
        finally:
            if identity is not None:
                _writes.forget(identity)

    def _write(self, identity: WriteIdentity | None) -> None:
        planning_time = PlanningTimer()
        rows = plan_rows(self._df.schema, self._options)
        if self._options.metrics.openlineage:
            columns = written_columns(self._df.schema, rows)
            self._options = replace(self._options, written_columns=columns)
        # A query with a second micro-batch has committed the first.
        is_stream = bool(self._batch_id)
        checked = check_surroundings(self._options, is_stream)
        rows, checked = plan_schemas(rows, checked, is_stream=is_stream, query=self._run_identity())
        self._options = replace(
            checked, application_id=_application_id(self._df), write_query_id=self._query_id
        )
        plan = self._plan(identity)
        self._planned = planning_time.until_now()
        try:
            messages = self._run_tasks(rows, plan)
            self._commit(messages, plan)
        except BaseException as error:
            self._abort(plan, error)
            raise
        if identity is not None:
            _writes.finish(identity)

    def _named_options(self) -> SinkOptions:
        """Return the options with the name of the micro-batch's query, where Spark reports it.

        Raises ConfigError if ``transactional.id.prefix`` needs the name and there is none.
        """
        if self._batch_id is None:
            return with_query_name(self._options, None, NOT_A_QUERY)
        name, advice = None, UNNAMED_QUERY
        found = _DESCRIPTION.fullmatch(_local_property(self._df, _DESCRIPTION_PROPERTY) or "")
        if self._query_id is None:
            advice = _NO_NAME.format(where=self._where())
        elif found is None or found[2] != self._query_id:
            advice = _CHANGED_DESCRIPTION
        else:
            name = found[1]
        options = replace(self._options, query_name=name or self._options.query_name)
        return with_query_name(options, name, advice)

    def _where(self) -> str:
        return "Spark Connect" if _is_connect(self._df) else "a thread of your own"

    def _run_identity(self) -> str | None:
        """Return an identity of this run of a query; None for a job."""
        if self._batch_id is None:
            return None
        return f"{self._query_id} {_local_property(self._df, _RUN_ID_PROPERTY)}"

    def _write_identity(self) -> WriteIdentity | None:
        """Return the identity of this write if it may be repeated, else None.

        Raises ConfigError if Spark does not report the query of a micro-batch without write.id.
        """
        options = self._options
        if options.exactly_once is None or (self._is_job and options.write_id is None):
            return None
        number = self._batch_id if options.write_version is None else options.write_version
        assert number is not None
        if not self._is_job and self._query_id is None:
            raise ConfigError(_NO_QUERY.format(where=self._where()), code="TXN-007")
        return WriteIdentity(
            place=Place.of(options),
            number=number,
            topic=options.topic,
            write_id=options.write_id,
            query_id=self._query_id,
            call=self._call(),
        )

    def _call(self) -> FunctionCall | None:
        """Return the call of a function for foreachBatch that this write is, or may be, part of."""
        execution_id = _local_property(self._df, _EXECUTION_ID_PROPERTY)
        is_in_thread = current_thread() is not main_thread()
        if self._batch_id is None and execution_id is None and not is_in_thread:
            return None
        return FunctionCall(execution_id, ref(self._df.sparkSession))

    def _plan(self, identity: WriteIdentity | None) -> TransactionPlan | None:
        is_micro_batch = self._batch_id is not None
        unit = Unit(self._query_id, self._batch_id, None) if is_micro_batch else None
        plan = plan_transactions(self._options, self._is_job, unit)
        if identity is not None and plan is not None and plan.is_repeated:
            _writes.check_dropped(identity)
        return plan

    def _run_tasks(
        self, rows: InputLayout, plan: TransactionPlan | None
    ) -> list[KafkaCommitMessage]:
        """Run the tasks and return their messages. Raises Spark's error if a task failed."""
        names = self._df.schema.names
        task = Task(self._options, rows.positions, plan, names, self._planned, rows.plan).function()
        # Spark resolves columns by name here, which fails for names such as "a.b". The task
        # restores the names.
        plain = self._df.toDF(*(f"c{n}" for n in range(len(names))))
        returned = plain.mapInArrow(task, f"{_MESSAGE} binary").collect()
        messages = [decode_message(row[0]) for row in returned]
        for message in messages:
            # The plan is this process's own: what Spark returns may come from other machines.
            message.plan = plan if message.partition_id == 0 else None
        if not (
            sorted(m.partition_id for m in messages) == list(range(len(messages)))
            and all(_is_of_plan(message, plan) for message in messages)
        ):
            raise KafkaSinkError(
                f"Spark has returned the messages of {len(messages)} tasks, not one for each "
                "partition: it cannot be known whether all rows are written",
                code="SPARK-010",
            )
        return messages

    def _commit(self, messages: list[KafkaCommitMessage], plan: TransactionPlan | None) -> None:
        if self._is_job:
            unit = Unit(None, None, None if plan is None else plan.job_id)
        else:
            unit = Unit(self._query_id, self._batch_id, None)
        commit_batch(self._options, messages, unit, self._batch_id, self._query_id)

    def _abort(self, plan: TransactionPlan | None, error: BaseException) -> None:
        """Abort after a failure; errors here are logged so that the user sees the first error."""
        unknown = BatchSummary(None, None, self._query_id, planned=self._planned)
        try:
            abort_batch(self._options, unknown, self._batch_id, plan, error)
        except Exception:
            text = "the failed write could not be aborted, or not reported"
            warn(logger, "DELIVERY-007", text, exc_info=True)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other write of this program runs in the same place."""
        if self._options.exactly_once is None:
            yield
            return
        from spark_kafka_sink.transactions.session import as_driver

        place = Place.of(self._options)
        lock = _locks.setdefault(place, Lock())
        if not lock.acquire(blocking=False):
            logger.info(f"another write under transactional.id.prefix '{place.prefix}' comes first")
            lock.acquire()
        try:
            with as_driver():
                yield
        finally:
            lock.release()


class Task(Enveloped):
    """The function of each task. names: names of the columns, for interceptors"""

    def __init__(
        self,
        options: SinkOptions,
        positions: ColumnPositions,
        plan: TransactionPlan | None,
        names: list[str],
        planned: PlanningSpan | None = None,
        encoding_plan: RowSpec | None = None,
    ) -> None:
        self._options = options
        self._encoding_plan = encoding_plan
        self._positions = positions
        self._plan = plan
        self._names = names
        self._planned = planned

    def write(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows and yield one row, the message of this task."""
        import pyarrow as pa

        named = with_names(arrow_batches, self._names)
        message = write_partition(
            named, self._options, self._positions, self._plan, self._planned, self._encoding_plan
        )
        yield pa.record_batch([pa.array([encode_message(message)])], names=[_MESSAGE])

    def function(self) -> ArrowFunction:
        """Return the function for Spark.

        Spark sends the function's code too. The code refers only to this object, so that unpickling
        in another version of the sink raises VersionMismatchError.
        """

        def write_to_kafka(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return self.write(arrow_batches)

        return write_to_kafka


def _is_of_plan(message: KafkaCommitMessage, plan: TransactionPlan | None) -> bool:
    """Return False for a transaction that no task of the plan can have written."""
    token, transaction = message.token, message.transaction
    if plan is None:
        return token is None and transaction is None
    return token == plan.token and (
        transaction is None
        or (
            transaction.partition_id == message.partition_id
            and is_task_id(plan.prefix, transaction.transactional_id)
        )
    )


def _as_text(options: Mapping[str, object]) -> dict[str, str]:
    """Return the options by lower-case name, with values as Spark's ``.option`` writes them.

    Raises ConfigError for a name in two spellings, and for a name or value of a wrong type.
    """
    texts: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(name, str):
            raise ConfigError(f"names of options are texts, and {name!r} is not", code="OPTION-002")
        if value is None:
            continue
        key = name.lower()
        if key in texts:
            raise ConfigError(
                f"option '{key}' is set twice; option names are not case-sensitive",
                code="OPTION-009",
            )
        if not isinstance(value, (str, Number, PathLike)):
            raise ConfigError(
                f"option '{key}' is of type {type(value).__name__}: it must be a text, a number or "
                "a boolean. A list is a text with commas: 'a:9092,b:9092'",
                code="OPTION-002",
            )
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _is_connect(df: DataFrame) -> bool:
    return type(df).__module__.startswith("pyspark.sql.connect")


def _runs_here(df: DataFrame) -> bool:
    """Return True if tasks run on this machine, whose platform can then be checked."""
    if _is_connect(df):
        return False
    try:
        return bool((df.sparkSession.sparkContext.master or "").startswith("local"))
    except Exception:  # a platform that hides its context
        return False


def _application_id(df: DataFrame) -> str | None:
    """Return the application id, for metrics.

    Return None with Spark Connect and on platforms that hide the context.
    """
    if _is_connect(df):
        return None
    try:
        name: str = df.sparkSession.sparkContext.applicationId
    except Exception:
        return None
    return name


def _local_property(df: DataFrame, name: str) -> str | None:
    """Return a local property of the calling thread; None with Spark Connect."""
    if _is_connect(df):
        return None
    value: str | None = df.sparkSession.sparkContext.getLocalProperty(name)
    return value
