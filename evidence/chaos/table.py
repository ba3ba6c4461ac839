"""The tables of docs/internals/reliability.md and scale.md: runs under faults, and planted bugs.

python -m evidence pages     # from the JSON files and the bugs of tests/simulation
"""

import json
from itertools import groupby
from pathlib import Path

from evidence.harness import pages
from evidence.harness.keeping import locked, replace
from evidence.harness.pages import DOCS, table
from evidence.scale import fleet
from tests.simulation import query_bugs
from tests.simulation.bugs import PRODUCER_BUGS, SASL_BUGS

RESULTS = Path(__file__).parent / "results.json"
EXACTLY_ONCE = RESULTS.with_name("exactly_once_results.json")
PLANTED = RESULTS.with_name("planted_results.json")
LOST = RESULTS.parents[1] / "lost" / "results.json"
_KINDS = ("driver", "worker", "attempt", "speculation", "broker", "hung", "cut off")


def read(path):
    """The results in a file; none if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def tables():
    """Of docs/internals/reliability.md."""
    exactly_once = read(EXACTLY_ONCE)
    return {
        "runs": runs_table(read(RESULTS)),
        "bugs": bugs_table({**PRODUCER_BUGS, **SASL_BUGS}),
        "query bugs": bugs_table(query_bugs.BUGS),
        "exactly-once": exactly_once_table(exactly_once),
        "query faults": query_faults_table(exactly_once),
        "lost": lost_table(read(LOST)),
        "planted": _named(read(PLANTED), _OF_PLANTED),
    }


PAGES = {
    DOCS / "internals/reliability.md": tables,
    DOCS / "internals/scale.md": lambda: {"storms": storms_table(read(fleet.RESULTS))},
}


def _keep(path, merged):
    """``merged``: makes the results to keep of those that are kept."""
    with locked(EXACTLY_ONCE):
        replace(path, json.dumps(merged(read(path)), indent=1) + "\n")
        pages.write(PAGES)


def _newest(results, *key):
    return list({tuple(r[name] for name in key): r for r in results}.values())


def write_results(results):
    """Keep ``results``, in place of older ones of the same fault and job."""
    _keep(RESULTS, lambda kept: _newest([*kept, *results], "fault", "job"))


def write_exactly_once(results):
    """Keep ``results``, in place of older ones of the same Kafka and guarantee. Newest Kafka first,
    the control last.
    """

    def merged(kept):
        all_of_them = _newest([*kept, *results], "kafka", "guarantee")
        newest_first = sorted(all_of_them, key=_version, reverse=True)
        return sorted(newest_first, key=lambda r: r["guarantee"], reverse=True)

    _keep(EXACTLY_ONCE, merged)


def _version(result):
    return [int(part) for part in result["kafka"].split(".")]


def write_lost(results):
    """Keep ``results``, in place of older ones of the same runs."""
    _keep(LOST, lambda kept: merged_lost([*kept, *results]))


def merged_lost(results):
    """The newest of each run, by kind and number."""
    return _newest(results, *_KIND_OF_LOSS, "number")


_KIND_OF_LOSS = ("fault", "job", "guarantee")


def write_planted(results):
    """Keep ``results``, in place of older ones of the same bug and harness."""
    _keep(PLANTED, lambda kept: _newest([*kept, *results], "bug", "harness"))


# --- tables --------------------------------------------------------------------------------------


def _named(results, columns):
    """A row for each result. columns: by head, the key of the cell, or what makes it of the result"""
    rows = [[c(r) if callable(c) else r[c] for c in columns.values()] for r in results]
    return table(list(columns), rows)


_OF_PLANTED = {
    "bug": "bug",
    "what is wrong then": "what",
    "command": lambda r: f"`{r['command']}`",
    "it reports": "said",
    "commit": "commit",
}


def runs_table(results):
    """One row per job and fault."""
    columns = {"fault": "what", **{n: n for n in ("job", "records", "read", "lost", "doubled")}}
    columns |= {"out of order": "out_of_order", "tasks failed": "tasks_failed"}
    columns |= {"batches sent again": "retries", "seconds": lambda r: round(r["seconds"])}
    return _named(results, {**columns, "what happened": "happened"})


def bugs_table(bugs):
    """One row per bug that a simulator is made to find, and the scenarios that find it, or seeds."""
    rows = []
    for name, bug in bugs.items():
        scenarios = ", ".join(f"`{scenario.func.__name__}`" for scenario in bug.scenarios)
        rows.append([name, bug.what, scenarios or "seeds"])
    return table(["planted bug", "what is wrong then", "caught by"], rows)


def exactly_once_table(results):
    """One row per run."""

    def faults(kind):
        return lambda r: r["faults"].get(kind, 0)

    def unless_control(told):
        return lambda r: "–" if r["guarantee"] == "at-least-once" else told(r)

    def lag(r):
        return f"{r['reader_lag_s']['max']:.1f} s, {r['reader_lag_batches']['max']} micro-batch"

    columns = {
        "Kafka": "kafka",
        "delivery": "guarantee",
        "micro-batches": "micro_batches",
        "rows": "records",
        "drivers killed": "driver_kills",
        "workers killed": faults("worker"),
        "tasks attempted again": unless_control(lambda r: r["attempts"]),
        "coordinators killed": faults("broker"),
        "brokers hung": faults("hung"),
        "log's leader cut off": faults("cut off"),
        "query stopped by itself": lambda r: len(r["failures"]),
        "read": "read",
        "lost": "lost",
        "doubled": "doubled",
        "left open": unless_control(lambda r: len(r["left_open"]) + len(r["found_open"])),
        "recovery, median and longest": lambda r: "{median:.0f} s, {max:.0f} s".format(
            **r["recovery_s"]
        ),
        "readers waited for a killed task, at most": lag,
        "minutes": lambda r: round(r["seconds"] / 60),
    }
    return _named(results, columns)


def query_faults_table(results):
    """One row per fault, and how often each run with exactly-once delivery went through it."""
    runs = [r for r in results if r["guarantee"] == "exactly-once"]
    faults = {event["what"]: event["kind"] for run in runs for event in run["events"]}
    rows = [
        [what, *(sum(e["what"] == what for e in run["events"]) for run in runs)]
        for what in sorted(faults, key=lambda name: _KINDS.index(faults[name]))
    ]
    return table(["what was done", *(f"Kafka {r['kafka']}" for r in runs)], rows)


def lost_table(results):
    """One row for each fault, job and guarantee: sums over its runs."""
    order = list(dict.fromkeys(r["fault"] for r in results))

    def kind(result):
        fault, *others = (result[name] for name in _KIND_OF_LOSS)
        return (order.index(fault), *others)

    rows = []
    for (_, job, guarantee), group in groupby(sorted(results, key=kind), kind):
        runs = list(group)
        instants = len({r["instant"] for r in runs if "instant" in r}) or "–"
        is_open = "–" if guarantee == "at-least-once" else sum(len(r["left_open"]) for r in runs)
        lost, doubled, read_back = (sum(r[n] for r in runs) for n in ("lost", "doubled", "read"))
        row = [runs[0]["what"], job, guarantee, len(runs), instants, read_back - doubled + lost]
        rows.append([*row, lost, doubled, is_open])
    heads = ["what is lost", "job", "delivery", "runs", "instants", "rows", "lost", "doubled"]
    return table([*heads, "left open"], rows)


def storms_table(results):
    """One row per fleet and step."""
    columns = {
        "producers": "producers",
        "connections are": "connections are",
        "step": "step",
        "all acknowledged after, s": lambda r: f"{r['last_ms'] / 1000:.1f}",
        "half after, s": lambda r: f"{r['median_ms'] / 1000:.1f}",
        "connections made": "connections",
        "most at one broker in 0.1 s": "connections_peak",
        "given up": "given_up",
        "longest wait for a broker's thread, s": lambda r: (
            f"{r['longest_wait_of_a_broker_ms'] / 1000:.1f}"
        ),
        "metadata requests": "metadata_requests",
        "most in 0.1 s": "metadata_peak",
        "failed": "failed",
    }
    steps = [{**r, "step": n, **step} for r in results for n, step in r["steps"].items()]
    return _named(steps, columns)
