"""Parts of `make evidence NAME=week` that need no cluster: the schedule, slopes, alarms and the counts of rows."""

import subprocess

import numpy as np
import psutil
import pytest

from evidence.week.alarms import CAUSES, ELECTION, MUST, PAGE, SCRAPE, Alarm, judge
from evidence.week.checkers import Found, rows_deleted, too_many
from evidence.week.page import problems_of, tables
from evidence.week.schedule import FAULTS, Schedule, names_for
from evidence.week.slopes import LEAST_WRITES, judge_ids, not_judged, slope_of
from evidence.week.watch import Watch
from evidence.week.workloads import WORKLOADS, cause_of, key_of


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

    def test_noise_alone_is_flat_and_a_walk_is_less_certain(self):
        slope = slope_of([line(0.0, 5.0)])
        assert slope.low < 0 < slope.high
        walk = np.cumsum(np.random.default_rng(3).normal(0, 1, 200))
        slope = slope_of([[*zip(np.arange(200) / 6, walk, strict=True)]])
        noise = slope_of([line(0.0, float(np.std(walk)))])
        assert slope.high - slope.low > 2 * (noise.high - noise.low)

    def test_ids_may_be_as_many_as_half_of_the_writes(self):
        def is_flat(new_ids, writes):
            [row] = judge_ids({"avro": (7, 100)}, {"avro": (7 + new_ids, 100 + writes)})
            return row["is_flat"]

        assert is_flat(LEAST_WRITES // 2, LEAST_WRITES) is True
        assert is_flat(4 * LEAST_WRITES, LEAST_WRITES) is False
        assert is_flat(4, LEAST_WRITES - 1) is None
        assert judge_ids({}, {"avro": (7, 100)}) == []

    def test_long_minutes_without_faults_must_judge_all_roles(self):
        assert not_judged([], 5.0) == []
        flat = {"role": "driver, JVM", "is_flat": True}
        assert "executor, JVM" in not_judged([flat], 15.0)
        assert "driver, JVM" not in not_judged([flat], 15.0)


EVENT = {"fault": "registry away", "at": 1000.0, "lasted_s": 30.0, "recovered_s": 5.0}


def alarm_at(at, code, where="log", workload=""):
    """Read ten seconds after the look before it."""
    return Alarm(at, at - 10.0, where, code, "…", workload)


class TestAlarms:
    def test_an_alarm_has_its_cause_while_the_fault_can_be_seen(self):
        def found(at, code="REGISTRY-007"):
            return judge([alarm_at(at, code, "failure")], [EVENT])["unexplained"]

        assert found(1010.0) == []
        # It was raised at some moment since the look before, which was in time.
        assert found(1085.0) == []
        assert [a["code"] for a in found(1100.0)] == ["REGISTRY-007"]
        assert [a["code"] for a in found(1010.0, "METRICS-004")] == ["METRICS-004"]

    @pytest.mark.parametrize("code", ["TXN-016", "DELIVERY-005", "METRICS-009", "BROKER-045"])
    def test_some_alarms_have_no_cause_in_any_schedule(self, code):
        events = [{**EVENT, "fault": fault} for fault in FAULTS]
        assert judge([alarm_at(1010.0, code)], events)["unexplained"]

    def test_a_broker_that_is_back_is_an_alarm_of_its_outage(self):
        watch = Watch.__new__(Watch)
        watch.alarms, watch._since, watch._now = [], 1490.0, 1500.0
        watch._add("log", "broker 1 is back, after 480 s [PKS-CONNECT-009]")
        watch._add("log", "broker 1 cannot be reached [PKS-CONNECT-009]")
        back, lost = watch.alarms
        assert (back.code, back.since, lost.since) == ("CONNECT-009", 1010.0, 1490.0)
        event = {**EVENT, "fault": "broker killed"}
        assert len(judge(watch.alarms, [event])["unexplained"]) == 1

    @pytest.mark.parametrize("workload", WORKLOADS)
    def test_records_that_are_sent_again_have_a_cause_in_every_workload(self, workload):
        event = {**EVENT, "fault": "isr shrunk"}
        alarm = alarm_at(1010.0, "retried", "page", workload)
        assert judge([], [event])["missing"] == [event]
        assert judge([alarm], [event])["missing"] == []
        assert judge([alarm], [])["unexplained"]

    def test_leaders_that_brokers_elect_explain_records_that_are_sent_again(self):
        watch = Watch.__new__(Watch)
        watch.elections, watch._since, watch._now = [], 990.0, 1000.0
        line = "[Broker id=1] Leader week-topics-057-0 with topic id Some(gR) starts at leader epoch {}"
        watch._add_elections([line.format("0 from offset 0"), "Follower week-topics-057-0"])
        assert not watch.elections
        watch._add_elections([line.format("12 from offset 0")])
        [event] = watch.elections
        assert (event["fault"], event["at"], event["lasted_s"]) == (ELECTION, 990.0, 10.0)
        alarm = alarm_at(1010.0, "retried", "page", "topics")
        assert judge([alarm], [])["unexplained"]
        assert judge([alarm], [], watch.elections)["unexplained"] == []
        # A worker that has not written to the partition since then learns of it by the answer.
        later = alarm_at(1300.0, "retried", "page", "topics")
        assert judge([later], [], watch.elections)["unexplained"]
        text = "3 records were sent again, 3 of them to broker 1: {} for NOT_LEADER_OR_FOLLOWER. Brokers …"
        moved = later._replace(text=text.format("3"))
        assert judge([moved], [], watch.elections)["unexplained"] == []
        mixed = later._replace(text=text.format("2 for REQUEST_TIMED_OUT, 1"))
        assert judge([mixed], [], watch.elections)["unexplained"]
        assert judge([moved._replace(since=1400.0, at=1410.0)], [], watch.elections)["unexplained"]
        lost = alarm_at(1010.0, "CONNECT-009")
        assert judge([lost], [], watch.elections)["unexplained"]

    def test_what_spark_keeps_of_ended_queries_is_no_growth(self, monkeypatch):
        watch = Watch.__new__(Watch)
        watch.samples, watch.alarms, watch._ended_queries = [], [], 0
        watch._began = watch._since = watch._now = 0.0
        roles = ("driver, Python", "driver, JVM", "executor, JVM")
        pipe = subprocess.PIPE
        with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe) as cat:
            # It has answered: from now on it opens and closes no file.
            cat.stdin.write(b"\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"\n"
            monkeypatch.setattr(
                watch, "_processes", lambda: [(r, psutil.Process(cat.pid)) for r in roles]
            )
            watch._sample_processes()
            for workload in ("avro", "writer", "backfill"):
                watch._add_failure({"error": "No space left on device", "workload": workload})
            watch._sample_processes()
        for figure, kept in (("threads", (2, 0, 0)), ("sockets", (2, 2, 0))):
            before, after = (
                [s[figure] for s in three] for three in (watch.samples[:3], watch.samples[3:])
            )
            assert tuple(b - a for b, a in zip(before, after, strict=True)) == kept


class TestSchedule:
    def test_a_fault_that_fails_ends_the_faults_and_not_the_week(self, monkeypatch):
        def fail(world, rng):
            raise OSError("no such broker")

        class World:
            def supervise(self):
                pass

        monkeypatch.setitem(FAULTS, "clock", FAULTS["clock"]._replace(happen=fail))
        monkeypatch.setattr("evidence.week.schedule._QUIET_S", (0, 0))
        schedule = Schedule(7, ["clock"])
        schedule.suffer(World(), 60)
        [event] = schedule.events
        assert event["failed"] == "OSError: no such broker"

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


def test_only_rows_from_before_a_topic_was_there_again_count_as_deleted():
    found = rows_deleted(8, ["a", "b"], {"b": 5})
    assert [n for n, is_deleted in enumerate(found) if is_deleted] == [1, 3]


def test_commits_may_not_count_more_than_there_is():
    verdict = {"read": 10, "dead_letters": {"too-large": 1, "bad-timestamp": 2}}
    assert too_many({"rows": 10, "dead_letters": 3}, verdict) == {}
    assert list(too_many({"rows": 10, "dead_letters": 6}, verdict).values()) == [3]
    assert list(too_many({"rows": 12, "dead_letters": 0}, verdict).values()) == [2]


class TestResults:
    def result(self):
        verdict = {"expected": 5, "read": 6, "lost": 0, "deleted": 0, "doubled": 1}
        verdict.update(out_of_order=0, problems={}, is_good=True)
        return {
            **{"at": "2026-11-26", "seed": 1, "minutes": 60.0, "quiet_minutes": 12.0},
            "lacking": [],
            "versions": {"kafka": "4.4.0", "spark": "4.2.0", "commit": "0123abcd"},
            "verdicts": {"racks": verdict},
            "spark": {"racks": {"rows": 6}},
            "alarms": {"counts": {}, "unexplained": [], "missing": []},
            **{"slopes": [], "not_judged": [], "producer_ids": [], "watch_errors": []},
            "events": [{**EVENT, "stuck": []}],
            "end": {"status": 0, "seconds": 9, "left_open": [], "processes": []},
            **{"driver_starts": 2, "driver_deaths": [], "failures": {}, "problems": []},
            "scrapes": {"asked": 9, "answered": 9},
        }

    @pytest.mark.parametrize(
        "wrong",
        [
            {"spark": {"racks": {"rows": 5}}},
            {"spark": {"racks": {"error": "no jar"}}},
            {"not_judged": ["driver, JVM"]},
            {"producer_ids": [{"workload": "racks", "is_flat": False}]},
            {"events": [{**EVENT, "stuck": ["racks"]}]},
            {"events": [{**EVENT, "stuck": [], "failed": "OSError: no such broker"}]},
            {"end": {"status": 0, "seconds": 9, "left_open": ["week-avro.1"], "processes": []}},
            {"end": {"status": None, "seconds": 9, "left_open": [], "processes": []}},
            {"watch_errors": ["OSError()"]},
            {"scrapes": {"asked": 9, "answered": 0}},
        ],
    )
    def test_each_part_can_be_wrong(self, wrong):
        assert problems_of(self.result()) == []
        assert len(problems_of({**self.result(), **wrong})) == 1

    def test_the_page_lists_each_week(self):
        bad = {**self.result(), "seed": 2, "problems": ["racks: a | b"], "lacking": ["gcc"]}
        text = tables([self.result(), bad])["weeks"]
        assert "| 1 | 2026-11-26 | 0123abcd | 1 |" in text
        assert text.endswith("| 9 s | gcc | **1 wrong** |")


def test_tables_name_what_exists_and_each_bad_row_has_one_cause():
    assert set(MUST) <= set(FAULTS)
    assert set().union(*PAGE.values(), *CAUSES.values(), SCRAPE) <= {*FAULTS, ELECTION}
    assert len(WORKLOADS) == 5
    causes = {cause_of(number) for number in range(10_000)}
    assert causes == {None, "bad-timestamp", "too-large"}
    assert key_of(5123) == b"1-23"
