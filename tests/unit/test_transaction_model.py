"""Ids, decisions and their repair, without a broker."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import pytest

from spark_kafka_sink.transactions import fencing
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    OutcomeError,
    Phase,
    Plan,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
    Write,
    current_driver,
    driver_transactional_id,
    is_task_id,
    task_id_pattern,
)

DRIVER = Driver("d1", "host", 17, "/ck", "orders")
UNIT = Unit("q", 4, None)
RECORD = Decision(DRIVER).to_json()
DIGEST = "10-7-w1.0000000000000001"
OTHER_DIGEST = "10-7-w1.0000000000000002"


def task(partition: int, digest: str = DIGEST) -> TaskTransaction:
    return TaskTransaction(f"p.aaaaaaaaaaaa.{partition}", 7, 0, 2, partition, 10, digest)


def partial(committed: list[TaskTransaction], lost: list[TaskTransaction]) -> Decision:
    return Decision(
        DRIVER, Phase.PARTIAL, UNIT, transactions=tuple(lost), committed=tuple(committed)
    )


def test_a_decision_survives_json_and_pickle() -> None:
    decision = Decision(
        DRIVER, Phase.DECIDED, UNIT, 99, 30, (task(0), task(1)), (task(2),), True, ("d0",)
    )
    assert Decision.from_json(decision.to_json()) == decision
    plan = Plan("p", DRIVER, DriverToken(1, 2, 3, 2), decision, None, 900_000)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert len({plan, pickle.loads(pickle.dumps(plan))}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{}", "not a decision: KeyError"),
        ("[]", "not a decision: TypeError"),
        ('{"format": 2}', "format 2: written by another version"),
        ('{"format": 1}', "not a decision: KeyError"),
        (
            RECORD.replace('"write":null', '"write":["etl",1]').replace(
                '"topics":{}', '"topics":[]'
            ),
            "not a decision: AttributeError",
        ),
        ("[" * 100_000, "not a decision: RecursionError"),
    ],
)
def test_what_is_no_decision_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decision.from_json(text)


def test_a_worker_takes_a_new_slot_for_each_task_of_a_plan() -> None:
    slots = WorkerTransactionalIds("0123456789ab")
    first, second = DriverToken(1, 0, 0, 2), DriverToken(1, 1, 0, 2)
    taken = [
        slots.next_id("p", first),
        slots.next_id("p", first),
        slots.next_id("other", first),
    ]
    assert taken == ["p.0123456789ab.0", "p.0123456789ab.1", "other.0123456789ab.0"]
    slots.retire("p.0123456789ab.1")
    assert slots.next_id("p", second) == "p.0123456789ab.0"
    assert slots.next_id("p", second) == "p.0123456789ab.2"
    slots.renew()
    assert not slots.next_id("p", second).startswith("p.0123456789ab")


@pytest.mark.parametrize("prefix", ["p", "a.b", "we+ird [x] \\ *", "p$"])
def test_the_pattern_knows_own_tasks_only(prefix: str) -> None:
    own = WorkerTransactionalIds().next_id(prefix, DriverToken(1, 0, 0, 2))
    assert is_task_id(prefix, own)
    assert not is_task_id(prefix, driver_transactional_id(prefix))
    assert not is_task_id(
        prefix, WorkerTransactionalIds().next_id(f"{prefix}.x", DriverToken(1, 0, 0, 2))
    )
    assert not is_task_id(prefix, "x" + own)
    assert re.fullmatch(task_id_pattern(prefix), own)


def test_a_driver_is_known_by_its_block_manager() -> None:
    def driver(folder: str) -> str:
        return current_driver({"SPARK_LOCAL_DIRS": folder}, 0, None, None).driver_id

    assert driver("/tmp/blockmgr-1") == driver("/tmp/blockmgr-1") != driver("/tmp/blockmgr-2")


def test_owners_are_superseded_and_remembered() -> None:
    decision = Decision(DRIVER, Phase.DECIDED, UNIT)
    for number in range(2, 100):
        owner = DRIVER._replace(driver_id=f"d{number}")
        decision = Decision.claimed_by(decision, owner, is_query=True)
    assert decision.owner.driver_id == "d99"
    assert decision.phase is Phase.DECIDED
    assert "d98" in decision.superseded
    assert len(decision.superseded) == 64


def test_of_each_name_only_the_last_version_is_remembered() -> None:
    """Else a job that runs often enough has too many names."""
    decision = Decision(DRIVER)
    for version in range(3):
        for write_id in ("etl", "other"):
            decision = replace(decision, write=Write(write_id, version)).done()
    assert sorted(decision.written) == [Write("etl", 2), Write("other", 2)]


def test_a_replay_with_the_same_rows_fills_in_what_is_missing() -> None:
    decision = partial([task(0), task(2)], [task(1)])
    replay = [task(n)._replace(transactional_id=f"new.{n}") for n in (2, 1, 0)]
    assert fencing.replacements_of_lost(decision, replay, "p") == [replay[1]]


@pytest.mark.parametrize(
    "replay",
    [
        [task(0), task(1, OTHER_DIGEST)],
        [task(0, OTHER_DIGEST), task(1)],
        [task(1)],
        [task(0)],
        [task(0), task(1), task(2)],
        [],
    ],
)
def test_another_replay_is_an_error_that_says_what_is_visible(
    replay: list[TaskTransaction],
) -> None:
    with pytest.raises(OutcomeError, match="10 records are, 10 records of Spark partitions 1") as e:
        fencing.replacements_of_lost(partial([task(0)], [task(1)]), replay, "p")
    assert "micro-batch 4 of query q" in str(e.value)
    assert "differ" in str(e.value)


@pytest.mark.parametrize("phase", [Phase.UNKNOWN, Phase.PARTIAL, Phase.VOID])
def test_explanations_name_the_unit_and_what_to_do(phase: Phase) -> None:
    decision = Decision(DRIVER, phase, Unit(None, None, "j1"), 0, 20, (task(0),), (task(1),))
    text = fencing.explain(decision, "orders")
    assert "job j1" in text
    assert phase is Phase.VOID or "pykafka-sink transactions resolve --prefix orders" in text
