"""Scenarios that random lives reach rarely, step by step: where the commit protocol has the bug that
one of them is made for, it raises AssertionError or the error that stops the query.
"""

from __future__ import annotations

import contextlib
from functools import partial
from unittest import mock

from spark_kafka_sink.base.errors import SupersededError, TransactionError, error_named
from spark_kafka_sink.base.model import (
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
    UnusedProducerIdentity,
)
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.transactions.decision_log import LogPartition
from spark_kafka_sink.transactions.model import MissingRecordError, ReplayError, is_task_id
from tests.simulation.harness import Transactional
from tests.simulation.operating import (
    LOG_TOPIC,
    TIMEOUT_MS,
    CrashError,
    Lives,
    at,
    dies,
    driver,
    unit,
)

_OUT = TopicPartition("t", 0)
_LOG = TopicPartition(LOG_TOPIC, 0)
_UNAWARE_MS = 8000
_MARKERS_MS = 500  # coordinators put off a transaction until the last one has its markers
_FIRST, _SECOND = b"1", b"2"


def late_writer(transaction_version):
    """A task writes, the next planning step aborts its transaction, and the task writes on."""
    lives = Lives(transaction_version)
    late = _begin(lives, lives.protocol.plan(driver(1), None))
    lives.protocol.plan(driver(2), None)
    assert lives.open_ids() == [], "what was open is not aborted"
    assert not _write_on(lives, late), "the writer of an aborted transaction has gone on"
    assert lives.open_ids() == [], "readers wait for a transaction that nobody commits"


def late_sweep(transaction_version):
    """A planning process hangs between listing what is open and aborting it, and its driver plans
    again. When it goes on, the id that it has listed is in use by a task of the second plan: that
    task has lost its first rows, and must not hand over the others alone.
    """
    lives = Lives(transaction_version)
    _begin(lives, lives.protocol.plan(driver(1), None))
    found = []

    def plan_again():
        plan = lives.protocol.plan(driver(1), None)
        found.append((plan, _begin(lives, plan)))

    at("sweep.listed", plan_again)
    lives.protocol.plan(driver(1), None)
    plan, task = found[0]
    if not _write_on(lives, task):
        task = _begin(lives, plan)  # the next attempt
        assert _write_on(lives, task), "an attempt of the driver's own plan is kept out"
    lives.protocol.commit(plan, unit(0), [task])
    assert lives.visible() == [_FIRST, _SECOND], "a part of a task is committed"


def refused_ends(transaction_version, error):
    """A transaction that is decided and open, and that its coordinator refuses to end for a while."""
    lives = Lives(transaction_version)
    lives.killed("commit.decided", 0, driver(1))
    answers = iter([error] * 3)

    def refuse(name):
        return next(answers, "NONE") if is_task_id("p", name) else "NONE"

    def begin_to_refuse():
        lives.world.cluster.on_end_txn = refuse

    at("plan.claimed", begin_to_refuse)
    lives.batch(0, driver(2))
    lives.check_settled(b"0-0", b"0-1")
    assert next(answers, None) is None


def repair_cut_off(transaction_version, point):
    """The first attempt at a batch commits one task of three. The second is to fill in the others,
    and its driver dies at ``point``, for longer than transactions may take: what the first one has
    committed must not be forgotten.
    """
    lives = Lives(transaction_version)
    for by, died_at in ((driver(1), "commit.ending"), (driver(2), point)):
        lives.killed(died_at, 0, by, tasks=3)
        lives.world.run_for(TIMEOUT_MS + 20_000)
    lives.batch(0, driver(3), tasks=3)
    lives.check_settled(b"0-0", b"0-1", b"0-2")


def downgrade(point, to, is_killed):
    """transaction.version 2 is downgraded in the middle of a batch, and its driver goes on or dies.
    Connections are older than the downgrade, and say that EndTxn v5 may be sent.
    """
    lives = Lives(2)
    lives.batch(0, driver(1))

    def change():
        lives.world.transactions.transaction_version = to
        if is_killed:
            raise CrashError(point)

    at(point, change)
    if is_killed:
        dies(partial(lives.batch, 1, driver(1)))
        lives.batch(1, driver(2))
    else:
        lives.batch(1, driver(1))
    lives.batch(2, driver(2))
    lives.check_settled(*(b"%d-%d" % (b, t) for b in range(3) for t in range(2)))


def abort_after_the_decision(transaction_version):
    """Spark calls a micro-batch failed whose commit was cut off: what is decided is not aborted."""
    lives = Lives(transaction_version)
    lives.killed("commit.decided", 0, driver(1))
    lives.protocol.abort(driver(1))
    assert len(lives.open_ids()) == 2, "what was decided is aborted"
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


def other_rows_replayed(transaction_version):
    """The checkpoint has lost its last offsets: batch 0 comes again with other rows, as many and as
    large. They must not be taken for those that are committed, and be dropped.
    """
    lives = Lives(transaction_version)
    lives.batch(0, driver(1))
    plan, written = lives.begun(driver(2), b"0-0", b"0-2")
    try:
        lives.protocol.commit(plan, unit(0), written)
    except ReplayError:
        return
    raise AssertionError("rows vanish, and the query goes on")


