"""A real broker that is stopped (SIGSTOP): the kernel takes connections, nobody answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.transactions.client import TransactionClient
from tests.local_kafka import PatientKafka

BROKERS = (1, 2, 3)
MINUTES_MS = 300_000
# Brokers are fenced, and their partitions led by others, when they are silent for this long.
SESSION_TIMEOUT_MS = 3_000


@pytest.fixture(scope="module")
def trio() -> Iterator[PatientKafka]:
    properties = {
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "2000",
    }
    with PatientKafka(3, server_properties=properties) as kafka:
        yield kafka


@pytest.mark.parametrize("hung", BROKERS)
def test_whichever_broker_hangs_the_others_are_asked(trio, hung):
    """First of the bootstrap list, controller, coordinator: one of these is the one that hangs."""
    # What waits for the end of a request that hangs does not end in time.
    settings = DEFAULT_SETTINGS._replace(request_timeout_ms=10 * MINUTES_MS)
    with AdminClient.connect(trio.bootstrap_servers, settings=settings) as admin:
        client = TransactionClient(admin)
        ids = [f"hung-{hung}.{index}" for index in range(6)]
        client.fence(ids, 60_000, admin.deadline_in(MINUTES_MS))
        nodes = {node.node_id for node in admin.nodes(admin.deadline_in(MINUTES_MS))}
        assert nodes == set(BROKERS)
        trio.pause(hung)
        try:
            started = time.monotonic()
            assert admin.nodes(admin.deadline_in(MINUTES_MS))
            asked = time.monotonic()
            client.fence(ids, 60_000, admin.deadline_in(MINUTES_MS))
            fenced = time.monotonic()
        finally:
            trio.resume(hung)
            trio.await_in_sync()
    print(f"broker {hung}: metadata {asked - started:.1f} s, ids taken {fenced - asked:.1f} s")
