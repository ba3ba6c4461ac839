from __future__ import annotations

import json

from spark_kafka_sink.transactions.crash_points import POINTS
from tests.chaos.exactly_once import VERSIONS, is_good
from tests.chaos.query_faults import IN_ONE_PROCESS, WITH_SPECULATION
from tests.chaos.table import DOCUMENT, EXACTLY_ONCE, LOST, RESULTS, read, render
from tests.clusters.lost.__main__ import is_good as is_good_although_lost
from tests.clusters.lost.faults import AT_LEAST_ONCE, JOBS, KILLS
from tests.clusters.lost.faults import EXACTLY_ONCE as TRANSACTIONS
from tests.simulation import query_bugs
from tests.simulation.bugs import PRODUCER_BUGS, SASL_BUGS


def test_the_tables_are_those_of_the_results():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == render(text), "run python -m tests.chaos.table"


def test_the_summary_for_users_has_the_figures_of_the_results():
    summary = (DOCUMENT.parents[1] / "reliability.md").read_text(encoding="utf-8")
    for r in read(EXACTLY_ONCE):
        control = " (control)" if r["guarantee"] == AT_LEAST_ONCE else ""
        kinds = f"| {r['kafka']} | {r['guarantee']}{control} | {r['driver_kills']} |"
        assert f"{kinds} {r['records']:,} | {r['lost']} | {r['doubled']:,} |" in summary
    killed = [r for r in read(LOST) if r["fault"] in KILLS]
    assert f"{len(killed)} runs" in summary
    assert f"{len(killed) * 100_000 // 1_000_000} million rows" in summary
    assert sum(r["lost"] for r in killed) == 0
    sums: dict[tuple[str, str], int] = {}
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