def older_driver(transaction_version):
    """A driver hangs before it writes its decision, and another one does the micro-batch. Its own
    decision must not take the place of that one's, of which it would hide that it is done.
    """
    lives = Lives(transaction_version)
    plan, written = lives.begun(driver(1), b"0-0", b"0-1")
    at("commit.checked", lambda: lives.batch(0, driver(2)))
    with contextlib.suppress(TransactionError):
        lives.protocol_of("p").commit(plan, unit(0), written)
    lives.batch(0, driver(3))
    assert lives.visible() == [b"0-0", b"0-1"], "a micro-batch is written twice"


def refused_although_ended(transaction_version):
    """Everything is committed, the driver dies before it has noted that, and the coordinators refuse
    to end it once more.
    """
    lives = Lives(transaction_version)
    lives.killed("commit.ended", 0, driver(1))
    lives.world.cluster.on_end_txn = lambda name: (
        "INVALID_TXN_STATE" if is_task_id("p", name) else "NONE"
    )
    lives.protocol.plan(driver(2), None)
    lives.world.cluster.on_end_txn = lambda name: "NONE"
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"], "what was committed is written again"


def early_look(transaction_version):
    """A task attempt begins its transaction after the decision; its token was unused before."""
    simulation = Transactional(transaction_version)
    token = UnusedProducerIdentity("flights.driver", ProducerIdAndEpoch(1, 0))
    state = "Empty"

    def tell(broker, request, reply, go_on):
        told = TransactionState(0, token.transactional_id, state, 60_000, 0, *token.producer, [])
        reply(DescribeTransactionsResponse(0, [told]))

    simulation.cluster.intercept(DescribeTransactionsRequest, tell)
    simulation.producer.begin_task(["t"])
    simulation.producer.begin_transaction("flights.0", TIMEOUT_MS, token)
    simulation.run_for(_MARKERS_MS)
    state = "CompleteCommit"
    with contextlib.suppress(SupersededError):
        simulation.write(0, _FIRST)
        raise AssertionError("an attempt that comes too late counts as one in time")


def lost_log(transaction_version):
    """The decision log is deleted under a decision that is carried out in part: whoever plans next
    stops, and what is decided stays open for the user to settle.
    """
    lives = Lives(transaction_version)
    lives.batch(0, driver(1))
    lives.killed("commit.ending", 1, driver(1))
    lives.world.run_for(_MARKERS_MS)
    lives.world.cluster.empty_topic(LOG_TOPIC)
    with contextlib.suppress(MissingRecordError):
        lives.protocol.plan(driver(2), None)
    assert len(lives.open_ids()) == 1, "what was decided is aborted"


def deposed_leader(transaction_version):
    """The decision log has a new leader, and some brokers do not know it yet. A driver decides with
    the new one and is killed; the next one is sent to the old one for a while.
    """
    lives = Lives(transaction_version)
    lives.batch(0, driver(1))
    plan, written = lives.begun(driver(1), b"1-0", b"1-1")
    lives.world.run_for(_MARKERS_MS)
    partition = lives.world.cluster.partition(_LOG)
    old = partition.leader_id
    new = next(broker_id for broker_id in partition.replicas if broker_id != old)
    lives.world.cluster.depose_leader(*_LOG, new, unaware_ms=_UNAWARE_MS)
    with _sent_to(lives, new):
        lives.die_in_commit("commit.ending", plan, unit(1), written, lives.protocol_of("p"))
    with _sent_to(lives, old):
        lives.protocol_of("p").plan(driver(2), None)
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"], "what was decided is aborted"


@contextlib.contextmanager
def _sent_to(lives, broker_id):
    """For a while brokers take ``broker_id`` for the leader of the decision log."""
    original = LogPartition._find_leader
    until_ms = lives.world.clock.ms + _UNAWARE_MS

    def find_leader(log, deadline_ms):
        if lives.world.clock.ms < until_ms:
            return Node(broker_id, f"broker-{broker_id}", 9092), error_named("NONE")
        return original(log, deadline_ms)

    with mock.patch.object(LogPartition, "_find_leader", find_leader):
        yield


def _begin(lives, plan):
    """A task opens a transaction with the first of its rows."""
    return lives.write(plan, _OUT.partition, _FIRST)


def _write_on(lives, task):
    """The task sends the second of its rows: whether the brokers accept it."""
    name, producer = task.transactional_id, task.producer
    lives.world.run_for(_MARKERS_MS)
    is_added = task.transaction_version >= 2
    if not is_added and lives.world.add_partitions(name, producer, _OUT) != "NONE":
        return False
    produce_version = 12 if is_added else 11
    return lives.world.produce(name, producer, _OUT, [_SECOND], produce_version, 1) == "NONE"
