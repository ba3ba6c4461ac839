"""Misrouted connections through SASL: a broker compares identities only once it knows the client."""

from __future__ import annotations

import random

import pytest

from tests.simulation.cluster import KAFKA_4_3, KAFKA_4_4, SimCluster
from tests.simulation.harness import Simulation, simulate
from tests.simulation.network import SimNetwork
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl, options_of

# Produce 12 names topics, so a broker of another cluster would take the records.
BY_NAME = {**KAFKA_4_4, 0: (0, 12)}
ROWS = [b"%d" % n for n in range(50)]


class SecuredClusters:
    """Two clusters that know the same user, and a topic of the same name in each."""

    def __init__(self, mechanism: str, lifetime_ms: int = 0) -> None:
        sasl = Sasl(mechanism, dict(USERS), lifetime_ms)
        self.simulation: Simulation = simulate(0, 3, **options_of(sasl))
        network = SimNetwork(self.simulation.scheduler, random.Random(2))
        self.own = self.simulation.cluster
        self.other = SimCluster(network, self.simulation.scheduler, random.Random(3))
        self.other.cluster_id = "other"
        self.other.create_topic("t", 3)
        for cluster in (self.own, self.other):
            cluster.api_versions = dict(BY_NAME)
            cluster.enable_sasl(sasl)
        for partition in range(3):
            self.simulation.append_to(partition, [b"first"])
        self.simulation.producer.flush()


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_nothing_is_written_to_the_other_cluster_and_nothing_is_lost(mechanism: str) -> None:
    clusters = SecuredClusters(mechanism)
    simulation = clusters.simulation
    simulation.network.route(clusters.own.brokers[1], clusters.other.brokers[1])
    for partition in range(3):
        simulation.append_to(partition, ROWS)
    simulation.run_for(5_000)
    assert sum(map(len, clusters.other.records("t").values())) == 0
    producer = simulation.producer
    failure = producer.client.last_failure(producer._metadata.snapshot.nodes[1])
    assert failure is not None
    assert "REBOOTSTRAP_REQUIRED" in failure
    simulation.network.route(clusters.own.brokers[1], None)
    producer.flush()
    assert sum(map(len, clusters.other.records("t").values())) == 0
    assert simulation.values() == {p: [b"first", *ROWS] for p in range(3)}


def test_sessions_of_a_compared_broker_are_renewed() -> None:
    clusters = SecuredClusters(PLAIN, lifetime_ms=5_000)
    simulation = clusters.simulation
    for broker in clusters.own.brokers.values():
        simulation.network.cut_all(broker, "Connection reset by peer")
    for number in range(100):
        for partition in range(3):
            simulation.append_to(partition, [b"%d" % number])
        simulation.producer.flush()
        simulation.run_for(100)
    assert clusters.own.sasl is not None
    assert clusters.own.sasl.renewed >= 3
    rows = [b"first", *(b"%d" % number for number in range(100))]
    assert simulation.values() == dict.fromkeys(range(3), rows)


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_broker_that_is_downgraded_is_asked_as_before(is_secured: bool) -> None:
    """It does not know the version that names the expected broker."""
    if is_secured:
        simulation = SecuredClusters(PLAIN).simulation
    else:
        simulation = simulate(0, 3)
        simulation.cluster.api_versions = dict(BY_NAME)
        for partition in range(3):
            simulation.append_to(partition, [b"first"])
        simulation.producer.flush()
    simulation.cluster.api_versions[18] = KAFKA_4_3[18]
    for broker in simulation.cluster.brokers.values():
        simulation.network.cut_all(broker, "Connection reset by peer")
    for partition in range(3):
        simulation.append_to(partition, ROWS)
    simulation.producer.flush()
    assert simulation.values() == {p: [b"first", *ROWS] for p in range(3)}
