"""Misrouted connections (KIP-1242): a broker's address leads to a broker of another cluster."""

from __future__ import annotations

import random

import pytest

from tests.simulation.cluster import KAFKA_4_4, SimCluster
from tests.simulation.harness import Simulation, simulate
from tests.simulation.network import SimNetwork

# Produce 12 names topics, so a broker of another cluster would take the records.
BY_NAME = {**KAFKA_4_4, 0: (0, 12)}
ROWS = [b"%d" % n for n in range(50)]


class TwoClusters:
    """The producer's cluster, and another one with a topic of the same name."""

    def __init__(self, **options: str) -> None:
        self.simulation: Simulation = simulate(partitions=3, **options)
        self.simulation.cluster.api_versions = dict(BY_NAME)
        network = SimNetwork(self.simulation.scheduler, random.Random(2))
        self.other = SimCluster(network, self.simulation.scheduler, random.Random(3))
        self.other.api_versions, self.other.cluster_id = dict(BY_NAME), "other"
        self.other.create_topic("t", 3)
        for partition in range(3):
            self.simulation.append_to(partition, [b"first"])
        self.simulation.producer.flush()

    def misroute(self, *node_ids: int) -> None:
        for node_id in node_ids:
            own = self.simulation.cluster.brokers[node_id]
            self.simulation.network.route(own, self.other.brokers[node_id])

    def mend(self, *node_ids: int) -> None:
        for node_id in node_ids:
            own = self.simulation.cluster.brokers[node_id]
            self.simulation.network.route(own, None)

    def append(self) -> None:
        for partition in range(3):
            self.simulation.append_to(partition, ROWS)

    @property
    def astray(self) -> int:
        return sum(map(len, self.other.records("t").values()))


@pytest.mark.parametrize("node_ids", [(1,), (1, 2, 3)])
def test_nothing_is_written_to_the_other_cluster_and_nothing_is_lost(node_ids):
    clusters = TwoClusters()
    clusters.misroute(*node_ids)
    clusters.append()
    clusters.simulation.run_for(5_000)
    assert clusters.astray == 0
    producer = clusters.simulation.producer
    failure = producer.client.last_failure(producer._metadata.snapshot.nodes[1])
    assert failure is not None
    assert "REBOOTSTRAP_REQUIRED" in failure
    clusters.mend(*node_ids)
    producer.flush()
    assert clusters.astray == 0
    assert clusters.simulation.values() == {p: [b"first", *ROWS] for p in range(3)}


@pytest.mark.parametrize(
    "options",
    [{"metadata_cluster_check_enable": "false"}, {"metadata_recovery_strategy": "none"}],
)
def test_without_the_check_records_go_astray(options):
    """The control: the fault is one that only the check finds."""
    clusters = TwoClusters(**options)
    clusters.misroute(1)
    clusters.append()
    clusters.simulation.run_for(5_000)
    assert clusters.astray > 0


def test_an_older_broker_is_asked_once_for_its_versions():
    """Without a broker that checks identities, no request is in a version unknown to it."""
    simulation = simulate(partitions=3)
    asked = []
    simulation.cluster.on_receive = lambda broker, data: asked.append(data[4:8])
    for partition in range(3):
        simulation.append_to(partition, [b"a"])
    simulation.producer.flush()
    assert asked.count(b"\x00\x12\x00\x05") == 0
    assert asked.count(b"\x00\x12\x00\x04") > 0
