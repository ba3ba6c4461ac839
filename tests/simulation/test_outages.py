"""A broker that goes away is one WARNING on an executor within 5 s, and its return is another."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spark_kafka_sink.network.outages import LOGGED_AFTER_MS, Outages
from tests.simulation.harness import Simulation, simulate

SOON_MS = 5_000
AWAY = "cannot be reached"
BACK = "is back, after"


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.network.outages"):
        yield caplog


def watched(**options: str) -> Simulation:
    """One broker, to which records are written, and which has no one to replace it."""
    simulation = simulate(partitions=1, brokers=1, **options)
    simulation.producer.client.outages = Outages()
    simulation.append_to(0, [b"before"])
    simulation.producer.flush()
    return simulation


def test_one_warning_within_5_s_and_one_when_it_is_back(log: pytest.LogCaptureFixture) -> None:
    simulation = watched()
    simulation.cluster.crash(1, 0)
    simulation.append_to(0, [b"during"])
    simulation.run_for(SOON_MS)
    (away,) = log.messages
    assert away.startswith("broker 1 (")
    assert f") {AWAY}: " in away
    simulation.run_for(30_000)
    assert len(log.messages) == 1
    simulation.cluster.restart(1)
    simulation.run_for(5_000)
    _, back = log.messages
    assert back.startswith("broker 1 (")
    assert BACK in back
    simulation.producer.flush()
    assert simulation.all_values() == [b"before", b"during"]


def test_each_outage_is_logged(log: pytest.LogCaptureFixture) -> None:
    simulation = watched()
    for _ in range(2):
        simulation.cluster.crash(1, 0)
        simulation.append_to(0, [b"x"])
        simulation.run_for(SOON_MS)
        simulation.cluster.restart(1)
        simulation.producer.flush()
    assert [BACK in message for message in log.messages] == [False, True, False, True]


def test_a_connection_that_is_soon_replaced_is_no_outage(log: pytest.LogCaptureFixture) -> None:
    simulation = watched()
    simulation.cluster.crash(1, 0)
    simulation.append_to(0, [b"x"])
    simulation.run_for(LOGGED_AFTER_MS // 3)
    simulation.cluster.restart(1)
    simulation.producer.flush()
    assert log.messages == []


def test_a_broker_that_is_not_needed_is_no_outage(log: pytest.LogCaptureFixture) -> None:
    """Its partitions have other leaders when it ends: the lost connection costs nothing."""
    simulation = simulate(partitions=3)
    simulation.producer.client.outages = Outages()
    for index in range(3):
        simulation.append_to(index, [b"x"])
    simulation.producer.flush()
    for index in range(3):
        simulation.cluster.move_leader("t", index, 1)
    simulation.append_to(0, [b"x"])
    simulation.producer.flush()
    simulation.run_for(10_000)
    simulation.cluster.crash(3, 0)
    simulation.append_to(1, [b"x"])
    simulation.run_for(SOON_MS)
    assert log.messages == []


def test_another_task_of_the_process_does_not_log_the_same_outage(
    log: pytest.LogCaptureFixture,
) -> None:
    """Spark's retry of a failed task has another producer, and sees the broker come back."""
    simulation = watched()
    simulation.cluster.crash(1, 0)
    simulation.append_to(0, [b"x"])
    simulation.run_for(SOON_MS)
    assert len(log.messages) == 1
    client = simulation.producer.client
    client.outages = Outages()
    simulation.run_for(SOON_MS)
    assert len(log.messages) == 1
    simulation.cluster.restart(1)
    simulation.producer.flush()
    assert [BACK in message for message in log.messages] == [False, True]


WORKER = """
import sys
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.node_connection import ConnectionEvent, NodeConnection
from spark_kafka_sink.network.outages import LOGGED_AFTER_MS, Outages

node, outages = Node(1, "away", int(sys.argv[1]), None), Outages()
connection = NodeConnection(node, last_failure="Connection refused")
outages.note_failure(connection)
connection.change(ConnectionEvent.RESOLVE)
outages.wait_ms(LOGGED_AFTER_MS, 0)
outages.log(LOGGED_AFTER_MS)
print("waits", flush=True)
sys.stdin.readline()
outages.note_usable(node, 10_000)
"""


def test_one_process_of_an_executor_logs() -> None:
    """Processes with one parent, as Spark's Python workers have, and of which any may be killed."""

    def start(port: int) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", WORKER, str(port)]
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waits\n"
        return worker

    def end(worker: subprocess.Popen[str]) -> list[str]:
        return worker.communicate("\n")[1].splitlines()

    first, second, other = start(9092), start(9092), start(9093)
    assert end(second) == []
    assert [BACK in line for line in end(first)] == [False, True]
    assert [BACK in line for line in end(other)] == [False, True]
    killed = start(9092)
    killed.kill()
    assert len(end(killed)) == 1
    assert len(end(start(9092))) == 2


def test_a_connection_that_was_cut_without_work_is_no_outage(
    log: pytest.LogCaptureFixture,
) -> None:
    """A firewall cuts idle connections; the brokers are there when the next task needs them."""
    simulation = simulate(partitions=3)
    simulation.producer.client.outages = Outages()
    for _ in range(4):
        for partition in range(3):
            simulation.append_to(partition, [b"x"])
        simulation.producer.flush()
        for broker in simulation.cluster.brokers.values():
            simulation.network.cut_all(broker, "Connection reset by peer")
        simulation.run_for(60_000)
    assert log.messages == []
