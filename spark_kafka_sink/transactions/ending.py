"""How a transaction is ended, and what the coordinator's last answer says of it.

Source: ``TransactionManager``, ``TransactionState``; KIP-98, KIP-664, KIP-890.
"""

from __future__ import annotations

from enum import Enum

from spark_kafka_sink.client.coordinators import Question
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION
from spark_kafka_sink.protocol.messages.transactions import (
    EPOCH_BUMP_VERSION,
    EndTxnRequest,
    TransactionState,
)
from spark_kafka_sink.transactions.model import TaskTransaction

ONGOING = "Ongoing"
_COMMITTED = {"PrepareCommit", "CompleteCommit"}
_ABORTED = {"PrepareAbort", "CompleteAbort"}


class Outcome(Enum):
    """What became of a transaction that was to be committed."""

    COMMITTED = "committed"
    LOST = "aborted by the brokers"
    UNKNOWN = "unknown"


def end_question(transaction: TaskTransaction, committed: bool) -> Question:
    """The request, in the version that the coordinator may be asked in when it is asked."""
    request = EndTxnRequest(transaction.transactional_id, *transaction.producer, committed)
    begun = transaction.transaction_version
    return Question((transaction.transactional_id,), request, lambda now: _end_version(begun, now))


def _end_version(begun: int, now: int) -> int:
    """By the lower of two transaction.versions: when the transaction began, and now.

    The first keeps repetitions in one version. The second may have been downgraded since: EndTxn v5
    would leave the transaction open for good. If v5 had ended it before, v4 is told that the epoch
    is another one, and what DescribeTransactions says settles it.
    """
    bumps = min(begun, now) >= IMPLICIT_PARTITIONS_VERSION
    return EPOCH_BUMP_VERSION if bumps else EPOCH_BUMP_VERSION - 1


def outcome_of(transaction: TaskTransaction, state: TransactionState | None) -> Outcome:
    """By the coordinator's last answer, if that is about this transaction."""
    if state is None or state.producer_id != transaction.producer_id:
        return Outcome.UNKNOWN
    if state.producer_epoch not in (transaction.producer_epoch, transaction.producer_epoch + 1):
        return Outcome.UNKNOWN
    if state.transaction_state in _COMMITTED:
        return Outcome.COMMITTED
    return Outcome.LOST if state.transaction_state in _ABORTED else Outcome.UNKNOWN


def is_open(transaction: TaskTransaction, state: TransactionState | None) -> bool:
    """Whether the transaction is still as its task has left it."""
    return (
        state is not None
        and state.transaction_state == ONGOING
        and state.producer_id == transaction.producer_id
        and state.producer_epoch == transaction.producer_epoch
    )
