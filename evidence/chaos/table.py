"""The tables of docs/internals/reliability.md and scale.md: runs under faults, and planted bugs.

python -m evidence pages     # from the JSON files and the bugs of tests/simulation
"""

import json
from itertools import groupby
from pathlib import Path

from evidence.harness.keeping import locked, replace
from evidence.scale import fleet
from tests.simulation import query_bugs
from tests.simulation.bugs import PRODUCER_BUGS, SASL_BUGS

RESULTS = Path(__file__).parent / "results.json"
EXACTLY_ONCE = RESULTS.with_name("exactly_once_results.json")
_EVIDENCE = RESULTS.parents[1]
PLANTED = RESULTS.with_name("planted_results.json")
LOST = _EVIDENCE / "lost" / "results.json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "reliability.md"


def runs_table(results):
    """One row per job and fault."""
    lines = [
        "| fault | job | records | read | lost | doubled | out of order | tasks failed "
        "| batches sent again | seconds | what happened |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in results:
        lines.append(
            f"| {r['what']} | {r['job']} | {r['records']:,} | {r['read']:,} | {r['lost']} "
            f"| {r['doubled']} | {r['out_of_order']} | {r['tasks_failed']} | {r['retries']:,} "
            f"| {r['seconds']:.0f} | {r['happened']} |"
        )
    return "\n".join(lines)


def bugs_table(bugs):
    """One row per bug that a simulator is made to find, and the scenarios that find it, or seeds."""
    lines = ["| planted bug | what is wrong then | caught by |", "| --- | --- | --- |"]
    for name, bug in bugs.items():
        scenarios = ", ".join(f"`{scenario.func.__name__}`" for scenario in bug.scenarios)
        lines.append(f"| {name} | {bug.what} | {scenarios or 'seeds'} |")
    return "\n".join(lines)


def replaced(text, name, table):
    """``text`` with what stands between the two markers of ``name`` exchanged."""
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def read(path):
    """The results in a file; none if there is no such file."""
    results = []
    if path.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
    return results


def render(text):
    """The document with all tables as they are now."""
    exactly_once = read(EXACTLY_ONCE)
    tables = {
        "runs": runs_table(read(RESULTS)),
        "bugs": bugs_table({**PRODUCER_BUGS, **SASL_BUGS}),
        "query bugs": bugs_table(query_bugs.BUGS),
        "exactly-once": exactly_once_table(exactly_once),
        "query faults": query_faults_table(exactly_once),
        "lost": lost_table(read(LOST)),
        "planted": planted_table(read(PLANTED)),
    }
    for name, table in tables.items():
        text = replaced(text, name, table)
    return text


def write_results(results):
    """Keep ``results``, in place of older ones of the same fault and job."""
    with locked(EXACTLY_ONCE):
        merged = {(r["fault"], r["job"]): r for r in [*read(RESULTS), *results]}
        _write(RESULTS, list(merged.values()))


def write_exactly_once(results):
    """Keep ``results``, in place of older ones of the same Kafka and guarantee. Newest Kafka first,
    the control last.
    """
    with locked(EXACTLY_ONCE):
        merged = {(r["kafka"], r["guarantee"]): r for r in [*read(EXACTLY_ONCE), *results]}
        newest_first = sorted(merged.values(), key=_version, reverse=True)
        _write(EXACTLY_ONCE, sorted(newest_first, key=lambda r: str(r["guarantee"]), reverse=True))


def write_lost(results):
    """Keep ``results``, in place of older ones of the same runs."""
    with locked(EXACTLY_ONCE):
        _write(LOST, merged_lost([*read(LOST), *results]))


def write_planted(results):
    """Keep ``results``, in place of older ones of the same bug and harness."""
    with locked(EXACTLY_ONCE):
        merged = {(r["bug"], r["harness"]): r for r in [*read(PLANTED), *results]}
        _write(PLANTED, list(merged.values()))


def _version(result):
    return [int(part) for part in result["kafka"].split(".")]


def _write(path, results):
    replace(path, json.dumps(results, indent=1) + "\n")
    _write_tables()


def _write_tables():
    for document, rendered in ((DOCUMENT, render), (SCALE_DOCUMENT, render_scale)):
        replace(document, rendered(document.read_text(encoding="utf-8")))


_KINDS = ("driver", "worker", "attempt", "speculation", "broker", "hung", "cut off")


def exactly_once_table(results):
    """One row per run."""
    lines = [
        "| Kafka | delivery | micro-batches | rows | drivers killed | workers killed "
        "| tasks attempted again | coordinators killed | brokers hung | log's leader cut off "
        "| query stopped by itself | read | lost | doubled | left open "
        "| recovery, median and longest | readers waited for a killed task, at most | minutes |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_row(result) for result in results]
    return "\n".join(lines)


def _row(result):
    faults, recovery = result["faults"], result["recovery_s"]
    is_control = result["guarantee"] == "at-least-once"
    left = "–" if is_control else str(len(result["left_open"]) + len(result["found_open"]))
    lag = (
        f"{result['reader_lag_s']['max']:.1f} s, {result['reader_lag_batches']['max']} micro-batch"
    )
    return (
        f"| {result['kafka']} | {result['guarantee']} | {result['micro_batches']:,} "
        f"| {result['records']:,} | {result['driver_kills']} | {faults.get('worker', 0)} "
        f"| {'–' if is_control else result['attempts']} | {faults.get('broker', 0)} "
        f"| {faults.get('hung', 0)} | {faults.get('cut off', 0)} | {len(result['failures'])} "
        f"| {result['read']:,} | {result['lost']:,} | {result['doubled']:,} | {left} "
        f"| {recovery['median']:.0f} s, {recovery['max']:.0f} s | {lag} "
        f"| {result['seconds'] / 60:.0f} |"
    )


def query_faults_table(results):
    """One row per fault, and how often each run with exactly-once delivery went through it."""
    runs = [r for r in results if r["guarantee"] == "exactly-once"]
    names = [f"Kafka {r['kafka']}" for r in runs]
    lines = [
        f"| what was done | {' | '.join(names)} |",
        f"| --- | {' | '.join('---:' for _ in runs)} |",
    ]
    faults = {event["what"]: event["kind"] for run in runs for event in run["events"]}
    for what in sorted(faults, key=lambda name: _KINDS.index(faults[name])):
        counts = [str(sum(e["what"] == what for e in run["events"])) for run in runs]
        lines.append(f"| {what} | {' | '.join(counts)} |")
    return "\n".join(lines)


def _kind_of_loss(result):
    return result["fault"], result["job"], result["guarantee"]


def merged_lost(results):
    """The newest of each run, by kind and number."""
    return list({(*_kind_of_loss(r), r["number"]): r for r in results}.values())


def lost_table(results):
    """One row for each fault, job and guarantee: sums over its runs."""
    lines = [
        "| what is lost | job | delivery | runs | instants | rows | lost | doubled | left open |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    order = list(dict.fromkeys(r["fault"] for r in results))
    by_kind_of_loss = sorted(
        results, key=lambda r: (order.index(r["fault"]), *_kind_of_loss(r)[1:])
    )
    for (_, job, guarantee), runs in (
        (k, list(g)) for k, g in groupby(by_kind_of_loss, _kind_of_loss)
    ):
        instants = len({r["instant"] for r in runs if "instant" in r}) or "–"
        is_open = "–" if guarantee == "at-least-once" else sum(len(r["left_open"]) for r in runs)
        rows = sum(r["read"] - r["doubled"] + r["lost"] for r in runs)
        lines.append(
            f"| {runs[0]['what']} | {job} | {guarantee} | {len(runs)} | {instants} | {rows:,} "
            f"| {sum(r['lost'] for r in runs):,} | {sum(r['doubled'] for r in runs):,} | {is_open} |"
        )
    return "\n".join(lines)


def planted_table(results):
    """One row for each bug and harness."""
    lines = ["| bug | what is wrong then | command | it reports | commit |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for r in results:
        command = f"`{r['command']}`"
        lines.append(f"| {r['bug']} | {r['what']} | {command} | {r['said']} | {r['commit']} |")
    return "\n".join(lines)


SCALE_DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "scale.md"


def storms_table(results):
    """One row per fleet and step."""
    lines = [
        "| producers | connections are | step | all acknowledged after, s | half after, s "
        "| connections made | most at one broker in 0.1 s | given up "
        "| longest wait for a broker's thread, s | metadata requests | most in 0.1 s | failed |",
        "| ---: | --- | --- |" + " ---: |" * 9,
    ]
    for result in results:
        for name, step in result["steps"].items():
            lines.append(
                f"| {result['producers']:,} | {result['connections are']} | {name} "
                f"| {step['last_ms'] / 1000:.1f} | {step['median_ms'] / 1000:.1f} "
                f"| {step['connections']:,} | {step['connections_peak']:,} | {step['given_up']:,} "
                f"| {step['longest_wait_of_a_broker_ms'] / 1000:.1f} "
                f"| {step['metadata_requests']:,} | {step['metadata_peak']:,} | {step['failed']} |"
            )
    return "\n".join(lines)


def render_scale(text):
    """The document with its table as it is now."""
    return replaced(text, "storms", storms_table(read(fleet.RESULTS)))


def main():
    """Write the tables of both documents from the results."""
    with locked(EXACTLY_ONCE):
        _write_tables()
