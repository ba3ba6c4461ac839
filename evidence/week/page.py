"""The results of weeks that were kept, what is wrong with one, and the page for maintainers.

python -m evidence pages     # writes the page again
"""

import importlib.metadata
import json
import platform
import subprocess
from collections import Counter
from pathlib import Path

from evidence.week.schedule import FAULTS
from spark_kafka_sink import __version__

RESULTS = Path(__file__).with_name("results.json")
_REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = _REPOSITORY / "docs" / "internals" / "week.md"


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
    write()


def write():
    """The page of all weeks that are kept."""
    weeks = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(weeks), encoding="utf-8")


# --- the page ------------------------------------------------------------------------------------


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def page(weeks):
    """All weeks, numbered in the order in which they ran."""
    numbered = [*enumerate(weeks, 1)]
    return "\n".join(
        [
            "# A week in a few hours",
            "",
            "This page is for maintainers: all capabilities together under a seeded schedule of",
            "faults, by `make evidence NAME=week`. Three secured brokers, a schema registry behind TLS, Prometheus",
            "and a standalone Spark cluster with two workers run on one machine. Five workloads write",
            "at the same time. confluent-kafka and Spark's own source read back what they wrote.",
            "",
            "```",
            'make evidence NAME=week ARGUMENTS="--seed 2 --minutes 180 --kafka 3.9.1 --keep"',
            'python -m evidence week --minutes 3 --faults "network cut"',
            "python -m evidence week --seed 1 --minutes 60 --seconds-per-file 10 --keep",
            "```",
            "",
            "Weeks 1 to 3 ran with the options of the last command, each with its seed and version of Kafka,",
            "weeks 4 and 5 with `--minutes 45 --quiet-minutes 8`.",
            "",
            *_weeks(numbered),
            *_rows(numbered),
            *_faults(weeks),
            *_flat(numbered),
            *_alarms(weeks),
            *_findings(),
        ]
    )


def _weeks(numbered):
    rows = [
        [
            *(number, week["at"], week["versions"]["commit"], week["seed"]),
            *(week["versions"]["kafka"], week["versions"]["spark"]),
            *(f"{week['minutes']:.0f}", f"{week['quiet_minutes']:.0f}"),
            *(len(week["events"]), week["driver_starts"], sum(week["failures"].values())),
            *(f"{week['end']['seconds']} s", f"**{n} wrong**" if (n := _wrong(week)) else "good"),
        ]
        for number, week in numbered
    ]
    header = ["week", "date", "commit", "seed", "Kafka", "Spark", "minutes", "without faults"]
    header += ["faults", "drivers", "writes restarted", "ended after", "verdict"]
    lacking = [f"- Week {n}: {', '.join(w['lacking'])}." for n, w in numbered if w["lacking"]]
    wrong = [f"- Week {n}: `{_cell(text)}`" for n, week in numbered for text in week["problems"]]
    return [
        "## Weeks",
        "",
        *table(header, rows),
        "",
        "A write that fails is started again, as a supervisor of jobs does it. The time at the end is",
        "from the end of the input until the driver ended by itself.",
        "",
        *(["Wrong in these weeks:", "", *wrong, ""] if wrong else []),
        *(["The machine lacked, and faults were skipped:", "", *lacking, ""] if lacking else []),
    ]


def _wrong(week):
    return len(week["problems"])


def _cell(text):
    return " ".join(text.replace("|", "/").replace("`", "'").split())


def _rows(numbered):
    rows = [
        [
            *(number, name, f"{v['expected']:,}", v["lost"], v["deleted"], v["doubled"]),
            *(v["out_of_order"], sum(v["problems"].values())),
            *(sum(v.get("dead_letters", {}).values()), f"{week['spark'][name].get('rows', 0):,}"),
        ]
        for number, week in numbered
        for name, v in week["verdicts"].items()
    ]
    header = ["week", "workload", "rows", "lost", "deleted", "twice", "order", "other"]
    return [
        "## Rows",
        "",
        *table([*header, "dead letters", "records by Spark"], rows),
        "",
        "Rows that were in a topic when the schedule deleted it are counted apart. The workloads `avro`",
        "and `writer` write exactly once; the others may write a row twice. The last column does not",
        "count dead letters.",
        "",
    ]


def _faults(weeks):
    events = [e for week in weeks for e in week["events"] if not {"skipped", "failed"} & set(e)]
    found = {
        name: [event for event in events if event["fault"] == name]
        for name in sorted({event["fault"] for event in events})
    }
    missing = sorted(set(FAULTS) - set(found))
    rows = [
        [
            *(name, FAULTS[name].what if name in FAULTS else "", len(some)),
            f"{max(e['recovered_s'] for e in some):.0f} s",
        ]
        for name, some in found.items()
    ]
    return [
        "## Faults",
        "",
        *table(["fault", "what happens", "times", "longest recovery"], rows),
        "",
        "A recovery lasts until each workload has committed twice.",
        "",
        *(["Never brought about:", "", *(f"- {n}" for n in missing), ""] if missing else []),
    ]


