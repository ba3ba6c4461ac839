"""A real broker that is stopped (SIGSTOP): the kernel takes connections, nobody answers."""

import time
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import LOG_PARTITION, prepare_log_topic
from spark_kafka_sink.transactions.model import (
    Driver,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
)
from tests.broker.creating import producer_for
from tests.broker.processes import eventually
from tests.broker.test_transactions import PARTITIONS, committed, coordinator_of, rows, write
from tests.local_kafka import PatientKafka

BROKERS = (1, 2, 3)
MINUTES_MS = 300_000
# Brokers are fenced, and their partitions led by others, when they are silent for this long.
SESSION_TIMEOUT_MS = 3_000
LOG_TOPIC = "hung-decisions"
TIMEOUT_MS = 900_000


@pytest.fixture(scope="module")
def trio():
    properties = {
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "2000",
    }
    with PatientKafka(3, server_properties=properties) as kafka:
        yield kafka


@pytest.mark.parametrize(
    "hung", [pytest.param(n, marks=[pytest.mark.long] if n > 1 else []) for n in BROKERS]
)
def test_whichever_broker_hangs_the_others_are_asked(trio, hung):
    """First of the bootstrap list, controller, coordinator: one of these is the one that hangs."""
    # What waits for the end of a request that hangs does not end in time.
    settings = DEFAULT_SETTINGS._replace(request_timeout_ms=10 * MINUTES_MS)
    with AdminClient.connect(trio.bootstrap_servers, settings=settings) as admin:
        client = TransactionClient(admin)
        ids = [f"hung-{hung}.{index}" for index in range(6)]
        client.fence(ids, 60_000, admin.deadline_in(MINUTES_MS))
        nodes = {node.node_id for node in admin.nodes(admin.deadline_in(MINUTES_MS))}
        assert nodes == set(BROKERS)
        trio.pause(hung)
        try:
            started = time.monotonic()
            assert admin.nodes(admin.deadline_in(MINUTES_MS))
            asked = time.monotonic()
            client.fence(ids, 60_000, admin.deadline_in(MINUTES_MS))
            fenced = time.monotonic()
        finally:
            trio.resume(hung)
            trio.await_in_sync()
    print(f"broker {hung}: metadata {asked - started:.1f} s, ids taken {fenced - asked:.1f} s")


class Query:
    """A driver whose steps have minutes, and its tasks."""

    def __init__(self, kafka, prefix):
        self.kafka = kafka
        self.topic = f"{prefix}-rows"
        self.config = ExactlyOnceConfig(prefix, TIMEOUT_MS, LOG_TOPIC, 3)
        kafka.create_topic(self.topic, PARTITIONS, configs={"min.insync.replicas": "2"})
        with AdminClient.connect(kafka.bootstrap_servers) as admin:
            prepare_log_topic(admin, self.config, admin.deadline_in(MINUTES_MS))
            # Brokers create __transaction_state when they are asked for a coordinator.
            TransactionClient(admin).describe([f"{prefix}.driver"], admin.deadline_in(MINUTES_MS))

    @contextmanager
    def protocol(self):
        """Of a process that knows no broker yet."""
        with AdminClient.connect(self.kafka.bootstrap_servers) as admin:
            client = TransactionClient(admin)
            yield CommitProtocol(client, self.config, SystemClock(), MINUTES_MS)

    def plan(self, protocol):
        return protocol.plan(Driver("driver-1", "host-1", 1_700_000_000_000, "/ck", "q"), None)

    def written(self, plan):
        """Two tasks, flushed and open: rows 0 to 299, and 300 to 599."""
        slots = WorkerTransactionalIds()
        found = []
        with producer_for(self.kafka.bootstrap_servers) as producer:
            for number in (0, 1):
                name = slots.next_id(self.config.prefix, plan.token)
                prepared = write(producer, self.topic, name, [rows(300 * number)])
                assert prepared is not None
                found.append(TaskTransaction(*prepared, number, 300, f"rows-{number}"))
        return found

    def broker_that_is(self, role):
        if role == "first of the bootstrap list":
            return BROKERS[0]
        if role == "coordinator":
            with coordinator_of(self.kafka, f"{self.config.prefix}.driver") as (_, node):
                return node.node_id
        with AdminClient.connect(self.kafka.bootstrap_servers) as admin:
            [topic] = admin.metadata([LOG_TOPIC], False, admin.deadline_in(MINUTES_MS)).topics
            return topic.partitions[LOG_PARTITION].leader_id


