"""The results of weeks that were kept, what is wrong with one, and the tables for maintainers.

python -m evidence pages
"""

import importlib.metadata
import json
import platform
import subprocess
from collections import Counter
from pathlib import Path

from evidence.harness import pages
from spark_kafka_sink import __version__

RESULTS = Path(__file__).with_name("results.json")
_REPOSITORY = Path(__file__).resolve().parents[2]


def versions(kafka):
    """What a week ran with. kafka: of the brokers at its begin"""
    return {
        "kafka": kafka,
        "sink": __version__,
        "spark": importlib.metadata.version("pyspark"),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit():
    """The checkout's, with a mark if its code has changes."""
    git = ["git", "-C", str(_REPOSITORY)]
    name = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], stdout=subprocess.PIPE)
    code = ["spark_kafka_sink", "tests/*.py"]
    changes = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *code])
    return name.stdout.decode().strip() + (" and changes" if changes.returncode else "")


# --- what is wrong -------------------------------------------------------------------------------


def problems_of(result):
    """What must not be, in sentences."""
    problems = [
        f"{name}: {verdict}"
        for name, verdict in result["verdicts"].items()
        if not verdict["is_good"]
    ]
    problems += list(_misread_by_spark(result))
    problems += [f"no cause in the schedule: {a}" for a in result["alarms"]["unexplained"]]
    problems += [f"no alarm: {event}" for event in result["alarms"]["missing"]]
    problems += [f"not flat: {slope}" for slope in result["slopes"] if slope["is_flat"] is False]
    problems += [f"not judged: {role}" for role in result["not_judged"]]
    problems += [f"ids: {row}" for row in result["producer_ids"] if row["is_flat"] is False]
    problems += [f"no progress after: {event}" for event in result["events"] if event["stuck"]]
    problems += [f"no fault: {event}" for event in result["events"] if "failed" in event]
    end = result["end"]
    if end["status"] != 0 or end["left_open"] or end["processes"]:
        problems.append(f"not all has ended by itself: {end}")
    problems += [f"the driver ended by itself: {death}" for death in result["driver_deaths"]]
    problems += [f"the watch did not see all: {error}" for error in result["watch_errors"]]
    scrapes = result["scrapes"]
    if scrapes["asked"] and not scrapes["answered"]:
        problems.append("Prometheus has scraped nothing")
    return problems


def _misread_by_spark(result):
    """Spark's source must find what confluent-kafka has found; dead letters are in other topics."""
    for name, found in result["spark"].items():
        verdict = result["verdicts"][name]
        rows = verdict["read"] - sum(verdict.get("dead_letters", {}).values())
        if found.get("rows") != rows or found.get("once", rows) != rows:
            yield f"Spark's source reads {found} of {name}, not {rows} rows"


# --- results -------------------------------------------------------------------------------------


def keep(result):
    """Add one week to the results. Short sentences stand for the texts of its problems."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    shortened = {
        "failures": dict(Counter(failure["workload"] for failure in result["failures"])),
        "problems": [problem[:300] for problem in result["problems"]],
    }
    kept.append({**result, **shortened})
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    pages.write(PAGES)


def tables(weeks=None):
    """Of docs/internals/week.md: all weeks, numbered in the order in which they ran, and their rows."""
    if weeks is None:
        weeks = json.loads(RESULTS.read_text(encoding="utf-8"))
    numbered = [*enumerate(weeks, 1)]
    of_weeks = [
        [
            *(number, week["at"], week["versions"]["commit"], str(week["seed"])),
            *(week["versions"]["kafka"], week["versions"]["spark"]),
            *(f"{week['minutes']:.0f}", f"{week['quiet_minutes']:.0f}"),
            *(len(week["events"]), week["driver_starts"], sum(week["failures"].values())),
            *(f"{week['end']['seconds']} s", ", ".join(week["lacking"]) or "–"),
            f"**{len(week['problems'])} wrong**" if week["problems"] else "good",
        ]
        for number, week in numbered
    ]
    rows = [
        [
            *(number, name, v["expected"], v["lost"], v["deleted"], v["doubled"]),
            *(v["out_of_order"], sum(v["problems"].values())),
            *(sum(v.get("dead_letters", {}).values()), week["spark"][name].get("rows", 0)),
        ]
        for number, week in numbered
        for name, v in week["verdicts"].items()
    ]
    heads = ["week", "date", "commit", "seed", "Kafka", "Spark", "minutes", "without faults"]
    heads += ["faults", "drivers", "writes restarted", "ended after", "lacks", "verdict"]
    of_rows = ["week", "workload", "rows", "lost", "deleted", "twice", "order", "other"]
    of_rows += ["dead letters", "records by Spark"]
    return {"weeks": pages.table(heads, of_weeks), "rows": pages.table(of_rows, rows)}


PAGES = {pages.DOCS / "internals/week.md": tables}
