"""A broker hangs at any step of the commit protocol: what that costs, beside what the brokers take.

It takes connections and requests, and answers none. Brokers take their time: until the controller
gives it up, and others lead what it led; and until a coordinator gives up a request that it has sent
to it, to write the marker that ends a transaction. No client can go on before. Time is simulated, so
that it is known to whom each second belongs.
"""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.model import Phase
from tests.simulation.network import ClientNetwork
from tests.simulation.operating import DRIVER_POINTS, LOG_TOPIC, TIMEOUT_MS, Lives, at, driver, unit

# broker.session.timeout.ms, by default.
DEPOSED_AFTER_MS = 9_000
# request.timeout.ms of the brokers, by default: for what they ask one another.
BROKERS_PATIENCE_MS = 30_000
# What it may cost in all with these defaults: one second is the client's.
AT_MOST_MS = 10_000
CLIENT_MS = 1_000
PATIENCE_MS = 300_000


FIRST, LOG_LEADER, COORDINATOR = 1, 2, 3
ROLES = {
    "first of the bootstrap list": (FIRST, LOG_LEADER, COORDINATOR),
    "leader of the decision log": (LOG_LEADER, LOG_LEADER, COORDINATOR),
    "coordinator": (COORDINATOR, LOG_LEADER, COORDINATOR),
    "all of these": (FIRST, FIRST, FIRST),
}
"""Who hangs, who leads the decision log, who coordinates the driver's id."""


class Hanging:
    """A broker that hangs from some moment on. ``end_ms``: when the controller has given it up."""

    def __init__(self, world, node_id):
        self._world = world
        self._node_id = node_id
        self.end_ms = 0

    def begin(self):
        self._world.cluster.brokers[self._node_id].is_paused = True
        self._world.transactions.log.awaits_replica = True
        self._world.scheduler.after(DEPOSED_AFTER_MS, self._depose)
        self.end_ms = self._world.clock.ms + DEPOSED_AFTER_MS

    def _depose(self):
        cluster = self._world.cluster
        cluster.fenced.add(self._node_id)
        for name, topic in cluster.topics.items():
            for index, partition in enumerate(topic.partitions):
                if partition.leader_id == self._node_id:
                    others = sorted(partition.isr - {self._node_id})
                    cluster.move_leader(name, index, others[0])
                partition.shrink_isr(self._node_id)
        self._world.transactions.log.awaits_replica = False
        self._world.transactions.log.lose(self._node_id)
        cluster.publish()


class Drivers(Lives):
    """Processes of the driver, each with connections of its own."""

    def __init__(self, transaction_version, log_leader, coordinator):
        super().__init__(transaction_version)
        transactions = self.world.transactions
        transactions.marker_timeout_ms = BROKERS_PATIENCE_MS
        transactions.partition_patience_ms = BROKERS_PATIENCE_MS
        if self.world.cluster.topics[LOG_TOPIC].partitions[0].leader_id != log_leader:
            self.world.cluster.move_leader(LOG_TOPIC, 0, log_leader)
        transactions.move_coordinator("p.driver", coordinator)
        self.world.run_for(1_000)

    def process(self):
        """That knows no broker yet."""
        admin = AdminClient.connect(
            self.world.cluster.bootstrap_servers,
            settings=DEFAULT_SETTINGS,
            network=ClientNetwork(self.world.network),
            clock=self.world.clock,
            rng=random.Random(1),
        )
        config = ExactlyOnceConfig("p", TIMEOUT_MS, LOG_TOPIC, 3)
        return CommitProtocol(TransactionClient(admin), config, self.world.clock, PATIENCE_MS)

    def timed(self, action):
        """What ``action`` returns, how long it took, and for how long brokers held a marker."""
        started_ms = self.world.clock.ms
        result = action()
        took_ms = self.world.clock.ms - started_ms
        held_ms = self.world.transactions.markers_held_until_ms - started_ms
        return result, took_ms, max(0, held_ms)


@pytest.mark.parametrize("transaction_version", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "is_connected",
    [
        pytest.param(True, id="connected", marks=pytest.mark.slow),
        pytest.param(False, id="unconnected"),
    ],
)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_what_it_costs(point, role, is_connected, transaction_version):
    hung, log_leader, coordinator = ROLES[role]
    drivers = Drivers(transaction_version, log_leader, coordinator)
    hanging = Hanging(drivers.world, hung)
    planner, committer = drivers.process(), drivers.process()
    if is_connected:
        plan = planner.plan(driver(1), None)
        planner.commit(plan, unit(0), [drivers.write(plan, 0, b"0")])
        plan = committer.plan(driver(1), None)
        committer.commit(plan, unit(1), [drivers.write(plan, 0, b"1")])
    batch_id = 2 if is_connected else 0
    at(point, hanging.begin)
    plan, *planning = drivers.timed(lambda: planner.plan(driver(2), None))
    if hanging.end_ms:
        drivers.world.run_for(max(0, hanging.end_ms - drivers.world.clock.ms) + 1_000)
    written = [drivers.write(plan, n, b"%d-%d" % (batch_id, n)) for n in range(4)]
    _, *committing = drivers.timed(lambda: committer.commit(plan, unit(batch_id), written))
    for took_ms, held_ms in (planning, committing):
        assert took_ms <= max(AT_MOST_MS, held_ms + CLIENT_MS)
    drivers.world.run_for(BROKERS_PATIENCE_MS + CLIENT_MS)
    record = planner.log.read(drivers.deadline_ms)
    assert record.phase is Phase.DONE
