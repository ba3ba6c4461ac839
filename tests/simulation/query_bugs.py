"""Bugs that the simulated lives of a query must catch: each is put into the commit protocol, or into
what tasks hand to it, for the length of a block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.client.coordinators import CoordinatorRequest
from spark_kafka_sink.producer.identity import ProducerIdentities
from spark_kafka_sink.producer.transaction_manager import TokenCheck
from spark_kafka_sink.protocol.messages.transactions import EndTxnRequest
from spark_kafka_sink.spark import task, writer
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.transactions import client, commit_protocol, fencing, session
from spark_kafka_sink.transactions.client import Outcome, TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import DecisionLog, PrefixMark
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    Phase,
    RowSummary,
    TaskTransaction,
)
from tests.simulation import scenarios
from tests.simulation.bugs import Bug
from tests.simulation.query_dead_letter_bugs import DEAD_LETTER_BUGS


def _no_decision_log(original):  # type: ignore[no-untyped-def]
    def write(self, decision, token, deadline_ms):  # type: ignore[no-untyped-def]
        if decision is not None and decision.unit != NO_UNIT:
            return token
        return original(self, decision, token, deadline_ms)

    return write


def _unguarded_abort(original):  # type: ignore[no-untyped-def]
    def abort(self, driver, planned=None):  # type: ignore[no-untyped-def]
        deadline_ms = self._deadline()
        self.abort_open_transactions(self._fence_previous_driver(deadline_ms), deadline_ms)

    return abort


def _end_txn_instead_of_fencing(original):  # type: ignore[no-untyped-def]
    def fence(self, transactional_ids, timeout_ms, deadline_ms):  # type: ignore[no-untyped-def]
        states = self.describe(list(transactional_ids), deadline_ms)
        requests = [
            CoordinatorRequest(
                (name,),
                EndTxnRequest(name, state.producer_id, state.producer_epoch, False),
                lambda now: 4,
            )
            for name, state in states.items()
            if state is not None and state.transaction_state == "Ongoing"
        ]
        list(self._coordinators.ask(requests, client._code_of, deadline_ms))

    return fence


def _empty_transactions_listed(original):  # type: ignore[no-untyped-def]
    def write_partition(iterator, options, plan, transactions):  # type: ignore[no-untyped-def]
        message = original(iterator, options, plan, transactions)
        if message.transaction is None and transactions is not None:
            _list_an_empty_transaction(options, transactions, message)
        return message

    return write_partition


def _list_an_empty_transaction(options, plan, message: KafkaCommitMessage):  # type: ignore[no-untyped-def]
    transactional_id = task.TRANSACTIONAL_IDS.next_id(plan.prefix, plan.token)
    with session.AdminClient.of(options.producer) as admin:
        producer, version = TransactionClient(admin).init_producer_id(
            transactional_id, plan.timeout_ms, admin.deadline_in(60_000)
        )
    message.transaction = TaskTransaction(
        transactional_id, *producer, version, message.partition_id, 0, "0-0"
    )


def _committed_list_not_cumulative(original):  # type: ignore[no-untyped-def]
    return lambda decided, outcomes: original(replace(decided, committed=()), outcomes)


def _replay_not_compared(original):  # type: ignore[no-untyped-def]
    def replacements_of_lost(decision, replayed, prefix):  # type: ignore[no-untyped-def]
        lost = {t.partition_id for t in decision.transactions}
        return [t for t in replayed if t.partition_id in lost]

    return replacements_of_lost


def _replay_of_what_is_done_committed(original):  # type: ignore[no-untyped-def]
    def commit(self, plan, unit, transactions):  # type: ignore[no-untyped-def]
        if plan.decision.unit == unit and plan.decision.phase is Phase.DONE:
            plan = replace(plan, decision=replace(plan.decision, unit=NO_UNIT))
        return original(self, plan, unit, transactions)

    return commit


def _swept_before_resolved(original):  # type: ignore[no-untyped-def]
    def plan(self, *planned):  # type: ignore[no-untyped-def]
        deadline_ms = self._deadline()
        self.abort_open_transactions(self._fence_previous_driver(deadline_ms), deadline_ms)
        return original(self, *planned)

    return plan


def _taken_before_it_is_checked(original):  # type: ignore[no-untyped-def]
    def plan(self, *planned):  # type: ignore[no-untyped-def]
        self._fence_previous_driver(self._deadline())
        commit_protocol.reached("plan.fenced")
        return original(self, *planned)

    return plan


def _unknown_taken_for_the_same(original):  # type: ignore[no-untyped-def]
    def driver(options):  # type: ignore[no-untyped-def]
        return original(replace(options, checkpoint=options.checkpoint or "/checkpoint"))

    return driver


def _named_write_forgotten(original):  # type: ignore[no-untyped-def]
    return lambda self: replace(original(self), written=self.written)


def _no_barrier(original):  # type: ignore[no-untyped-def]
    return DecisionLog.read


def _lost_log_not_noticed(original):  # type: ignore[no-untyped-def]
    """Whatever the log does not know counts as new."""
    return lambda self, deadline_ms: PrefixMark(is_released=True)


def _replay_dropped_unseen(original):  # type: ignore[no-untyped-def]
    return lambda decision, replayed, config: None


def _replay_compared_by_size(original):  # type: ignore[no-untyped-def]
    """As of records whose contents nobody knows."""
    return lambda self, other: False


def _not_swept(original):  # type: ignore[no-untyped-def]
    return lambda self, token, deadline_ms, only=None: ()


def _swept_by_anybody(original):  # type: ignore[no-untyped-def]
    """A driver that was superseded sweeps, too."""
    return lambda self, transactional_id, producer, deadline_ms: None


def _older_drivers_not_fenced(original):  # type: ignore[no-untyped-def]
    def write(self, decision, token, deadline_ms):  # type: ignore[no-untyped-def]
        current = self._client.init_producer_id(f"{self._prefix}.driver", 60_000, deadline_ms)
        token = token._replace(
            producer_id=current.producer.producer_id,
            producer_epoch=current.producer.producer_epoch,
            next_sequence=0,
        )
        return original(self, decision, token, deadline_ms)

    return write


def _lost_taken_for_committed(original):  # type: ignore[no-untyped-def]
    def outcome(transaction, state):  # type: ignore[no-untyped-def]
        found = original(transaction, state)
        return Outcome.COMMITTED if found is Outcome.LOST else found

    return outcome


def _refused_taken_for_lost(original):  # type: ignore[no-untyped-def]
    """Whatever EndTxn refuses counts as aborted; the coordinators are not asked."""

    def end_all(self, transactions, outcomes, deadline_ms):  # type: ignore[no-untyped-def]
        refused = original(self, transactions, outcomes, deadline_ms)
        outcomes.update(dict.fromkeys(refused, Outcome.LOST))
        return {}

    return end_all


def _refused_taken_for_unknown(original):  # type: ignore[no-untyped-def]
    return lambda transaction, state: False


def _versions_of_the_past(original):  # type: ignore[no-untyped-def]
    """As the feature was when the transaction began."""
    return lambda begun, now: original(begun, begun)


def _epochs_used_up(original):  # type: ignore[no-untyped-def]
    return property(lambda self: False)


def _nobody_looks(original):  # type: ignore[no-untyped-def]
    return lambda self, settings, token: original(self, settings, None)


def _looked_too_early(original):  # type: ignore[no-untyped-def]
    return lambda self, has_begun, now_ms: original(self, True, now_ms)


BUGS: dict[str, Bug] = {
    **DEAD_LETTER_BUGS,
    "no decision log": Bug(
        "transactions are committed without a record of the decision",
        DecisionLog,
        "write",
        _no_decision_log,
    ),
    "unguarded abort": Bug(
        "abort ends what is decided",
        CommitProtocol,
        "abort",
        _unguarded_abort,
        (partial(scenarios.abort_after_the_decision, 2),),
    ),
    "EndTxn(abort) instead of fencing": Bug(
        "the writer of an aborted transaction may go on",
        TransactionClient,
        "fence",
        _end_txn_instead_of_fencing,
        (partial(scenarios.late_writer, 1), partial(scenarios.late_sweep, 1)),
    ),
    "empty transactions listed": Bug(
        "tasks without rows hand over transactions that cannot be committed",
        writer,
        "write_partition",
        _empty_transactions_listed,
    ),
    "list of what is committed not cumulative": Bug(
        "a repair that is cut off forgets what was visible before",
        commit_protocol,
        "_with_outcomes",
        _committed_list_not_cumulative,
        (partial(scenarios.repair_cut_off, 2, "commit.decided"),),
    ),
    "replay not compared": Bug(
        "a repair takes any rows for those that are missing",
        fencing,
        "replacements_of_lost",
        _replay_not_compared,
    ),
    "replay of what is done committed": Bug(
        "a batch that was finished and is run again becomes visible again",
        CommitProtocol,
        "commit",
        _replay_of_what_is_done_committed,
    ),
    "swept before resolved": Bug(
        "planning aborts what is decided", CommitProtocol, "plan", _swept_before_resolved
    ),
    "taken before it is checked": Bug(
        "a driver that is refused has already fenced the owner of the prefix",
        CommitProtocol,
        "plan",
        _taken_before_it_is_checked,
    ),
    "unknown taken for the same": Bug(
        "a query whose checkpoint nobody tells counts as the one that has the prefix",
        session,
        "_driver",
        _unknown_taken_for_the_same,
    ),
    "named write forgotten": Bug(
        "the log does not remember which writes with a name are done",
        Decision,
        "done",
        _named_write_forgotten,
    ),
    "no barrier in the log": Bug(
        "a driver believes what a deposed leader tells it of the decision log",
        DecisionLog,
        "read_current",
        _no_barrier,
        (partial(scenarios.deposed_leader, 2),),
    ),
    "lost log not noticed": Bug(
        "a decision that was lost with the log is swept, and written again",
        DecisionLog,
        "read_mark",
        _lost_log_not_noticed,
        (partial(scenarios.lost_log, 2),),
    ),
    "replay dropped unseen": Bug(
        "whatever comes as a micro-batch that is committed is dropped",
        commit_protocol,
        "check_replay",
        _replay_dropped_unseen,
    ),
    "replay compared by size only": Bug(
        "other rows that are as many, and as large, are dropped",
        RowSummary,
        "is_comparable",
        _replay_compared_by_size,
        (partial(scenarios.other_rows_replayed, 2),),
    ),
    "not swept": Bug(
        "nobody aborts what superseded attempts and dead tasks leave open",
        CommitProtocol,
        "abort_open_transactions",
        _not_swept,
    ),
    "swept by anybody": Bug(
        "a driver aborts what is open although another one has taken over",
        fencing,
        "check_not_fenced",
        _swept_by_anybody,
    ),
    "older drivers not fenced": Bug(
        "a decision is written although another driver has planned since",
        DecisionLog,
        "write",
        _older_drivers_not_fenced,
        (partial(scenarios.older_driver, 2),),
    ),
    "lost taken for committed": Bug(
        "a transaction that timed out counts as visible",
        client,
        "outcome_of",
        _lost_taken_for_committed,
    ),
    "refused taken for lost": Bug(
        "EndTxn's refusal counts as an abort",
        TransactionClient,
        "_send_end_txn",
        _refused_taken_for_lost,
        (partial(scenarios.refused_although_ended, 2),),
    ),
    "EndTxn as before a downgrade": Bug(
        "transactions are ended in the version that was right when they began",
        client,
        "_end_txn_version",
        _versions_of_the_past,
        (partial(scenarios.downgrade, "commit.decided", 0, True),),
    ),
    "refused taken for unknown": Bug(
        "a transaction that EndTxn refuses to end is given up although it is open",
        client,
        "is_open",
        _refused_taken_for_unknown,
        (partial(scenarios.refused_ends, 2, "INVALID_TXN_STATE"),),
    ),
    "late losers do not look": Bug(
        "an attempt that begins to write after the sweep leaves its transaction open",
        ProducerIdentities,
        "transactional",
        _nobody_looks,
    ),
    "losers look too early": Bug(
        "an attempt that has looked before its transaction begins counts as one in time",
        TokenCheck,
        "maybe_request",
        _looked_too_early,
        (partial(scenarios.early_look, 2),),
    ),
    "epochs used up": Bug(
        "a transaction may begin with the last producer epoch",
        ProducerIdAndEpoch,
        "is_epoch_nearly_exhausted",
        _epochs_used_up,
    ),
}
