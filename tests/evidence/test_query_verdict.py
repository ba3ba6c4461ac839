"""What runs with exactly-once delivery are judged by must find what it looks for."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from evidence.chaos import table
from evidence.chaos.exactly_once import VERSIONS, is_good, ports_of, summary
from evidence.harness import crash
from evidence.harness.driver import Traps
from evidence.harness.scene import Ends, Lag, lag_of

GOOD = {
    "guarantee": "exactly-once",
    "lost": 0,
    "doubled": 0,
    "out_of_order": 0,
    "left_open": [],
    "found_open": [],
}


def seen(*steps):
    """(second, stable offset, end offset, committed micro-batches) of partition 0."""
    return [(Ends(at, {0: stable}, {0: high}), count) for at, stable, high, count in steps]


class TestReaders:
    def test_wait_until_the_stable_offset_has_passed_what_was_written(self):
        steps = seen((1, 5, 5, 0), (2, 5, 9, 0), (3, 5, 12, 0), (4, 9, 12, 1), (5, 12, 12, 2))
        assert lag_of(steps, 1.5) == Lag(2.5, 1)
        assert lag_of(steps, 2.5) == Lag(2.5, 2)

    def test_that_have_everything_do_not_wait(self):
        assert lag_of(seen((1, 5, 5, 0), (2, 9, 9, 0)), 1.5) == Lag(0.5, 0)

    def test_that_still_wait_are_not_forgotten(self):
        assert lag_of(seen((1, 5, 9, 0), (2, 5, 12, 3)), 0.5) is None
        assert lag_of(seen((1, 5, 9, 0)), 1.5) is None

    def test_wait_for_every_partition(self):
        steps = [
            (Ends(1, {0: 3, 1: 0}, {0: 3, 1: 4}), 0),
            (Ends(2, {0: 9, 1: 3}, {0: 9, 1: 9}), 1),
            (Ends(3, {0: 9, 1: 4}, {0: 9, 1: 9}), 2),
        ]
        assert lag_of(steps, 0.5) == Lag(2.5, 2)


class TestVerdict:
    def test_all_well(self):
        assert is_good(GOOD)

    @pytest.mark.parametrize("name", ["lost", "doubled", "out_of_order"])
    def test_a_row_too_few_too_many_or_too_early(self, name):
        assert not is_good({**GOOD, name: 1})

    @pytest.mark.parametrize("name", ["left_open", "found_open"])
    def test_a_transaction_that_is_left_open(self, name):
        assert not is_good({**GOOD, name: ["p.0123.0"]})

    def test_the_control_must_show_what_the_faults_do(self):
        control = {**GOOD, "guarantee": "at-least-once"}
        assert not is_good(control)
        assert is_good({**control, "doubled": 1})
        assert not is_good({**control, "doubled": 1, "lost": 1})

    def test_what_was_found_open_is_summed_up(self):
        events = [
            {"kind": "driver", "lingering": [], "recovery_s": 8.0},
            {"kind": "worker", "lingering": ["p.0123.0"], "reader_lag_s": 1.0},
            {"kind": "driver", "recovery_s": 9.0},
        ]
        told = summary(events)
        assert told["faults"] == {"driver": 2, "worker": 1}
        assert told["looked_for_open"] == 2
        assert told["found_open"] == ["p.0123.0"]
        assert told["recovery_s"] == {"median": 8.5, "max": 9.0}


class TestRunsBesideEachOther:
    def test_find_their_ports_in_ranges_of_their_own(self):
        ranges = [ports_of(version).split("-") for version in (*VERSIONS, "9.9.9")]
        taken = [port for first, last in ranges for port in range(int(first), int(last) + 1)]
        assert len(taken) == len(set(taken)) > 1_000

    def test_keep_each_others_results(self, tmp_path, monkeypatch):
        (page, _) = table.PAGES
        for path in (page, table.EXACTLY_ONCE):
            (tmp_path / path.name).write_bytes(path.read_bytes())
        monkeypatch.setattr(table, "EXACTLY_ONCE", tmp_path / table.EXACTLY_ONCE.name)
        monkeypatch.setattr(table, "PAGES", {tmp_path / page.name: table.tables})
        [old] = [r for r in table.read(table.EXACTLY_ONCE) if r["guarantee"] == "at-least-once"]
        new = [{**old, "kafka": f"9.{n}.0", "guarantee": "exactly-once"} for n in range(8)]
        with ThreadPoolExecutor(len(new)) as threads:
            list(threads.map(table.write_exactly_once, ([result] for result in new)))
        kept = [r["kafka"] for r in table.read(table.EXACTLY_ONCE)]
        assert kept[:8] == [f"9.{n}.0" for n in reversed(range(8))]
        assert kept[-1] == old["kafka"]
        assert all(f"| 9.{n}.0 |" in (tmp_path / page.name).read_text("utf-8") for n in range(8))


class TestTraps:
    @pytest.fixture
    def traps(self, tmp_path, monkeypatch):
        monkeypatch.setenv(crash.FOLDER, str(tmp_path))
        monkeypatch.setattr(crash, "_reached", {})
        return Traps(tmp_path)

    def test_catch_the_first_one_only(self, traps):
        name = traps.set(crash.Trap("commit.begin", crash.FAIL))
        crash.hook("plan.begin")
        assert traps.sprung(name) is None
        with pytest.raises(RuntimeError, match="made to fail at commit.begin"):
            crash.hook("commit.begin")
        assert traps.sprung(name)["pid"] == os.getpid()
        crash.hook("commit.begin")

    def test_may_wait_for_a_later_time(self, traps):
        traps.set(crash.Trap("commit.begin", crash.FAIL, nth=3))
        crash.hook("commit.begin")
        crash.hook("commit.begin")
        with pytest.raises(RuntimeError):
            crash.hook("commit.begin")

    def test_may_stay_until_they_are_taken_away(self, traps):
        name = traps.set(crash.Trap("commit.begin", crash.FAIL, repeats=True))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                crash.hook("commit.begin")
        assert traps.sprung(name) is None
        traps.clear()
        crash.hook("commit.begin")

    def test_at_points_that_there_are(self, traps):
        with pytest.raises(AssertionError, match="commit.begun"):
            traps.set(crash.Trap("commit.begun", crash.FAIL))
