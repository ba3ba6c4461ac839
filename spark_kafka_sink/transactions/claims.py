"""What all brokers know of transactions, whoever coordinates them.

A broker that is cut off from the others, but not from clients, takes itself for the coordinator of
ids that another one coordinates by now. What it knows of them is of the past.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.blocking import Call
from spark_kafka_sink.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.transactions.ending import Outcome, is_open, outcome_of
from spark_kafka_sink.transactions.model import TaskTransaction


def is_known(transaction: TaskTransaction, state: TransactionState | None) -> bool:
    """Whether a coordinator's answer is about this transaction: it is open, or was ended."""
    return is_open(transaction, state) or outcome_of(transaction, state) is not Outcome.UNKNOWN


def ask_all(
    admin: AdminClient, transactions: Sequence[TaskTransaction], deadline_ms: int
) -> dict[str, TransactionState]:
    """What any broker that can be reached knows of these transactions; none that nobody knows.

    Where two know one, the end of it counts: that comes last.
    """
    request = DescribeTransactionsRequest([t.transactional_id for t in transactions])
    nodes = admin.await_all(admin.nodes(deadline_ms), deadline_ms)
    by_id = {t.transactional_id: t for t in transactions}
    found: dict[str, TransactionState] = {}
    for answer in admin.request_all([Call(node, request) for node in nodes], deadline_ms):
        if not isinstance(answer, DescribeTransactionsResponse):
            continue
        for state in answer.transaction_states:
            transaction = by_id.get(state.transactional_id)
            if transaction is None or state.error_code or not is_known(transaction, state):
                continue
            if is_open(transaction, found.setdefault(state.transactional_id, state)):
                found[state.transactional_id] = state
    return found
