"""What is decided is completed: EndTxn for each of its transactions, and a record of what came out.

Whoever has the token of ``{prefix}.driver`` does so: the driver that has decided, the one that
plans next, or an operator.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.transactions import TransactionState
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.crash_points import is_watched, reached
from spark_kafka_sink.transactions.decision_log import DecisionLog
from spark_kafka_sink.transactions.ending import ONGOING, Outcome, is_open
from spark_kafka_sink.transactions.errors import TransactionLostError
from spark_kafka_sink.transactions.model import Decision, DriverToken, Phase, TaskTransaction
from spark_kafka_sink.transactions.times import duration_of

logger = logging.getLogger(__name__)

# A decision is of no use when the brokers abort its transactions a moment later.
_LEAST_TIME_LEFT = 0.1


class Completion:
    """Of the decisions of one prefix. Errors: as :class:`CommitProtocol`'s."""

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

    def check_open(self, transactions: Sequence[TaskTransaction], deadline_ms: int) -> int:
        """The age of the oldest in ms, before anything is decided.

        Raises TransactionLostError unless all can be committed.
        """
        states = self._client.describe_as_written(transactions, deadline_ms)
        now_ms = self._clock.timestamp_ms()
        oldest_ms = 0
        for transaction in transactions:
            state = states[transaction.transactional_id]
            if not is_open(transaction, state):
                raise TransactionLostError(
                    f"the transaction {transaction.transactional_id} of task "
                    f"{transaction.partition_id} is not open any more, for {_found(state)}: it "
                    "took longer than kafka.transaction.timeout.ms = "
                    f"{self._config.transaction_timeout_ms}, or another write under the same "
                    "transactional.id.prefix has begun. Nothing of this batch is visible"
                )
            assert state is not None
            age_ms = now_ms - state.transaction_start_time_ms
            oldest_ms = max(oldest_ms, age_ms)
            if age_ms > state.transaction_timeout_ms * (1 - _LEAST_TIME_LEFT):
                raise TransactionLostError(
                    f"the transaction of task {transaction.partition_id} is {age_ms} ms old by "
                    "this machine's clock, and the brokers abort it after "
                    f"kafka.transaction.timeout.ms = {state.transaction_timeout_ms}: too late to "
                    "commit. Nothing of this batch is visible. Smaller batches, or a longer "
                    "timeout, help"
                )
        return oldest_ms

    def finish(
        self, decided: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """EndTxn for all of a decision, and a record of what came out."""
        on_first = (lambda: reached("commit.ending")) if is_watched() else None
        outcomes = self._client.commit_all(decided.transactions, deadline_ms, on_first)
        reached("commit.ended")
        concluded = _conclude(decided, outcomes)
        return concluded, self._log.write(concluded, token, deadline_ms)

    def take_up(
        self, decision: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """Finish what a driver has left DECIDED, and say for how long it was."""
        age = duration_of(self._clock.timestamp_ms() - decision.decided_ms)
        decision, token = self.resolve(decision, token, deadline_ms)
        logger.warning(
            f"{decision.unit} was decided {age} ago under transactional.id.prefix "
            f"'{self._config.prefix}', and its driver did not finish it: it is "
            f"{decision.phase.value} now"
        )
        return decision, token

    def resolve(
        self, decision: Decision, token: DriverToken, deadline_ms: int
    ) -> tuple[Decision, DriverToken]:
        """Finish what another process has decided. The user must confirm a job's outcome."""
        # A write with a name needs no confirmation: if it is run again, the sink knows it is done.
        is_unknown = decision.unit.job_id is not None and decision.write is None
        return self.finish(replace(decision, needs_confirmation=is_unknown), token, deadline_ms)


def _found(state: TransactionState | None) -> str:
    """What there is in place of an open transaction."""
    if state is None:
        return "its coordinator does not know its id"
    if state.transaction_state != ONGOING:
        return f"its id is {state.transaction_state}"
    by = f"producer id {state.producer_id}, epoch {state.producer_epoch}"
    return f"a later one, also Ongoing ({by}), has taken its id"


def _conclude(decided: Decision, outcomes: dict[str, Outcome]) -> Decision:
    """The record after EndTxn of all its transactions."""

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
