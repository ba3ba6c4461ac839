"""Who may work under a prefix, and what may follow what: each check raises, and changes nothing."""

from __future__ import annotations

import shlex

from spark_kafka_sink.base.errors import ConfigError, TransactionError
from spark_kafka_sink.transactions import repair
from spark_kafka_sink.transactions.errors import (
    FencedError,
    MissingRecordError,
    OutcomeError,
    PrefixInUseError,
)
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    Driver,
    Phase,
    Unit,
    Write,
    checkpoint_of,
)

_MOST_WRITE_IDS = 100
_ACCEPT = "start it once with transaction.log.missing=accept"


def check_may_take(decision: Decision, driver: Driver, job_id: str | None, prefix: str) -> None:
    """Raise unless ``driver`` may take the prefix from the owner of ``decision``.

    Raises FencedError for a driver that was superseded, PrefixInUseError for another query's.
    """
    owner = decision.owner
    if owner.driver_id != driver.driver_id and driver.driver_id in decision.superseded:
        raise FencedError(
            f"this {driver} was superseded by {owner.since()} under "
            f"transactional.id.prefix '{prefix}'. It stops; nothing that it has "
            "not decided becomes visible. In one application the data source is a driver, and "
            "spark_kafka_sink.write and batch_writer are another one: give each of the two a "
            "prefix of its own"
        )
    query_id = decision.unit.query_id
    if not decision.is_query and query_id is None:
        return  # a job's: one after the other, and a query in their place
    if job_id is not None:
        query = "" if query_id is None else f"query {query_id}, "
        raise PrefixInUseError(_in_use(f"{query}{owner}", prefix))
    # An owner without a location, of an earlier version or an unreadable record, may be any query.
    if driver.checkpoint == owner.checkpoint:
        return
    # The same query, which was written by the data source until now.
    if query_id is None or driver.checkpoint != checkpoint_of(query_id):
        raise PrefixInUseError(_in_use(str(owner), prefix, driver.checkpoint))


def check_settled(decision: Decision, write: Write | None, prefix: str) -> None:
    """Raise OutcomeError for a record that the coming unit must not go past.

    A job that repeats a write may fill in what is missing of it, as a micro-batch does.
    """
    if decision.phase is Phase.UNKNOWN or decision.needs_confirmation:
        raise OutcomeError(repair.explain(decision, prefix))
    is_job = decision.unit.job_id is not None
    if decision.phase is Phase.PARTIAL and is_job and not decision.is_of(NO_UNIT, write):
        raise OutcomeError(repair.explain(decision, prefix))


def check_write(decision: Decision, write: Write | None, prefix: str) -> None:
    """Raise ConfigError where ``write`` would take the place of one for another topic, or a prefix
    has too many names of writes to remember them all.
    """
    if write is None:
        return
    before = decision.in_place_of(write)
    if before is not None and write.goes_elsewhere(before):
        raise ConfigError(
            f"{write} is for {_where(write)}, and would be dropped under transactional.id.prefix "
            f"'{prefix}': {before} was for {_where(before)}. A write.id is for one topic: give "
            "this write a write.id of its own, or a transactional.id.prefix of its own"
        )
    if len(decision.written) < _MOST_WRITE_IDS:
        return
    if all(w.write_id != write.write_id for w in decision.written):
        raise ConfigError(
            f"transactional.id.prefix '{prefix}' has {_MOST_WRITE_IDS} names of writes, and "
            f"'{write.write_id}' is a new one: write.id names what writes and stays the same, "
            "write.version counts. For more, use several prefixes"
        )


def check_order(decision: Decision, unit: Unit, prefix: str) -> None:
    """Raise when the log knows of something that ``unit`` must not follow."""
    before = decision.unit
    if before.query_id is not None and before.query_id != unit.query_id:
        raise PrefixInUseError(_in_use(f"query {before.query_id}", prefix))
    if before.batch_id is None or unit.batch_id is None or before == unit:
        return
    if unit.batch_id < before.batch_id:
        raise TransactionError(
            f"{unit} comes after {before} was committed: the checkpoint has gone back, and "
            "writing the batch again would double its records. Restore the checkpoint; or, to "
            f"start anew on purpose: pykafka-sink transactions release --prefix {prefix}"
        )
    if decision.phase in (Phase.PARTIAL, Phase.UNKNOWN):
        raise OutcomeError(repair.explain(decision, prefix))


def check_not_missing(decision: Decision, unit: Unit, prefix: str, log_topic: str) -> None:
    """Raise MissingRecordError for a first micro-batch in the log that is not the query's first."""
    if decision.unit == NO_UNIT and unit.batch_id and not decision.may_begin_later:
        raise MissingRecordError(
            f"{unit} is not its query's first, and the decision log, topic '{log_topic}', has no "
            f"record of an earlier one under transactional.id.prefix '{prefix}'. If it had one, "
            "the topic was deleted or restored, or transaction.log.topic or the prefix is not "
            "what it was: give the query back what it had. If the query wrote at-least-once "
            "until now, or its function for foreachBatch did not call the sink for the first "
            f"micro-batches: {_ACCEPT}. Nothing of this micro-batch is visible. A function that "
            "calls the sink for each micro-batch, also without rows, is not refused"
        )


def missing_record(prefix: str, log_topic: str) -> MissingRecordError:
    """For a prefix that the brokers know, and its decision log does not."""
    return MissingRecordError(
        f"the decision log, topic '{log_topic}', has no record of transactional.id.prefix "
        f"'{prefix}', and the brokers know that it was used: the topic was deleted or restored, or "
        "transaction.log.topic is not what it was. Give the query back the topic that it had. If "
        "that is gone for good, the last micro-batch may be visible in part, and its replay "
        f"doubles that part: {_ACCEPT}. Nothing was changed"
    )


def _where(write: Write) -> str:
    return f"topic '{write.topic}'" if write.topic else "the topics of its rows"


def _in_use(by: str, prefix: str, checkpoint: str | None = None) -> str:
    location = "LOCATION" if checkpoint is None else shlex.quote(checkpoint)
    return (
        f"transactional.id.prefix '{prefix}' belongs to {by}. Give this query or job a prefix of "
        "its own; if it is the same query, and its checkpoint has another location now: "
        f"pykafka-sink transactions rebind --prefix {prefix} --checkpoint {location}; if the other "
        "one is gone for good, or its checkpoint was deleted on purpose: pykafka-sink transactions "
        f"release --prefix {prefix}"
    )
