"""The token of a plan, by which a task sees whether it has begun in time."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import TransactionError, error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch, UnusedProducerIdentity
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.model import (
    FencedError,
    Phase,
    TransactionLostError,
    TransactionPlan,
)
from tests.simulation.operating import PATIENCE_MS, CrashError, Lives, crash_at, driver, unit
from tests.simulation.transactional import Transactional


def is_unused(lives: Lives, plan: TransactionPlan) -> bool:
    """As tasks find out."""
    name, deadline_ms = f"{plan.prefix}.driver", lives.world.clock.ms + PATIENCE_MS
    state = lives.client.describe([name], deadline_ms)[name]
    assert state is not None
    is_held = (state.producer_id, state.producer_epoch) == plan.token.producer
    return is_held and state.transaction_state == "Empty"


@pytest.mark.parametrize("point", [None, "plan.claimed", "commit.decided", "commit.done"])
def test_tasks_get_a_token_that_nobody_has_used(lives: Lives, point: str | None) -> None:
    """Also where planning itself has written a record."""
    if point is not None:
        crash_at(point)
        with pytest.raises(CrashError):
            lives.batch(0, driver(1))
    for number in (2, 2, 3):
        assert is_unused(lives, lives.protocol.plan(driver(number), None))


def test_a_decision_uses_the_token_up_before_it_sweeps(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    unused: list[bool] = []

    def look(point: str) -> None:
        if point in ("commit.checked", "commit.decided"):
            unused.append(is_unused(lives, plan))

    crash_points.set_hook(look)
    lives.protocol.commit(plan, unit(0), [lives.write(plan, 0, b"0-0")])
    assert unused == [True, False]


def test_a_replay_that_is_dropped_uses_the_token_up_and_is_swept(lives: Lives) -> None:
    lives.batch(0, driver(1))
    plan = lives.protocol.plan(driver(1), None)
    written = [lives.write(plan, n, b"0-%d" % n) for n in range(2)]
    lives.write(plan, 2, b"of an attempt that lost")
    assert lives.protocol.commit(plan, unit(0), written) is None
    assert not is_unused(lives, plan)
    assert lives.open_ids() == []
    lives.batch(1, driver(1))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_abort_makes_the_token_useless(lives: Lives) -> None:
    plan = lives.protocol.plan(driver(1), None)
    lives.protocol.abort(driver(1))
    assert not is_unused(lives, plan)


@pytest.mark.parametrize("is_begun", [False, True])
def test_abort_of_an_older_plan_leaves_a_newer_one_of_the_same_driver_alone(
    lives: Lives, is_begun: bool
) -> None:
    """Two threads of one program write under the same prefix."""
    older = lives.protocol.plan(driver(1, None), "older")
    lives.write(older, 0, b"older")
    newer = lives.protocol_of("p").plan(driver(1, None), "newer")
    written = [lives.write(newer, 1, b"newer")] if is_begun else []
    with pytest.raises(FencedError, match="a later write of this process has taken over"):
        lives.protocol.abort(driver(1, None), older.token)
    assert is_unused(lives, newer)
    written.append(lives.write(newer, 2, b"newer"))
    lives.protocol.commit(newer, unit(0, "newer"), written)
    assert lives.visible() == [b"newer"] * len(written)


def test_abort_leaves_alone_what_a_newer_plan_has_decided(lives: Lives) -> None:
    older = lives.protocol.plan(driver(1, None), "older")
    crash_at("commit.ending")
    with pytest.raises(CrashError):
        lives.batch(0, driver(1, None), job="newer")
    lives.protocol.abort(driver(1, None), older.token)
    lives.protocol.fence_and_read()
    record = lives.protocol.log.read(lives.world.clock.ms + PATIENCE_MS)
    assert record is not None
    assert (record.phase, record.unit) == (Phase.DECIDED, unit(0, "newer"))


def test_abort_after_a_commit_that_came_too_late_sweeps(lives: Lives) -> None:
    """The commit has used the token of its plan itself: nobody else has taken over."""
    plan = lives.protocol.plan(driver(1, None), "job")
    written = [lives.write(plan, 0, b"late")]
    left: list[str] = []

    def lose(point: str) -> None:
        if point == "commit.decided":
            lives.world.init_once(written[0].transactional_id)
            left.append(lives.write(plan, 1, b"of an attempt that lost").transactional_id)

    crash_points.set_hook(lose)
    with pytest.raises(TransactionLostError):
        lives.protocol.commit(plan, unit(0, "job"), written)
    crash_points.set_hook(None)
    assert lives.open_ids() == left
    lives.protocol.abort(driver(1, None), plan.token)
    assert lives.open_ids() == []


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_a_task_fails_that_nobody_tells_whether_it_is_in_time(error: str) -> None:
    """The decision needs the same coordinator: it cannot be made either."""
    simulation = Transactional()
    handle = simulation.cluster.handle

    def refuse(broker, request, version, reply):  # type: ignore[no-untyped-def]
        if not isinstance(request, DescribeTransactionsRequest):
            handle(broker, request, version, reply)
            return
        (name,) = request.transactional_ids
        reply(DescribeTransactionsResponse(0, [TransactionState(error_named(error).code, name)]))

    simulation.cluster.handle = refuse
    simulation.producer.begin_task(["t"])
    token = UnusedProducerIdentity("flights.driver", ProducerIdAndEpoch(1, 0))
    simulation.producer.begin_transaction("flights.0", 60_000, token)
    with pytest.raises(TransactionError, match=error):
        simulation.write(0, b"a")
