"""Functions that Spark's processes call: plan, commit or abort a unit; abort a task's transaction.

A session is one commit protocol, with its connections, per Python process and configuration. Spark
reuses its driver-side Python processes, so a session lasts over micro-batches.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, sentence, warn
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.transactions.checkpoints import qualified, query_id_at
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CleanUp, CommitProtocol, CommitTimes
from spark_kafka_sink.transactions.decision_log import (
    check_brokers,
    prepare_log_topic,
    warn_of_low_min_isr,
    warn_of_short_expiration,
)
from spark_kafka_sink.transactions.model import (
    TOPICS_OF_ROWS,
    Driver,
    DriverToken,
    FencedError,
    Phase,
    TaskTransaction,
    TransactionPlan,
    Unit,
    Write,
    current_driver,
    driver_environment,
)

logger = logging.getLogger(__name__)

_TASK_ABORT_TIMEOUT_MS = 5_000
_NO_CHECKPOINT = (
    "a streaming query with delivery.guarantee=exactly-once needs the option checkpointLocation: "
    '.option("checkpointLocation", …) of the query itself. Spark does not tell the sink a location '
    "that comes from spark.sql.streaming.checkpointLocation, and without it another query with the "
    "same transactional.id.prefix could not be told from this one. To go on with the same "
    "checkpoint, give that setting, a slash, and the query's name"
)

_clock = SystemClock()
_Key = tuple[ProducerConfig, ExactlyOnceConfig]

# The most recently used session comes last. A program may change its password with each write, or
# use a prefix for each job: unused sessions are closed.
_MAX_UNUSED = 16
_sessions: dict[_Key, CommitProtocol] = {}
# How many threads use each session.
_in_use: Counter[_Key] = Counter()
_lock = Lock()
_prepared_at_ms: dict[_Key, int] = {}
# The name of this process as a driver, set before any thread needs it, and again after a fork.
_this_process = driver_environment()
_own_environment: ContextVar[Mapping[str, str] | None] = ContextVar("own environment", default=None)


def _key(options: SinkOptions) -> _Key:
    assert options.exactly_once is not None
    return options.producer, options.exactly_once


@contextmanager
def _session(options: SinkOptions) -> Iterator[CommitProtocol]:
    """Keep the session open within the block, while other threads write under other prefixes."""
    key = _key(options)
    with _lock:
        _in_use[key] += 1
    try:
        yield _protocol(options)
    finally:
        with _lock:
            _in_use[key] -= 1
            if not _in_use[key]:
                del _in_use[key]


def _protocol(options: SinkOptions) -> CommitProtocol:
    key = _key(options)
    with _lock:
        protocol = _sessions.pop(key, None)
        for unused in _sessions_to_close(key):
            _sessions.pop(unused).close()
            _prepared_at_ms.pop(unused, None)
        if protocol is not None:
            _sessions[key] = protocol
            protocol.renew_if_credentials_changed()
            return protocol
    client = TransactionClient(AdminClient.of(options.producer, _clock))
    patience_ms = options.producer.max_block_ms
    protocol = CommitProtocol(client, key[1], _clock, patience_ms)
    with _lock:
        kept = _sessions.setdefault(key, protocol)
    if kept is not protocol:  # another thread was faster
        protocol.close()
    return kept


def _sessions_to_close(key: _Key) -> list[_Key]:
    """Return unused sessions: other configurations of this prefix and cluster, and the oldest."""
    unused = [other for other in _sessions if other not in _in_use]
    place = key[0].bootstrap_servers, key[1].prefix
    earlier = [o for o in unused if (o[0].bootstrap_servers, o[1].prefix) == place]
    rest = [other for other in unused if other not in earlier]
    return earlier + rest[: max(0, len(rest) - _MAX_UNUSED)]


def _driver(options: SinkOptions) -> Driver:
    checkpoint = query_id = None
    if options.checkpoint:
        location = qualified(options.checkpoint)
        checkpoint, query_id = str(location), query_id_at(location)
    environment = _own_environment.get() or os.environ
    now_ms = _clock.timestamp_ms()
    return current_driver(environment, now_ms, checkpoint, options.query_name, query_id)


@contextmanager
def as_driver() -> Iterator[None]:
    """Mark this process as the driver itself within the block, not as a process of Spark's.

    Its environment does not distinguish it from other drivers.
    """
    token = _own_environment.set(_this_process)
    try:
        yield
    finally:
        _own_environment.reset(token)


def plan_unit(options: SinkOptions, is_job: bool, unit: Unit | None = None) -> TransactionPlan:
    """Plan on the driver, before the tasks of a micro-batch or job.

    unit: the micro-batch, if the caller knows it, also if it is a job with a write.id; a unit that
        may not follow is rejected now

    Raises ConfigError for a query without a checkpoint: it may not be the query that has the
    prefix, and planning would stop that query.
    """
    write = _write(options)
    if write is not None and not is_job:
        raise ConfigError(
            "write.id is for batch writes, foreachBatch among them: a streaming query knows its "
            "micro-batches itself. Omit write.id and write.version",
            code="TXN-030",
        )
    driver = _driver(options)
    if is_job:
        # A job has no checkpoint, even with the option.
        driver = driver._replace(checkpoint=None, query_id=None)
    elif unit is not None:
        driver = driver._replace(query_id=unit.query_id)
    elif driver.checkpoint is None:
        raise ConfigError(_NO_CHECKPOINT, code="TXN-014")
    _check_cluster(options)
    job_id = uuid.uuid4().hex if is_job else None
    with _session(options) as protocol:
        return protocol.plan(driver, job_id, write, unit)


def _write(options: SinkOptions) -> Write | None:
    if options.write_id is None or options.write_version is None:
        return None
    topic = options.topic or TOPICS_OF_ROWS
    return Write(options.write_id, options.write_version, topic, options.write_query_id)


def _check_cluster(options: SinkOptions) -> None:
    """Check cluster and log topic, at most every ``metadata.max.age.ms``."""
    assert options.exactly_once is not None
    key = _key(options)
    now_ms = _clock.now_ms()
    prepared_at_ms = _prepared_at_ms.get(key)
    max_age_ms = options.producer.metadata_max_age_ms
    if prepared_at_ms is not None and now_ms - prepared_at_ms < max_age_ms:
        return
    with AdminClient.of(options.producer, _clock) as admin:
        deadline_ms = admin.deadline_in(options.producer.max_block_ms)
        check_brokers(admin, options.exactly_once, deadline_ms)
        prepare_log_topic(admin, options.exactly_once, deadline_ms)
        if prepared_at_ms is None:
            warn_of_short_expiration(admin, deadline_ms)
            if options.topic is not None:
                warn_of_low_min_isr(admin, options.topic, deadline_ms)
    _prepared_at_ms[key] = now_ms


def commit_unit(
    options: SinkOptions,
    plan: TransactionPlan | None,
    unit: Unit,
    transactions: Sequence[TaskTransaction],
    open_ms: Mapping[str, int],
    dropped_rows: int = 0,
) -> dict[str, Any]:
    """Commit on the driver, after the last task; return fields for the batch's JSON line.

    plan: from the tasks; None if there was no task
    open_ms: transactional id -> for how long its task has had the transaction open at least
    dropped_rows: the tasks' rows of a write that is done already
    """
    started_ms = _clock.now_ms()
    times: CommitTimes | None = CommitTimes()
    with _session(options) as protocol:
        if plan is None:
            protocol.commit_without_tasks(unit, _driver(options), _write(options))
        else:
            times = protocol.commit(plan, unit, transactions, open_ms)
    fields: dict[str, Any] = {"transactions": len(transactions)}
    if plan is not None and plan.is_repeated:
        fields["replay"] = f"dropped: {dropped_rows} rows of {plan.write}, which was written before"
        warn(logger, "TXN-028", fields["replay"])
    elif times is None:
        fields["replay"] = "dropped: this batch was committed before, these records are aborted"
    if times is not None and transactions:
        fields.update(times._asdict())
    return {**fields, "commit_ms": _clock.now_ms() - started_ms}


def abort_unit(options: SinkOptions, planned: DriverToken | None = None) -> str:
    """Abort on the driver, after a failure; return in words what is visible. Never raises.

    planned: token of the failed plan, if the caller knows it
    """
    driver = _driver(options)
    try:
        with _session(options) as protocol:
            decision = protocol.abort(driver, planned)
    except FencedError as error:
        return f"nothing was done: {error}"
    except KafkaSinkError as error:
        # Spark has the original failure, which this failure must not replace.
        return (
            f"open transactions could not be aborted ({sentence(error)}): readers may wait for "
            "them for kafka.transaction.timeout.ms, or until this query or job is started again"
        )
    if decision is not None and decision.owner.driver_id != driver.driver_id:
        return f"nothing was done: {decision.owner.since()} has taken over"
    if decision is not None and decision.phase is Phase.DECIDED:
        return (
            f"{decision.unit} was decided: it becomes visible when this query or job is started "
            "again, or by pykafka-sink transactions resolve"
        )
    return "nothing that was not committed before is visible; open transactions are aborted"


def clean_up_after(options: SinkOptions, driver: Driver, planned: DriverToken) -> CleanUp:
    """End what a query or job has left open that will not commit.

    driver, planned: of its last plan

    Raises FencedError if it was committed, or if there is a later plan.
    """
    with _session(options) as protocol:
        return protocol.clean_up_after(driver, planned)


def clean_up_late(options: SinkOptions, token: DriverToken) -> tuple[str, ...]:
    """End what tasks have begun since a clean-up; return the transactional ids."""
    with _session(options) as protocol:
        return protocol.clean_up_late(token)


def is_unused(options: SinkOptions, planned: DriverToken) -> bool:
    """Return False if a plan was committed or replaced for certain."""
    try:
        with _session(options) as protocol:
            return protocol.is_unused(planned)
    except KafkaSinkError:
        return True


def abort_task(options: SinkOptions, transactional_id: str, is_superseded: bool) -> None:
    """Abort the transaction of a failed task, so that readers need not wait for the next plan.

    is_superseded: the next plan may be far away, and no caller waits for the task
    """
    assert options.exactly_once is not None
    patience_ms = options.producer.max_block_ms if is_superseded else _TASK_ABORT_TIMEOUT_MS
    deadline_ms = _clock.now_ms() + patience_ms
    timeout_ms = options.exactly_once.transaction_timeout_ms
    try:
        with AdminClient.of(options.producer, _clock, patience_ms) as admin:
            TransactionClient(admin).fence([transactional_id], timeout_ms, deadline_ms)
    except KafkaSinkError:
        return  # the task raises its own error; the driver aborts what is open


def _reset_after_fork() -> None:
    """Drop the parent's connections and name in a forked child.

    Another thread of the parent may hold the lock.
    """
    global _lock
    _lock = Lock()
    _in_use.clear()
    _this_process.update(driver_environment())
    _sessions.clear()
    _prepared_at_ms.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
