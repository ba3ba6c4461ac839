"""A micro-batch that is committed comes again: dropped, after it was compared."""

from __future__ import annotations

from unittest import mock

import pytest

from spark_kafka_sink.transactions.errors import ReplayError
from spark_kafka_sink.transactions.model import Rows
from tests.simulation.operating import Lives, driver, unit


def test_a_replay_of_a_finished_batch_is_dropped(lives: Lives) -> None:
    lives.batch(0, driver(1))
    lives.batch(0, driver(1))
    assert lives.visible() == [b"0-0", b"0-1"]
    assert lives.open_ids() == []


def test_a_replay_with_other_rows_is_not_dropped_in_silence(lives: Lives) -> None:
    """The checkpoint has lost its last offsets: batch 0 is another one now."""
    lives.batch(0, driver(1))
    for number in (2, 3):
        with pytest.raises(ReplayError, match=r"2 records of 1 bytes.* again with 3 records of 3"):
            lives.batch(0, driver(number), tasks=3)
        lives.protocol.abort(driver(number))
    assert lives.visible() == [b"0-0", b"0-1"]
    assert lives.open_ids() == []


def test_a_replay_by_other_tasks_or_in_another_order_is_dropped(lives: Lives) -> None:
    lives.batch(0, driver(1))
    plan = lives.protocol.plan(driver(2), None)
    first, second = lives.write(plan, 0, b"0-0"), lives.write(plan, 1, b"0-1")
    swapped = [first._replace(digest="1-1-x", partition_id=7), second._replace(digest="1-0-y")]
    assert not lives.protocol.commit(plan, unit(0), swapped)
    plan = lives.protocol.plan(driver(2), None)
    assert not lives.protocol.commit(plan, unit(0), [])  # nothing is lost with it
    assert lives.visible() == [b"0-0", b"0-1"]


def test_a_record_of_an_older_version_has_nothing_to_compare_with(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    with mock.patch.object(Rows, "of", return_value=None):
        lives.batch(0, driver(1))
    lives.batch(0, driver(2), tasks=3)
    assert "no record of its rows" in caplog.text
    assert lives.visible() == [b"0-0", b"0-1"]
