"""Records of what was run with which versions, kept in results.json.

Test runs add them; ``python -m evidence pages`` makes docs/compatibility.md of them.
Works in any Python from 3.8 on and needs nothing installed: tests of other versions import it too.

    with results.of(spark="4.0.2", kafka="4.3.0", what="batch", where="local",
                    command="make evidence NAME=versions"):
        ...  # what is tested

A record of the same versions, what and where is replaced.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
from pathlib import Path
from typing import NamedTuple

from evidence.harness.keeping import locked, replace

RESULTS = Path(__file__).with_name("results.json")

PASSED, FAILED, NO = "passed", "failed", "no"

WHAT = ("batch", "stream", "foreachBatch", "exactly-once batch", "exactly-once stream")
"""What Spark does with the sink."""
WHERE = (
    "local",
    "local-cluster",
    "standalone client",
    "standalone cluster",
    "connect",
    "yarn client",
    "yarn cluster",
)
"""Where Spark runs."""
BROKER = "broker"
"""In ``where``: the producer and a broker, without Spark."""


class Result(NamedTuple):
    """One thing that was run.

    ``spark``, ``python`` and ``kafka`` are whole versions ("4.0.2"), ``spark`` empty where there is
    none. ``outcome`` is "passed" or "failed"; or "no" for what was seen to be refused, with the
    ``reason`` as the document shall give it. ``date`` is a day, ISO 8601.
    """

    spark: str
    python: str
    kafka: str
    what: str
    where: str
    outcome: str
    command: str
    date: str
    reason: str = ""

    @property
    def key(self):
        """Of the records with one key, only the last is kept."""
        return self[:5]


@contextlib.contextmanager
def of(*, what, where, kafka, command, spark="", python="", no=""):
    """Record that the body passed, or failed. ``python`` is this interpreter's if not given.

    ``no``: the body shows that this does not work, and is refused; the reason, for the document.

    May be used by several tests of the same: what has failed once in this process stays failed.
    """
    python = python or platform.python_version()
    today = datetime.date.today().isoformat()
    result = Result(spark, python, kafka, what, where, FAILED, command, today)
    try:
        yield
    except Exception:
        _failed.add(result.key)
        add(result)
        raise
    if result.key not in _failed:
        add(result._replace(outcome=NO if no else PASSED, reason=no))


_failed: set = set()


def add(*results, path=RESULTS):
    """Keep ``results``, in place of those of the same keys. Other processes may do so too.

    Raises ValueError for a result that the document has no place for.
    """
    for result in results:
        _check(result)
    with locked(path):
        kept = {result.key: result for result in read(path)}
        kept.update({result.key: result for result in results})
        replace(path, _text(kept.values()))


def read(path=RESULTS):
    """All of them, in the order of their keys."""
    if not path.exists():
        return []
    return [Result(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def _check(result):
    if result.outcome not in (PASSED, FAILED, NO):
        raise ValueError(f"outcome '{result.outcome}' is not one of passed, failed, no")
    if (result.outcome == NO) != bool(result.reason):
        raise ValueError("a reason belongs to the outcome 'no', and to no other")
    if result.where != BROKER and (result.where not in WHERE or result.what not in WHAT):
        raise ValueError(f"'{result.what}' in '{result.where}': the words are {WHAT} in {WHERE}")
    if not (result.python and result.kafka and result.what and result.command):
        raise ValueError(f"{result}: python, kafka, what and command must be given")


def _text(results):
    """One line for each, so that two branches that add some can be merged."""
    lines = (json.dumps(result._asdict()) for result in sorted(results, key=_order))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _order(result):
    return (result.where, version(result.spark), version(result.kafka), *result.key)


def version(text):
    """Of "4.0.2" its numbers, for sorting."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())
