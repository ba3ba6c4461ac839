"""The results that are kept are whole, and the pages that are made of them up to date."""

import json
import sys
from pathlib import Path

import pytest

from evidence.brokers_versions import zookeeper_kafka
from evidence.chaos.exactly_once import VERSIONS, is_good
from evidence.chaos.planted import BUGS
from evidence.chaos.query_faults import IN_ONE_PROCESS, WITH_SPECULATION
from evidence.chaos.table import EXACTLY_ONCE, LOST, RESULTS, read
from evidence.compatibility import results, table
from evidence.compatibility.results import BROKER, FAILED, NO, PASSED, Result
from evidence.harness.jobs import JOBS
from evidence.harness.pages import rendered
from evidence.lost.faults import AT_LEAST_ONCE, KILLS
from evidence.lost.faults import EXACTLY_ONCE as TRANSACTIONS
from evidence.lost.run import is_good as is_good_although_lost
from evidence.outage import first_lines
from evidence.pages import PAGES
from evidence.pairs.covering import FACTORS, all_pairs, is_possible, jobs, pairs_of
from spark_kafka_sink.transactions.crash_points import POINTS
from tests.simulation import query_bugs
from tests.simulation.bugs import PRODUCER_BUGS, SASL_BUGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_a_generated_document_is_up_to_date(document):
    text = document.read_text(encoding="utf-8")
    is_new = text == rendered(text, PAGES[document]())
    assert is_new, f"{document.name}: make evidence NAME=pages"


def test_each_outage_is_named_in_time():
    rows = first_lines.read()
    assert [row["cause"] for row in rows] == [outage.cause for outage in first_lines.OUTAGES]
    assert [row["cause"] for row in rows if first_lines.is_too_late(row)] == []


@pytest.mark.parametrize("name", BUGS)
def test_what_a_planted_bug_changes_is_there_once(name):
    mutant = BUGS[name].mutant
    mutant.applied_to((ROOT / "spark_kafka_sink" / mutant.file).read_text(encoding="utf-8"))


def test_the_summary_for_users_has_the_figures_of_the_results():
    summary = (DOCS / "reliability.md").read_text(encoding="utf-8")
    for r in read(EXACTLY_ONCE):
        control = " (control)" if r["guarantee"] == AT_LEAST_ONCE else ""
        kinds = f"| {r['kafka']} | {r['guarantee']}{control} | {r['driver_kills']} |"
        assert f"{kinds} {r['records']:,} | {r['lost']} | {r['doubled']:,} |" in summary
    killed = [r for r in read(LOST) if r["fault"] in KILLS]
    assert f"{len(killed)} runs" in summary
    assert f"{len(killed) * 100_000 // 1_000_000} million rows" in summary
    assert sum(r["lost"] for r in killed) == 0
    sums = {}
    for r in killed:
        if r["guarantee"] == AT_LEAST_ONCE:
            kind = (r["fault"], r["job"])
            sums[kind] = sums.get(kind, 0) + r["doubled"]
    duplicates = f"{min(sums.values()):,} to {max(sums.values()):,} duplicates"
    assert duplicates in " ".join(summary.split())
    planted = len({**PRODUCER_BUGS, **SASL_BUGS}) + len(query_bugs.BUGS)
    assert f"plant {planted} bugs" in summary


def test_every_fault_was_survived_by_both_jobs():
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert len(results) == 12
    for result in results:
        assert result["read"] == result["records"] == 2_000_000
        assert result["lost"] == result["doubled"] == result["out_of_order"] == 0, result
        assert result["failure"] == ""


def test_every_query_was_exact_although_it_was_killed_at_every_step():
    results = read(EXACTLY_ONCE)
    exact = [r for r in results if r["guarantee"] == "exactly-once"]
    assert {r["kafka"] for r in exact} == set(VERSIONS)
    for result in results:
        assert is_good(result), result
        assert result["micro_batches"] >= 300
    every_fault = {fault.what for fault in (*WITH_SPECULATION, *IN_ONE_PROCESS)}
    for result in exact:
        assert {event["what"] for event in result["events"]} == every_fault, result["kafka"]


