"""The record of a prefix is of another version, or of something else: what operators can do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Phase,
    PrefixInUseError,
    StoredRecord,
    UnreadableRecordError,
    Write,
)
from spark_kafka_sink.transactions.operations import Choice, RefusedError, UnreadableRecord
from tests.simulation.operating import A, B, Operated, agree, driver, unit


@pytest.fixture
def operated() -> Operated:
    """Micro-batch 7 was written; then somebody else has written the record."""
    operated = Operated()
    operated.batch(7, [A], driver(1))
    return operated


def newer(operated: Operated, **more: Any) -> bytes:
    """The record as a later version may write it."""
    record = operated.record()
    assert record is not None
    return json.dumps({**json.loads(record.to_json()), "format": 2, **more}).encode()


def never(what: str) -> None:
    raise AssertionError(f"nothing to confirm: {what}")


def test_it_is_shown_with_offset_and_version_and_what_each_choice_does(operated):
    value = newer(operated)
    operated.write_raw(value)
    with pytest.raises(UnreadableRecordError, match="resolve --prefix p") as unreadable:
        operated.protocol.plan(driver(2), None)
    with pytest.raises(RefusedError) as refused:
        operated.operations.resolve(None, never)
    shown = str(refused.value)
    parts = (value.decode(), f"offset {unreadable.value.stored.offset},", "format 2", "phase DONE")
    for part in (*parts, f"{unit(7)}", "If a newer version", "--as-written: ", "become duplicates"):
        assert part in shown


@pytest.mark.parametrize(
    ("choice", "visible"), [(Choice.AS_WRITTEN, [A]), (Choice.AS_NOT_WRITTEN, [A, A])]
)
def test_the_choice_decides_what_a_replay_does(operated, choice, visible):
    operated.write_raw(newer(operated))
    result = operated.operations.resolve(choice, agree)
    assert result.decision == operated.record()
    with pytest.raises(PrefixInUseError):  # whose prefix it is was kept
        operated.protocol.plan(driver(3, "/other"), None)
    operated.batch(7, [A], driver(2))
    assert operated.visible() == visible
    operated.batch(8, [B], driver(2))
    assert operated.visible() == [*visible, B]


def test_one_that_says_nothing_can_only_count_as_not_written(operated):
    operated.write_raw(b"\xff\x00nonsense")
    with pytest.raises(RefusedError, match="only --as-not-written"):
        operated.operations.resolve(Choice.AS_WRITTEN, never)
    result = operated.operations.resolve(Choice.AS_NOT_WRITTEN, agree)
    assert (result.decision.unit, result.decision.phase) == (NO_UNIT, Phase.DONE)
    operated.batch(8, [B], driver(2))
    assert operated.visible() == [A, B]


def test_what_is_open_is_aborted(operated):
    plan = operated.protocol.plan(driver(1), None)
    [written] = operated.written(plan, [B])
    operated.write_raw(newer(operated, phase="DECIDED"))
    told = []
    result = operated.operations.resolve(Choice.AS_NOT_WRITTEN, told.append)
    assert "1 open transaction(s) will be aborted" in told[0]
    assert result.aborted == (written.transactional_id,)
    assert operated.visible() == [A]


def test_somebody_replaces_it_while_the_operator_thinks(operated):
    operated.write_raw(newer(operated))

    def agree_late(what: str) -> None:
        operated.write_raw(b"{}")

    with pytest.raises(RefusedError, match="has changed"):
        operated.operations.resolve(Choice.AS_WRITTEN, agree_late)
    with pytest.raises(UnreadableRecordError, match="not a decision"):
        operated.record()


def test_without_confirmation_nothing_happens(operated):
    operated.write_raw(newer(operated))

    def refuse(what: str) -> None:
        raise RefusedError("no")

    before = operated.world.state("p.driver")[1]
    with pytest.raises(RefusedError, match="^no$"):
        operated.operations.resolve(Choice.AS_WRITTEN, refuse)
    assert operated.world.state("p.driver")[1] == before


@pytest.mark.parametrize("operation", ["abort", "release", "rebind"])
def test_other_repairs_name_resolve(operated, operation):
    operated.write_raw(b"{}")
    calls = {
        "abort": lambda: operated.operations.abort(None, never),
        "release": lambda: operated.operations.release(never),
        "rebind": lambda: operated.operations.rebind("/new", never),
    }
    with pytest.raises(TransactionError, match="resolve --prefix p shows the record"):
        calls[operation]()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"7",
        b'{"unit":7,"owner":[],"written":[[1]],"superseded":[7],"write":"ab","records":"x"}',
        b'{"unit":{"query_id":1,"batch_id":2,"job_id":null},"phase":[]}',
        b'{"unit":{"query_id":"q","batch_id":-1,"job_id":null},"records":true}',
        b"[" * 100_000,
    ],
)
def test_whatever_it_is_it_can_be_shown_and_replaced(value):
    record = UnreadableRecord.of(StoredRecord(3, value))
    assert (record.unit, record.records, record.written) == (NO_UNIT, 1, ())
    assert "offset 3" in str(record)
    decision = record.replacement(driver(1), 5, is_written=False)
    assert type(decision).from_json(decision.to_json()) == decision


def test_writes_that_are_done_stay_so():
    value = {
        "unit": {"query_id": None, "batch_id": None, "job_id": "j"},
        "write": ["nightly", 4],
        "written": [["nightly", 3], ["other", 1]],
    }
    record = UnreadableRecord.of(StoredRecord(3, json.dumps(value).encode()))
    written = record.replacement(driver(1), 5, is_written=True)
    assert written.has(Write("nightly", 4))
    assert written.has(Write("other", 1))
    void = record.replacement(driver(1), 5, is_written=False)
    assert void.has(Write("nightly", 3))
    assert not void.has(Write("nightly", 4))
