"""A broker's quota (KIP-219) and ``max.bytes.per.second.per.task``: what they cost is time, and nothing
expires of it or is late because of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    DeliveryError,
    TopicError,
    TransactionError,
)
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.quotas import RateLimit, ThrottleTracker
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    ProduceRequest,
)
from tests.patience import AN_HOUR_MS
from tests.simulation.bugs import assert_does_harm, into, scenarios_of
from tests.simulation.harness import Simulation, connected, simulate

PAUSE_MS = 20_000
IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}


def throttled(**options):
    """The next answer to a produce request asks for PAUSE_MS without requests."""
    simulation = connected(b"first", **{**IMPATIENT, **options})
    simulation.cluster.throttle_time_ms = PAUSE_MS
    return simulation


def paused(**options):
    """The leader of partition 0 has asked for PAUSE_MS just now, for the last time."""
    simulation = throttled(**options)
    simulation.write(0, b"throttled")
    simulation.cluster.throttle_time_ms = 0
    return simulation


def leader(simulation, partition):
    return simulation.producer._metadata.snapshot.leader(TopicPartition("t", partition))


def write_in_flight(simulation):
    """Batches of which several are in flight when the pause begins. Returns their values."""
    values = [b"%04d" % number for number in range(100)]
    simulation.scheduler.change(100, simulation.cluster, throttle_time_ms=0)
    simulation.write(0, *values)
    assert simulation.values()[0] == [b"first", *values]
    return simulation.producer.metrics


def test_what_waits_for_the_end_of_a_pause_does_not_expire():
    simulation = paused()
    assert simulation.write(0, b"after") >= PAUSE_MS - 100
    assert simulation.values()[0] == [b"first", b"throttled", b"after"]


def test_what_is_left_of_a_pause_is_told_of_the_task_that_waits_for_it():
    """Nothing asks for a pause in the second task, which takes as long as what is left of one."""
    simulation = paused()
    for left_ms in (PAUSE_MS, 0):
        simulation.producer.begin_task(["t"])
        assert left_ms - 100 <= simulation.producer.metrics.throttle_left_ms <= left_ms
        simulation.write(0, b"after")
        assert simulation.producer.metrics.throttle_time_ms == 0


def test_what_the_broker_does_not_look_at_in_a_pause_is_not_sent_again():
    """Brokers answer at once, and mute the connection: what was in flight waits there."""
    simulation = throttled(batch_size="100")
    metrics = write_in_flight(simulation)
    assert metrics.requests_in_flight_max > 1
    # One was read by the broker when the pause was over.
    assert metrics.request_latency_max_ms >= PAUSE_MS
    assert metrics.retries == 0


def move_leader(simulation, to):
    """Of the first partition; None: its broker dies, and none is elected. The producer is told."""
    if to is None:
        simulation.cluster.stop(leader(simulation, 0).node_id)
    else:
        simulation.cluster.move_leader("t", 0, to)
    simulation.producer._metadata.request_update()
    simulation.network.wakeup()


def others(simulation):
    leader_id = leader(simulation, 0).node_id
    return [node_id for node_id in simulation.cluster.brokers if node_id != leader_id]


@pytest.mark.parametrize("moves", [(0,), (0, 1), (None, 0)], ids=["once", "twice", "away first"])
def test_a_leader_may_move_in_a_pause(moves):
    """What has waited for the former ones is not late with the new one, which is sent it."""
    simulation = paused()
    to = {None: None, **dict(enumerate(others(simulation)))}
    for number, move in enumerate(moves):
        after_ms = 8_000 + number * (2_000 if None in moves else 8_000)
        simulation.scheduler.after(after_ms, partial(move_leader, simulation, to[move]))
    simulation.write(0, b"after")
    assert simulation.values()[0] == [b"first", b"throttled", b"after"]


def test_a_leader_that_stays_away_after_a_pause_is_found_out():
    simulation = paused()
    simulation.scheduler.after(8_000, lambda: move_leader(simulation, None))
    with pytest.raises(DeliveryError, match=r"11\d\d\d ms old"):
        simulation.write(0, b"never")


def test_what_is_in_flight_waits_for_whom_it_was_sent_to():
    """Its broker reads it after the pause, and is no leader any more then."""
    simulation = throttled(batch_size="100")
    simulation.scheduler.after(8_000, partial(move_leader, simulation, others(simulation)[0]))
    metrics = write_in_flight(simulation)
    assert metrics.request_latency_max_ms >= PAUSE_MS
    assert metrics.retries > 0


def test_a_task_that_waits_for_memory_waits_out_a_pause():
    simulation = paused(max_block_ms="1000", buffer_memory="65536", batch_size="16384")
    values = [b"%04d" % number * 1000 for number in range(50)]
    simulation.write(0, *values)
    assert simulation.values()[0][2:] == values


def test_time_goes_on_when_the_pause_is_over():
    simulation = paused()
    simulation.hand_over(0, b"never")
    simulation.run_for(PAUSE_MS - 1_000)
    simulation.cluster.pause()
    with pytest.raises(DeliveryError, match=f"{PAUSE_MS + 3_000} ms old"):
        simulation.flush()


def test_memory_is_not_waited_for_longer_than_that():
    simulation = throttled(
        max_block_ms="1000", buffer_memory="65536", delivery_timeout_ms="30000", batch_size="16384"
    )
    simulation.write(0, b"throttled")
    simulation.cluster.pause()
    started_ms = simulation.clock.ms
    with pytest.raises(BufferExhaustedError):
        simulation.append_to(0, [b"%04d" % number * 1000 for number in range(50)])
    assert simulation.clock.ms - started_ms <= PAUSE_MS + 1_000 + 100


def test_other_brokers_time_goes_on_meanwhile():
    """The oldest batch waits for a pause, and a younger one for a broker that is gone."""
    simulation = paused()
    simulation.hand_over(0, b"patient")
    other = next(p for p in (1, 2) if leader(simulation, p) != leader(simulation, 0))
    simulation.cluster.brokers[leader(simulation, other).node_id].is_paused = True
    with pytest.raises(DeliveryError, match=f"t-{other} not acknowledged .*, 3000 ms old"):
        simulation.write(other, b"never")


def test_a_topic_is_waited_for_beyond_a_pause():
    """Its only broker looks at no metadata request before that; max.block.ms is shorter."""
    simulation = Simulation(brokers=1, max_block_ms="1000", **IMPATIENT)
    for topic in ("t", "next"):
        simulation.cluster.create_topic(topic, 1)
    simulation.append_to(0, [b"first"])
    simulation.cluster.throttle_time_ms = PAUSE_MS
    simulation.flush()
    simulation.cluster.throttle_time_ms = 0
    simulation.write(0, b"after", topic="next")
    assert simulation.values("next")[0] == [b"after"]


# --- pauses that no quota explains -----------------------------------------------------------------

LONGEST_MS = 2**31 - 1
"""24.8 days, the most that the protocol can name."""
A_DAY_MS = 24 * AN_HOUR_MS


def test_the_last_of_many_tasks_that_share_a_quota_does_not_expire():
    """200 tasks of 32 MB at 1 MB/s: the last batch waits for 107 minutes in all, in pauses of 18."""
    pause_ms = 107 * 60_000 // 6
    one_at_a_time = {"max_in_flight_requests_per_connection": "1", "connections_max_idle_ms": "-1"}
    simulation = connected(b"first", **IMPATIENT, **one_at_a_time)
    simulation.cluster.throttle_time_ms = pause_ms
    values = [b"%d" % number for number in range(7)]
    with simulation.within(7 * pause_ms, least_ms=6 * pause_ms):
        for value in values:
            simulation.hand_over(0, value)
        simulation.flush()
    assert simulation.values()[0] == [b"first", *values]


@pytest.mark.slow
def test_one_answer_holds_a_batch_for_an_hour_at_most():
    simulation = throttled()
    simulation.cluster.throttle_time_ms = LONGEST_MS
    simulation.write(0, b"throttled")
    simulation.cluster.pause()
    with simulation.within(AN_HOUR_MS + 10_000, least_ms=AN_HOUR_MS):
        text = simulation.refused(0, b"never")
    assert "A quota or limit held it for 3600 s more" in text


@pytest.mark.parametrize("pause_ms", [AN_HOUR_MS // 6, LONGEST_MS])
def test_a_topic_is_waited_for_no_longer_than_a_day_of_pauses(pause_ms):
    """The only broker asks for a pause with each answer, and knows nothing of the topic."""
    simulation = Simulation(brokers=1, max_block_ms="1000", **IMPATIENT)

    def pause(broker, request, reply, go_on):
        go_on(lambda response: reply(replace(response, throttle_time_ms=pause_ms)))

    simulation.cluster.intercept(MetadataRequest, pause)
    with simulation.within(A_DAY_MS + 2_000, least_ms=A_DAY_MS), pytest.raises(TopicError):
        simulation.append_to(0, [b"never"], topic="unknown")


# --- max.bytes.per.second.per.task --------------------------------------------------------------

SMALL = {"buffer_memory": "262144", "max_block_ms": "1000", "batch_size": "16384"}
VALUE_BYTES = 1000
RATE = 100_000


def limited(bytes_per_second=RATE, **options):
    every = {**IMPATIENT, **SMALL, **options}
    return simulate(bytes_per_second=bytes_per_second, **every)


def write(simulation, rows, at=0):
    """Append rows of about 1,000 bytes and flush; returns their values."""
    values = [(b"%07d" % number).ljust(VALUE_BYTES, b".") for number in range(at, at + rows)]
    for first in range(0, rows, 50):
        simulation.append([(None, value) for value in values[first : first + 50]])
    simulation.flush()
    return values


def test_the_rate_is_kept():
    """600 KB at 100 KB/s, though all timeouts are shorter; brokers never get more than is due."""
    simulation = limited()
    began_ms, arrived = simulation.clock.ms, [0]

    def watch(broker, request, reply, go_on):
        topics = request.topic_data
        arrived[0] += sum(p.records.size_bytes for t in topics for p in t.partition_data)
        assert arrived[0] * 1000 <= RATE * (simulation.clock.ms - began_ms)
        go_on()

    simulation.cluster.intercept(ProduceRequest, watch)
    values = write(simulation, 600)
    due_ms = simulation.producer.metrics.compressed_bytes * 1000 / RATE
    elapsed_ms = simulation.clock.ms - began_ms
    assert due_ms <= elapsed_ms <= 1.02 * due_ms + 200
    assert simulation.all_values() == values
    assert simulation.producer.metrics.retries == 0
    assert 0.9 * elapsed_ms <= simulation.producer.metrics.limit_wait_ms <= elapsed_ms


def test_what_waits_for_the_limit_does_not_expire():
    """Batches of 16 KB at 4 KB/s: each waits longer than delivery.timeout.ms and max.block.ms."""
    simulation = limited(4_000, buffer_memory="65536")
    assert write(simulation, 200) == simulation.all_values()


def test_many_short_tasks_get_no_burst_each():
    """The bucket is the producer's: what a task did not use up is not given twice."""
    simulation = limited()
    began_ms = simulation.clock.ms
    for task in range(20):
        simulation.producer.begin_task(["t"])
        write(simulation, 10, at=10 * task)
    assert simulation.clock.ms - began_ms >= 20 * 10 * VALUE_BYTES * 1000 / RATE


