"""Fleets of simulated producers start at once, and a broker restarts: how long everything takes.

python -m evidence fleet            # 100, 1,000 and 10,000 producers; all figures
python -m evidence fleet 1000       # so many
python -m evidence fleet 10000 --connections "TLS and SCRAM-SHA-256"

How long brokers take for connections and requests, ``benchmarks/broker_costs.py`` of 2e1d4af7 measured with
real brokers.
"""

import json
import time
from pathlib import Path

from evidence.harness.planning import parser_of, show
from tests.simulation.fleet import Capacity, storms
from tests.simulation.sasl import PLAIN, SCRAM

RESULTS = Path(__file__).with_name("fleet_results.json")
SIZES = (100, 1_000, 10_000)
# Kafka's default of num.network.threads; what broker_costs.py measured on a busy machine.
CLEAR_TEXT = Capacity(threads=3, connection_us=1_640, request_us=130, partition_us=1)
TLS = Capacity(threads=3, connection_us=5_520, request_us=130, partition_us=1)
CONNECTIONS = {
    "clear text": (CLEAR_TEXT, None),
    "TLS": (TLS, None),
    "TLS and PLAIN": (TLS, PLAIN),
    "TLS and SCRAM-SHA-256": (TLS, SCRAM),
}
"""What connections cost, and the mechanism of SASL, whose messages are requests, too."""


def keep(result):
    """In the file of results, in place of an older one of the same fleet."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    by_fleet = {(r["producers"], r["connections are"]): r for r in [*kept, result]}
    fleets = sorted(by_fleet, key=lambda fleet: (fleet[0], fleet[1].lower()))
    written = json.dumps([by_fleet[fleet] for fleet in fleets], indent=1)
    RESULTS.write_text(written + "\n", encoding="utf-8")


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--connections", nargs="*", default=list(CONNECTIONS), choices=CONNECTIONS)
    arguments = parser.parse_args(words)
    if arguments.plan:
        return show(
            f"{size:,} producers, {name}"
            for size in arguments.sizes
            for name in arguments.connections
        )
    failed = 0
    for size in arguments.sizes:
        for name in arguments.connections:
            began = time.monotonic()
            steps = storms(size, *CONNECTIONS[name]).steps
            if size in SIZES:
                keep({"producers": size, "connections are": name, "steps": steps})
            failed += sum(step["failed"] + step["not_acknowledged"] for step in steps.values())
            print(size, name, f"{time.monotonic() - began:.0f} s", flush=True)
            print(json.dumps(steps, indent=1), flush=True)
    return int(failed > 0)
