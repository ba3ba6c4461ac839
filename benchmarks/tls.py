"""Measure the cost of TLS: this sink, Spark's JVM sink and confluent-kafka, with and without TLS.

    make bench-tls

Values of 100 bytes and of 1 KB, lz4, two tasks, one broker with both listeners. Reports the ratios
of each round to the JVM sink with TLS: elapsed time, and CPU of Spark and Python together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from benchmarks import harness, sinks
from benchmarks.measure import Contender, Run, alternate, as_json, spread
from benchmarks.rows import make_rows
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.localkafka.security import SECURED_LISTENER
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER

ROWS = {100: 4_000_000, 1_000: 1_000_000}
"""Rows of a job, by the bytes of a value."""
TLS_RATIO = 1.3
"""Least elapsed time of the JVM sink with TLS over ours with TLS."""
ROUNDS = 7
QUICK_ROUNDS = 2
QUICK_PART = 10
PARTITIONS = 6
SINKS = ("ours", "jvm", "confluent")
LISTENERS = {"TLS": SECURED_LISTENER, "plaintext": MAIN_LISTENER}
_SETTINGS = {**sinks.COMMON_SETTINGS, "compression.type": "lz4"}


def secured_kafka() -> LocalKafka:
    """Return a broker with both listeners."""
    security = LocalSecurity("SSL", key_type="RSA")
    return LocalKafka(heap="1g", server_properties=SERVER_PROPERTIES, security=security)


class OverListener:
    """A sink through one of the two listeners. Its name contains both."""

    def __init__(self, sink: str, listener: str, contender: Contender) -> None:
        self.name = name_of(sink, listener)
        self._contender = contender

    def run(self) -> Run:
        return self._contender.run()


def name_of(sink: str, listener: str) -> str:
    return f"{sink}, {listener}"


def settings_of(kafka: LocalKafka, sink: str, listener: str) -> Mapping[str, str]:
    """Return the producer's settings with those of the listener, under the sink's names."""
    if listener != "TLS":
        return _SETTINGS
    authority = str(kafka.secured().authority_file)
    if sink == "confluent":
        return {**_SETTINGS, "security.protocol": "SSL", "ssl.ca.location": authority}
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return {**_SETTINGS, "security.protocol": "SSL", **store}


def measure(
    kafka: LocalKafka, frame: DataFrame, rows: int, rounds: int, names: Sequence[str] = SINKS
) -> dict[str, Any]:
    """Measure one value size: all contenders in turn."""
    contenders, topics = [], []
    for sink in names:
        for listener, name in LISTENERS.items():
            topic = BenchTopic(kafka, PARTITIONS)
            topics.append(topic)
            settings = settings_of(kafka, sink, listener)
            target = sinks.Target(kafka.bootstrap_servers_of(name), topic.name, settings)
            contender = Contender(sink, frame, rows, target, topic)
            contenders.append(OverListener(sink, listener, contender))
    measured = alternate(contenders, rounds, warmups=1, note=_note)
    for topic in topics:
        topic.delete()
    return {"rows": rows, "ratios": ratios_of(measured), "rounds": as_json(measured)}


def ratios_of(rounds: list[dict[str, Run]]) -> dict[str, Any]:
    """Return the ratios of each contender to the JVM sink with TLS.

    elapsed: above 1 the contender is faster; cpu: below 1 the contender needs less.
    tls_over_plaintext: CPU with TLS over CPU without, of each sink.
    """
    base = name_of("jvm", "TLS")
    return {
        "elapsed": {
            name: spread([runs[base].elapsed_s / runs[name].elapsed_s for runs in rounds])
            for name in rounds[0]
        },
        "cpu": {
            name: spread([runs[name].cpu_s / runs[base].cpu_s for runs in rounds])
            for name in rounds[0]
        },
        "tls_over_plaintext": {
            sink: spread(
                [
                    runs[name_of(sink, "TLS")].cpu_s / runs[name_of(sink, "plaintext")].cpu_s
                    for runs in rounds
                ]
            )
            for sink in SINKS
            if name_of(sink, "TLS") in rounds[0]
        },
    }


def _note(name: str, run: Run) -> None:
    print(f"{name:22} {run.elapsed_s:6.2f} s  {run.cpu_s:6.2f} s of CPU", flush=True)


def main() -> int:
    """Run the benchmark; return 0 if ours with TLS reaches its target against the JVM sink."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and rounds; no verdict")
    quick = parser.parse_args().quick
    rounds, part = (QUICK_ROUNDS, QUICK_PART) if quick else (ROUNDS, 1)
    points = {}
    with secured_kafka() as kafka, harness.spark_session(**harness.SOCKETS) as spark:
        for value_bytes, rows in ROWS.items():
            print(f"{value_bytes} bytes", flush=True)
            frame = make_rows(spark, rows // part, value_bytes)
            points[str(value_bytes)] = measure(kafka, frame, rows // part, rounds)
    path = harness.save("tls_quick" if quick else "tls", {"settings": _SETTINGS, "points": points})
    ratios = {size: point["ratios"] for size, point in points.items()}
    print(json.dumps(ratios, indent=1), path, sep="\n")
    ours = name_of("ours", "TLS")
    reached = all(point["elapsed"][ours]["median"] >= TLS_RATIO for point in ratios.values())
    return 0 if quick or reached else 1


if __name__ == "__main__":
    sys.exit(main())
