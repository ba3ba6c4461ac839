"""What is done on the driver after the last task, whoever has started the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_kafka_sink.config.sink_options import SinkOptions
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
    more: dict[str, Any] = {}
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import commit_unit

        written = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        transactions = [m.transaction for m in written if m.transaction is not None]
        with completed_commands(options):
            more = commit_unit(options, common_plan(written), unit, transactions)
    batch_id = unit.batch_id if batch_id is None else batch_id
    summary = BatchSummary.merge(messages)
    summary.query_id = summary.query_id or query_id
    more.update(_whose(options))
    report_commit(summary, batch_id, options.metrics_log, options.metrics, **more)


def abort_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None] | BatchSummary,
    batch_id: int | None,
    plan: Plan | None = None,
) -> None:
    """Leave nothing open of a batch that failed, and report it.

    plan: of the batch, where it is known. Then what was planned after it is left alone
    """
    set_up(options)
    note = AT_LEAST_ONCE_JOB_NOTE if batch_id is None else AT_LEAST_ONCE_NOTE
    if isinstance(messages, BatchSummary):
        note = UNKNOWN_NOTE
    if options.exactly_once is not None:
        from spark_kafka_sink.transactions.session import abort_unit

        note = complete_commands(abort_unit(options, None if plan is None else plan.token), options)
    report_abort(messages, batch_id, options.metrics, note, **_whose(options))


def _whose(options: SinkOptions) -> dict[str, Any]:
    """What the line says of the write, besides what was written."""
    return {"client_id": options.producer.client_id, "query_name": options.query_name}
