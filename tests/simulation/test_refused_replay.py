"""What an operator decides of a replay that was refused, as it has other rows."""

from __future__ import annotations

import pytest

from spark_kafka_sink.transactions.model import Phase, ReplayError, TransactionLostError
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.operating import A, B, Operated, agree, driver, unit


def refused(operated: Operated, values: list[bytes]) -> None:
    with pytest.raises(ReplayError):
        operated.batch(7, values, driver(2))
    operated.protocol.abort(driver(2))


@pytest.mark.parametrize(
    ("choice", "visible"), [(Choice.AS_WRITTEN, [A, B]), (Choice.AS_NOT_WRITTEN, [A, A, B, b"c"])]
)
def test_the_operator_decides_what_becomes_of_other_rows(
    operated: Operated, choice: Choice, visible: list[bytes]
) -> None:
    operated.batch(7, [A, B], driver(1))
    refused(operated, [A, b"c"])
    told = []

    def agree_to(what: str) -> None:
        agree(what)
        told.append(what)

    result = operated.operations.resolve(choice, agree_to)
    assert not result.needs_choice
    assert "2 records" in told[0] or "2 visible records" in told[0]
    assert operated.visible() == [A, B]
    operated.batch(7, [A, b"c"], driver(2))
    assert operated.visible() == visible
    operated.batch(8, [b"d"], driver(2))
    assert operated.visible() == sorted([*visible, b"d"])
    assert operated.open_ids() == []


def test_the_choice_is_for_one_micro_batch(operated: Operated) -> None:
    operated.batch(7, [A, B], driver(1))
    operated.operations.resolve(Choice.AS_WRITTEN, agree)
    operated.batch(7, [A, b"c"], driver(2))
    operated.batch(7, [b"d"], driver(3))  # killed before Spark knew, and yet other rows
    operated.batch(8, [b"e"], driver(3))
    with pytest.raises(ReplayError):
        operated.batch(8, [b"f"], driver(4))
    assert operated.visible() == [A, B, b"e"]


def test_a_query_that_is_running_is_stopped_by_the_choice(operated: Operated) -> None:
    operated.batch(7, [A, B], driver(1))
    plan = operated.protocol.plan(driver(1), None)
    written = operated.written(plan, [b"c"])
    operated.operations.resolve(Choice.AS_NOT_WRITTEN, agree)
    with pytest.raises(TransactionLostError, match="another write under the same"):
        operated.protocol.commit(plan, unit(8), written)
    operated.batch(8, [b"c"], driver(1))
    assert operated.visible() == [A, B, b"c"]


def test_a_choice_is_not_made_for_what_was_decided_meanwhile(operated: Operated) -> None:
    operated.batch(7, [A, B], driver(1))

    def agree_late(what: str) -> None:
        operated.batch(8, [b"c"], driver(1))

    with pytest.raises(RefusedError, match="has changed since it was read"):
        operated.operations.resolve(Choice.AS_NOT_WRITTEN, agree_late)
    record = operated.record()
    assert record is not None
    assert (record.phase, record.unit) == (Phase.DONE, unit(8))


def never(what: str) -> None:
    raise AssertionError(f"nothing to confirm: {what}")


def test_without_a_choice_the_operator_is_told_of_both(operated: Operated) -> None:
    operated.batch(7, [A, B], driver(1))
    message = operated.operations.resolve(None, never).message
    assert "nothing to resolve" in message
    assert "--as-written: " in message
    assert "--as-not-written: " in message
    operated.operations.resolve(Choice.AS_WRITTEN, agree)
    for choice in (None, *Choice):
        message = operated.operations.resolve(choice, never).message
        assert "a replay of it is dropped, whatever rows it has" in message
