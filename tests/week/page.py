"""The results of weeks that were kept, what is wrong with one, and the page for maintainers.

python -m tests.week.page     # writes the page again
"""

import json
from collections import Counter
from pathlib import Path

from tests.week.schedule import FAULTS

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "week.md"
NOT_YET = (
    "Spark's own source reads the topics of the exactly-once workloads alone.",
    "Producer ids are counted, and not judged.",
)


def problems_of(result):
    """What must not be, in sentences."""
    problems = [
        f"{name}: {verdict}"
        for name, verdict in result["verdicts"].items()
        if not verdict["is_good"]
    ]
    problems += [f"no cause in the schedule: {a}" for a in result["alarms"]["unexplained"]]
    problems += [f"no alarm: {event}" for event in result["alarms"]["missing"]]
    problems += [f"not flat: {slope}" for slope in result["slopes"] if slope["is_flat"] is False]
    problems += [f"no progress after: {event}" for event in result["events"] if event["stuck"]]
    problems += [
        f"Spark's source reads rows twice: {t}"
        for t, found in result["spark"].items()
        if found["rows"] != found["once"]
    ]
    if result["end"]["status"] != 0:
        problems.append(f"the driver did not end by itself, or badly: {result['end']}")
    problems += [f"the driver ended by itself: {death}" for death in result["driver_deaths"]]
    scrapes = result["scrapes"]
    if scrapes["asked"] and not scrapes["answered"]:
        problems.append("Prometheus has scraped nothing")
    return problems


def keep(result):
    """Add one week to the results; a week of the same seed and version is replaced."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    key = ("seed", "kafka")
    kept = [one for one in kept if any(one[name] != result[name] for name in key)]
    kept.append({**result, "failures": summary_of(result["failures"])})
    kept.sort(key=lambda one: [one[name] for name in key])
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    write()


def summary_of(failures):
    """How often each workload failed and was started again."""
    return dict(Counter(failure["workload"] for failure in failures))


def write():
    """The page of all weeks that are kept."""
    weeks = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(weeks), encoding="utf-8")


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def page(weeks):
    missing = sorted(set(FAULTS) - {name for name, _ in _faults(weeks)})
    lines = [
        "# A week in a few hours",
        "",
        "For maintainers: all capabilities together under a seeded schedule of faults, by `make week`.",
        "Three secured brokers, a schema registry behind TLS, Prometheus and a standalone Spark cluster",
        "with two workers run on one machine. Five workloads write at the same time, and confluent-kafka",
        "reads back what they wrote.",
        "",
        "Not done yet:",
        "",
        *(f"- {text}" for text in NOT_YET),
        "",
        "## Weeks",
        "",
        *table(
            ["seed", "Kafka", "minutes", "faults", "drivers", "writes restarted", "ended after"],
            [
                [
                    *(week["seed"], week["kafka"], week["minutes"], len(week["events"])),
                    *(week["driver_starts"], sum(week["failures"].values())),
                    f"{week['end']['seconds']} s",
                ]
                for week in weeks
            ],
        ),
        "",
        "A write that fails is started again, as a supervisor of jobs does it. The last column is the",
        "time from the end of the input until the driver ended by itself.",
        "",
        "## Rows",
        "",
        *table(
            ["seed", "Kafka", "workload", "rows", "lost", "deleted", "twice", "order", "other"],
            [
                [
                    *(week["seed"], week["kafka"], name, f"{v['expected']:,}", v["lost"]),
                    *(v["deleted"], v["doubled"], v["out_of_order"], sum(v["problems"].values())),
                ]
                for week in weeks
                for name, v in week["verdicts"].items()
            ],
        ),
        "",
        "Rows of a topic that the schedule deleted are counted apart. The workloads `avro` and `writer`",
        "write exactly once; the others may write a row twice.",
        "",
        "## Faults",
        "",
        *table(
            ["fault", "times", "longest recovery"],
            [
                [name, len(found), f"{max(e['recovered_s'] for e in found):.0f} s"]
                for name, found in _faults(weeks)
            ],
        ),
        "",
        "A recovery lasts until each workload has committed twice.",
        *(
            ["Never brought about in these weeks:", "", *(f"- {n}" for n in missing)]
            if missing
            else []
        ),
        "",
        *_more(weeks),
    ]
    return "\n".join(lines)


def _faults(weeks):
    events = [event for week in weeks for event in week["events"] if "skipped" not in event]
    for name in sorted({event["fault"] for event in events}):
        yield name, [event for event in events if event["fault"] == name]


def _more(weeks):
    """Slopes and alarms."""
    slopes = [
        [
            *(week["seed"], week["kafka"], s["role"], s["figure"], s["lives"]),
            f"{s['per_minute']:.2f} ({s['low']:.2f} to {s['high']:.2f})",
            "yes" if s["is_flat"] else "**no**",
        ]
        for week in weeks
        for s in week["slopes"]
        if s["is_flat"] is not None
    ]
    alarms = Counter()
    for week in weeks:
        alarms.update(week["alarms"]["counts"])
    unexplained = sum(len(week["alarms"]["unexplained"]) for week in weeks)
    missing = sum(len(week["alarms"]["missing"]) for week in weeks)
    return [
        "## Flat",
        "",
        "Growth per minute with its 95 % confidence interval, of processes that lived five minutes or",
        "longer. A figure is flat unless the whole interval lies above its limit.",
        "",
        *table(["seed", "Kafka", "process", "figure", "lives", "per minute", "flat"], slopes),
        "",
        "## Alarms",
        "",
        f"{sum(alarms.values()):,} alarms of logs, failed writes and the page. Without a cause in the",
        f"schedule: {unexplained}. Faults that must raise an alarm and did not: {missing}.",
        "",
        *table(["alarm", "times"], alarms.items()),
        "",
    ]


if __name__ == "__main__":
    write()
