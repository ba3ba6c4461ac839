"""What make test-parity has seen, in results.json, and docs/internals/parity.md, which is made of it.

``python -m tests.parity.results > docs/internals/parity.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.compatibility.results import version
from tests.parity import batch_cases, stream_cases
from tests.parity.expected import DIFFERS, EXPECTED, SKIPPED, Expected
from tests.parity.world import CASES, Case

__all__ = ["batch_cases", "stream_cases"]
RESULTS = Path(__file__).with_name("results.json")
_HEAD = """\
# Parity with Spark's own sink: every case

For maintainers: the tests of Spark's own Kafka sink, and more of the same kind, as cases that write through both sinks
in one Spark session. `make test-parity` writes this page. Users read [what differs](../parity.md).

*same*: another client read the same rows, with the same keys, values and headers, from the same partitions; or both
sinks rejected them in the same words. *differs*: [the differences](#differences) say how. *none*: this Spark does not
have it. If a suite is named, the case is one of its tests in Python.

"""
_CLASSES = """
Spark's `KafkaSinkBatchSuite` is two, for sources of versions 1 and 2. Not among the cases: tests of parts
that only its own sink has (the reference counts of its producers' pool, delegation tokens), and of sources.
"""


class Result(NamedTuple):
    """Of one case with one Spark. sink: the version of Spark's own one."""

    spark: str
    python: str
    sink: str
    case: str
    outcome: str
    date: str


def read() -> list[Result]:
    if not RESULTS.exists():
        return []
    return [Result(**fields) for fields in json.loads(RESULTS.read_text(encoding="utf-8"))]


def replace(results: Iterable[Result], spark: str) -> None:
    """Keep ``results`` instead of all that there were of this Spark."""
    kept = [result for result in read() if result.spark != spark]
    ordered = sorted([*kept, *results], key=lambda r: (version(r.spark), [*CASES].index(r.case)))
    lines = ",\n".join(json.dumps(result._asdict()) for result in ordered)
    RESULTS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def render() -> str:
    results = read()
    sparks = sorted({result.spark for result in results}, key=version)
    outcomes = {(result.case, result.spark): result.outcome for result in results}
    head = "".join(f" {spark} |" for spark in sparks)
    parts = [
        _HEAD,
        f"| case | Spark's suite |{head}\n",
        "| --- | --- |",
        " --- |" * len(sparks),
        "\n",
    ]
    for case in CASES.values():
        cells = (outcomes.get((case.name, spark), SKIPPED) for spark in sparks)
        shown = "".join(f" {'none' if cell == SKIPPED else cell} |" for cell in cells)
        kind = "stream: " if case.name.startswith("stream") else ""
        parts.append(f"| {kind}{_lower(case.shows)} | {case.suite} |{shown}\n")
    parts += [_CLASSES, "\nRun with:\n\n", *_versions(results)]
    parts += ["\n## Differences\n\n| case | difference |\n| --- | --- |\n", *_differences()]
    return "".join(parts)


def _versions(results: list[Result]) -> Iterator[str]:
    yield "| Spark | Python | Spark's own sink | date |\n| --- | --- | --- | --- |\n"
    rows = {(r.spark, r.python, r.sink, r.date) for r in results}
    for spark, python, sink, date in sorted(rows, key=lambda row: version(row[0])):
        yield f"| {spark} | {python} | {sink} | {date} |\n"


def _differences() -> Iterator[str]:
    grouped: dict[str, list[Case]] = {}
    for name, case in CASES.items():
        expected = EXPECTED.get(name, Expected())
        if expected.outcome == DIFFERS:
            grouped.setdefault(expected.why, []).append(case)
    for why, cases in grouped.items():
        shown = dict.fromkeys(_lower(case.shows) for case in cases)
        yield f"| {'; '.join(shown)} | {why} |\n"


def _lower(text: str) -> str:
    return text if text.startswith("kafka.") or text[1:2].isupper() else text[0].lower() + text[1:]


if __name__ == "__main__":
    sys.stdout.write(render())
