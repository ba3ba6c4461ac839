"""What is done on the driver after the last task, whoever has started the tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.sink_options import SinkOptions, told_settings
from spark_kafka_sink.spark.commands import complete_commands, completed_commands
from spark_kafka_sink.spark.commit import (
    AT_LEAST_ONCE_JOB_NOTE,
    AT_LEAST_ONCE_NOTE,
    UNKNOWN_NOTE,
    BatchSummary,
    KafkaCommitMessage,
    common_plan,
    report_abort,
    report_commit,
)
from spark_kafka_sink.spark.logs import set_up
from spark_kafka_sink.spark.versions import WriterCommitMessage
from spark_kafka_sink.transactions.model import Plan, Unit

_MOST_OF_AN_ERROR = 500
_LEAST_OF_THE_BEGINNING = 100
_CUT = " … "
# package.module.NameOfAnError: what it says. A line of Spark's begins with white space.
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): \S")
_TRACE_ID_BYTES = 16
# container_e17_1410901177871_0001_01_000005: with the epoch of the resource manager, or without.
_YARN_CONTAINER = re.compile(r"container_(?:e[0-9]+_)?([0-9]+_[0-9]+)_")


def commit_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    unit: Unit,
    batch_id: int | None = None,
    query_id: str | None = None,
) -> None:
    """Make visible what the tasks have written, and report it.

    batch_id: of a micro-batch that is written as a job, as ``unit`` says
    query_id: of the query, where that is known without messages, of which there may be none
    """
    set_up(options)
    more: dict[str, Any] = _begun(options)
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import commit_unit

        written = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        transactions = [m.transaction for m in written if m.transaction is not None]
        with completed_commands(options):
            more.update(commit_unit(options, common_plan(written), unit, transactions))
    batch_id = unit.batch_id if batch_id is None else batch_id
    summary = BatchSummary.merge(messages)
    summary.query_id = summary.query_id or query_id
    report_commit(summary, batch_id, options.metrics_log, options.metrics, **more)


def abort_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None] | BatchSummary,
    batch_id: int | None,
    plan: Plan | None = None,
    error: BaseException | None = None,
) -> None:
    """Leave nothing open of a batch that failed, and report it.

    plan: of the batch, where it is known. Then what was planned after it is left alone
    error: why, where that is known
    """
    set_up(options)
    more = _begun(options)
    if error is not None:
        more["error"] = shortened(f"{type(error).__name__}: {error}")
    note = AT_LEAST_ONCE_JOB_NOTE if batch_id is None else AT_LEAST_ONCE_NOTE
    if isinstance(messages, BatchSummary):
        note = UNKNOWN_NOTE
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import abort_unit

        note = complete_commands(abort_unit(options, None if plan is None else plan.token), options)
    report_abort(messages, batch_id, options.metrics, note, **more)


def _begun(options: SinkOptions) -> dict[str, Any]:
    """What the line says of the write, besides what was written; at the beginning of the commit."""
    return {
        "client_id": options.producer.client_id,
        "query_name": options.query_name,
        "application_id": options.application_id or application_of(os.environ),
        "trace_id": token_hex(_TRACE_ID_BYTES) if options.metrics.has_traces else None,
        "commit_started_at_ms": SystemClock().timestamp_ms(),
        "settings": told_settings(options),
    }


def shortened(error: str) -> str:
    """At most ``_MOST_OF_AN_ERROR`` characters of it: with a task's traceback, its reason, which is
    the last line that tells an error, and not a place in a program.
    """
    if len(error) <= _MOST_OF_AN_ERROR:
        return error
    told = [line.strip() for line in error.splitlines() if _ERROR_LINE.match(line)]
    if not told or told[-1] in error[:_MOST_OF_AN_ERROR]:
        return error[:_MOST_OF_AN_ERROR]
    reason = told[-1][: _MOST_OF_AN_ERROR - _LEAST_OF_THE_BEGINNING]
    return f"{error[: _MOST_OF_AN_ERROR - len(reason) - len(_CUT)]}{_CUT}{reason}"


def application_of(environment: Mapping[str, str]) -> str | None:
    """The Spark application that a process of Spark's belongs to. On Kubernetes its variable tells,
    on YARN the container's; elsewhere nothing does.
    """
    name = environment.get("SPARK_APPLICATION_ID")
    if name:
        return name
    container = _YARN_CONTAINER.match(environment.get("CONTAINER_ID", ""))
    return None if container is None else f"application_{container[1]}"