def test_an_idle_producer_saves_up_one_second_at_most():
    simulation = limited()
    write(simulation, 10)
    simulation.run_for(60_000)
    began_ms = simulation.clock.ms
    write(simulation, 400)
    assert simulation.clock.ms - began_ms >= (400 * VALUE_BYTES - RATE) * 1000 / RATE


def test_a_batch_larger_than_a_second_is_sent_and_paid_for_afterwards():
    simulation = limited(4_000)
    began_ms = simulation.clock.ms
    write(simulation, 48)
    elapsed_ms = simulation.clock.ms - began_ms
    metrics = simulation.producer.metrics
    assert metrics.batch_size_max > 2 * 4_000
    paid_bytes = metrics.compressed_bytes - metrics.batch_size_max
    assert elapsed_ms >= paid_bytes * 1000 / 4_000


def test_a_limit_that_is_not_reached_costs_no_waits():
    simulation = limited(10_000_000_000)
    simulation.run_for(1_000)
    write(simulation, 600)
    assert simulation.producer.metrics.limit_wait_ms == 0


def test_a_broker_that_hangs_is_still_found_out():
    """The limit holds something nearly all the time, and yet what is in flight is late."""
    simulation = limited(20_000)
    simulation.scheduler.after(4_000, simulation.cluster.pause)
    with simulation.within(25_000), pytest.raises((DeliveryError, BufferExhaustedError)):
        write(simulation, 500)


