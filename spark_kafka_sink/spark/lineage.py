"""Lineage: the driver reports each batch, and a process of its own sends the events.

That process outlives the one that commits, which Spark may end at once, and nothing of it can delay
or fail a commit: a backend that hangs, refuses or is absent. A commit only starts it, and drops
events while too many are at work. It ends itself after ``_TIMEOUT_S``.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, TextIO

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.base.machine import private_folder, process_identity
from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.metrics.lineage import (
    COMPLETE,
    FAIL,
    Event,
    OpenRuns,
    Run,
    job_of,
    log_of,
    send,
)
from spark_kafka_sink.spark.worker import (
    ensure_log_handler,
    helper_environment,
    logs_json,
    set_up_log,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.row_planning import InputLayout

logger = logging.getLogger(__name__)

_CODE = "METRICS-012"
_CLOCK = SystemClock()
_TIMEOUT_S = 60.0
_MOST_AT_WORK = 4
"""Processes of this one that send at the same time."""


# --- the written columns -------------------------------------------------------------------------


def written_schema(schema: StructType, rows: InputLayout) -> str:
    """Return the columns that are in records, as JSON: the fields of OpenLineage's schema facet.

    The columns that choose topic and partition are none.
    """
    at, plan = rows.positions, rows.plan
    used: set[int | None] = {at.value, at.key, at.headers, at.timestamp}
    names: set[str] = set()
    if plan is not None:
        used = {position for part, position in plan.kept if part not in ("topic", "partition")}
        for part in filter(None, (plan.value, plan.key)):
            used.add(part.column)
            names |= set() if part.plan is None else {one.path[0] for one in part.plan.fields}
    written = [f for n, f in enumerate(schema.fields) if n in used or f.name in names]
    return json.dumps([_described(one.name, one.dataType) for one in written])


def _described(name: str, kind: DataType) -> dict[str, Any]:
    """Return a column with the names of types and of nested fields of OpenLineage for Spark."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    nested: list[tuple[str, DataType]] = []
    if isinstance(kind, StructType):
        nested = [(one.name, one.dataType) for one in kind.fields]
    elif isinstance(kind, MapType):
        nested = [("key", kind.keyType), ("value", kind.valueType)]
    elif isinstance(kind, ArrayType):
        nested = [("_element", kind.elementType)]
    text = kind.typeName() if nested else kind.jsonValue()
    described = {"name": name, "type": text if isinstance(text, str) else kind.typeName()}
    return {**described, "fields": [_described(*one) for one in nested]} if nested else described


# --- in the process that commits -----------------------------------------------------------------


def report_lineage(options: SinkOptions, line: dict[str, Any], origin: Mapping[str, str]) -> None:
    """Have the events sent that are due after a batch.

    origin: Spark's properties of the run and of its parents, as far as they are known

    Raises nothing, because the records are in Kafka already.
    """
    letters = options.dead_letters
    try:
        run = Run(
            job_of(line),
            format_address(*options.producer.bootstrap_servers[0]),
            options.topic,
            None if letters is None else letters.topic,
            json.loads(options.written_schema or "[]"),
            line.get("query_id"),
            options.checkpoint,
            process_identity(os.getppid()),
        )
        path, events = _open_runs().take(run, line, origin)
        _sender.start(events, path)
    except Exception as error:
        _folder_in.cache_clear()  # it may have been removed
        _sender.warn(f"{type(error).__name__}: {error}")


def _open_runs() -> OpenRuns:
    return OpenRuns(_folder_in(gettempdir()))


@cache  # because a search among many temporary files takes long
def _folder_in(_: str) -> Path:
    return private_folder("lineage")


class _Sender:
    """Starts the processes that send."""

    def __init__(self) -> None:
        self._at_work: list[subprocess.Popen[bytes]] = []
        self._problem: str | None = None

    def start(self, events: list[Event], path: Path | None) -> None:
        """Start a process that sends ``events``. Raises OSError.

        path: of the run's file; None if no other process sends events of the run
        """
        self._at_work = [process for process in self._at_work if process.poll() is None]
        if not events:
            return
        if len(self._at_work) >= _MOST_AT_WORK:
            self.warn("the backend is too slow, and events are dropped")
            return
        task = {
            "events": events,
            "path": None if path is None else str(path),
            "level": logger.getEffectiveLevel(),
            "log_format": "json" if logs_json() else "text",
        }
        with TemporaryFile() as file:
            file.write(json.dumps(task).encode())
            file.seek(0)
            # Its working folder is this process's, where openlineage.yml may be.
            process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()"],
                stdin=file,
                stdout=subprocess.DEVNULL,
                env=helper_environment(),
                start_new_session=True,  # Spark ends its Python processes by their group
            )
        self._at_work.append(process)
        self._problem = None

    def warn(self, problem: str) -> None:
        """Log a problem of this process, unless it is the last one's."""
        if problem != self._problem:
            self._problem = problem
            ensure_log_handler()
            warn(logger, _CODE, _NOT_SENT.format(problem=problem))


_sender = _Sender()
_NOT_SENT = (
    "lineage events are not sent: {problem}. Batches go on, and these events are lost; the log "
    "tells when events are sent again"
)


# --- in the process that sends -------------------------------------------------------------------


def main() -> None:
    """Send the events that come by standard input, and log a problem that is new."""
    logging.raiseExceptions = False  # a driver that has ended reads no log
    task = json.load(sys.stdin)
    set_up_log(task["level"], task["log_format"])
    with _turn(task["path"]) as log:
        before = log.read()
        problem = send(task["events"], _TIMEOUT_S) or ""
        if problem and problem != before:
            warn(logger, _CODE, _NOT_SENT.format(problem=problem))
        elif before and not problem:
            logger.info("lineage events are sent again")
        log.seek(0)
        log.truncate()
        log.write(problem)
        log.flush()
    os._exit(0)  # the client's threads may hang


@contextmanager
def _turn(path: str | None) -> Iterator[TextIO]:
    """Wait for earlier processes of the run; yield a file with the problem of the last one."""
    if path is None:
        with TemporaryFile("w+") as file:
            yield file
        return
    with log_of(Path(path)).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file
        if not os.path.exists(path):  # the run has ended
            Path(file.name).unlink(missing_ok=True)


# --- in the user's process -----------------------------------------------------------------------


def follow_lineage(spark: SparkSession) -> None:
    """Send COMPLETE, or FAIL, when a query of this session ends that has sent lineage events.

    Call it before the queries start, in the process that starts them and has the driver. Spark does
    not tell a sink that a query has ended: without this call a query that was stopped is shown as
    running until it is started again.

    Example::

        spark_kafka_sink.follow_lineage(spark)
        events.writeStream.format("pykafka-sink").options(**options).start().awaitTermination()
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Ends(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Ignore it: the first commit sends START."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """Ignore it: commits send RUNNING."""

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Ignore it: nothing was written."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """End the runs of the query."""
            kind = COMPLETE if event.exception is None else FAIL
            try:
                for path, last in _open_runs().end(str(event.runId), kind, _CLOCK.timestamp_ms()):
                    _sender.start([last], path)
            except Exception as error:
                _sender.warn(f"{type(error).__name__}: {error}")

    spark.streams.addListener(Ends())
