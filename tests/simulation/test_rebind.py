"""A checkpoint that is spelt differently: the prefix goes with it, and nothing is doubled."""

from __future__ import annotations

import shlex

import pytest

from spark_kafka_sink.transactions.model import PrefixInUseError
from spark_kafka_sink.transactions.operations import RefusedError
from tests.simulation.operating import A, B, Operated, agree, decided, driver

OLD, NEW = "s3://lake/ck", "s3a://lake/ck"


def never(what: str) -> None:
    raise AssertionError(f"nothing to confirm: {what}")


@pytest.fixture
def operated() -> Operated:
    return Operated(2)


def test_a_replay_after_the_checkpoint_was_rebound_is_dropped(operated: Operated) -> None:
    operated.batch(7, [A, B], driver(1, OLD))
    with pytest.raises(
        PrefixInUseError, match=r"another location.* rebind --prefix p --checkpoint"
    ):
        operated.batch(7, [A, B], driver(2, NEW))
    result = operated.operations.rebind(f"{NEW}/", agree)
    assert result.message == f"'p' belongs to checkpoint {NEW}"
    operated.batch(7, [A, B], driver(2, NEW))
    operated.batch(8, [b"c"], driver(2, NEW))
    assert operated.visible() == [A, B, b"c"]
    with pytest.raises(PrefixInUseError):
        operated.batch(9, [A], driver(3, OLD))


def test_a_query_goes_on_with_foreach_batch(operated: Operated) -> None:
    """There its id is known before the tasks, and its checkpoint's location is not."""
    operated.batch(7, [A, B], driver(1, OLD))
    operated.batch(7, [A, B], driver(2, "of query q-1"))
    operated.batch(8, [b"c"], driver(2, "of query q-1"))
    assert operated.visible() == [A, B, b"c"]
    with pytest.raises(PrefixInUseError, match="--checkpoint s3://lake/ck; if"):
        operated.batch(9, [A], driver(3, OLD))
    operated.operations.rebind(OLD, agree)
    operated.batch(9, [A], driver(3, OLD))


@pytest.mark.parametrize("has_committed", [True, False])
def test_the_value_that_a_refusal_names_is_not_refused_again(
    operated: Operated, has_committed: bool
) -> None:
    if has_committed:
        operated.batch(7, [A], driver(1, OLD))
    else:
        operated.protocol.plan(driver(1, OLD), None)
    other = driver(2, "of query q-2" if has_committed else "of query q-1")
    with pytest.raises(PrefixInUseError) as refused:
        operated.protocol.plan(other, None)
    words = shlex.split(str(refused.value).split("; if the other")[0].partition("another")[2])
    assert words[-1] == other.checkpoint
    operated.operations.rebind(words[-1], agree)
    operated.protocol.plan(other, None)


def test_what_is_decided_is_finished_after_it(operated: Operated) -> None:
    decided(operated)
    operated.operations.rebind(NEW, agree)
    assert operated.visible() == []
    operated.batch(7, [A, B], driver(2, NEW))
    assert operated.visible() == [A, B]
    assert operated.open_ids() == []


def test_a_query_that_has_a_jobs_prefix_now_is_rebound_before_it_has_decided(
    operated: Operated,
) -> None:
    operated.batch(0, [A], driver(1, None), job="j")
    operated.protocol.plan(driver(2, OLD), None)
    operated.operations.rebind(NEW, agree)
    operated.batch(0, [B], driver(3, NEW))
    assert operated.visible() == [A, B]


def test_nothing_is_asked_where_there_is_nothing_to_do(operated: Operated) -> None:
    with pytest.raises(RefusedError, match="no record"):
        operated.operations.rebind(NEW, never)
    operated.batch(7, [A], driver(1, NEW))
    assert "already" in operated.operations.rebind(NEW, never).message
    operated.operations_of("jobs")
    operated.batch(0, [B], driver(1, None), job="j", prefix="jobs")
    with pytest.raises(RefusedError, match="no record of a query"):
        operated.operations_of("jobs").rebind(NEW, never)
