"""Bugs that the simulated lives of a query must catch: each is put into the commit protocol, or into
what tasks hand to it, for the length of a block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.network.coordinators import CoordinatorRequest
from spark_kafka_sink.producer.transaction_manager import ProducerIdentities, TokenCheck
from spark_kafka_sink.protocol.messages.transactions import EndTxnRequest
from spark_kafka_sink.spark import task, writer
from spark_kafka_sink.spark.dead_letters import DeadLetters
from spark_kafka_sink.transactions import (
    client,
    commit_protocol,
    fencing,
    ownership,
    session,
)
from spark_kafka_sink.transactions.checkpoints import Location
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
from tests.simulation import query_scenarios as scenarios
from tests.simulation.bugs import Bug, into

BUGS: dict[str, Bug] = {}
bug = into(BUGS)


@bug("dead letters apart", DeadLetters, "_append")
def _(original, self, rows, faults):
    """dead letters are written outside of the transaction of the other rows"""
    # By a producer of their own.
    self._count([*faults.values()], [fault.message for fault in faults.values()])
    worker = self._producer._process
    apart = worker._create(self._producer._config, [])
    apart.append(self._columns.of(rows, self._positions, [*faults.values()]), self._own_positions)
    apart.flush()
    apart.close()
    worker.producer = self._producer
    self._rows_count += rows.num_rows
    return rows


@bug("dead letters forgotten", DeadLetters, "_append")
def _(original, self, rows, faults):
    """rows that cannot be written are left out, and written nowhere"""
    return rows


@bug("refused rows forgotten", DeadLetters, "_append_refused")
def _(original, self):
    """rows that brokers refuse after they were sent are left out, and written nowhere"""
    return bool(self._producer.rejections.take_rejected())


@bug("no decision log", DecisionLog, "write")
def _(original, self, decision, token, deadline_ms):
    """transactions are committed without a record of the decision"""
    if decision is not None and decision.unit != NO_UNIT:
        return token
    return original(self, decision, token, deadline_ms)


@bug("unguarded abort", CommitProtocol, "abort", partial(scenarios.abort_after_the_decision, 2))
def _(original, self, driver, planned=None):
    """abort ends what is decided"""
    deadline_ms = self._deadline()
    self.abort_open_transactions(self._fence_previous_driver(deadline_ms), deadline_ms)


@bug(
    "EndTxn(abort) instead of fencing",
    TransactionClient,
    "fence",
    partial(scenarios.late_writer, 1),
    partial(scenarios.late_sweep, 1),
)
def _(original, self, transactional_ids, timeout_ms, deadline_ms):
    """the writer of an aborted transaction may go on"""
    requests = [
        CoordinatorRequest(
            (name,),
            EndTxnRequest(name, state.producer_id, state.producer_epoch, False),
            lambda now: 4,
        )
        for name, state in self.describe(list(transactional_ids), deadline_ms).items()
        if state is not None and state.transaction_state == "Ongoing"
    ]
    list(self._coordinators.ask(requests, client._code_of, deadline_ms))


@bug("empty transactions listed", writer, "write_partition")
def _(original, iterator, options, plan, transactions):
    """tasks without rows hand over transactions that cannot be committed"""
    message = original(iterator, options, plan, transactions)
    if message.transaction is None and transactions is not None:
        transactional_id = task.TRANSACTIONAL_IDS.next_id(transactions.prefix, transactions.token)
        with session.AdminClient.of(options.producer) as admin:
            producer, version = TransactionClient(admin).init_producer_id(
                transactional_id, transactions.timeout_ms, admin.deadline_in(60_000)
            )
        message.transaction = TaskTransaction(
            transactional_id, *producer, version, message.partition_id, 0, "0-0-0"
        )
    return message


@bug(
    "list of what is committed not cumulative",
    commit_protocol,
    "_with_outcomes",
    partial(scenarios.repair_cut_off, 2, "commit.decided"),
)
def _(original, decided, outcomes):
    """a repair that is cut off forgets what was visible before"""
    return original(replace(decided, committed=()), outcomes)


@bug("replay not compared", fencing, "replacements_of_lost")
def _(original, decision, replayed, prefix):
    """a repair takes any rows for those that are missing"""
    lost = {t.partition_id for t in decision.transactions}
    return [t for t in replayed if t.partition_id in lost]


@bug("replay of what is done committed", CommitProtocol, "commit")
def _(original, self, plan, unit, transactions):
    """a batch that was finished and is run again becomes visible again"""
    if plan.decision.unit == unit and plan.decision.phase is Phase.DONE:
        plan = replace(plan, decision=replace(plan.decision, unit=NO_UNIT))
    return original(self, plan, unit, transactions)


@bug("swept before resolved", CommitProtocol, "plan")
def _(original, self, *planned):
    """planning aborts what is decided"""
    deadline_ms = self._deadline()
    self.abort_open_transactions(self._fence_previous_driver(deadline_ms), deadline_ms)
    return original(self, *planned)


@bug("taken before it is checked", CommitProtocol, "plan")
def _(original, self, *planned):
    """a driver that is refused has already fenced the owner of the prefix"""
    self._fence_previous_driver(self._deadline())
    commit_protocol.reached("plan.fenced")
    return original(self, *planned)


@bug("unknown taken for the same", session, "_driver")
def _(original, options):
    """a query whose checkpoint nobody tells counts as the one that has the prefix"""
    return original(replace(options, checkpoint=options.checkpoint or "/checkpoint"))


@bug("named write forgotten", Decision, "done")
def _(original, self):
    """the log does not remember which writes with a name are done"""
    return replace(original(self), written=self.written)


@bug("spelling decides", ownership, "qualified")
def _(original, text, working_folder=None):
    """a query is another one if its checkpoint is spelled in another way"""
    return Location(None, None, text)


@bug("query ids not compared", ownership, "_is_of")
def _(original, owner, query_id, driver):
    """another query whose checkpoint has the same location takes the prefix"""
    return original(owner, None, driver)


@bug("owner of a job kept", Decision, "claimed_by")
def _(original, self, driver, is_query):
    """a query in the application of an earlier job does not become the owner of the prefix"""
    if self.owner.driver_id == driver.driver_id:
        return replace(self, is_query=is_query)
    return original(self, driver, is_query)


@bug("highest version only", Decision, "has")
def _(original, self, write):
    """a version below one that was written is dropped"""
    found = None if write is None else self.versions_of(write.write_id)
    return found is not None and found.ranges[-1][1] >= write.version


@bug("former query forgotten", ownership, "claim")
def _(original, before, driver, is_query, config):
    """a new query that has only planned has replaced the former one"""
    claimed = original(before, driver, is_query, config)
    if claimed.former is None:
        return claimed
    return replace(claimed.without_former(), unit=NO_UNIT, phase=Phase.DONE, retired=())


@bug("new query never decides", Decision, "without_former")
def _(original, self):
    """a query that was replaced may take the prefix from the new one"""
    return self


@bug("no barrier in the log", DecisionLog, "read_current", partial(scenarios.deposed_leader, 2))
def _(original, self, deadline_ms):
    """a driver believes what a deposed leader tells it of the decision log"""
    return self.read(deadline_ms)


@bug("lost log not noticed", DecisionLog, "read_mark", partial(scenarios.lost_log, 2))
def _(original, self, deadline_ms):
    """a decision that was lost with the log is swept, and written again"""
    return PrefixMark(is_released=True)


@bug("replay dropped unseen", commit_protocol, "check_replay")
def _(original, decision, replayed, config):
    """whatever comes as a micro-batch that is committed is dropped"""


@bug(
    "replay compared by size only",
    commit_protocol,
    "check_replay",
    partial(scenarios.other_rows_replayed, 2),
)
def _(original, decision, replayed, config):
    """other rows that are as many, and as large, are dropped"""
    if RowSummary.total(t.rows for t in replayed)[:2] != decision.rows[:2]:
        original(decision, replayed, config)


@bug("not swept", CommitProtocol, "abort_open_transactions")
def _(original, self, token, deadline_ms, only=None):
    """nobody aborts what superseded attempts and dead tasks leave open"""
    return ()


@bug("swept by anybody", fencing, "check_not_fenced")
def _(original, *_):
    """a driver aborts what is open although another one has taken over"""


@bug("older drivers not fenced", DecisionLog, "write", partial(scenarios.older_driver, 2))
def _(original, self, decision, token, deadline_ms):
    """a decision is written although another driver has planned since"""
    current = self._client.init_producer_id(f"{self._prefix}.driver", 60_000, deadline_ms)
    token = token._replace(
        producer_id=current.producer.producer_id,
        producer_epoch=current.producer.producer_epoch,
        next_sequence=0,
    )
    return original(self, decision, token, deadline_ms)


@bug("lost taken for committed", client, "outcome_of")
def _(original, transaction, state):
    """a transaction that timed out counts as visible"""
    found = original(transaction, state)
    return Outcome.COMMITTED if found is Outcome.LOST else found


@bug("forgotten taken for lost", client, "outcome_of")
def _(original, transaction, state):
    """a transaction whose id the brokers have forgotten counts as aborted, and is written again"""
    return Outcome.LOST if state is None else original(transaction, state)


@bug(
    "refused taken for lost",
    TransactionClient,
    "_send_end_txn",
    partial(scenarios.refused_although_ended, 2),
)
def _(original, self, transactions, outcomes, deadline_ms):
    """EndTxn's refusal counts as an abort"""
    refused = original(self, transactions, outcomes, deadline_ms)
    outcomes.update(dict.fromkeys(refused, Outcome.LOST))
    return {}  # the coordinators are not asked


@bug(
    "EndTxn as before a downgrade",
    client,
    "_end_txn_version",
    partial(scenarios.downgrade, "commit.decided", 0, True),
)
def _(original, begun, now):
    """transactions are ended in the version that was right when they began"""
    return original(begun, begun)


@bug(
    "refused taken for unknown",
    client,
    "is_open",
    partial(scenarios.refused_ends, 2, "INVALID_TXN_STATE"),
)
def _(original, transaction, state):
    """a transaction that EndTxn refuses to end is given up although it is open"""
    return False


@bug("late losers do not look", ProducerIdentities, "transactional")
def _(original, self, settings, token):
    """an attempt that begins to write after the sweep leaves its transaction open"""
    return original(self, settings, None)


@bug("losers look too early", TokenCheck, "maybe_request", partial(scenarios.early_look, 2))
def _(original, self, has_begun, now_ms):
    """an attempt that has looked before its transaction begins counts as one in time"""
    return original(self, True, now_ms)


@bug("epochs used up", ProducerIdAndEpoch, "is_epoch_nearly_exhausted")
def _(original, self):
    """a transaction may begin with the last producer epoch"""
    return False
