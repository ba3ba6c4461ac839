"""The table of runs in which executors were lost, for docs/internals/reliability.md."""

import json
from itertools import groupby
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "lost_results.json"


def _kind(result):
    return result["fault"], result["job"], result["guarantee"]


def merged(results):
    """The newest of each run, by kind and number."""
    return list({(*_kind(r), r["number"]): r for r in results}.values())


def read():
    """All results that are kept."""
    results = []
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def lost_table(results):
    """One row for each fault, job and guarantee: sums over its runs."""
    lines = [
        "| what is lost | job | delivery | runs | instants | rows | lost | doubled | left open |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    order = list(dict.fromkeys(r["fault"] for r in results))
    by_kind = sorted(results, key=lambda r: (order.index(r["fault"]), *_kind(r)[1:]))
    for (_, job, guarantee), runs in ((k, list(g)) for k, g in groupby(by_kind, _kind)):
        instants = len({r["instant"] for r in runs if "instant" in r}) or "–"
        is_open = "–" if guarantee == "at-least-once" else sum(len(r["left_open"]) for r in runs)
        rows = sum(r["read"] - r["doubled"] + r["lost"] for r in runs)
        lines.append(
            f"| {runs[0]['what']} | {job} | {guarantee} | {len(runs)} | {instants} | {rows:,} "
            f"| {sum(r['lost'] for r in runs):,} | {sum(r['doubled'] for r in runs):,} | {is_open} |"
        )
    return "\n".join(lines)


def write(results):
    """Keep ``results``, in place of older ones of the same runs, and rewrite the document."""
    from tests.chaos.table import write_tables

    kept = merged([*read(), *results])
    hidden = RESULTS.with_name(f".{RESULTS.name}")
    hidden.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    hidden.replace(RESULTS)
    write_tables()
