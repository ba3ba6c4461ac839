"""What all brokers know of transactions, whoever coordinates them.

A broker that is cut off from the others, but not from clients, takes itself for the coordinator of
ids that another one coordinates by now. What it knows of them is of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import BrokerError, error_for_code
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.blocking import Call
from spark_kafka_sink.client.coordinators import Verdict, verdict_on
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.transactions.ending import Outcome, is_open, outcome_of
from spark_kafka_sink.transactions.model import TaskTransaction


class OpenTransaction(NamedTuple):
    """One entry of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


def is_known(transaction: TaskTransaction, state: TransactionState | None) -> bool:
    """Whether a coordinator's answer is about this transaction: it is open, or was ended."""
    return is_open(transaction, state) or outcome_of(transaction, state) is not Outcome.UNKNOWN


def ask_all(
    admin: AdminClient, transactions: Sequence[TaskTransaction], deadline_ms: int
) -> dict[str, TransactionState]:
    """What any broker that can be reached knows of these transactions; none that nobody knows.

    Where two know one, the end of it counts: that comes last.
    """
    by_id = {t.transactional_id: t for t in transactions}
    found: dict[str, TransactionState] = {}
    for state in _told(admin, list(by_id), deadline_ms):
        transaction = by_id.get(state.transactional_id)
        if transaction is None or not is_known(transaction, state):
            continue
        if is_open(transaction, found.setdefault(state.transactional_id, state)):
            found[state.transactional_id] = state
    return found


def is_taken(
    admin: AdminClient, transactional_id: str, producer: ProducerIdAndEpoch, deadline_ms: int
) -> bool | None:
    """Whether anybody has initialized the id after ``producer``, by what all brokers know.

    None: nobody knows ``producer``, and nobody a later one. Of two producer ids it is not known
    which is the later: then it counts as taken.
    """
    states = _told(admin, [transactional_id], deadline_ms)
    holders = {ProducerIdAndEpoch(s.producer_id, s.producer_epoch) for s in states}
    if any(holder.producer_id != producer.producer_id or holder > producer for holder in holders):
        return True
    return False if producer in holders else None


def _told(
    admin: AdminClient, transactional_ids: Sequence[str], deadline_ms: int
) -> list[TransactionState]:
    """Of all brokers that can be reached, and take themselves for the ids' coordinators."""
    request = DescribeTransactionsRequest(list(transactional_ids))
    nodes = admin.await_all(admin.nodes(deadline_ms), deadline_ms)
    answers = admin.request_all([Call(node, request) for node in nodes], deadline_ms)
    told = [a for a in answers if isinstance(a, DescribeTransactionsResponse)]
    return [state for answer in told for state in answer.transaction_states if not state.error_code]


def merge_listed(answers: Sequence[Message | None]) -> tuple[list[OpenTransaction], bool]:
    """All that was listed, and whether no coordinator was still loading."""
    found: dict[str, OpenTransaction] = {}
    is_complete = True
    for answer in answers:
        if not isinstance(answer, ListTransactionsResponse):
            continue
        error = error_for_code(answer.error_code)
        if verdict_on(error) not in (Verdict.DONE, Verdict.FATAL):
            is_complete = False
            continue
        if answer.error_code:
            raise BrokerError(error, "ListTransactions")
        for state in answer.transaction_states:
            found[state.transactional_id] = OpenTransaction(
                state.transactional_id, state.producer_id, state.transaction_state
            )
    return list(found.values()), is_complete
