"""Check that a driver still holds its id, and may write the next unit; see also ``ownership``.

:func:`explain` describes a unit whose outcome is not simply that all of it is visible.

A broker that is cut off from the others, but not from clients, may still consider itself
coordinator or leader. It knows an older producer of the id, and rejects the present producer as if
that were the older one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    TransactionError,
    error_named,
    expired_id,
)
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.transactions.client import (
    TransactionClient,
    have_forgotten,
    is_fenced,
    raise_if_fenced,
)
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    Driver,
    FencedError,
    MissingRecordError,
    OutcomeError,
    Phase,
    TaskTransaction,
    Unit,
    Write,
    name_of,
)
from spark_kafka_sink.transactions.ownership import not_new, owned_by_query

# Further errors of such a broker, besides those of a fenced producer.
_OF_AN_OLDER_PRODUCER = {
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
}

_Result = TypeVar("_Result")


def check_not_fenced(
    client: TransactionClient,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    deadline_ms: int,
) -> None:
    """Raise FencedError unless ``producer`` still holds the id.

    All brokers are asked, because a replaced coordinator does not know the next holder of the id.
    """
    attempts = 0
    while True:
        # While a transaction is being completed, the epoch may be the former or the next.
        client.describe_when_complete(transactional_id, deadline_ms)
        fenced = is_fenced(client.admin, transactional_id, producer, deadline_ms)
        if fenced is False:
            return
        if fenced or not client.admin.pause(attempts, deadline_ms):
            raise_if_fenced(error_named("PRODUCER_FENCED"), transactional_id)
        client.forget_coordinator(transactional_id)
        attempts += 1


def retry_unless_fenced(
    client: TransactionClient,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    deadline_ms: int,
    action: Callable[[], _Result],
) -> _Result:
    """Return the result of ``action``; repeat ``action`` if it is rejected although the id is held.

    Raises TransactionError if all brokers have forgotten the id.

    ``action`` must look up coordinators and leaders again, and be safe to repeat.
    """
    attempts = 0
    while True:
        try:
            return action()
        except (FencedError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.error.name not in _OF_AN_OLDER_PRODUCER:
                raise
            if is_fenced(client.admin, transactional_id, producer, deadline_ms):
                raise
            if have_forgotten(client.admin, transactional_id, deadline_ms):
                raise expired_id(transactional_id) from error
            if not client.admin.pause(attempts, deadline_ms):
                raise
        client.forget_coordinator(transactional_id)
        attempts += 1


def replacements_of_lost(
    decision: Decision, replayed: Sequence[TaskTransaction], prefix: str
) -> list[TaskTransaction]:
    """Return the replayed transactions that replace lost ones.

    Raises OutcomeError unless the replay has the same Spark partitions with the same rows,
    including the visible ones; otherwise a row would be duplicated or missing. The order within a
    partition is free, because readers have not seen the missing rows.
    """
    lost = {t.partition_id for t in decision.transactions}
    before = {t.partition_id: t.rows for t in (*decision.transactions, *decision.committed)}
    now = {t.partition_id: t.rows for t in replayed}
    if before != now:
        differing = sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
        raise OutcomeError(
            f"{explain(decision, prefix)} Its replay cannot fill in the rest, for it is not the "
            f"same: Spark partitions {_abbreviate(differing)} differ.",
            code="TXN-021",
        )
    return [t for t in replayed if t.partition_id in lost]


def explain(decision: Decision, prefix: str) -> str:
    """Describe what is visible of a unit that is not simply done, and what the user can do."""
    visible = sum(t.records for t in decision.committed)
    rest = sum(t.records for t in decision.transactions)
    partitions = _abbreviate(sorted(t.partition_id for t in decision.transactions))
    commands = (
        f"pykafka-sink transactions describe --prefix {prefix} shows it; then "
        f"pykafka-sink transactions resolve --prefix {prefix} with --as-written (its rows that are "
        "not visible stay missing) or --as-not-written (it is written again, and its visible rows "
        "become duplicates)."
    )
    if decision.needs_confirmation and decision.phase is Phase.DONE:
        return (
            f"{decision.unit} was decided, and its driver died before it had committed everything. "
            f"It is complete now: {decision.records} records are visible. If this job "
            "repeats it, do not run it. Confirm that you know: pykafka-sink transactions resolve "
            f"--prefix {prefix} --as-written"
        )
    if decision.phase is Phase.VOID:
        return (
            f"the brokers had aborted all transactions of {decision.unit} before they could be "
            "committed (kafka.transaction.timeout.ms). Nothing of it is visible: its replay writes "
            "it again."
        )
    if decision.phase is Phase.PARTIAL:
        what = f"{rest} records of Spark partitions {partitions} were lost: the brokers had aborted"
        what += " their transactions (kafka.transaction.timeout.ms)."
        how = "A replay with the same rows fills them in. "
        if decision.former is not None:
            how = f"A replay by the query of checkpoint {decision.former.checkpoint} fills them "
            how += f"in; or: {commands}"
        if decision.write is not None:
            how = f"{decision.write}, run again with the same rows, fills them in; or: {commands}"
        elif decision.unit.job_id is not None:
            how = commands
        return f"{decision.unit} is visible in part: {visible} records are, {what} {how}"
    return (
        f"the outcome of {decision.unit} cannot be known: {visible} records are visible; of "
        f"{rest} records of Spark partitions {partitions} the brokers can no longer tell whether "
        f"their transactions were committed. {commands}"
    )


_CODES = {Phase.DONE: "TXN-024", Phase.VOID: "TXN-019", Phase.PARTIAL: "TXN-020"}
_CANNOT_BE_KNOWN = "TXN-023"


def code_of_outcome(decision: Decision) -> str:
    """Return the code of an error that ``explain`` describes."""
    return _CODES.get(decision.phase, _CANNOT_BE_KNOWN)


def _abbreviate(numbers: Sequence[int]) -> str:
    text = ", ".join(str(number) for number in numbers[:10])
    return f"{text}, … ({len(numbers)} in all)" if len(numbers) > 10 else text


_MAX_WRITE_IDS = 100
_ADVICE = "start it once with transaction.accept=missing-record"


def check_settled(decision: Decision, write: Write | None, prefix: str) -> None:
    """Raise OutcomeError if the next unit must not follow this record.

    A job that repeats a write may write the missing part, as a micro-batch does. A new query must
    not replace a query whose last micro-batch is visible in part.
    """
    if decision.phase is Phase.UNKNOWN or decision.needs_confirmation:
        raise _outcome_error(decision, prefix)
    is_others = decision.unit.job_id is not None or decision.former is not None
    if decision.phase is Phase.PARTIAL and is_others and not decision.is_of(NO_UNIT, write):
        raise _outcome_error(decision, prefix)


def check_write_id(decision: Decision, write: Write | None, prefix: str) -> None:
    """Raise ConfigError if ``write`` may not follow earlier writes under the prefix.

    The name is another query's or for another topic, the version may have been written, or the
    prefix has too many write.ids to remember.
    """
    if write is None:
        return
    query_id = decision.query_of(write.write_id)
    if None not in (query_id, write.query_id) and query_id != write.query_id:
        raise ConfigError(
            f"{write} is a micro-batch of query {write.query_id}, and write.id '{write.write_id}' "
            f"under transactional.id.prefix '{prefix}' has micro-batches of query {query_id}. Both "
            "count from 0, so that rows of one would be dropped. Give this query a write.id of its "
            "own, also if it is the same one with a new checkpoint",
            code="TXN-008",
        )
    topic = decision.topic_of_earlier(write)
    if topic is not None and topic != write.topic:
        raise ConfigError(
            f"{write} is for {_target(write.topic)}, and would be dropped under "
            f"transactional.id.prefix '{prefix}': it was written for {_target(topic)}. A write.id "
            "is for one topic: give this write a write.id of its own, or a "
            "transactional.id.prefix of its own",
            code="TXN-030",
        )
    found = decision.versions_of(write.write_id)
    if found is not None and write.version <= found.folded and not found.has(write.version):
        raise ConfigError(
            f"{write} may be written already, or not: under transactional.id.prefix '{prefix}' the "
            f"decision log has versions {found}. It keeps {len(found.ranges)} ranges of each "
            "write.id. Read the topic. If it has the rows, omit the write; otherwise "
            "use another write.id. Versions in steps of one make one range",
            code="TXN-040",
        )
    if found is None and len(decision.written) >= _MAX_WRITE_IDS:
        raise ConfigError(
            f"transactional.id.prefix '{prefix}' has {_MAX_WRITE_IDS} names of writes, and "
            f"'{write.write_id}' is a new one: write.id names what writes and stays the same, "
            "write.version counts. For more, use several prefixes",
            code="TXN-030",
        )


def check_order(decision: Decision, unit: Unit, prefix: str, other: Driver | None) -> None:
    """Raise if ``unit`` must not follow the unit in the log.

    other: the driver from which this one has taken the prefix, or would take it
    """
    before = decision.unit
    if before.query_id != unit.query_id:
        if decision.former is not None:
            check_new(decision, unit, prefix)
            return
        if before.query_id is not None:
            raise owned_by_query(before.query_id, prefix)
    if before.batch_id is None or unit.batch_id is None or before == unit:
        return
    if unit.batch_id < before.batch_id:
        if other is None:
            found = f"{unit} comes after {before} was committed: the checkpoint has gone back"
        else:
            found = (
                f"{unit} comes after {before} was committed by {other.since()}. If that driver "
                "was running a moment ago, this one was paused meanwhile, and ends now: the "
                "checkpoint is intact, and there is nothing to repair. Otherwise the checkpoint "
                "has gone back"
            )
        raise TransactionError(
            f"{found}, and writing the batch again would duplicate its records. Restore the "
            "checkpoint; or, to start over on purpose: pykafka-sink transactions release "
            f"--prefix {prefix}",
            code="TXN-018",
        )
    if decision.phase in (Phase.PARTIAL, Phase.UNKNOWN):
        raise _outcome_error(decision, prefix)


def check_new(decision: Decision, unit: Unit, prefix: str) -> None:
    """Raise PrefixInUseError for a later micro-batch than the first of a new query."""
    if decision.former is not None and unit.batch_id != 0:
        raise not_new(str(unit), prefix)


def _outcome_error(decision: Decision, prefix: str) -> OutcomeError:
    return OutcomeError(explain(decision, prefix), code=code_of_outcome(decision))


def begins_later(decision: Decision, unit: Unit, write: Write | None) -> bool:
    """Return True for a later micro-batch than 0 of a query that the record does not know.

    write: of a micro-batch that is a job, with a name
    """
    return bool(unit.batch_id) and not decision.knows_micro_batch(write)


def check_record_not_missing(
    decision: Decision, unit: Unit, write: Write | None, prefix: str, log_topic: str
) -> None:
    """Raise MissingRecordError if ``begins_later``, unless that is accepted."""
    if not begins_later(decision, unit, write) or name_of(write) in decision.may_begin_later:
        return
    name = "" if write is None else f", write.id '{write.write_id}'"
    raise MissingRecordError(
        f"{unit} is not its query's first, and the decision log, topic '{log_topic}', has no "
        f"record of an earlier one under transactional.id.prefix '{prefix}'{name}. If it had one, "
        "the topic was deleted or restored, or an option is not what it was: "
        "transaction.log.topic, the prefix or write.id. Give the query back what it had. If the "
        "query wrote at-least-once until now, or its function for foreachBatch did not call the "
        f"sink for the first micro-batches: {_ADVICE}. Nothing of this micro-batch is visible. A "
        "function that calls the sink for each micro-batch, also without rows, is not refused"
    )


def missing_record(prefix: str, log_topic: str) -> MissingRecordError:
    """Return the error for a prefix that the brokers know, but its decision log does not."""
    return MissingRecordError(
        f"the decision log, topic '{log_topic}', has no record of transactional.id.prefix "
        f"'{prefix}', and the brokers know that it was used: the topic was deleted or restored, or "
        "transaction.log.topic is not what it was. Give the query back the topic that it had. If "
        "that is gone for good, the last micro-batch may be visible in part, and its replay "
        f"duplicates that part: {_ADVICE}. Nothing was changed"
    )


def _target(topic: str) -> str:
    return f"topic '{topic}'" if topic else "the topics of its rows"
