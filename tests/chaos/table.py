"""The parts of docs/reliability.md that are generated: runs under faults, and planted bugs.

python -m tests.chaos.table     # from tests/chaos/results.json and tests/simulation/bugs.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.simulation.bugs import BUGS

RESULTS = Path(__file__).parent / "results.json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


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


def bugs_table() -> str:
    """One row per bug that the simulator is made to find."""
    lines = ["| planted bug | what is wrong then |", "| --- | --- |"]
    lines += [f"| {name} | {bug.what} |" for name, bug in BUGS.items()]
    return "\n".join(lines)


def replaced(text: str, name: str, table: str) -> str:
    """``text`` with what stands between the two markers of ``name`` exchanged."""
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def render(text: str, results: list[dict[str, Any]]) -> str:
    """The document with both tables as they are now."""
    return replaced(replaced(text, "runs", runs_table(results)), "bugs", bugs_table())


def write_results(results: list[dict[str, Any]]) -> None:
    """Keep ``results``, in place of older ones of the same fault and job."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    merged = {(r["fault"], r["job"]): r for r in [*known, *results]}
    RESULTS.write_text(json.dumps(list(merged.values()), indent=1) + "\n", encoding="utf-8")
    write_table(list(merged.values()))


def write_table(results: list[dict[str, Any]]) -> None:
    """Rewrite docs/reliability.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(render(text, results), encoding="utf-8")


if __name__ == "__main__":
    write_table(json.loads(RESULTS.read_text(encoding="utf-8")))
