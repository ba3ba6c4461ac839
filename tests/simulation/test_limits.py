"""A query's limit holds for all its tasks together, and nothing is late because of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.limits.client import LimitClient, LimitUnavailableError
from spark_kafka_sink.limits.ledger import Bucket
from spark_kafka_sink.network.broker_pauses import BrokerPauses
from spark_kafka_sink.producer.limited_sender import LimitedSender
from tests.simulation.limited import PAUSE_PATH, LimitedQuery, LimitedTask, expected
from tests.simulation.limited_lives import live
from tests.simulation.transactions import KAFKA_3_9, KAFKA_4_3

MB = 1_000_000
IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}
SMALL = {"buffer_memory": "262144", "max_block_ms": "1000", "batch_size": "16384"}
TO_A_MB = LimitConfig(MB, None, None)
ROWS = 6_000
HELD = LimitConfig(None, None, PAUSE_PATH)


def query_of(tasks: int, limits: LimitConfig, rows: int = ROWS, **options: Any) -> LimitedQuery:
    """``rows`` in all, of 1,000 bytes each."""
    query = LimitedQuery(limits, **{**IMPATIENT, **SMALL, **options})
    for number in range(tasks):
        query.start(number, rows // tasks)
    return query


def all_of(tasks: int, rows: int = ROWS) -> list[bytes]:
    return [value for number in range(tasks) for value in expected(number, rows // tasks)]


def assert_keeps_to_limit(tasks: int) -> None:
    """6 MB at 1 MB/s: nothing of it waits in vain, though all timeouts are shorter."""
    query = query_of(tasks, TO_A_MB)
    elapsed_ms = query.run()
    due_ms = query.sent_bytes * 1000 / MB
    assert due_ms <= elapsed_ms <= 1.02 * due_ms
    assert query.values() == all_of(tasks)
    assert all(task.metrics.retries == 0 for task in query.tasks)


@pytest.mark.parametrize("tasks", [1, 2, 4, 8])
def test_the_rate_is_that_of_all_tasks_together(tasks: int) -> None:
    assert_keeps_to_limit(tasks)


@pytest.mark.parametrize("tasks", [1, 5])
def test_records_are_limited_as_bytes_are(tasks: int) -> None:
    query = query_of(tasks, LimitConfig(50 * MB, 500, None), rows=3_000)
    elapsed_ms = query.run()
    assert 6_000 <= elapsed_ms <= 1.02 * 6_000
    assert query.values() == all_of(tasks, 3_000)


def test_the_time_waited_is_counted() -> None:
    query = query_of(1, TO_A_MB)
    elapsed_ms = query.run()
    waited_ms = query.tasks[0].metrics.limit_wait_ms
    assert 0.9 * elapsed_ms <= waited_ms <= elapsed_ms


def test_a_limit_that_is_not_reached_costs_no_waits() -> None:
    query = query_of(1, LimitConfig(10_000 * MB, None, None))
    assert query.run() < 2_000
    # Reservations are of what 100 ms allow, so that there are few of them.
    assert query.server.requests < 500


def assert_nothing_is_late() -> None:
    """16 KB at 4 KB/s: a batch waits longer than all timeouts."""
    query = query_of(2, LimitConfig(4_000, None, None), rows=100)
    assert query.run() >= query.sent_bytes / 4
    assert query.values() == all_of(2, 100)


def test_batches_that_take_seconds_each() -> None:
    assert_nothing_is_late()


def assert_memory_is_waited_for() -> None:
    """Memory of 64 KB, at 4 KB/s: to have some takes longer than max.block.ms."""
    small = {"buffer_memory": "65536", "delivery_timeout_ms": "120000"}
    query = query_of(1, LimitConfig(4_000, None, None), rows=200, **small)
    assert query.run() >= query.sent_bytes / 4
    assert query.values() == all_of(1, 200)


def test_a_task_that_waits_for_memory_waits_for_the_limit() -> None:
    assert_memory_is_waited_for()


def test_a_server_that_starts_again_is_asked_again() -> None:
    query = query_of(4, TO_A_MB)
    server, after = query.server, query.world.scheduler.after
    after(2_000, server.stop)

    def start() -> None:
        server.restart()
        server.is_up = True

    after(3_000, start)
    elapsed_ms = query.run()
    assert query.sent_bytes * 1000 / MB <= elapsed_ms
    assert query.values() == all_of(4)


@pytest.mark.parametrize("seed", range(2))
def test_connections_that_are_lost(seed: int) -> None:
    patient = {"delivery_timeout_ms": "120000", "max_block_ms": "60000"}
    query = query_of(3, TO_A_MB, seed=seed, **patient)
    faults = query.world.network.faults
    faults.cut_during_request = faults.cut_before_response = faults.drop_response = 0.03
    query.world.scheduler.after(4_000, lambda: _end(faults))
    elapsed_ms = query.run()
    assert elapsed_ms >= query.sent_bytes * 1000 / MB
    assert query.values() == all_of(3)


def _end(faults: Any) -> None:
    faults.cut_during_request = faults.cut_before_response = faults.drop_response = 0.0


def test_a_task_that_dies_takes_only_its_reservation_with_it() -> None:
    query = query_of(4, TO_A_MB, rows=8_000)
    query.world.scheduler.after(1_500, lambda: query.processes[2].kill())
    elapsed_ms = query.run()
    survivors = [value for number in (0, 1, 3) for value in expected(number, 2_000)]
    assert set(survivors) <= set(query.values())
    written_ms = len(query.values()) * 1000 * 1000 / MB
    assert written_ms <= elapsed_ms <= 1.05 * written_ms + 200


def test_who_loses_the_connection_while_waiting_asks_again() -> None:
    """The server gives to others what it waits for: each batch of 16 KB waits for 8 s."""
    query = query_of(1, LimitConfig(2_000, None, None), rows=50)
    requests: list[int] = []
    after = query.world.scheduler.after
    for at_ms in (3_999, 5_000):
        after(at_ms, lambda: requests.append(query.server.requests))
    after(4_000, lambda: query.world.network.cut_all(query.server, "Connection reset by peer"))
    query.run()
    assert requests == [1, 2]
    assert query.values() == all_of(1, 50)


@pytest.mark.parametrize("late_ms", [0, 1_500])
def test_two_slots_for_eight_tasks_lose_nothing(late_ms: int) -> None:
    """Nor does a worker that is there later than the other one: it has reserved nothing before."""
    query = LimitedQuery(TO_A_MB, **IMPATIENT, **SMALL)
    waiting = iter(range(8))

    def run_next() -> None:
        running = len(query.processes) - sum(actor.is_done for actor in query._actors)
        number = next(waiting, None) if running < 2 else -1
        if number is not None:
            if number >= 0:
                query.start(number, 2_000)
            query.world.scheduler.after(late_ms if number == 0 else 20, run_next)

    query.world.scheduler.after(0, run_next)
    elapsed_ms = query.run(8)
    assert query.values() == all_of(8, 16_000)
    due_ms = query.sent_bytes * 1000 / MB
    assert due_ms <= elapsed_ms <= 1.01 * due_ms + 200


def test_a_server_that_is_away_fails_the_task_with_its_address() -> None:
    query = query_of(2, TO_A_MB)
    query.server.stop()
    with pytest.raises(LimitUnavailableError, match=r"driver:7000.*limit\.server\.host"):
        query.run()
    assert query.values() == []


def test_a_server_that_says_nothing_does_so_too() -> None:
    query = query_of(1, TO_A_MB)
    silent = mock.patch.object(query.server, "receive")
    with silent, pytest.raises(LimitUnavailableError, match="no answer within"):
        query.run()
    assert 2_000 <= query.world.clock.ms - 1_000_000 < 4_000


def test_another_servers_token_is_refused_at_once() -> None:
    query = query_of(1, TO_A_MB, token="wrong")
    with pytest.raises(LimitUnavailableError, match="token"):
        query.run()
    assert query.values() == []


def test_a_broker_that_hangs_is_still_found_out() -> None:
    """The limit keeps the task waiting nearly all the time, and yet what is in flight is late."""
    query = query_of(1, LimitConfig(20_000, None, None), rows=500)
    for broker in query.cluster.brokers.values():
        query.world.scheduler.after(4_000, lambda broker=broker: setattr(broker, "is_paused", True))
    with pytest.raises((DeliveryError, BufferExhaustedError)):
        query.run()
    assert query.world.clock.ms - 1_000_000 < 25_000


def test_a_query_that_is_held_sends_nothing_and_does_not_fail() -> None:
    query = query_of(2, HELD, rows=1_000)
    query.server.held = True
    seen: list[int] = []
    query.world.scheduler.after(60_000, lambda: seen.append(len(query.values())))
    query.world.scheduler.after(60_001, lambda: setattr(query.server, "held", False))
    assert 60_000 <= query.run() < 62_000
    assert seen == [0]
    assert query.values() == all_of(2, 1_000)


def test_a_running_task_is_held_within_two_seconds() -> None:
    query = query_of(1, LimitConfig(MB, None, PAUSE_PATH))
    query.world.scheduler.after(2_000, lambda: setattr(query.server, "held", True))
    seen: list[int] = []
    for at_ms in (3_000, 30_000):
        query.world.scheduler.after(at_ms, lambda: seen.append(len(query.values())))
    query.world.scheduler.after(32_000, lambda: setattr(query.server, "held", False))
    query.run()
    assert 0 < seen[0] == seen[1] < ROWS
    assert query.values() == all_of(1)


def in_transaction(number: int, plan: int) -> Callable[[LimitedTask], None]:
    """A task's transaction; tasks of the same plan have its token in common."""

    def begin(producer: LimitedTask) -> None:
        producer.begin_transaction(f"t-{number}", 60_000)
        assert producer._limit is not None
        producer._limit.begin_unit(str(ProducerIdAndEpoch(1, plan)), 60_000)

    return begin