def _flat(numbered):
    slopes = [
        [
            *(number, s["role"], s["figure"], s["lives"]),
            f"{s['per_minute']:.2f} ({s['low']:.2f} to {s['high']:.2f})",
            _yes(s),
        ]
        for number, week in numbered
        for s in week["slopes"]
        if s["is_flat"] is not None
    ]
    ids = [
        [number, row["workload"], row["new_ids"], row["writes"], _yes(row)]
        for number, week in numbered
        for row in week["producer_ids"]
        if row["is_flat"] is not None
    ]
    return [
        "## Flat",
        "",
        "Growth per minute with its 95 % confidence interval, of processes that lived ten minutes or",
        "longer. A figure is flat unless the whole interval lies above its limit. The heaps of JVMs have",
        "their size from the start.",
        "",
        *table(["week", "process", "figure", "lives", "per minute", "flat"], slopes),
        "",
        "New producer ids that a broker remembers for one partition after the minutes without faults.",
        "They are flat if they are fewer than half of the micro-batches and jobs of these minutes.",
        "",
        *table(["week", "workload", "new ids", "writes", "flat"], ids),
        "",
    ]


def _yes(row):
    return "yes" if row["is_flat"] else "**no**"


def _alarms(weeks):
    alarms = Counter()
    for week in weeks:
        alarms.update(week["alarms"]["counts"])
    unexplained = sum(len(week["alarms"]["unexplained"]) for week in weeks)
    missing = sum(len(week["alarms"]["missing"]) for week in weeks)
    return [
        "## Alarms",
        "",
        f"{sum(alarms.values()):,} alarms of logs, failed tasks and writes, and the page. Without a cause",
        f"in the schedule: {unexplained}. Faults that must raise an alarm and did not: {missing}.",
        "Brokers also elect leaders by themselves: the preferred ones again within five minutes, and others",
        "if a heartbeat comes late. Such an election is a cause of records that are sent again.",
        "",
        *table(["alarm", "times"], alarms.items()),
        "",
    ]


FINDINGS = (
    (
        "After the fault `clock`, a worker whose token could not be renewed while the clock was ahead"
        " retried only when the clock had reached that time again, ten minutes later.",
        "security/oauth_tokens.py: `TokenKeeper._now_ms`",
        "test_tokens.py: `test_a_clock_that_is_set_back_does_not_postpone_the_retry`",
    ),
    (
        "Records were sent again without a fault: brokers elected their preferred leaders minutes after"
        " a fault, or others because a heartbeat was late.",
        "the brokers' logs explain it, evidence/week/watch.py",
        "test_week.py: `test_leaders_that_brokers_elect_explain_records_that_are_sent_again`",
    ),
    (
        "The driver's Python process kept a thread and a socket for each query that had ended. Spark"
        " does this without the sink, too.",
        "known-issues.md; the harness subtracts them",
        "test_week.py: `test_what_spark_keeps_of_ended_queries_is_no_growth`",
    ),
    (
        "Nothing told why records had been sent again. Those of exactly-once that wait for the transaction"
        " before were a finding of the page, which advised to look at the brokers.",
        "`record_retries_by_error` in lines of metrics, and in the finding `retried`",
        "test_report_advice.py: `test_why_records_were_sent_again`",
    ),
    (
        "Records were sent again for NOT_LEADER_OR_FOLLOWER a minute after an election: a worker that writes to"
        " a partition again knows its former leader, up to `kafka.metadata.max.age.ms`, as with Java's producer.",
        "the harness looks for elections so long before, for this error alone",
        "test_week.py: `test_leaders_that_brokers_elect_explain_records_that_are_sent_again`",
    ),
    (
        "Prometheus had no answer for 20 s while a simulation of 10,000 producers ran on the same two cores.",
        "the harness asks for a minute without an answer",
        "none: it depended on the load",
    ),
)
"""What kept weeks have found: what happened, what was changed, and its test."""


def _findings():
    return [
        "## Found",
        "",
        *table(["what happened", "what was changed", "test"], FINDINGS),
        "",
        "The weeks of 2026-11-26 ran three at a time on two cores, at a load of 45 to 75, those of 2026-11-27 two at a",
        "time, at 25 to 40. Problems are those that the harness named then. Not explained: 25 records that week 3",
        "sent again while it began, and the threads of executors' JVMs in week 4. They run none of the sink's",
        "code, and their threads were flat in the other weeks.",
        "",
    ]
