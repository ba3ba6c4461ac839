"""Faults of the cluster during the life of a query, those of coordinators included."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from tests.simulation.cluster import SimCluster
from tests.simulation.faults import FaultPlan, FaultRanges
from tests.simulation.processes import World


class QueryFaults(FaultPlan):
    """As for a single producer, without what needs that producer."""

    def __init__(
        self, world: World, cluster: SimCluster, rng: random.Random, ranges: FaultRanges
    ) -> None:
        simulation = SimpleNamespace(
            cluster=cluster, network=world.network, scheduler=world.scheduler, clock=world.clock
        )
        super().__init__(simulation, rng, ranges)  # type: ignore[arg-type]

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            self._crash,
            self._crash,
            self._pause,
            self._hang,
            self._hang_with_a_request,
            self._move_leader,
            self._move_coordinator,
            self._move_coordinator,
            self._shrink_isr,
            self._throttle,
            self._broker_errors,
            self._producer_id_errors,
            self._end_refused,
            self._clock_shift,
            self._cut_everything,
        )

    def heal(self) -> None:
        super().heal()
        self._simulation.clock.skew_ms = 0

    def _hang_broker(self, node_id: int) -> None:
        super()._hang_broker(node_id)
        state = self._cluster.transactions
        assert state is not None
        if self._cluster.brokers[node_id].is_paused:
            state.log.lose(node_id)
            self._cluster.publish()

    def _revive(self, node_id: int) -> None:
        """A broker that goes on may lead partitions that had no leader meanwhile."""
        super()._revive(node_id)
        state = self._cluster.transactions
        assert state is not None
        state.log.elect_where_missing()
        self._cluster.publish()

    def _move_coordinator(self) -> None:
        state = self._cluster.transactions
        assert state is not None
        alive = [b for b in self._cluster.brokers.values() if b.is_up and not b.is_paused]
        if alive:
            index = self._rng.randrange(len(state.log.partitions))
            to = self._rng.choice(alive).node_id
            self._note(f"__transaction_state-{index} moves to {to}")
            state.log.partitions[index].elect(to)
            self._cluster.publish()

    def _end_refused(self) -> None:
        """Coordinators refuse to end what is open, for a while."""
        rng = random.Random(self._rng.random())
        self._note("EndTxn is refused now and then")

        def refuse(transactional_id: str) -> str:
            is_refused = rng.random() < 0.3 and not transactional_id.endswith(".driver")
            return "INVALID_TXN_STATE" if is_refused else "NONE"

        self._cluster.on_end_txn = refuse

    def _clock_shift(self) -> None:
        self._note("the drivers' wall clock is wrong")
        self._simulation.clock.skew_ms = self._rng.choice((-15_000, -500, 500, 15_000))
