"""``max.bytes.per.second.per.task``: a task keeps to it, and nothing is late because of it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError, TransactionError
from spark_kafka_sink.producer.quotas import RateLimit, ThrottleTracker
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from tests.simulation.harness import Simulation, simulate

IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}
SMALL = {"buffer_memory": "262144", "max_block_ms": "1000", "batch_size": "16384"}
VALUE_BYTES = 1000
RATE = 100_000


def limited(bytes_per_second: int = RATE, **options: str) -> Simulation:
    every = {**IMPATIENT, **SMALL, **options}
    return simulate(bytes_per_second=bytes_per_second, **every)


def write(simulation: Simulation, rows: int, at: int = 0) -> list[bytes]:
    """Append rows of about 1,000 bytes and flush; returns their values."""
    values = [(b"%07d" % number).ljust(VALUE_BYTES, b".") for number in range(at, at + rows)]
    for first in range(0, rows, 50):
        simulation.append([(None, value) for value in values[first : first + 50]])
    simulation.producer.flush()
    return values


def assert_keeps_to_the_rate() -> None:
    """600 KB at 100 KB/s, though all timeouts are shorter; brokers never get more than is due."""
    simulation = limited()
    handle, began_ms, arrived = simulation.cluster.handle, simulation.clock.ms, [0]

    def watching(broker: Any, request: Any, *rest: Any) -> None:
        if isinstance(request, ProduceRequest):
            topics = request.topic_data
            arrived[0] += sum(p.records.size_bytes for t in topics for p in t.partition_data)
            assert arrived[0] * 1000 <= RATE * (simulation.clock.ms - began_ms)
        handle(broker, request, *rest)

    simulation.cluster.handle = watching  # type: ignore[method-assign]
    values = write(simulation, 600)
    due_ms = simulation.producer.metrics.compressed_bytes * 1000 / RATE
    elapsed_ms = simulation.clock.ms - began_ms
    assert due_ms <= elapsed_ms <= 1.02 * due_ms + 200
    assert simulation.all_values() == values
    assert simulation.producer.metrics.retries == 0
    assert 0.9 * elapsed_ms <= simulation.producer.metrics.limit_wait_ms <= elapsed_ms


def assert_nothing_is_late() -> None:
    """Batches of 16 KB at 4 KB/s: each waits longer than delivery.timeout.ms and max.block.ms."""
    simulation = limited(4_000, buffer_memory="65536")
    assert write(simulation, 200) == simulation.all_values()


def test_the_rate_is_kept() -> None:
    assert_keeps_to_the_rate()


def test_what_waits_for_the_limit_does_not_expire_nor_block_in_vain() -> None:
    assert_nothing_is_late()


def test_many_short_tasks_get_no_burst_each() -> None:
    """The bucket is the producer's: what a task did not use up is not given twice."""
    simulation = limited()
    began_ms = simulation.clock.ms
    for task in range(20):
        simulation.producer.begin_task(["t"])
        write(simulation, 10, at=10 * task)
    elapsed_ms = simulation.clock.ms - began_ms
    assert elapsed_ms >= 20 * 10 * VALUE_BYTES * 1000 / RATE


def test_an_idle_producer_saves_up_one_second_at_most() -> None:
    simulation = limited()
    write(simulation, 10)
    simulation.run_for(60_000)
    began_ms = simulation.clock.ms
    write(simulation, 400)
    assert simulation.clock.ms - began_ms >= (400 * VALUE_BYTES - RATE) * 1000 / RATE


def test_a_batch_larger_than_a_second_is_sent_and_paid_for_afterwards() -> None:
    simulation = limited(4_000)
    began_ms = simulation.clock.ms
    write(simulation, 48)
    elapsed_ms = simulation.clock.ms - began_ms
    metrics = simulation.producer.metrics
    assert metrics.batch_size_max > 2 * 4_000
    paid_bytes = metrics.compressed_bytes - metrics.batch_size_max
    assert elapsed_ms >= paid_bytes * 1000 / 4_000


