"""What brokers forget or lose, and metadata that changes, while batches are on their way."""

from __future__ import annotations

import pytest

from tests.simulation.harness import Simulation, simulate


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_topic_error_while_an_answer_is_on_its_way_doubles_nothing(acks):
    simulation = simulate(acks=acks, enable_idempotence=str(acks == "all").lower())
    for partition in range(3):  # connections to all brokers, so that no answer waits for another
        simulation.append_to(partition, [b"a"])
    simulation.producer.flush()

    def break_topic(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.delay_next_response_ms = 500
        simulation.cluster.on_describe = lambda topic: "LEADER_NOT_AVAILABLE"
        simulation.producer._metadata.request_update_now()
        simulation.network.wakeup()
        simulation.scheduler.after(
            1000, lambda: setattr(simulation.cluster, "on_describe", lambda topic: "NONE")
        )

    simulation.cluster.on_produce = break_topic
    simulation.append_to(0, [b"b"])
    simulation.append_to(0, [b"c"])
    simulation.producer.flush()
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"a", b"b", b"c"]


def test_a_producer_id_that_the_broker_forgot_is_replaced_by_a_new_epoch():
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a", b"b"])
    simulation.producer.flush()
    log = simulation.cluster.topics["t"].partitions[0].log
    answers = iter(["UNKNOWN_PRODUCER_ID"])
    simulation.cluster.on_produce = lambda *_: next(answers, None)
    simulation.append_to(0, [b"c"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b", b"c"]
    last = log.batches[-1].header
    assert (last.producer_epoch, last.base_sequence) == (1, 0)


def test_two_truncations_in_a_row_lose_what_they_took_and_nothing_else():
    simulation = simulate(partitions=1, batch_size="100")
    partition = simulation.cluster.topics["t"].partitions[0]
    for value in (b"first", b"second"):
        simulation.append_to(0, [value])
        simulation.producer.flush()
    truncations = []

    def truncate(broker, topic, index, batch):
        """Once in each of the first two epochs, where the next sequence is not 0."""
        epoch, sequence = batch.header.producer_epoch, batch.header.base_sequence
        if sequence > 0 and epoch == len(truncations) < 2:
            truncations.append(partition.drop_last_batch())

    simulation.cluster.on_produce = truncate
    values = [b"%d" % n + bytes(90) for n in range(4)]
    simulation.append_to(0, values)
    simulation.producer.flush()
    assert truncations == [True, True]
    assert simulation.values()[0] == [b"first", *values[1:]]
    assert partition.log.batches[-1].header.producer_epoch == 2


def test_a_leader_that_is_not_among_the_brokers_is_asked_for_again_after_the_backoff():
    """Nobody is elected yet: metadata names the dead leader. The sender must not sleep meanwhile."""
    simulation = Simulation(acks="all")
    cluster, clock = simulation.cluster, simulation.clock
    cluster.create_topic("t", partitions=1, replicas=3)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    cluster.crash(cluster.topics["t"].partitions[0].leader_id, election_delay_ms=1000)
    began_ms = clock.ms
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]
    assert clock.ms - began_ms < 3000


def test_who_gets_the_same_metadata_again_asks_less_often():
    """The dead leader is named for a minute, by every answer."""
    simulation = Simulation(acks="all")
    cluster, clock = simulation.cluster, simulation.clock
    cluster.create_topic("t", partitions=1, replicas=3)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    cluster.crash(cluster.topics["t"].partitions[0].leader_id, election_delay_ms=60_000)
    began_ms, asked = clock.ms, cluster.metadata_requests
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]
    assert clock.ms - began_ms < 62_000
    # retry.backoff.max.ms is a second, less a fifth by chance; the first few come sooner.
    assert cluster.metadata_requests - asked < 60 / 0.8 + 5
