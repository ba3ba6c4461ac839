"""Connections of one executor to a cluster: this sink beside Spark's own Kafka sink.

    python -m benchmarks.connections

A job with two task slots writes to a topic that all three brokers lead partitions of, with one
address in the bootstrap list. Counted are the established TCP connections to the brokers that the
operating system lists, when the job has ended, for the Python processes below Spark's JVM (this
sink) and for the JVM (Spark's own). Both keep them for the next job.
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
    """Established ones to the ports of brokers."""
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
    """Of each process that has any, most first."""
    ports = {kafka.address(broker_id)[1] for broker_id in kafka.broker_ids}
    found = [connections_of(process, ports) for process in processes]
    return sorted((n for n in found if n), reverse=True)


def target(kafka: LocalKafka, name: str) -> Target:
    """A new topic, and one broker's address to begin with."""
    kafka.create_topic(name, _PARTITIONS)
    return Target(kafka.bootstrap_servers.split(",", maxsplit=1)[0], name, {})


def main() -> int:
    """Command line: one line for each sink."""
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
