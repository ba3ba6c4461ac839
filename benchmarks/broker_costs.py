"""Measure the broker's CPU time for a connection and for a request.

    python -m benchmarks.broker_costs

Connections (TCP, TLS, SASL and ApiVersions) follow one after the other. Requests share one
connection. The simulation of thousands of producers (``evidence/scale/fleet.py``) uses
these figures. The lowest of several rounds counts, because Java still compiles in the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import psutil

from benchmarks import harness
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from spark_kafka_sink.protocol.schema import Request

_ROUNDS = 8
_CONNECTIONS = 250
_REQUESTS = 1_000
_CLEAR_TEXT = "PLAINTEXT"
_TOPICS = {"narrow": 12, "wide": 2_000}
_PATIENCE_MS = 120_000
_SECURITY = {
    "TLS_RSA": LocalSecurity("SSL", key_type="RSA"),
    "TLS_EC": LocalSecurity("SSL", key_type="EC"),
    "TLS_RSA_SCRAM": LocalSecurity("SASL_SSL", ("SCRAM-SHA-512",), key_type="RSA"),
}


def cpu_us_each(kafka: LocalKafka, times: int, action: Callable[[], object]) -> float:
    """Return the broker's CPU time for one ``action``, in microseconds."""
    broker = psutil.Process(kafka.process_id(1))
    costs = []
    for _ in range(_ROUNDS):
        before = sum(broker.cpu_times()[:2])
        for _ in range(times):
            action()
        costs.append((sum(broker.cpu_times()[:2]) - before) * 1e6 / times)
    return round(min(costs), 1)


def of_connections(kafka: LocalKafka, listener: str) -> float:
    """Return the cost of a connection: open it, use it for ApiVersions, and close it."""
    options = kafka.client_options(listener=listener) if listener in _SECURITY else {}
    values = {name.removeprefix("kafka."): value for name, value in options.items()}
    values["bootstrap.servers"] = kafka.bootstrap_servers_of(listener)
    config = ProducerConfig.parse(values)

    def connect() -> None:
        with AdminClient.of(config) as admin:
            admin.any_node(admin.deadline_in(_PATIENCE_MS))

    return cpu_us_each(kafka, _CONNECTIONS, connect)


def of_requests(kafka: LocalKafka, make: Callable[[], Request]) -> float:
    with AdminClient.connect(kafka.bootstrap_servers_of(_CLEAR_TEXT)) as admin:
        return cpu_us_each(
            kafka, _REQUESTS, lambda: admin.request(None, make(), admin.deadline_in(_PATIENCE_MS))
        )


def main() -> int:
    """Run the command line: print the figures and save them."""
    costs: dict[str, float] = {}
    with LocalKafka(security=_SECURITY, start_timeout_ms=300_000) as kafka:
        for name, partitions in _TOPICS.items():
            kafka.create_topic(name, partitions, timeout_ms=_PATIENCE_MS)
        for listener in (_CLEAR_TEXT, *_SECURITY):
            costs[f"connection {listener}"] = of_connections(kafka, listener)
            print(costs, flush=True)
        costs["request InitProducerId"] = of_requests(kafka, InitProducerIdRequest)
        for name, partitions in _TOPICS.items():
            costs[f"request Metadata {partitions} partitions"] = of_requests(
                kafka, lambda name=name: MetadataRequest([MetadataRequestTopic(name=name)], False)
            )
            print(costs, flush=True)
    harness.save("broker_costs", {"cpu_us": costs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
