"""Misrouted connections and racks that change, in a life of a producer (KIP-1242, KIP-1123)."""

from __future__ import annotations

import random

from tests.simulation.cluster import KAFKA_4_4, SimCluster
from tests.simulation.harness import Simulation
from tests.simulation.network import SimNetwork

# Produce 12 names topics, so a broker of another cluster takes records for a topic of the name.
BY_NAME = {0: (0, 12), 18: KAFKA_4_4[18]}
OPTIONS = {"partitioner_rack_aware": "true", "client_rack": "a"}
_RACKS = ("a", "b", None)
_MOST_EVENTS = 8
_SHARE_OF_LIVES = 0.3


class Routing:
    """Another cluster, which addresses of the producer's cluster lead to for a while."""

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        self._simulation, self._rng = simulation, rng
        network = SimNetwork(simulation.scheduler, random.Random(rng.random()))
        self.other = SimCluster(network, simulation.scheduler, random.Random(rng.random()))
        self.other.cluster_id = "other"
        for cluster in (simulation.cluster, self.other):
            cluster.api_versions.update(BY_NAME)
        self.misrouted_count = 0

    def begin(self, partitions: int, horizon_ms: int) -> None:
        """Schedule everything; all connections lead to their brokers before ``horizon_ms``."""
        self.other.create_topic("t", partitions)
        scheduler = self._simulation.scheduler
        for _ in range(self._rng.randint(1, _MOST_EVENTS)):
            at_ms = int(horizon_ms * self._rng.random() ** 3)
            scheduler.after(at_ms, self._rng.choice((self._misroute, self._change_racks)))
        scheduler.after(horizon_ms - 1, self._end)

    @property
    def astray_count(self) -> int:
        """Return the number of records in the other cluster."""
        return sum(map(len, self.other.records("t").values()))

    def _misroute(self) -> None:
        cluster, network = self._simulation.cluster, self._simulation.network
        # A client that knows no cluster yet takes any.
        if self._simulation.producer._metadata.snapshot.cluster_id != cluster.cluster_id:
            return
        own = cluster.brokers[self._rng.choice(list(cluster.brokers))]
        self.misrouted_count += 1
        network.route(own, self.other.brokers[own.node_id])
        after_ms = self._rng.choice((50, 1_000, 5_000))
        self._simulation.scheduler.after(after_ms, lambda: network.route(own, None))

    def _change_racks(self) -> None:
        cluster = self._simulation.cluster
        racks = {node_id: self._rng.choice(_RACKS) for node_id in cluster.brokers}
        cluster.racks = {node_id: rack for node_id, rack in racks.items() if rack is not None}

    def _end(self) -> None:
        for broker in self._simulation.cluster.brokers.values():
            self._simulation.network.route(broker, None)


def is_routed(rng: random.Random) -> bool:
    """Return whether a life has such faults. Drawn apart, so that other lives stay the same."""
    return rng.random() < _SHARE_OF_LIVES
