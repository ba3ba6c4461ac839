"""A client of transactions in a simulated cluster, request by request."""

from __future__ import annotations

from spark_kafka_sink.base.model import TopicPartition
from tests.simulation.wire import World

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = "query.1"
V4, V5 = 4, 5


def world(transaction_version=2, **options) -> World:
    made = World(transaction_version=transaction_version, **options)
    made.cluster.create_topic("t", 2, replicas=3, min_insync=2)
    return made


def write(made, producer, values, version=V5, key=T0, sequence=0, transactional_id=ID) -> str:
    """Write inside a transaction, as a client that ends it with EndTxn ``version``."""
    if version < V5:
        error = made.add_partitions(transactional_id, producer, key)
        if error != "NONE":
            return error
    produce_version = 12 if version >= V5 else 11
    return made.produce(transactional_id, producer, key, values, produce_version, sequence)


def opened(made, version=V5, values=(b"a",), transactional_id=ID, timeout_ms=60_000):
    """An open transaction with records: its producer."""
    producer = made.init(transactional_id, timeout_ms)
    assert write(made, producer, list(values), version, transactional_id=transactional_id) == "NONE"
    return producer


def ended(made, producer, version, is_commit=True, transactional_id=ID):
    """EndTxn without error; all markers are written then."""
    error, following = made.end(transactional_id, producer, version, is_commit)
    assert error == "NONE"
    made.run_for(200)
    return following
