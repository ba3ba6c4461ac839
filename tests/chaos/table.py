"""The parts of docs/internals/reliability.md that are generated: runs under faults, and planted bugs.

python -m tests.chaos.table     # from the JSON files in tests/chaos and the bugs of tests/simulation
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos.exactly_once_table import exactly_once_table, query_faults_table
from tests.clusters.lost import table as lost
from tests.simulation import query_bugs
from tests.simulation.bugs import Bug
from tests.simulation.refusal_bugs import PRODUCER_BUGS
from tests.simulation.sasl_bugs import SASL_BUGS

RESULTS = Path(__file__).parent / "results.json"
EXACTLY_ONCE = Path(__file__).parent / "exactly_once_results.json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "reliability.md"


def runs_table(results: list[dict[str, Any]]) -> str:
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


def bugs_table(bugs: Mapping[str, Bug]) -> str:
    """One row per bug that a simulator is made to find, and the scenarios that find it, or seeds."""
    lines = ["| planted bug | what is wrong then | caught by |", "| --- | --- | --- |"]
    for name, bug in bugs.items():
        scenarios = ", ".join(f"`{scenario.func.__name__}`" for scenario in bug.scenarios)
        lines.append(f"| {name} | {bug.what} | {scenarios or 'seeds'} |")
    return "\n".join(lines)


def replaced(text: str, name: str, table: str) -> str:
    """``text`` with what stands between the two markers of ``name`` exchanged."""
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def read(path: Path) -> list[dict[str, Any]]:
    """The results in a file; none if there is no such file."""
    results: list[dict[str, Any]] = []
    if path.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
    return results


def render(text: str) -> str:
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


def write_results(results: list[dict[str, Any]]) -> None:
    """Keep ``results``, in place of older ones of the same fault and job."""
    with _alone():
        merged = {(r["fault"], r["job"]): r for r in [*read(RESULTS), *results]}
        _write(RESULTS, list(merged.values()))


def write_exactly_once(results: list[dict[str, Any]]) -> None:
    """Keep ``results``, in place of older ones of the same Kafka and guarantee. Newest Kafka first,
    the control last.
    """
    with _alone():
        merged = {(r["kafka"], r["guarantee"]): r for r in [*read(EXACTLY_ONCE), *results]}
        newest_first = sorted(merged.values(), key=_version, reverse=True)
        _write(EXACTLY_ONCE, sorted(newest_first, key=lambda r: str(r["guarantee"]), reverse=True))


def _version(result: dict[str, Any]) -> list[int]:
    return [int(part) for part in result["kafka"].split(".")]


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: runs against several versions may end together."""
    folder = os.open(EXACTLY_ONCE.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: Path, results: list[dict[str, Any]]) -> None:
    _replace(path, json.dumps(results, indent=1) + "\n")
    _write_tables()


def _write_tables() -> None:
    _replace(DOCUMENT, render(DOCUMENT.read_text(encoding="utf-8")))


def _replace(path: Path, text: str) -> None:
    """Whoever reads it meanwhile finds the old text or the new one, whole."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)


def write_tables() -> None:
    """Rewrite docs/internals/reliability.md."""
    with _alone():
        _write_tables()


if __name__ == "__main__":
    write_tables()
