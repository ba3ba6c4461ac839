"""The driver's part of exactly-once: plan, commit, abort; each may be interrupted at any point.

A unit (micro-batch or job) becomes visible in two steps: one durable decision that lists the tasks'
transactions, then EndTxn for each. Before the decision no part of the unit can become visible;
after it the whole unit will. The driver that has decided, the driver that plans next, or an
operator completes it, each with the token of ``{prefix}.driver``. Only the driver that planned last
can decide: planning takes ``{prefix}.driver``, which makes every earlier driver's decisions fail.

``CommitProtocol.commit`` decides. After a restart of the driver, ``CommitProtocol.plan`` completes
a unit that was decided, and aborts all other open transactions. If Spark then repeats a committed
micro-batch, ``check_replay`` compares its rows, and ``commit`` drops them.

Source: KIP-98, KIP-890; the two-phase shape is that of Flink's ``KafkaSink``, with a decision log
in place of Flink's checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError, coded, sentence, warn
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.transactions import TransactionState
from spark_kafka_sink.transactions import fencing, ownership
from spark_kafka_sink.transactions.ages import Ages, Timing, ages_of
from spark_kafka_sink.transactions.client import (
    EMPTY,
    ONGOING,
    InitializedProducer,
    Outcome,
    TransactionClient,
    is_open,
)
from spark_kafka_sink.transactions.crash_points import is_watched, reached
from spark_kafka_sink.transactions.decision_log import DecisionLog, PrefixMark
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    FencedError,
    Phase,
    ReplayError,
    RowSummary,
    StoredRecord,
    TaskTransaction,
    TransactionLostError,
    TransactionPlan,
    Unit,
    Write,
    driver_transactional_id,
    format_duration,
)

logger = logging.getLogger(__name__)

# A decision is useless if the brokers abort its transactions a moment later.
_MIN_TIME_LEFT = 0.1


class DecisionFinisher:
    """Completes the decisions of one prefix. Errors: as :class:`CommitProtocol`'s."""

    def __init__(
        self,
        client: TransactionClient,
        log: DecisionLog,
        config: ExactlyOnceConfig,
        clock: Clock,
    ) -> None:
        self._client = client
        self._log = log
        self._config = config
        self._clock = clock
        self._has_told_clock_problem = False

    def check_open(
        self,
        plan: TransactionPlan,
        transactions: Sequence[TaskTransaction],
        open_ms: Mapping[str, int],
        deadline_ms: int,
    ) -> int:
        """Return the age of the oldest transaction in ms, before anything is decided.

        open_ms: transactional id -> for how long it was open at least, as its task has measured

        Raises TransactionLostError unless all can be committed.
        """
        states = self._client.describe_with_fallback(transactions, deadline_ms)
        now_ms, since_plan_ms = (
            self._clock.timestamp_ms(),
            self._clock.now_ms() - plan.planned_at_ms,
        )
        timings, timeouts_ms = [], {}
        for transaction in transactions:
            state = states[transaction.transactional_id]
            if not is_open(transaction, state):
                raise TransactionLostError(
                    f"the transaction {transaction.transactional_id} of task "
                    f"{transaction.partition_id} is not open any more, for {_describe(state)}: it "
                    "took longer than kafka.transaction.timeout.ms = "
                    f"{self._config.transaction_timeout_ms}, or another write under the same "
                    "transactional.id.prefix has begun. Nothing of this batch is visible"
                )
            assert state is not None
            name, timeouts_ms[transaction] = (
                transaction.transactional_id,
                state.transaction_timeout_ms,
            )
            by_clocks_ms = now_ms - state.transaction_start_time_ms
            coordinator = self._client.coordinator(name)
            timings.append(
                Timing(name, coordinator, by_clocks_ms, open_ms.get(name, 0), since_plan_ms)
            )
        ages = ages_of(timings)
        self._check_ages(ages, timeouts_ms)
        return max(ages.ms.values())

    def _check_ages(self, ages: Ages, timeouts_ms: Mapping[TaskTransaction, int]) -> None:
        """Raise TransactionLostError if brokers are about to abort one of the transactions."""
        for transaction, timeout_ms in timeouts_ms.items():
            age_ms = ages.ms[transaction.transactional_id]
            if age_ms > timeout_ms * (1 - _MIN_TIME_LEFT):
                problem = ages.clock_problem
                help_ = "Smaller batches, or a longer timeout, help"
                raise TransactionLostError(
                    f"the transaction of task {transaction.partition_id} is {age_ms} ms old, and "
                    f"the brokers abort it after kafka.transaction.timeout.ms = {timeout_ms}: too "
                    f"late to commit. Nothing of this batch is visible. {help_}"
                    + (f". The age is not certain, for {problem}" if problem else "")
                )
        if ages.clock_problem and not self._has_told_clock_problem:
            self._has_told_clock_problem = True
            warn(
                logger,
                "TXN-041",
                f"{ages.clock_problem}. Ages of transactions under transactional.id.prefix "
                f"'{self._config.prefix}' are taken from what the driver and the tasks measure",
            )

    def finish(
        self, decided: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """Commit all transactions of a decision, and record the outcome."""
        on_first = (lambda: reached("commit.ending")) if is_watched() else None
        outcomes = self._client.commit_all(decided.transactions, deadline_ms, on_first)
        reached("commit.ended")
        concluded = _with_outcomes(decided, outcomes)
        return concluded, self._log.write(concluded, token, deadline_ms)

    def finish_abandoned(
        self, decision: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """Finish a unit that its driver left DECIDED, and log for how long it was."""
        age = format_duration(self._clock.timestamp_ms() - decision.decided_ms)
        decision, token = self.resolve(decision, token, deadline_ms)
        warn(
            logger,
            "TXN-026",
            f"{decision.unit} was decided {age} ago under transactional.id.prefix "
            f"'{self._config.prefix}', and its driver did not finish it: it is "
            f"{decision.phase.value} now",
        )
        return decision, token

    def resolve(
        self, decision: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """Finish a decision of another process. The user must confirm a job's outcome."""
        # A named write needs no confirmation: if it is repeated, the sink knows that it is done.
        is_unknown = decision.unit.job_id is not None and decision.write is None
        return self.finish(replace(decision, needs_confirmation=is_unknown), token, deadline_ms)


def _describe(state: TransactionState | None) -> str:
    """Describe what exists in place of an open transaction."""
    if state is None:
        return "its coordinator does not know its id"
    if state.transaction_state != ONGOING:
        return f"its id is {state.transaction_state}"
    by = f"producer id {state.producer_id}, epoch {state.producer_epoch}"
    return f"a later one, also Ongoing ({by}), has taken its id"


def _with_outcomes(decided: Decision, outcomes: dict[str, Outcome]) -> Decision:
    """Return the record after EndTxn of all its transactions."""

    def of(outcome: Outcome) -> tuple[TaskTransaction, ...]:
        return tuple(t for t in decided.transactions if outcomes[t.transactional_id] is outcome)

    committed = (*decided.committed, *of(Outcome.COMMITTED))
    lost, unknown = of(Outcome.LOST), of(Outcome.UNKNOWN)
    if unknown:
        return replace(
            decided, phase=Phase.UNKNOWN, transactions=(*lost, *unknown), committed=committed
        )
    if not lost:
        return decided.done()
    if not committed:
        return replace(decided, phase=Phase.VOID, transactions=(), needs_confirmation=False)
    return replace(decided, phase=Phase.PARTIAL, transactions=lost, committed=committed)


def check_replay(
    decision: Decision, replayed: Sequence[TaskTransaction], config: ExactlyOnceConfig
) -> None:
    """Raise ReplayError if the replay to be dropped differs from what was committed.

    The same rows in another order, or from other tasks, are equal, because shuffles cause that. A
    replay without any row differs, too: the next micro-batch would write the omitted rows again.
    """
    if decision.rows is None:
        warn(
            logger,
            "TXN-028",
            f"{decision.unit} is committed, and an operator has decided that its rows are not "
            "compared any more: what comes again is dropped",
        )
        return
    rows = RowSummary.total(t.rows for t in replayed)
    if rows == decision.rows:
        return
    found = f"{decision.unit} is committed with {decision.rows}, and has come again with "
    is_as_large = rows[:2] == decision.rows[:2]
    found += "as many of both, and other contents" if is_as_large else str(rows)
    if config.drops_replays:
        warn(logger, "TXN-029", f"{found}: it is dropped, as transaction.replay=drop says")
        return
    raise ReplayError(f"{found}. {_replay_advice(config.prefix)}")


def _replay_advice(prefix: str) -> str:
    resolve = f"pykafka-sink transactions resolve --prefix {prefix}"
    return (
        "To drop these records may lose them, so they are aborted and the query stops. Why do they "
        "differ?\n"
        "- The checkpoint has lost offsets, as an older backup has: restore the newer one.\n"
        "- Rows are not the same each time (rand(), uuid(), the time in a function of your own, "
        "what depends on their order after a shuffle), or the query was changed, or the schema "
        "that a registry has for it: what is committed is complete. This drops what comes again, "
        "for this micro-batch:\n"
        f"  {resolve} --as-written\n"
        "  For a query whose rows always differ: option transaction.replay=drop.\n"
        "- The source has other rows now, or there is no newer checkpoint: this writes what comes "
        "again as well, and doubles the records that are in both:\n"
        f"  {resolve} --as-not-written\n"
        "Then start the query again"
    )


_DRIVER_TIMEOUT_MS = 60_000
# Spark shows why a batch failed only after the abort, so an abort does not use up a second limit.
_ABORT_PATIENCE_MS = 20_000
# A request is not repeated if the pause before it would end after the deadline.
_LAST_PAUSE_MS = 1_000


def _taken_from(before: Decision | None, driver: Driver) -> Driver | None:
    """Return the other driver that owns the record; None if there is none, or ``driver`` does."""
    if before is None or before.owner.driver_id == driver.driver_id:
        return None
    return before.owner


class CommitTimes(NamedTuple):
    """Times of a committed unit in ms; both 0 if there was nothing to decide.

    oldest_transaction_ms: age of the oldest transaction before the decision
    decided_for_ms: from the decision until the unit was recorded as done
    """

    oldest_transaction_ms: int = 0
    decided_for_ms: int = 0


class CleanUp(NamedTuple):
    """The transactions that were ended, and the token with which late ones are.

    token: None if nothing more must be ended
    """

    ended: tuple[str, ...]
    token: DriverToken | None


class CommitProtocol:
    """The protocol for one prefix. Every method but ``clean_up_after`` ends within ``patience_ms``.

    Errors: those of :mod:`spark_kafka_sink.transactions.model`, and of the client.
    """

    def __init__(
        self,
        client: TransactionClient,
        config: ExactlyOnceConfig,
        clock: Clock,
        patience_ms: int,
    ) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._patience_ms = patience_ms
        self._driver_transactional_id = driver_transactional_id(config.prefix)
        self._timeout_ms = config.transaction_timeout_ms
        # Brokers show it: plans take the driver's id with an even timeout, aborts with an odd one.
        timeout_ms = max(2, min(_DRIVER_TIMEOUT_MS, config.transaction_timeout_ms))
        self._driver_timeout_ms = timeout_ms // 2 * 2
        self._abort_timeout_ms = self._driver_timeout_ms - 1
        self.log = DecisionLog(client, config.log_topic, config.prefix, clock)
        self._decision_finisher = DecisionFinisher(client, self.log, config, clock)
        # The plan's token of the last commit -> the token after the commit's own records.
        self._token_after_commit: dict[DriverToken, DriverToken] = {}

    def close(self) -> None:
        """Close every connection."""
        self._client.admin.close()

    def renew_if_credentials_changed(self) -> None:
        """Use a key or a password that was replaced since the last micro-batch."""
        self._client.admin.renew_if_credentials_changed()

    # --- planning ------------------------------------------------------------------------------

    def plan(
        self,
        driver: Driver,
        job_id: str | None,
        write: Write | None = None,
        unit: Unit | None = None,
    ) -> TransactionPlan:
        """Take the prefix, finish what was decided, abort the rest. Called before the first task.

        job_id: of a batch job; None for a micro-batch
        write: of a job with a write.id
        unit: the micro-batch, if it is known

        Raises FencedError for a superseded driver, PrefixInUseError for another query's prefix, and
        TransactionError for a unit that may not follow. Raises MissingRecordError if the log may be
        lost, and OutcomeError for a batch that only the user can settle. All these come before any
        change, so that the owner of the prefix continues, unless this call has finished that batch.
        """
        reached("plan.begin")
        deadline_ms = self._deadline()
        may_be_micro_batch = job_id is None or write is not None

        def check(before: Decision | None, accepts_later: bool) -> Decision:
            """Return the record as it will be written, which must pass every check, too."""
            claimed = ownership.claim(before, driver, job_id is None, self._config)
            if accepts_later and may_be_micro_batch:
                claimed = claimed.accepting_later(write)
            claimed = ownership.claim(claimed, driver, job_id is None, self._config)
            if claimed.phase is not Phase.DECIDED:
                fencing.check_settled(claimed, write, self._config.prefix)
            fencing.check_write_id(claimed, write, self._config.prefix)
            if unit is not None:
                self._check_may_follow(claimed, unit, write, _taken_from(before, driver))
            return claimed

        taken_from = None
        accepts_later = self._check_before_fencing(driver, check, deadline_ms)
        while True:
            token = self._fence_previous_driver(deadline_ms)
            reached("plan.fenced")
            # No other process can write any more, so the record in the log does not change.
            before = self.log.read_current(deadline_ms)
            decision = check(before, accepts_later)
            taken_from = taken_from or _taken_from(before, driver)
            if decision == before and decision.phase is not Phase.DECIDED:
                break
            # Tasks need an unused token: take the id once more.
            self._claim_and_finish(decision, before, token, deadline_ms)
        if unit is not None and write is not None:
            self._warn_if_it_begins_later(decision, unit, write)
        reached("plan.resolved")
        self.abort_open_transactions(token, deadline_ms)
        reached("plan.swept")
        plan = TransactionPlan(
            self._config.prefix, driver, token, decision, job_id, self._timeout_ms, write
        )
        coordinator = self._client.coordinator(self._driver_transactional_id)
        return replace(
            plan,
            is_repeated=decision.has(write),
            coordinator=coordinator,
            planned_at_ms=self._clock.now_ms(),
            taken_from=taken_from,
        )

    def _claim_and_finish(
        self, decision: Decision, before: Decision | None, token: DriverToken, deadline_ms: int
    ) -> None:
        """Record the new owner of the prefix, and finish what was decided."""
        if decision != before:
            token = self.log.write(decision, token, deadline_ms)
            ownership.log_takeover(before, decision, self._config.prefix)
            reached("plan.claimed")
        if decision.phase is Phase.DECIDED:
            _, token = self._decision_finisher.finish_abandoned(decision, token, deadline_ms)
            # The outcome may refuse the plan.
            self.abort_open_transactions(token, deadline_ms)

    def _check_before_fencing(
        self,
        driver: Driver,
        check: Callable[[Decision | None, bool], Decision],
        deadline_ms: int,
    ) -> bool:
        """Call ``check`` with the record before any change, so that an error changes nothing.

        Returns True if the query may begin with another micro-batch than 0.
        """
        accepts = self._config.accepts_missing_record
        decision = self.log.read(deadline_ms)
        if decision is not None and decision.owner.driver_id == driver.driver_id:
            check(decision, accepts)
            return accepts
        state, decision = self._read_when_complete(deadline_ms)
        if decision is not None:
            check(decision, accepts)
            return accepts
        mark = self.log.read_mark(deadline_ms)
        is_missing = mark is None and state is not None
        if is_missing and not accepts:
            raise fencing.missing_record(self._config.prefix, self._config.log_topic)
        accepts_later = accepts or (mark is not None and mark.is_released)
        check(None, accepts_later)
        if is_missing:
            warn(
                logger,
                "TXN-046",
                f"{driver} goes on without the record of transactional.id.prefix "
                f"'{self._config.prefix}', which the brokers know: the decision log, topic "
                f"'{self._config.log_topic}', does not have it, and transaction.accept="
                "missing-record is set. What was visible of the last write is duplicated if that "
                "write is repeated. Remove the option",
            )
        if mark is None:
            # The next step registers the prefix at the brokers; the log has it after the claim.
            self.log.write_mark(PrefixMark(is_released=False), deadline_ms)
        return accepts_later

    def _read_when_complete(
        self, deadline_ms: int
    ) -> tuple[TransactionState | None, Decision | None]:
        """Return the coordinator's state of the driver's id, and the record.

        The order matters: a record whose marker is not written yet would be invisible.
        """
        state = self._client.describe_when_complete(self._driver_transactional_id, deadline_ms)
        return state, self.log.read_current(deadline_ms)

    def _fence_previous_driver(self, deadline_ms: int) -> DriverToken:
        return self._take_driver_id(self._driver_timeout_ms, deadline_ms)

    def _take_driver_id(self, timeout_ms: int, deadline_ms: int) -> DriverToken:
        producer, version = self._client.init_producer_id(
            self._driver_transactional_id, timeout_ms, deadline_ms
        )
        return DriverToken(*producer, 0, version)

    # --- committing ----------------------------------------------------------------------------

    def commit(
        self,
        plan: TransactionPlan,
        unit: Unit,
        transactions: Sequence[TaskTransaction],
        open_ms: Mapping[str, int] | None = None,
    ) -> CommitTimes | None:
        """Make ``transactions``, flushed and open, visible as the output of ``unit``.

        open_ms: as for ``DecisionFinisher.check_open``

        Returns None for a unit that is done already: its new output is dropped. Raises ReplayError
        if the new output differs, TransactionLostError if brokers have aborted some transactions.
        """
        reached("commit.begin")
        deadline_ms = self._deadline()
        with self._naming_limit(deadline_ms):
            return self._commit(plan, unit, transactions, open_ms or {}, deadline_ms)

    @contextmanager
    def _naming_limit(self, deadline_ms: int) -> Iterator[None]:
        """Name the limit of the whole commit in an error that it has caused."""
        try:
            yield
        except KafkaSinkError as error:
            if self._clock.now_ms() >= deadline_ms - _LAST_PAUSE_MS:
                limit = f"The whole commit has kafka.max.block.ms = {self._patience_ms}"
                error.args = (coded(f"{sentence(error)}. {limit}", error.code),)
            raise

    def _commit(
        self,
        plan: TransactionPlan,
        unit: Unit,
        transactions: Sequence[TaskTransaction],
        open_ms: Mapping[str, int],
        deadline_ms: int,
    ) -> CommitTimes | None:
        decision = plan.decision
        self._check_may_follow(decision, unit, None, plan.taken_from)
        self._warn_if_it_begins_later(decision, unit, None)
        if plan.is_repeated:
            return None
        # A micro-batch without rows is recorded only as the first: there is nothing to drop.
        if decision.unit == unit and decision.phase is Phase.DONE and decision.records:
            self._drop_replay(plan, transactions, deadline_ms)
            return None
        is_repair = decision.is_of(unit, plan.write) and decision.phase is Phase.PARTIAL
        committed = decision.committed if is_repair else ()
        if is_repair:
            transactions = fencing.replacements_of_lost(decision, transactions, self._config.prefix)
        if not transactions:  # no task has written a row: there is nothing to decide
            self._record_empty_unit(
                replace(decision, write=plan.write), unit, plan.token, deadline_ms
            )
            return CommitTimes()
        oldest_ms = self._decision_finisher.check_open(plan, transactions, open_ms, deadline_ms)
        reached("commit.checked")
        decided = decision.deciding(unit, transactions, committed, plan.write)
        decided = replace(decided, decided_ms=self._clock.timestamp_ms())
        token = self.log.write(decided, plan.token, deadline_ms)
        decided_at_ms = self._clock.now_ms()
        reached("commit.decided")
        decided, token = self._decision_finisher.finish(decided, token, deadline_ms)
        self._token_after_commit = {plan.token: token}
        if decided.phase is not Phase.DONE:
            text = fencing.explain(decided, self._config.prefix)
            raise TransactionLostError(text, code=fencing.code_of_outcome(decided))
        times = CommitTimes(oldest_ms, self._clock.now_ms() - decided_at_ms)
        reached("commit.done")
        self._try_abort_open_transactions(token, deadline_ms)
        reached("commit.swept")
        return times

    def _check_may_follow(
        self, decision: Decision, unit: Unit, write: Write | None, other: Driver | None = None
    ) -> None:
        """Raise unless ``unit`` may be next.

        write: of a micro-batch that is a job; other: the driver that had the prefix before
        """
        if write is None:
            fencing.check_order(decision, unit, self._config.prefix, other)
        fencing.check_record_not_missing(
            decision, unit, write, self._config.prefix, self._config.log_topic
        )

    def _warn_if_it_begins_later(self, decision: Decision, unit: Unit, write: Write | None) -> None:
        """Log that ``unit`` is the first in the record, though it is not its query's first."""
        if fencing.begins_later(decision, unit, write):
            name = "" if write is None else f", write.id '{write.write_id}'"
            text = (
                f"{unit} goes on without a record of an earlier one under transactional.id.prefix "
                f"'{self._config.prefix}'{name}, because of transaction.accept=missing-record or a "
                "release. If an earlier run has committed it, its rows are duplicated now. If the "
                "option is set, remove it"
            )
            warn(logger, "TXN-046", text)

    def _drop_replay(
        self, plan: TransactionPlan, transactions: Sequence[TaskTransaction], deadline_ms: int
    ) -> None:
        check_replay(plan.decision, transactions, self._config)
        dropped = [t.transactional_id for t in transactions]
        self._client.fence(dropped, plan.timeout_ms, deadline_ms)
        self._try_abort_open_transactions(plan.token, deadline_ms, plan.decision)

    def _try_abort_open_transactions(
        self, token: DriverToken, deadline_ms: int, repeated: Decision | None = None
    ) -> None:
        """Abort what failed tasks left open. Never raises: the unit is done, and Spark must know.

        The next plan aborts open transactions first anyway. A transaction that begins later is not
        listed, but its task finds that the token is used.

        repeated: the record, written once more to use a token that is still unused
        """
        try:
            if repeated is not None:
                token = self.log.write(repeated, token, deadline_ms)
            self.abort_open_transactions(token, deadline_ms)
        except KafkaSinkError as error:
            text = f"open transactions of failed tasks were not aborted yet: {sentence(error)}"
            warn(logger, "TXN-027", text)

    def commit_without_tasks(self, unit: Unit, driver: Driver, write: Write | None = None) -> None:
        """Commit a unit without any task: there is nothing to decide, unless rows are missing.

        write: of a job with a write.id
        """
        deadline_ms = self._deadline()
        _, decision = self._read_when_complete(deadline_ms)
        if decision is None:
            return
        # Without a task the query's id is unknown, but the prefix is the query's own.
        is_same_batch = unit.batch_id is not None and unit.batch_id == decision.unit.batch_id
        if decision.phase is Phase.PARTIAL and (is_same_batch or decision.is_of(unit, write)):
            fencing.replacements_of_lost(decision, [], self._config.prefix)
        is_owner = decision.owner.driver_id == driver.driver_id
        if is_owner and self._is_recorded(replace(decision, write=write), unit):
            # Without a task no message carries the token. A new token harms no task.
            token = self._fence_previous_driver(deadline_ms)
            decision = self.log.read_current(deadline_ms)
            if decision is not None and decision.owner.driver_id == driver.driver_id:
                if write is None:
                    self._warn_if_it_begins_later(decision, unit, None)
                self._record_empty_unit(replace(decision, write=write), unit, token, deadline_ms)
        elif is_same_batch and decision.phase is Phase.DONE and decision.records:
            check_replay(decision, [], self._config)

    @staticmethod
    def _is_recorded(decision: Decision, unit: Unit) -> bool:
        """Return True for a query's first micro-batch, or a job's write, that has no rows.

        If a later micro-batch finds no earlier record, the log was lost.
        """
        if unit.batch_id is None:
            return decision.write is not None and not decision.has(decision.write)
        return decision.unit.batch_id is None or decision.former is not None

    def _record_empty_unit(
        self, decision: Decision, unit: Unit, token: DriverToken, deadline_ms: int
    ) -> None:
        """Record a unit without rows, if that is needed; ``write`` of the record is the unit's."""
        if not self._is_recorded(decision, unit):
            return
        fencing.check_new(decision, unit, self._config.prefix)
        self._check_may_follow(decision, unit, decision.write)
        now_ms = self._clock.timestamp_ms()
        recorded = replace(
            decision.without_former(),
            unit=unit,
            decided_ms=now_ms,
            records=0,
            rows=None,
            may_begin_later=decision.later_without(decision.write),
        )
        self.log.write(recorded.done(), token, deadline_ms)

    # --- aborting ------------------------------------------------------------------------------

    def abort(self, driver: Driver, planned: DriverToken | None = None) -> Decision | None:
        """Abort what is open, unless it is decided or another driver's; return the record.

        planned: token of the failed plan, if it is known

        Raises FencedError if the same driver has planned again since: what is open belongs to the
        later plan, and stays. Spark calls this after a failed ``commit`` too, which may have
        decided.
        """
        return self._abort(driver, planned)[0]

    def _abort(
        self, driver: Driver, planned: DriverToken | None
    ) -> tuple[Decision | None, DriverToken | None]:
        """Abort, and also return the token with which open transactions were aborted, if any."""
        deadline_ms = self._abort_deadline()
        _, decision = self._read_when_complete(deadline_ms)
        if decision is None or decision.owner.driver_id != driver.driver_id:
            return decision, None
        reached("abort.begin")
        # This settles a decision in progress: it is in the log now, or never will be.
        try:
            token = self._fence_failed_plan(planned, deadline_ms)
            later_plan = None
        except FencedError as error:
            later_plan = error
        _, decision = self._read_when_complete(deadline_ms)
        reached("abort.settled")
        is_ours = decision is not None and decision.owner.driver_id == driver.driver_id
        if decision is None or not is_ours or decision.phase is Phase.DECIDED:
            return decision, None
        if later_plan is not None:
            raise FencedError(
                "a later write of this process has taken over transactional.id.prefix "
                f"'{self._config.prefix}': one write at a time, or a prefix for each"
            ) from later_plan
        self.abort_open_transactions(token, deadline_ms)
        reached("abort.swept")
        return decision, token

    def clean_up_after(self, driver: Driver, planned: DriverToken) -> CleanUp:
        """End what ``driver`` has left open and will not commit.

        Uses up the token, also if nothing is open: a task that is late finds that out. The look and
        the abort have a limit each.
        Transactions that are decided are committed: the record stays DECIDED for the next plan.
        Raises FencedError if the plan was committed, or if the driver has planned again.
        """
        deadline_ms = self._abort_deadline()
        left = self._client.open_task_transactions(self._config.prefix, deadline_ms)
        decision, token = self._abort(driver, planned)
        if decision is None or decision.owner.driver_id != driver.driver_id:
            return CleanUp((), None)
        ended = tuple(sorted(t.transactional_id for t in left))
        if decision.phase is Phase.DECIDED:
            self._client.commit_all(decision.transactions, deadline_ms)
        return CleanUp(ended, token)

    def clean_up_late(self, token: DriverToken) -> tuple[str, ...]:
        """End what tasks have begun since a clean-up. Raises FencedError after a later plan."""
        return self.abort_open_transactions(token, self._abort_deadline())

    def is_unused(self, planned: DriverToken) -> bool:
        """Return True if nothing was decided with the token of a plan, and no later plan exists."""
        name = self._driver_transactional_id
        state = self._client.describe([name], self._deadline())[name]
        if state is None or state.transaction_state != EMPTY:
            return False
        return (state.producer_id, state.producer_epoch) == planned.producer

    def _fence_failed_plan(self, planned: DriverToken | None, deadline_ms: int) -> DriverToken:
        """Take the driver's id from a plan, or from its present owner if the plan is not known.

        Also takes it from an earlier abort of the plan, which may have been killed.
        Raises FencedError if a later plan has taken the id.
        """
        if planned is None:
            return self._take_driver_id(self._abort_timeout_ms, deadline_ms)
        held = self._token_after_commit.get(planned, planned)
        try:
            return self._take_driver_id_from(held, deadline_ms)
        except FencedError:
            name = self._driver_transactional_id
            state = self._client.describe_when_complete(name, deadline_ms)
            if state is None or state.transaction_timeout_ms % 2 == 0:
                raise
            version = self._client.transaction_version(name, deadline_ms)
            held = DriverToken(state.producer_id, state.producer_epoch, 0, version)
            return self._take_driver_id_from(held, deadline_ms)

    def _take_driver_id_from(self, held: DriverToken, deadline_ms: int) -> DriverToken:
        """Take the driver's id from ``held``. Raises FencedError if another process has it."""
        driver_id = self._driver_transactional_id

        def take() -> InitializedProducer:
            return self._client.take_over_from(
                TaskTransaction(driver_id, *held.producer, held.transaction_version, -1, 0, ""),
                self._abort_timeout_ms,
                deadline_ms,
            )

        producer, version = fencing.retry_unless_fenced(
            self._client, driver_id, held.producer, deadline_ms, take
        )
        return DriverToken(*producer, 0, version)

    def abort_open_transactions(
        self, token: DriverToken, deadline_ms: int, only: str | None = None
    ) -> tuple[str, ...]:
        """Abort open transactions of tasks, all or ``only`` one, and return their ids.

        Must not be called while a unit is DECIDED. Raises FencedError if the token is no longer
        valid: the open transactions may be a newer driver's, and decided.
        """
        listed = self._client.open_task_transactions(self._config.prefix, deadline_ms)
        ids = sorted(t.transactional_id for t in listed if only in (None, t.transactional_id))
        if ids:
            # Check after listing: if the id is still ours, no other driver has decided on these.
            try:
                driver_id = self._driver_transactional_id
                fencing.check_not_fenced(self._client, driver_id, token.producer, deadline_ms)
            except FencedError as error:
                raise self.log.with_current_owner(error, deadline_ms) from error
            reached("sweep.listed")
            self._client.fence(ids, self._config.transaction_timeout_ms, deadline_ms)
        return tuple(ids)

    # --- operators' steps, see operations.py ---------------------------------------------------

    def fence_and_read(self) -> tuple[Decision | None, DriverToken]:
        """Take the prefix from its owner and return the record, which is final now.

        No other process can change it. A decision in progress is in the record, or never will be.
        """
        stored, token = self.fence_and_read_stored()
        return self.log.decode(stored), token

    def fence_and_read_stored(self) -> tuple[StoredRecord | None, DriverToken]:
        """Take the prefix as ``fence_and_read`` does, for a record that may be unreadable."""
        deadline_ms = self._deadline()
        token = self._fence_previous_driver(deadline_ms)
        return self.log.read_stored(deadline_ms), token

    def resolve(self, decision: Decision, token: DriverToken) -> tuple[Decision, DriverToken]:
        """Finish a DECIDED record and return the record of the outcome."""
        return self._decision_finisher.resolve(decision, token, self._deadline())

    def _deadline(self) -> int:
        return self._client.admin.deadline_in(self._patience_ms)

    def _abort_deadline(self) -> int:
        return self._client.admin.deadline_in(min(self._patience_ms, _ABORT_PATIENCE_MS))