def test_a_transaction_that_cannot_end_in_time_fails_at_once():
    simulation = limited(4_000)
    simulation.cluster.enable_transactions(2)
    simulation.producer.begin_transaction("t-0", 20_000)
    names = r"max\.bytes\.per\.second\.per\.task = 4000.*kafka\.transaction\.timeout\.ms = 20000"
    with simulation.within(2_000), pytest.raises(TransactionError, match=names):
        write(simulation, 200)


def test_a_transaction_has_until_its_last_batch_is_sent_not_paid_for():
    """One batch of 16 s, and the same again when the first is to be paid for: 10 s are enough."""
    simulation = limited(1_000)
    simulation.cluster.enable_transactions(2)
    for task in range(2):
        simulation.producer.begin_task(["t"])
        simulation.producer.begin_transaction("t-0", 10_000)
        write(simulation, 14, at=14 * task)
    assert len(simulation.all_values()) == 28


def test_the_next_task_is_not_judged_by_the_transaction_before():
    simulation = limited(20_000)
    simulation.cluster.enable_transactions(2)
    simulation.producer.begin_transaction("t-0", 20_000)
    write(simulation, 100)
    simulation.producer.begin_task(["t"])
    write(simulation, 600, at=100)
    simulation.producer.begin_task(["t"])
    simulation.producer.begin_transaction("t-1", 20_000)
    write(simulation, 100, at=700)


BUGS = {}
bug = into(BUGS)


@bug("not charged", RateLimit, "spend", test_the_rate_is_kept)
def _(original, *_):
    """batches cost nothing"""


@bug("a burst for each task", RateLimit, "begin_task", test_many_short_tasks_get_no_burst_each)
def _(original, self):
    """each task has a second's bytes at once"""
    original(self)
    self._tokens = self._bytes_per_second * 1000


@bug("not noted", ThrottleTracker, "record_limited", test_what_waits_for_the_limit_does_not_expire)
def _(original, *_):
    """time that the limit holds a batch counts as its age"""


@pytest.mark.parametrize(("bug", "scenario"), scenarios_of(BUGS))
def test_the_planted_bug_does_harm(bug, scenario):
    assert_does_harm(bug, scenario)
