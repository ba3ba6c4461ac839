"""Parts of `make week` that need no cluster: the schedule, slopes, alarms and the counts of rows."""

import numpy as np
import pytest

from tests.week.alarms import MUST, NEVER, PAGE, judge
from tests.week.checkers import Found
from tests.week.schedule import FAULTS, Schedule, names_for
from tests.week.slopes import slope_of
from tests.week.watch import Alarm
from tests.week.workloads import WORKLOADS, cause_of, key_of


def line(per_minute, noise, count=200, seed=1):
    random = np.random.default_rng(seed)
    minutes = np.arange(count) / 6
    return [*zip(minutes, per_minute * minutes + random.normal(0, noise, count), strict=True)]


class TestSlopes:
    def test_the_interval_holds_the_slope_of_lines_that_begin_anywhere(self):
        groups = [line(0.5, 1.0), [(m, v + 300) for m, v in line(0.5, 1.0, seed=2)]]
        slope = slope_of(groups)
        assert slope.low < 0.5 < slope.high
        assert slope.low > 0

    def test_noise_alone_is_flat(self):
        slope = slope_of([line(0.0, 5.0)])
        assert slope.low < 0 < slope.high

    def test_a_walk_is_less_certain_than_noise(self):
        walk = np.cumsum(np.random.default_rng(3).normal(0, 1, 200))
        slope = slope_of([[*zip(np.arange(200) / 6, walk, strict=True)]])
        noise = slope_of([line(0.0, float(np.std(walk)))])
        assert slope.high - slope.low > 2 * (noise.high - noise.low)

    def test_few_samples_are_no_line(self):
        assert slope_of([line(1.0, 0.1, count=19)]) is None
        assert slope_of([]) is None


EVENT = {"fault": "registry away", "at": 1000.0, "lasted_s": 30.0, "recovered_s": 5.0}


class TestAlarms:
    def test_an_alarm_has_its_cause_while_the_fault_can_be_seen(self):
        def found(at, code="REGISTRY-001"):
            return judge([Alarm(at, "failure", code, "…")], [EVENT])["unexplained"]

        assert found(1010.0) == []
        assert [a["code"] for a in found(1100.0)] == ["REGISTRY-001"]
        assert [a["code"] for a in found(1010.0, "METRICS-004")] == ["METRICS-004"]

    @pytest.mark.parametrize("code", sorted(NEVER))
    def test_some_alarms_have_no_cause_in_any_schedule(self, code):
        events = [{**EVENT, "fault": fault} for fault in FAULTS]
        assert judge([Alarm(1010.0, "log", code, "…")], events)["unexplained"]

    def test_a_fault_that_nobody_notices_is_missed(self):
        assert judge([], [EVENT])["missing"] == [EVENT]
        assert judge([Alarm(1010.0, "failure", "REGISTRY-001", "…")], [EVENT])["missing"] == []

    def test_only_the_backfill_is_limited(self):
        for workload, count in (("backfill", 0), ("racks", 1)):
            alarm = Alarm(1.0, "page", "limited", "…", workload)
            assert len(judge([alarm], [])["unexplained"]) == count

    @pytest.mark.parametrize("code", ["CONNECT-009", "TXN-027"])
    def test_an_alarm_without_a_fault_has_no_cause(self, code):
        assert judge([Alarm(1.0, "log", code, "…")], [])["unexplained"]

    def test_the_tables_name_faults_that_exist(self):
        assert set(MUST) <= set(FAULTS)
        assert set().union(*PAGE.values()) <= set(FAULTS)


class TestSchedule:
    def test_a_seed_has_one_order(self):
        first, again = (Schedule(7, list(FAULTS))._rng.sample(range(99), 9) for _ in range(2))
        assert first == again

    def test_it_ends_early_only_while_faults_happen(self):
        schedule = Schedule(7, [])
        assert not schedule.end_early()
        schedule.suffer(None, 0)
        assert not schedule.end_early()

    def test_faults_that_can_hit_nothing_are_left_out(self):
        names = names_for(list(FAULTS), ["writer"], "4.4.0")
        assert not {"upgrade", "registry away", "topic recreated", "issuer away"} & set(names)
        assert "upgrade" in names_for(list(FAULTS), ["writer"], "3.9.1")


class TestFound:
    def test_each_row_is_counted(self):
        found = Found(4)
        for number in (0, 1, 1, 3, 9):
            found.add(number)
        verdict = found.verdict(np.array([False, False, True, False]))
        assert (verdict["lost"], verdict["deleted"], verdict["doubled"]) == (0, 1, 1)
        assert verdict["problems"] == {"a row that nobody wrote": 1}
        assert found.verdict()["lost"] == 1

    def test_copies_may_come_later_and_new_rows_may_not_be_older(self):
        found = Found(5)
        for number in (0, 1, 0, 1, 2, 4, 3):
            found.add(number, "a")
        assert found.out_of_order == 1


def test_all_workloads_differ_and_each_bad_row_has_one_cause():
    assert len(WORKLOADS) == 5
    causes = {cause_of(number) for number in range(10_000)}
    assert causes == {None, "bad-timestamp", "too-large"}
    assert key_of(5123) == b"1-23"
