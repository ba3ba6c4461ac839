"""Lives of queries with a limit: tasks that come and die, connections that break, brokers that throttle.

By its seed, a life is the same each time.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.protocol.messages.produce import ProduceRequest
from tests.simulation.limited import LimitedQuery, expected

_RATES = (50_000, 300_000, 1_000_000, 4_000_000)
_SECONDS_OF_ROWS = 6
_CHANCE_OF_A_KILL = 0.4


class _Life:
    """One query, and what has come to its brokers."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self._rate = rng.choice(_RATES)
        self._tasks = rng.randint(1, 6)
        self._rows = rng.randint(1, self._rate * _SECONDS_OF_ROWS // 1000 // self._tasks)
        self._is_idempotent = rng.random() < 0.6
        limits = LimitConfig(self._rate, rng.choice([None, 300, 5_000]), None)
        self._query = LimitedQuery(limits, seed, **self._options())
        self._arrived_bytes = 0
        self._killed: int | None = None
        self._watch_brokers()

    def _options(self) -> dict[str, str]:
        rng = self._rng
        options = {
            "linger_ms": "0",
            "delivery_timeout_ms": "60000",
            "request_timeout_ms": "5000",
            "buffer_memory": rng.choice(["131072", "1048576"]),
            "batch_size": rng.choice(["1000", "16384", "131072"]),
            "max_in_flight_requests_per_connection": rng.choice(["1", "5"]),
            "compression_type": rng.choice(["none", "lz4"]),
        }
        return options if self._is_idempotent else {**options, "acks": "1"}

    def _watch_brokers(self) -> None:
        """At no time have they got more than what is earned by then."""
        handle = self._query.cluster.handle
        began_ms = self._query.world.clock.ms

        def watching(broker: Any, request: Any, version: int, reply: Any) -> None:
            if isinstance(request, ProduceRequest):
                for topic in request.topic_data:
                    for partition in topic.partition_data:
                        self._arrived_bytes += partition.records.size_bytes
                elapsed_ms = self._query.world.clock.ms - began_ms
                assert self._arrived_bytes * 1000 <= self._rate * elapsed_ms, "too fast"
            handle(broker, request, version, reply)

        self._query.cluster.handle = watching  # type: ignore[method-assign]

    def run(self) -> None:
        """All of it. Raises AssertionError, or what a task has raised."""
        rng, query = self._rng, self._query
        after = query.world.scheduler.after
        for number in range(self._tasks):
            after(rng.randint(0, 3_000), partial(query.start, number, self._rows))
        faults = query.world.network.faults
        faults.cut_during_request = faults.cut_before_response = rng.choice([0, 0.02, 0.05])
        faults.drop_response, faults.delay_response = rng.choice([0, 0.01]), rng.choice([0, 0.02])
        faults.long_delay_ms = (10, 2_000)
        after(rng.randint(2_000, 15_000), self._end_faults)
        if rng.random() < _CHANCE_OF_A_KILL:
            self._killed = rng.randrange(self._tasks)
            after(rng.randint(500, 6_000), self._kill)
        after(rng.randint(1_000, 5_000), partial(self._throttle, rng.choice([0, 200, 1_500])))
        after(rng.randint(5_000, 9_000), partial(self._throttle, 0))
        query.run(self._tasks)
        self._check()

    def _end_faults(self) -> None:
        faults = self._query.world.network.faults
        faults.cut_during_request = faults.cut_before_response = faults.drop_response = 0.0

    def _throttle(self, pause_ms: int) -> None:
        self._query.cluster.throttle_time_ms = pause_ms

    def _kill(self) -> None:
        for process in self._query.processes:
            if process.name == f"task-{self._killed}":
                process.kill()

    def _check(self) -> None:
        found = self._query.values()
        survivors = (number for number in range(self._tasks) if number != self._killed)
        for number in survivors:
            assert set(expected(number, self._rows)) <= set(found), f"task {number} has lost rows"
        if self._is_idempotent:
            assert len(found) == len(set(found)), "rows are there twice"


def live(seed: int) -> None:
    """One life. Raises AssertionError, or what a task has raised."""
    _Life(seed).run()