def test_a_limit_that_is_not_reached_costs_no_waits() -> None:
    simulation = limited(10_000_000_000)
    simulation.run_for(1_000)
    write(simulation, 600)
    assert simulation.producer.metrics.limit_wait_ms == 0


def test_a_wait_for_the_limit_is_no_quota_of_the_brokers() -> None:
    simulation = limited(4_000)
    write(simulation, 40)
    simulation.producer.begin_task(["t"])
    assert simulation.producer.metrics.throttle_left_ms == 0


def test_a_broker_that_hangs_is_still_found_out() -> None:
    """The limit holds something nearly all the time, and yet what is in flight is late."""
    simulation = limited(20_000)
    for broker in simulation.cluster.brokers.values():
        simulation.scheduler.after(4_000, lambda broker=broker: setattr(broker, "is_paused", True))
    began_ms = simulation.clock.ms
    with pytest.raises((DeliveryError, BufferExhaustedError)):
        write(simulation, 500)
    assert simulation.clock.ms - began_ms < 25_000


def test_a_leader_that_is_away_is_still_found_out() -> None:
    simulation = limited(20_000)
    simulation.append([(None, b"first")])
    simulation.producer.flush()
    for node_id in list(simulation.cluster.brokers):
        simulation.cluster.stop(node_id)
    with pytest.raises((DeliveryError, BufferExhaustedError)):
        write(simulation, 100)


def test_a_transaction_that_cannot_end_in_time_fails_at_once() -> None:
    simulation = limited(4_000)
    simulation.cluster.enable_transactions(2)
    began_ms = simulation.clock.ms
    simulation.producer.begin_transaction("t-0", 20_000)
    names = r"max\.bytes\.per\.second\.per\.task = 4000.*kafka\.transaction\.timeout\.ms = 20000"
    with pytest.raises(TransactionError, match=names):
        write(simulation, 200)
    assert simulation.clock.ms - began_ms < 2_000


def test_a_transaction_has_until_its_last_batch_is_sent_not_paid_for() -> None:
    """One batch of 16 s, and the same again when the first is to be paid for: 10 s are enough."""
    simulation = limited(1_000)
    simulation.cluster.enable_transactions(2)
    for task in range(2):
        simulation.producer.begin_task(["t"])
        simulation.producer.begin_transaction("t-0", 10_000)
        write(simulation, 14, at=14 * task)
    assert len(simulation.all_values()) == 28


def test_the_next_task_is_not_judged_by_the_transaction_before() -> None:
    simulation = limited(20_000)
    simulation.cluster.enable_transactions(2)
    simulation.producer.begin_transaction("t-0", 20_000)
    write(simulation, 100)
    simulation.producer.begin_task(["t"])
    write(simulation, 600, at=100)
    simulation.producer.begin_task(["t"])
    simulation.producer.begin_transaction("t-1", 20_000)
    write(simulation, 100, at=700)


def _not_charged(original: Any) -> Any:
    return lambda self, batches, now_ms: None


def _a_burst_for_each_task(original: Any) -> Any:
    def begin_task(self: RateLimit) -> None:
        original(self)
        self._tokens = self._bytes_per_second * 1000

    return begin_task


def _not_noted(original: Any) -> Any:
    return lambda self, partitions, from_ms, until_ms: None


@pytest.mark.parametrize(
    ("owner", "name", "planted", "scenario"),
    [
        (RateLimit, "spend", _not_charged, assert_keeps_to_the_rate),
        (RateLimit, "begin_task", _a_burst_for_each_task, test_many_short_tasks_get_no_burst_each),
        (ThrottleTracker, "record_limited", _not_noted, assert_nothing_is_late),
    ],
)
def test_a_planted_bug_is_caught(owner: Any, name: str, planted: Any, scenario: Any) -> None:
    with (
        mock.patch.object(owner, name, planted(getattr(owner, name))),
        pytest.raises((AssertionError, DeliveryError, BufferExhaustedError)),
    ):
        scenario()