@contextmanager
def hung(kafka, broker_id):
    kafka.pause(broker_id)
    try:
        yield
    finally:
        kafka.resume(broker_id)
        kafka.await_in_sync()


ROLES = ("coordinator", "leader of the decision log", "first of the bootstrap list")


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_micro_batch_is_planned_and_committed_while_a_broker_hangs(trio, role, is_connected):
    """It hangs from before the plan until after the commit: others take over what it had.

    is_connected: the driver has planned before, and has connections to all
    """
    query = Query(trio, f"hung-plan-{ROLES.index(role)}-{is_connected}")
    with query.protocol() as protocol:
        if is_connected:
            assert protocol.commit(query.plan(protocol), Unit("q-1", 0, None), []) is not None
        with hung(trio, query.broker_that_is(role)):
            started = time.monotonic()
            plan = query.plan(protocol)
            planned = time.monotonic()
            written = query.written(plan)
            prepared = time.monotonic()
            assert protocol.commit(plan, Unit("q-1", int(is_connected), None), written) is not None
            ended = time.monotonic()
    print(f"{role}: plan {planned - started:.1f} s, commit {ended - prepared:.1f} s")
    # The coordinator answers before the markers are written.
    assert eventually(lambda: committed(trio, query.topic) == list(range(600)))


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_micro_batch_is_committed_while_a_broker_hangs(trio, role, is_connected):
    """It hangs from after the last task on. Spark commits in another process than it plans in."""
    query = Query(trio, f"hung-commit-{ROLES.index(role)}-{is_connected}")
    with query.protocol() as protocol, query.protocol() as of_another_process:
        plan = query.plan(protocol)
        written = query.written(plan)
        committer = protocol if is_connected else of_another_process
        with hung(trio, query.broker_that_is(role)):
            started = time.monotonic()
            assert committer.commit(plan, Unit("q-1", 0, None), written) is not None
            ended = time.monotonic()
    print(f"{role}: commit {ended - started:.1f} s")
    # The coordinator answers before the markers are written.
    assert eventually(lambda: committed(trio, query.topic) == list(range(600)))


POINTS = tuple(p for p in crash_points.POINTS if p.startswith(("plan.", "commit.")))


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("point", POINTS)
def test_a_broker_hangs_at_each_step(trio, point, role):
    """Whose each second is, tests/simulation/test_hung_brokers.py tells; here all of it is real."""
    query = Query(trio, f"hung-{point.replace('.', '-')}-{ROLES.index(role)}")
    node = query.broker_that_is(role)
    with query.protocol() as protocol:
        began_s = 0.0

        def hang(reached):
            nonlocal began_s
            if reached == point:
                crash_points.set_hook(None)
                began_s = time.monotonic()
                trio.pause(node)

        crash_points.set_hook(hang)
        try:
            plan = query.plan(protocol)
            planned_s = time.monotonic()
            written = query.written(plan)
            prepared_s = time.monotonic()
            assert protocol.commit(plan, Unit("q-1", 0, None), written) is not None
            ended_s = time.monotonic()
        finally:
            crash_points.set_hook(None)
            trio.resume(node)
            trio.await_in_sync()
    if point.startswith("plan."):
        print(f"{role} at {point}: planning {planned_s - began_s:.1f} s, then", end=" ")
    print(f"{role} at {point}: commit {ended_s - max(prepared_s, began_s):.1f} s")
    # The coordinator answers before the markers are written.
    assert eventually(lambda: committed(trio, query.topic) == list(range(600)))
