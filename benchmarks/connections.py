"""Count the connections of one executor to a cluster: this sink and Spark's own Kafka sink.

    python -m benchmarks.connections

A job with two task slots writes to a topic whose partitions have leaders on all three brokers. The
bootstrap list has one address. When the job has ended, the operating system lists the established
TCP connections to the brokers. Those of the Python processes below Spark's JVM are this sink's,
those of the JVM Spark's own. Both sinks keep their connections for the next job.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import psutil

from benchmarks import harness, sinks
from benchmarks.measure import SparkProcesses
from benchmarks.rows import make_rows
from benchmarks.sinks import Target
from spark_kafka_sink.localkafka import LocalKafka

BROKERS = 3
_SLOTS = 2
_PARTITIONS = 12
_ROWS = 200_000
_VALUE_BYTES = 100
_START_MS = 300_000


def connections_of(process: psutil.Process, ports: set[int]) -> int:
    """Return the number of established connections to the ports of brokers."""
    return sum(
        connection.status == psutil.CONN_ESTABLISHED
        and bool(connection.raddr)
        and connection.raddr.port in ports
        for connection in process.net_connections("tcp")
    )


def count(
    processes: Sequence[psutil.Process],
    kafka: LocalKafka,
) -> list[int]:
    """Return the connections of each process that has any, most first."""
    ports = {kafka.address(broker_id)[1] for broker_id in kafka.broker_ids}
    found = [connections_of(process, ports) for process in processes]
    return sorted((n for n in found if n), reverse=True)


def target(kafka: LocalKafka, name: str) -> Target:
    """Create a topic; return its target, with one broker's address as bootstrap list."""
    kafka.create_topic(name, _PARTITIONS)
    return Target(kafka.bootstrap_servers.split(",", maxsplit=1)[0], name, {})


def main() -> int:
    """Run the command line: print one line for each sink."""
    counted: dict[str, list[int]] = {}
    with (
        LocalKafka(BROKERS, start_timeout_ms=_START_MS) as kafka,
        harness.spark_session(_SLOTS) as spark,
    ):
        rows = make_rows(spark, _ROWS, _VALUE_BYTES, "short")
        processes = SparkProcesses(spark)
        sinks.ours(rows, target(kafka, "ours"))
        counted["ours"] = count(processes.python(), kafka)
        sinks.jvm(rows, target(kafka, "jvm"))
        counted["jvm"] = count([processes.jvm], kafka)
    for name, found in counted.items():
        print(f"{name}: {sum(found)}, by process {found}")
    harness.save("connections", {"brokers": BROKERS, "slots": _SLOTS, "connections": counted})
    return 0


if __name__ == "__main__":
    sys.exit(main())
