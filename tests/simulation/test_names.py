"""Host names under a producer: what they lead to changes, fails and comes late."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import BootstrapError, TopicError
from spark_kafka_sink.network.resolver import _MAX_THREADS
from tests.simulation.harness import Simulation, simulate
from tests.simulation.names import NO_ADDRESS
from tests.simulation.operating import Prefix


@pytest.fixture
def simulation() -> Simulation:
    """Connected to the leader of partition 0."""
    made = simulate()
    made.append_to(0, [b"a"])
    made.producer.flush()
    return made


def move(simulation: Simulation, is_old_silent: bool) -> None:
    if is_old_silent:
        simulation.network.names.silent.add("broker-1")
    simulation.network.move_server(simulation.cluster.brokers[1], "elsewhere")


@pytest.mark.parametrize("is_old_silent", [False, True])
def test_a_broker_that_moves_is_found_once_its_name_leads_there(simulation, is_old_silent):
    move(simulation, is_old_silent)
    broker = simulation.cluster.brokers[1]
    simulation.scheduler.after(5_000, lambda: simulation.network.tell_address(broker))
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]


def test_the_other_addresses_of_a_name_are_tried(simulation):
    move(simulation, is_old_silent=True)
    simulation.network.names.addresses["broker-1"] = ["broker-1", "elsewhere"]
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]


def test_a_name_without_address_is_asked_for_again(simulation):
    names = simulation.network.names
    names.unknown.add("broker-2")
    simulation.scheduler.after(20_000, names.heal)
    simulation.append_to(1, [b"b"])
    simulation.run_for(10_000)
    leader = simulation.producer._metadata.snapshot.nodes[2]
    assert simulation.producer.client.last_failure(leader) == f"host name: {NO_ADDRESS}"
    simulation.producer.flush()
    assert simulation.values()[1] == [b"b"]


def test_no_bootstrap_name_is_told_within_max_block_ms():
    simulation = Simulation(max_block_ms="3000")
    simulation.cluster.create_topic("t", 1)
    for broker in simulation.cluster.brokers.values():
        simulation.network.names.takes_ms[broker.host] = 40_000
    started_ms = simulation.clock.ms
    with pytest.raises(TopicError, match=r"max\.block\.ms = 3000: .* is still being looked up"):
        simulation.append_to(0, [b"a"])
    assert simulation.clock.ms - started_ms < 4_000


def test_the_drivers_side_waits_until_its_deadline_and_says_for_what():
    prefix = Prefix()
    for broker in prefix.world.cluster.brokers.values():
        prefix.world.network.names.takes_ms[broker.host] = 40_000
    admin = prefix.client.admin
    deadline_ms = admin.deadline_in(5_000)
    with pytest.raises(BootstrapError, match="its host name is still being looked up"):
        admin.metadata([], False, deadline_ms)
    assert prefix.world.clock.ms == deadline_ms


def test_names_that_are_asked_for_wait_for_those_before_them():
    """Not a thread for each: with more slow names than threads, the next one waits for the first."""
    simulation = Simulation(brokers=_MAX_THREADS + 1)
    network, found = simulation.network, []
    for number, broker in enumerate(simulation.cluster.brokers.values()):
        network.names.takes_ms[broker.host] = 10_000 if number < _MAX_THREADS else 0
        network.resolve(1_000 + number, broker.host, broker.port)
    while len(found) <= _MAX_THREADS:
        found += network.poll(60_000)
    last = 1_000 + _MAX_THREADS
    assert [event.channel_id for event in found].index(last) > 0
