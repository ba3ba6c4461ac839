"""What thousands of producers do to brokers: all start at once, and a broker restarts.

python -m tests.simulation.fleet_storms            # 100, 1,000 and 10,000 producers; all figures
python -m tests.simulation.fleet_storms 1000       # so many

The producers are real ones. Brokers take as long for connections and requests as
``benchmarks/broker_costs.py`` measured with real brokers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_kafka_sink.columns.positions import ColumnPositions
from tests.simulation.fleet import Capacity, Fleet, Traffic

RESULTS = Path(__file__).with_name("fleet_results.json")
SIZES = (100, 1_000, 10_000)
BROKERS, PARTITIONS, REPLICAS = 6, 12, 2
# Kafka's default of num.network.threads; what benchmarks/broker_costs.py measured on a busy machine.
CLEAR_TEXT = Capacity(threads=3, connection_us=1_640, request_us=130, partition_us=1)
TLS = Capacity(threads=3, connection_us=5_520, request_us=130, partition_us=1)

_FAILOVER_MS = 1_000
_DOWN_MS = 30_000
_APPEND_WITHIN_MS = 5_000
_PATIENCE_MS = 600_000


def rows() -> tuple[Any, ColumnPositions]:
    """One row for each partition: a producer of keyed rows is connected to all brokers."""
    partitions = pa.array(range(PARTITIONS), pa.int32())
    values = pa.array([b"x" * 100] * PARTITIONS, pa.binary())
    batch = pa.record_batch([values, partitions], names=["value", "partition"])
    return batch, ColumnPositions(value=0, partition=1, topic_option="t")


class Storms:
    """The steps that a fleet goes through, and what each of them was."""

    def __init__(self, size: int, capacity: Capacity, **options: str) -> None:
        self.fleet = Fleet(size, (BROKERS, PARTITIONS, REPLICAS), capacity, **options)
        self.steps: dict[str, dict[str, Any]] = {}
        self._rows = rows()

    def start(self, within_ms: int) -> None:
        """Every task of a stage begins."""
        self._append_all(within_ms)
        self._finish("start")

    def stop_broker(self) -> None:
        """Its connections are cut; the others lead its partitions a second later."""
        self.fleet.cluster.crash(1, _FAILOVER_MS)
        self._append_all(_APPEND_WITHIN_MS)
        self._finish("broker 1 stops")

    def restart_broker(self) -> None:
        """It leads again what it led before."""
        self._wait(_DOWN_MS)
        cluster = self.fleet.cluster
        cluster.restart(1)
        self._wait(1_000)
        for index, partition in enumerate(cluster.topics["t"].partitions):
            if partition.replicas[0] == 1:
                cluster.move_leader("t", index, 1)
        self.fleet.traffic = Traffic()
        self._append_all(_APPEND_WITHIN_MS)
        self._finish("broker 1 leads again")

    def _wait(self, duration_ms: int) -> None:
        self.fleet.run_until(lambda: False, duration_ms)

    def _append_all(self, within_ms: int) -> None:
        fleet = self.fleet
        for member in fleet.members:
            member.expect_rows()
            delay_ms = fleet.rng.randint(0, within_ms)
            fleet.scheduler.after(delay_ms, lambda m=member: m.append(*self._rows))

    def _finish(self, name: str) -> None:
        """Go on until everything is acknowledged or failed, and note what that took."""
        fleet = self.fleet
        began_ms = fleet.clock.ms
        last_look_ms = began_ms

        def is_over() -> bool:
            nonlocal last_look_ms
            if fleet.clock.ms < last_look_ms + 100:
                return False
            last_look_ms = fleet.clock.ms
            return not any(True for _ in fleet.waiting()) or bool(fleet.failures())

        fleet.run_until(is_over, _PATIENCE_MS)
        took = sorted((m.acknowledged_at_ms or fleet.clock.ms) - began_ms for m in fleet.members)
        self.steps[name] = {
            "failed": len(fleet.failures()),
            "not_acknowledged": sum(1 for _ in fleet.waiting()),
            "median_ms": took[len(took) // 2],
            "last_ms": took[-1],
            "longest_wait_of_a_broker_ms": fleet.longest_wait_ms(),
            **fleet.traffic.report(),
        }
        fleet.traffic = Traffic()


def storms(size: int, capacity: Capacity, start_within_ms: int = 1_000, **options: str) -> Storms:
    """All steps, one after the other."""
    life = Storms(size, capacity, **options)
    life.start(start_within_ms)
    life.stop_broker()
    life.restart_broker()
    return life


def keep(result: dict[str, Any]) -> None:
    """In the file of results, in place of an older one of the same fleet."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    by_fleet = {(r["producers"], r["connections are"]): r for r in [*kept, result]}
    fleets = sorted(by_fleet, key=lambda fleet: (fleet[0], fleet[1].lower()))
    text = json.dumps([by_fleet[fleet] for fleet in fleets], indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def main(sizes: tuple[int, ...]) -> int:
    failed = 0
    for size in sizes:
        for name, capacity in (("clear text", CLEAR_TEXT), ("TLS", TLS)):
            began = time.monotonic()
            steps = storms(size, capacity).steps
            keep({"producers": size, "connections are": name, "steps": steps})
            failed += sum(step["failed"] for step in steps.values())
            print(size, name, f"{time.monotonic() - began:.0f} s", flush=True)
            print(json.dumps(steps, indent=1), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(tuple(int(n) for n in sys.argv[1:]) or SIZES))
