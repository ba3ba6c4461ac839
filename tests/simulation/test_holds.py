"""What a limit or a pause holds is not late, whatever happens to it meanwhile."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.limits.client import LimitTooLowError
from spark_kafka_sink.producer.holds import Holds
from spark_kafka_sink.protocol.messages.produce import ProduceRequest
from tests.simulation.limited import PAUSE_PATH, LimitedQuery, expected
from tests.simulation.refusing import Refusal, refusing
from tests.simulation.transactions import KAFKA_3_9, KAFKA_4_3

MB = 1_000_000
IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}
SMALL = {"buffer_memory": "262144", "max_block_ms": "1000", "batch_size": "16384"}
TO_2_KB = LimitConfig(2_000, None, None)
PARTITION = TopicPartition("t", 0)


def query_of(limits: LimitConfig, **options: Any) -> LimitedQuery:
    """Of one partition, so that it is known whose leader moves."""
    return LimitedQuery(limits, partitions=1, **{**IMPATIENT, **SMALL, **options})


def test_what_was_put_back_behind_a_refused_batch_is_held() -> None:
    """Not an attempt: nothing waits before it is sent again."""
    query = query_of(LimitConfig(100 * MB, None, PAUSE_PATH))
    refuse = refusing(lambda topic, record: int(record.value[5:12]) == 20)
    refused: list[Refusal] = []

    def validate(topic: str, batch: Any) -> Refusal | None:
        refusal = refuse(topic, batch)
        if refusal is not None:
            refused.append(refusal)
        elif refused and not query.server.held and len(refused) == 1:
            refused.append(refused[0])
            query.server.held = True
            query.world.scheduler.after(20_000, lambda: setattr(query.server, "held", False))
        return refusal

    handle = query.cluster.handle

    def slowly(broker: Any, request: Any, version: int, reply: Any) -> None:
        pause_ms = 30 if isinstance(request, ProduceRequest) else 0
        query.world.scheduler.after(pause_ms, lambda: handle(broker, request, version, reply))

    query.cluster.handle = slowly  # type: ignore[method-assign]
    query.cluster.on_validate = validate
    query.start(0, 200, lambda task: task.refusals.tolerate(None))
    assert query.run() >= 20_000
    assert set(query.values()) == set(expected(0, 200)) - {b"0000-0000020"}


def moved(query: LimitedQuery) -> None:
    """The partition has another leader, and tasks know it."""
    leader_id = query.cluster.partition(PARTITION).leader_id
    query.cluster.move_leader("t", 0, next(i for i in query.cluster.brokers if i != leader_id))
    for task in query.tasks:
        task._metadata.request_update()
        task.client.wakeup()


def assert_a_leader_may_move() -> None:
    query = query_of(LimitConfig(None, None, PAUSE_PATH))
    query.server.held = True
    query.start(0, 100)
    query.world.scheduler.after(20_000, lambda: moved(query))
    query.world.scheduler.after(40_000, lambda: setattr(query.server, "held", False))
    assert 40_000 <= query.run() < 42_000
    assert query.values() == expected(0, 100)


def test_a_leader_moves_in_a_pause() -> None:
    assert_a_leader_may_move()


def test_a_leader_moves_while_a_batch_waits_for_the_limit() -> None:
    """16 KB at 2 KB/s: each batch waits longer than delivery.timeout.ms."""
    query = query_of(TO_2_KB)
    query.start(0, 64)
    for at_ms in (7_000, 20_000):
        query.world.scheduler.after(at_ms, lambda: moved(query))
    assert query.run() >= query.sent_bytes / 2
    assert query.values() == expected(0, 64)


@pytest.mark.parametrize("limits", [LimitConfig(None, None, PAUSE_PATH), TO_2_KB])
def test_a_leader_is_away_in_a_hold(limits: LimitConfig) -> None:
    """In a pause longer than delivery.timeout.ms, as brokers are upgraded then."""
    query = query_of(limits)
    query.server.held = limits.pause_path is not None
    query.start(0, 64)
    leader_id = query.cluster.partition(PARTITION).leader_id
    away_ms = 5_000 if query.server.held else 1_000
    query.world.scheduler.after(7_500, lambda: query.cluster.stop(leader_id))
    query.world.scheduler.after(7_500 + away_ms, lambda: query.cluster.restart(leader_id))
    query.world.scheduler.after(20_000, lambda: setattr(query.server, "held", False))
    query.run()
    assert query.values() == expected(0, 64)


def test_a_leader_that_stays_away_is_found_out() -> None:
    """With a limit, what waits for a leader does not wait for the limit."""
    query = query_of(TO_2_KB)
    query.start(0, 64)
    leader_id = query.cluster.partition(PARTITION).leader_id
    query.world.scheduler.after(7_500, lambda: query.cluster.stop(leader_id))
    with pytest.raises((DeliveryError, BufferExhaustedError)):
        query.run()
    assert query.world.clock.ms - 1_000_000 < 15_000


def test_a_hold_that_is_forgotten_is_caught() -> None:
    nothing = mock.patch.object(Holds, "note_all", return_value=None)
    with nothing, pytest.raises(DeliveryError):
        assert_a_leader_may_move()


def test_a_task_tells_once_that_it_waits_for_long(caplog: pytest.LogCaptureFixture) -> None:
    query = query_of(LimitConfig(1_000, None, None))
    query.start(0, 64)
    query.run()
    [told] = [record.getMessage() for record in caplog.records]
    assert re.search(r"waits 1\d s for max\.bytes\.per\.second = 1000, ", told)


def test_a_task_tells_when_it_is_held_and_when_no_more(caplog: pytest.LogCaptureFixture) -> None:
    query = query_of(LimitConfig(None, None, PAUSE_PATH))
    query.server.held = True
    query.world.scheduler.after(20_000, lambda: setattr(query.server, "held", False))
    query.start(0, 64)
    query.run()
    held, released = [record.getMessage() for record in caplog.records]
    assert f"is held, as pause.path = {PAUSE_PATH} is there" in held
    assert "does not hold this task any more: 20 s" in released


def test_nothing_is_told_of_short_waits(caplog: pytest.LogCaptureFixture) -> None:
    query = query_of(LimitConfig(MB, None, PAUSE_PATH))
    query.start(0, 640)
    query.run()
    assert not caplog.records


@pytest.mark.parametrize(("level", "apis"), [(0, KAFKA_3_9), (2, KAFKA_4_3)])
@pytest.mark.parametrize(("rate", "fails_after_ms"), [(1_000, 66_000), (100, 1_000)])
def test_a_transaction_does_not_wait_until_it_is_aborted(
    level: int, apis: Any, rate: int, fails_after_ms: int
) -> None:
    """128 KB: with 1 KB/s it begins after 16 s, is open for 60 s, and would need 112 s. What is found
    out ends the task at once.
    """
    query = query_of(LimitConfig(rate, None, None))
    query.cluster.enable_transactions(level, apis)
    query.start(0, 128, lambda task: task.begin_transaction("t-0", 60_000))
    both = rf"max\.bytes\.per\.second = {rate}, .*kafka\.transaction\.timeout\.ms = 60000"
    with pytest.raises(LimitTooLowError, match=both):
        query.run()
    assert query.world.clock.ms - 1_000_000 < fails_after_ms


def test_a_transaction_that_is_written_in_time_is_not_refused() -> None:
    query = query_of(LimitConfig(1_000, None, None))
    query.cluster.enable_transactions(2, KAFKA_4_3)
    query.start(0, 64, lambda task: task.begin_transaction("t-0", 60_000))
    assert query.run() >= query.sent_bytes
    assert query.values() == expected(0, 64)


def test_one_partition_does_not_wait_before_each_batch() -> None:
    """What is behind the first batch is reserved with it."""
    query = query_of(LimitConfig(10_000 * MB, None, None))
    query.start(0, 6_000)
    elapsed_ms = query.run()
    assert query.values() == expected(0, 6_000)
    batches = query.tasks[0].metrics.requests
    assert query.server.requests < batches / 10
    unlimited = query_of(LimitConfig(None, None, PAUSE_PATH))  # asks once a second
    unlimited.start(0, 6_000)
    assert elapsed_ms < 1.5 * unlimited.run()
