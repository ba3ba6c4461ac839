"""What a broker's quota costs is time: nothing expires of it, nothing is sent again (KIP-219)."""

from __future__ import annotations

from functools import partial

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError
from spark_kafka_sink.base.model import Node, TopicPartition
from tests.simulation.harness import Simulation, simulate

PAUSE_MS = 20_000
IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}


def throttled(**options: str) -> Simulation:
    """The next answer to a produce request asks for PAUSE_MS without requests."""
    simulation = simulate(**{**IMPATIENT, **options})
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = PAUSE_MS
    return simulation


def leader(simulation: Simulation, partition: int) -> Node:
    found = simulation.producer._metadata.snapshot.leader(TopicPartition("t", partition))
    assert found is not None
    return found


def test_what_waits_for_the_end_of_a_pause_does_not_expire():
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    started_ms = simulation.clock.ms
    simulation.append_to(0, [b"after"])
    simulation.producer.flush()
    assert simulation.clock.ms - started_ms >= PAUSE_MS - 100
    assert simulation.values()[0] == [b"first", b"throttled", b"after"]


def test_what_is_left_of_a_pause_is_told_of_the_task_that_waits_for_it():
    """Nothing asks for a pause in the second task, which takes as long as what is left of one."""
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    for left_ms in (PAUSE_MS, 0):
        simulation.producer.begin_task(["t"])
        assert left_ms - 100 <= simulation.producer.metrics.throttle_left_ms <= left_ms
        simulation.append_to(0, [b"after"])
        simulation.producer.flush()
        assert simulation.producer.metrics.throttle_time_ms == 0


def test_what_the_broker_does_not_look_at_in_a_pause_is_not_sent_again():
    """Brokers answer at once, and mute the connection: what was in flight waits there."""
    simulation = throttled(batch_size="100")
    values = [b"%04d" % number for number in range(100)]
    simulation.append_to(0, values)
    simulation.scheduler.after(100, lambda: setattr(simulation.cluster, "throttle_time_ms", 0))
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    metrics = simulation.producer.metrics
    assert metrics.requests_in_flight_max > 1
    # One was read by the broker when the pause was over.
    assert metrics.request_latency_max_ms >= PAUSE_MS
    assert metrics.retries == 0


def move_leader(simulation: Simulation, to: int | None) -> None:
    """Of the first partition; None: its broker dies, and none is elected. The producer is told."""
    if to is None:
        simulation.cluster.stop(leader(simulation, 0).node_id)
    else:
        simulation.cluster.move_leader("t", 0, to)
    simulation.producer._metadata.request_update()
    simulation.network.wakeup()


def others(simulation: Simulation) -> list[int]:
    leader_id = leader(simulation, 0).node_id
    return [node_id for node_id in simulation.cluster.brokers if node_id != leader_id]


@pytest.mark.parametrize("moves", [1, 2])
def test_a_leader_may_move_in_a_pause(moves: int):
    """What has waited for the former ones is not late with the new one, which is sent it."""
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    for number, to in enumerate(others(simulation)[:moves], 1):
        simulation.scheduler.after(number * 8_000, partial(move_leader, simulation, to))
    simulation.append_to(0, [b"after"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", b"throttled", b"after"]


def test_a_leader_may_be_away_after_a_pause():
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    old, new = leader(simulation, 0).node_id, others(simulation)[0]
    simulation.scheduler.after(8_000, lambda: move_leader(simulation, None))
    simulation.scheduler.after(10_000, lambda: move_leader(simulation, new))
    simulation.append_to(0, [b"after"])
    simulation.producer.flush()
    assert leader(simulation, 0).node_id == new != old
    assert simulation.values()[0] == [b"first", b"throttled", b"after"]


def test_a_leader_that_stays_away_after_a_pause_is_found_out():
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    simulation.scheduler.after(8_000, lambda: move_leader(simulation, None))
    simulation.append_to(0, [b"never"])
    with pytest.raises(DeliveryError, match=r"11\d\d\d ms old"):
        simulation.producer.flush()


def test_what_is_in_flight_waits_for_whom_it_was_sent_to():
    """Its broker reads it after the pause, and is no leader any more then."""
    simulation = throttled(batch_size="100")
    values = [b"%04d" % number for number in range(100)]
    simulation.append_to(0, values)
    simulation.scheduler.after(100, lambda: setattr(simulation.cluster, "throttle_time_ms", 0))
    to = others(simulation)[0]
    simulation.scheduler.after(8_000, lambda: move_leader(simulation, to))
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", *values]
    assert simulation.producer.metrics.request_latency_max_ms >= PAUSE_MS
    assert simulation.producer.metrics.retries > 0


def test_a_task_that_waits_for_memory_waits_out_a_pause():
    simulation = throttled(max_block_ms="1000", buffer_memory="65536", batch_size="16384")
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    values = [b"%04d" % number * 1000 for number in range(50)]
    simulation.append_to(0, values)
    simulation.producer.flush()
    assert simulation.values()[0][2:] == values


def test_time_goes_on_when_the_pause_is_over():
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    simulation.append_to(0, [b"never"])
    simulation.producer._appender.finish_open()
    simulation.run_for(PAUSE_MS - 1_000)
    for broker in simulation.cluster.brokers.values():
        broker.is_paused = True
    with pytest.raises(DeliveryError, match=f"{PAUSE_MS + 3_000} ms old"):
        simulation.producer.flush()


def test_memory_is_not_waited_for_longer_than_that():
    simulation = throttled(
        max_block_ms="1000", buffer_memory="65536", delivery_timeout_ms="30000", batch_size="16384"
    )
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    for broker in simulation.cluster.brokers.values():
        broker.is_paused = True
    started_ms = simulation.clock.ms
    with pytest.raises(BufferExhaustedError):
        simulation.append_to(0, [b"%04d" % number * 1000 for number in range(50)])
    assert simulation.clock.ms - started_ms <= PAUSE_MS + 1_000 + 100


def test_other_brokers_time_goes_on_meanwhile():
    """The oldest batch waits for a pause, and a younger one for a broker that is gone."""
    simulation = throttled()
    simulation.append_to(0, [b"throttled"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    simulation.append_to(0, [b"patient"])
    simulation.producer._appender.finish_open()
    other = next(p for p in (1, 2) if leader(simulation, p) != leader(simulation, 0))
    simulation.cluster.brokers[leader(simulation, other).node_id].is_paused = True
    simulation.append_to(other, [b"never"])
    with pytest.raises(DeliveryError, match=f"t-{other} not acknowledged .*, 3000 ms old"):
        simulation.producer.flush()


def test_a_topic_is_waited_for_beyond_a_pause():
    """Its only broker looks at no metadata request before that; max.block.ms is shorter."""
    simulation = Simulation(brokers=1, max_block_ms="1000", **IMPATIENT)
    for topic in ("t", "next"):
        simulation.cluster.create_topic(topic, 1)
    simulation.append_to(0, [b"first"])
    simulation.cluster.throttle_time_ms = PAUSE_MS
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 0
    simulation.append_to(0, [b"after"], topic="next")
    simulation.producer.flush()
    assert simulation.values("next")[0] == [b"after"]
