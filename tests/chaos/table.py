"""The parts of docs/internals/reliability.md that are generated: runs under faults, and planted bugs.

python -m tests.chaos.table     # from the JSON files in tests/chaos and the bugs of tests/simulation
"""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.exactly_once_table import exactly_once_table, query_faults_table
from tests.clusters.lost import table as lost
from tests.simulation import query_bugs
from tests.simulation.refusal_bugs import PRODUCER_BUGS
from tests.simulation.sasl_bugs import SASL_BUGS

RESULTS = Path(__file__).parent / "results.json"
EXACTLY_ONCE = Path(__file__).parent / "exactly_once_results.json"
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
        "lost": lost.lost_table(lost.read()),
    }
    for name, table in tables.items():
        text = replaced(text, name, table)
    return text


def write_results(results):
    """Keep ``results``, in place of older ones of the same fault and job."""
    with _alone():
        merged = {(r["fault"], r["job"]): r for r in [*read(RESULTS), *results]}
        _write(RESULTS, list(merged.values()))


def write_exactly_once(results):
    """Keep ``results``, in place of older ones of the same Kafka and guarantee. Newest Kafka first,
    the control last.
    """
    with _alone():
        merged = {(r["kafka"], r["guarantee"]): r for r in [*read(EXACTLY_ONCE), *results]}
        newest_first = sorted(merged.values(), key=_version, reverse=True)
        _write(EXACTLY_ONCE, sorted(newest_first, key=lambda r: str(r["guarantee"]), reverse=True))


def _version(result):
    return [int(part) for part in result["kafka"].split(".")]


@contextmanager
def _alone():
    """One process at a time: runs against several versions may end together."""
    folder = os.open(EXACTLY_ONCE.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path, results):
    _replace(path, json.dumps(results, indent=1) + "\n")
    _write_tables()


def _write_tables():
    _replace(DOCUMENT, render(DOCUMENT.read_text(encoding="utf-8")))


def _replace(path, text):
    """Whoever reads it meanwhile finds the old text or the new one, whole."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)


def write_tables():
    """Rewrite docs/internals/reliability.md."""
    with _alone():
        _write_tables()


if __name__ == "__main__":
    write_tables()
