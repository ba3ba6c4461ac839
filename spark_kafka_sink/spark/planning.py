"""Steps on the driver before the first task, for the data source and for ``frames``.

The module imports nothing expensive because Spark loads it in each process that plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import BootstrapError, KafkaSinkError, coded, sentence
from spark_kafka_sink.base.text import redacted

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.commit import PlanningSpan
    from spark_kafka_sink.spark.row_planning import InputLayout
    from spark_kafka_sink.transactions.model import TransactionPlan, Unit


UNNAMED_QUERY = (
    "this query has none. Name it, and keep the name over restarts: "
    'df.writeStream.queryName("orders")'
)
NOT_A_QUERY = (
    "a batch job is no query. Write a name of its own into the option, such as orders-daily"
)


class PlanningTimer:
    """Measures planning from its construction on."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._started_at_ms = self._clock.timestamp_ms()
        self._started_ns = self._clock.perf_ns()

    def until_now(self) -> PlanningSpan:
        """Return start and duration of planning for the metrics line."""
        from spark_kafka_sink.spark.commit import PlanningSpan

        return PlanningSpan(
            self._started_at_ms, round((self._clock.perf_ns() - self._started_ns) / 1e6, 1)
        )


def parse_options(texts: Mapping[str, str]) -> SinkOptions:
    """Parse the options and set up logging. Raises ConfigError."""
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.worker import set_up

    options = SinkOptions.parse(texts)
    set_up(options)
    if options.producer.security.sasl is not None:
        from spark_kafka_sink.security.security import check

        check(options.producer.security.sasl)
    return options


def check_surroundings(options: SinkOptions, is_stream: bool) -> SinkOptions:
    """Check the cluster and the metrics outputs; raise their errors.

    Return the options for the tasks, with the topics' limits for dead letters.

    is_stream: a stream, which continues while brokers are unavailable if it may have committed
    """
    from spark_kafka_sink.spark.preflight import check_cluster, check_metrics_outputs, log_notes

    log_notes(options)
    check_metrics_outputs(options, is_stream)
    return check_cluster(options, is_stream)


def plan_schemas(
    rows: InputLayout,
    options: SinkOptions,
    owner: int | None = None,
    is_stream: bool = False,
    query: str | None = None,
) -> tuple[InputLayout, SinkOptions]:
    """Return the rows with a registry's schemas, and the options without the registry's secrets.

    owner: for a stream, id of the process that starts all its planning processes
    is_stream: a micro-batch that may not be the first of its query
    query: identity of a micro-batch's query if Spark reports it; else the checkpoint identifies it

    Raises RegistryError, SchemaError.
    """
    _log(rows.notes, options, query)
    if options.registry is not None:
        from spark_kafka_sink.spark.preflight import is_known_as_new
        from spark_kafka_sink.spark.schemas import with_schemas

        if owner is not None and query is None:
            query = f"{options.checkpoint} {options.query_name}"
        is_stream = is_stream and not is_known_as_new(options.checkpoint)
        with _redacted_errors():
            rows = with_schemas(rows, options, owner, is_stream, query)
            _log(rows.notes, options, query)
            _check_encodable(rows)
        options = replace(options, registry=replace(options.registry, config=None))
    else:
        _check_encodable(rows)
    return rows, options


@contextmanager
def _redacted_errors() -> Iterator[None]:
    """Redact errors, which may quote any text of a registry's schema at any length."""
    try:
        yield
    except KafkaSinkError as error:
        error.args = (coded(redacted(sentence(error)), error.code),)
        raise error from None


def _check_encodable(rows: InputLayout) -> None:
    if rows.plan is not None:
        from spark_kafka_sink.spark.row_planning import check_encodable

        check_encodable(rows)


def _log(notes: Sequence[str], options: SinkOptions, query: str | None) -> None:
    """Log notes on columns once per query; ``query``: its identity, if it is not in the options."""
    if notes:
        from spark_kafka_sink.spark.preflight import log_once, query_text

        where = query_text(options, query)
        log_once([f"{note} ({where})" for note in notes], "COLUMN-009")


def plan_transactions(
    options: SinkOptions, is_job: bool, unit: Unit | None = None
) -> TransactionPlan | None:
    """Return the plan of exactly-once delivery for the tasks, after earlier units are settled.

    unit: the micro-batch if Spark has reported it already
    """
    if options.exactly_once is None:
        return None
    from spark_kafka_sink.spark.writer import completed_commands
    from spark_kafka_sink.transactions.session import plan_unit

    with completed_commands(options):
        try:
            return plan_unit(options, is_job, unit)
        except BootstrapError as error:
            from spark_kafka_sink.spark.preflight import unreachable

            what = "" if options.topic is None else f" to topic '{options.topic}'"
            raise unreachable(error, f"the write{what} cannot be planned: ") from error


def guard_transactions(options: SinkOptions, plan: TransactionPlan | None, is_query: bool) -> None:
    """Have the tasks' transactions ended if Spark stops the query or job before its commit."""
    if plan is not None:
        from spark_kafka_sink.spark.guard import guard

        guard(options, plan, is_query)