def test_the_control_was_killed_at_every_step_too():
    (control,) = [r for r in read(EXACTLY_ONCE) if r["guarantee"] == "at-least-once"]
    done = {event["what"] for event in control["events"]}
    assert {f"driver killed at {point}" for point in POINTS} <= done


def test_executors_were_lost_and_no_row_with_them():
    results = read(LOST)
    for result in results:
        assert is_good_although_lost(result), result
    done = {(r["fault"], r["job"], r["guarantee"]) for r in results}
    guarantees = (TRANSACTIONS, AT_LEAST_ONCE)
    assert done >= {(f, j, g) for f in KILLS for j in JOBS for g in guarantees}
    assert sum(r["doubled"] for r in results if r["guarantee"] == AT_LEAST_ONCE) > 0


@pytest.mark.slow
def test_the_jobs_of_a_seed_cover_all_pairs():
    made = jobs(seed=3, at_least=1)
    assert set().union(*map(pairs_of, made)) == all_pairs()
    assert all(is_possible(job) and list(job) == list(FACTORS) for job in made)
    assert made == jobs(seed=3, at_least=1)


A_RESULT = Result(
    spark="4.0.2",
    python="3.12.1",
    kafka="4.3.0",
    what="batch",
    where="local",
    outcome=PASSED,
    command="make evidence NAME=versions",
    date="2026-01-01",
)


def test_everything_was_run_on_every_broker_that_is_promised():
    """What is refused there was seen to be refused."""
    for kafka in zookeeper_kafka.VERSIONS:
        run = {r.what: r for r in results.read() if (r.where, r.kafka) == (BROKER, kafka)}
        assert run.keys() == set(table.BROKER_WHAT), kafka
        no = (
            {"transactions", "operators' commands"}
            if kafka in zookeeper_kafka.TOO_OLD_FOR_TRANSACTIONS
            else set()
        )
        for what, result in run.items():
            assert result.outcome == (NO if what in no else PASSED), result


@pytest.mark.parametrize("where", ["local", "standalone client", "connect"])
@pytest.mark.parametrize("spark", table.SPARKS)
def test_everything_was_run_with_every_spark_in_the_places_that_all_have(spark, where):
    """What is refused there was seen to be refused."""
    run = [r for r in results.read() if (table.minor(r.spark), r.where) == (spark, where)]
    for what in results.WHAT:
        no = (spark, what) == ("3.5", "stream")
        assert {r.outcome for r in run if r.what == what} == {NO if no else PASSED}, what


class TestResults:
    def test_of_the_same_key_are_replaced(self, tmp_path):
        path = tmp_path / "results.json"
        other = A_RESULT._replace(python="3.13.0")
        results.add(A_RESULT, other, path=path)
        results.add(A_RESULT._replace(outcome=FAILED, date="2026-01-02"), path=path)
        read = results.read(path)
        assert [(r.python, r.outcome) for r in read] == [("3.12.1", FAILED), ("3.13.0", PASSED)]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"what": "batches"},
            {"where": "cluster"},
            {"outcome": "ok"},
            {"outcome": NO},
            {"reason": "because"},
            {"kafka": ""},
        ],
    )
    def test_that_the_document_has_no_place_for_are_refused(self, tmp_path, wrong):
        with pytest.raises(ValueError):
            results.add(A_RESULT._replace(**wrong), path=tmp_path / "results.json")

    def test_come_from_what_was_run(self, tmp_path, monkeypatch):
        added = []
        monkeypatch.setattr(results, "add", added.append)
        what = {"what": "batch", "where": "local", "kafka": "4.3.0", "command": "make"}
        with results.of(**what, spark="4.3.0"):
            pass
        with pytest.raises(OSError), results.of(**what, spark="4.2.0", python="3.9.1"):
            raise OSError
        with results.of(**what, spark="4.2.0", python="3.9.1"):
            "another test of the same"
        with results.of(**what, spark="3.5.0", no="Spark refuses it"):
            "what is refused"
        outcomes = [(r.spark, r.python, r.outcome) for r in added[:-1]]
        assert added[-1][:1] + added[-1][5:6] + added[-1][8:] == ("3.5.0", NO, "Spark refuses it")
        this = ".".join(str(part) for part in sys.version_info[:3])
        assert outcomes == [("4.3.0", this, PASSED), ("4.2.0", "3.9.1", FAILED)]