@pytest.mark.parametrize(("level", "apis"), [(0, KAFKA_3_9), (1, KAFKA_4_3), (2, KAFKA_4_3)])
def test_what_has_begun_with_exactly_once_is_not_held(level: int, apis: Any) -> None:
    """Transactions of its tasks wait for each other, and would time out. What has not begun has no
    transaction that is open: it is held for longer than the timeout.
    """
    query = LimitedQuery(LimitConfig(MB, None, PAUSE_PATH), **IMPATIENT, **SMALL)
    query.cluster.enable_transactions(level, apis)
    query.start(0, 1_000, in_transaction(0, plan=1))

    def hold_and_go_on() -> None:
        query.server.held = True
        query.start(1, 1_000, in_transaction(1, plan=1))  # of the same micro-batch
        query.start(2, 1_000, in_transaction(2, plan=2))  # of the next one

    query.world.scheduler.after(500, hold_and_go_on)
    seen: list[int] = []
    query.world.scheduler.after(100_000, lambda: seen.append(len(query.values())))
    query.world.scheduler.after(100_001, lambda: setattr(query.server, "held", False))
    query.run()
    assert seen == [2_000]
    assert len(query.values()) == 3_000


@pytest.mark.parametrize("seed", range(2))
def test_some_lives(seed: int) -> None:
    live(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 60))
