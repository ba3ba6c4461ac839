"""Many producers and brokers that can only do so much at once."""

from __future__ import annotations

import pytest

from tests.simulation.fleet import BusyBroker, Capacity, Storms, storms
from tests.simulation.sasl import SCRAM


def test_work_waits_for_a_thread():
    broker = BusyBroker(Capacity(threads=2, connection_us=0, request_us=0, partition_us=0))
    assert [broker.serve(10, 5_000) for _ in range(4)] == [5, 5, 10, 10]
    assert broker.longest_wait_ms == 5
    assert broker.serve(100, 1_000) == 1


@pytest.mark.slow
def test_everything_is_acknowledged_and_each_producer_connects_to_each_broker_once():
    steps = storms(
        30, Capacity(threads=3, connection_us=5_000, request_us=100, partition_us=1)
    ).steps
    assert list(steps) == ["start", "broker 1 stops", "broker 1 leads again"]
    for step in steps.values():
        assert step["failed"] == step["not_acknowledged"] == 0
    # Six brokers, and the address that it began with.
    assert steps["start"]["connections"] == 30 * 7
    assert steps["start"]["metadata_requests"] == 30
    assert steps["broker 1 leads again"]["connections"] == 30


@pytest.mark.slow
def test_each_connection_is_authenticated_once():
    capacity = Capacity(threads=3, connection_us=5_000, request_us=100, partition_us=1)
    life = storms(30, capacity, SCRAM)
    for step in life.steps.values():
        assert step["failed"] == step["not_acknowledged"] == 0
    assert life.sasl.sessions == sum(s["connections"] for s in life.steps.values()) == 30 * 8
    assert life.sasl.refusals == life.sasl.renewed == 0


@pytest.mark.slow
def test_more_logins_at_once_than_brokers_can_answer_in_ten_seconds():
    """10,000 producers with TLS and SCRAM on a scale of 1 to 333.

    The handshakes are 18 s of work for a broker, and what it answers in SASL comes after them. If
    producers gave up meanwhile, the brokers would do all the handshakes again and again.
    """
    slow = Capacity(threads=3, connection_us=1_840_000, request_us=43_000, partition_us=1)
    life = Storms(30, slow, SCRAM)
    life.start(1_000)
    start = life.steps["start"]
    assert start["not_acknowledged"] == 0
    assert start["last_ms"] < 60_000
    assert start["connections"] < 30 * 20


@pytest.mark.slow
def test_brokers_that_cannot_keep_up_are_given_up_and_reached_all_the_same():
    """200 ms each, so that the last wait longer than socket.connection.setup.timeout.ms."""
    slow = Capacity(threads=1, connection_us=200_000, request_us=100, partition_us=1)
    start = storms(60, slow, socket_connection_setup_timeout_ms="3000").steps["start"]
    assert start["given_up"] > 0
    assert start["failed"] == start["not_acknowledged"] == 0