def test_many_lives(seed: int) -> None:
    live(seed)


def _each_has_its_own(original: Any) -> Any:
    def advance(self: LimitClient, now_ms: int) -> Any:
        if self._asked is not None and not self._asked.query.startswith("own"):
            self._asked = self._asked._replace(query=f"own-{id(self)}")
        return original(self, now_ms)

    return advance


def _never_charged(original: Any) -> Any:
    return lambda self, size_bytes, records: None


def _paid_before_it_is_earned(original: Any) -> Any:
    def reserve(self: Bucket, amount: int, per_second: int, now_ns: int) -> int:
        return max(original(self, amount, per_second, now_ns) - 1_000_000_000, 0)

    return reserve


def _held_counts_as_late(original: Any) -> Any:
    return lambda self, batch, now_ms: 0


def _hold_forgotten(original: Any) -> Any:
    return lambda self, until_ms: None


BUGS = {
    "each task has the limit for itself": (LimitClient, "advance", _each_has_its_own),
    "what is sent is not charged": (LimitClient, "spend", _never_charged),
    "a second's worth more": (Bucket, "reserve", _paid_before_it_is_earned),
}
BUGS_OF_TIME = {
    "held counts as late": (
        LimitedSender,
        "_paused_ms",
        _held_counts_as_late,
        assert_nothing_is_late,
    ),
    "held counts as blocked": (BrokerPauses, "hold", _hold_forgotten, assert_memory_is_waited_for),
}


@pytest.mark.parametrize("bug", [*BUGS, *BUGS_OF_TIME])
def test_a_planted_bug_is_caught(bug: str) -> None:
    owner, name, planted, scenario = (
        BUGS_OF_TIME[bug]
        if bug in BUGS_OF_TIME
        else (*BUGS[bug], partial(assert_keeps_to_limit, 2))
    )
    with (
        mock.patch.object(owner, name, planted(getattr(owner, name))),
        pytest.raises((AssertionError, DeliveryError, BufferExhaustedError)),
    ):
        scenario()
