"""What make evidence NAME=parity has seen, in results.json, and the tables that are made of it.

python -m evidence pages
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from evidence.compatibility.results import version
from evidence.harness.pages import DOCS, table
from evidence.parity import cases
from evidence.parity.world import CASES

__all__ = ["cases"]
RESULTS = Path(__file__).with_name("results.json")


class Result(NamedTuple):
    """Of one case with one Spark. sink: the version of Spark's own one."""

    spark: str
    python: str
    sink: str
    case: str
    outcome: str
    date: str


def read():
    if not RESULTS.exists():
        return []
    return [Result(**fields) for fields in json.loads(RESULTS.read_text(encoding="utf-8"))]


def replace(results, spark):
    """Keep ``results`` instead of all that there were of this Spark."""
    kept = [result for result in read() if result.spark != spark]
    ordered = sorted([*kept, *results], key=lambda r: (version(r.spark), [*CASES].index(r.case)))
    lines = ",\n".join(json.dumps(result._asdict()) for result in ordered)
    RESULTS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def tables():
    """Of docs/internals/parity.md."""
    results = read()
    sparks = sorted({result.spark for result in results}, key=version)
    outcomes = {(result.case, result.spark): result.outcome for result in results}
    rows, differences = [], {}
    for name, case in CASES.items():
        kind = "stream: " if name.startswith("stream") else ""
        cells = (outcomes.get((name, spark), SKIPPED) for spark in sparks)
        shown = ("none" if cell == SKIPPED else cell for cell in cells)
        rows.append([kind + _lower(case.shows), case.suite, *shown])
        if (expected := EXPECTED.get(name, Expected())).outcome == DIFFERS:
            differences.setdefault(expected.why, {})[_lower(case.shows)] = None
    runs = {(r.spark, r.python, r.sink, r.date) for r in results}
    return {
        "cases": table(["case", "Spark's suite", *sparks], rows),
        "runs": table(
            ["Spark", "Python", "Spark's own sink", "date"],
            sorted(runs, key=lambda row: version(row[0])),
        ),
        "differences": table(
            ["case", "difference"], (["; ".join(shown), why] for why, shown in differences.items())
        ),
    }


PAGES = {DOCS / "internals/parity.md": tables}


def _lower(text):
    return text if text.startswith("kafka.") or text[1:2].isupper() else text[0].lower() + text[1:]


class Expected(NamedTuple):
    """Of one case.

    says: a part of each refusal, in order, of both sinks; in lower case, without backticks
    ours, sparks: the same where they say other things
    error: what this sink raises where Spark's writes
    seen: what this sink's run has seen, where Spark's sees something else
    why: the difference, for users
    """

    says: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    sparks: tuple[str, ...] = ()
    error: str | None = None
    seen: dict[str, bool] | None = None
    why: str = ""

    @property
    def outcome(self):
        return DIFFERS if self.why else SAME


SAME, DIFFERS, SKIPPED = "same", "differs", "skipped"
_NO_TOPIC = "topic option required when no 'topic' attribute is present. use the topic option for"
_NO_VALUE = "required attribute 'value' not found"
_BYTES = "{0} attribute unsupported type int. {0} must be a(n) string or binary"
_TOPIC = "topic attribute unsupported type int. topic must be a(n) string"
_PARTITION = "partition attribute unsupported type string. partition must be a(n) int"
_SERIALIZED = "with bytearrayserializer"
_SERIALIZERS = Expected(
    ours=(
        f"kafka option 'kafka.key.serializer' is not supported as keys are serialized {_SERIALIZED}",
        f"kafka option 'kafka.value.serializer' is not supported as value are serialized {_SERIALIZED}",
    ),
    sparks=(
        f"kafka option 'key.serializer' is not supported as keys are serialized {_SERIALIZED}",
        f"kafka option 'value.serializer' is not supported as value are serialized {_SERIALIZED}",
    ),
    why="Refused by both with the same sentence; this sink names the option as it was written, with `kafka.`",
)
_MISSING_TOPIC = (
    "Refused by both. Spark's sink tries for `kafka.max.block.ms` in a task; this one looks on the driver "
    "before the first task, for `preflight.timeout.ms`, and says what to do"
)
_MODES = (
    "Refused by both, and nothing is written. Spark itself refuses the mode for data sources in Python, in "
    "its own words; these are also those of Spark's sink as a source of version 2"
)

EXPECTED = {
    "null_topic": Expected(says=("use the topic option for setting a default topic.",)),
    "save_mode_ignore": Expected(
        ours=('cannot be written in the "ignore" mode',),
        sparks=("save mode ignore not allowed for kafka",),
        why=_MODES,
    ),
    "save_mode_overwrite": Expected(says=("save mode overwrite not allowed for kafka",)),
    "default_save_mode": Expected(
        error='cannot be written in the "ErrorIfExists" mode',
        why="Spark's sink takes it as append. For data sources in Python Spark refuses it: "
        '`.mode("append")` is required',
    ),
    "missing_topic": Expected(
        ours=("topic 'not-there' does not exist",),
        sparks=("topic not-there not present in metadata",),
        why=_MISSING_TOPIC,
    ),
    "stream_to_missing_topic": Expected(
        ours=("topic 'not-there-either' does not exist",),
        sparks=("topic not-there-either not present in metadata",),
        why=_MISSING_TOPIC,
    ),
    "partition_that_is_not_there": Expected(
        ours=("invalid partition 7 for topic",),
        # A client that has not heard of the topic in that time names the topic alone.
        sparks=("present in metadata after",),
        why="Refused by both with topic, number and count of partitions. Spark's sink tries for "
        "`kafka.max.block.ms`; this one answers at once if the broker's answer is new",
    ),
    "wrong_types": Expected(
        says=(
            _BYTES.format("key"),
            _BYTES.format("value"),
            _PARTITION,
            "headers attribute unsupported type int. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
            _TOPIC,
        )
    ),
    "missing_columns": Expected(says=(_NO_VALUE, _NO_TOPIC)),
    "case_of_columns": Expected(says=(_NO_VALUE,)),
    "serializers": _SERIALIZERS,
    "stream_with_serializers": _SERIALIZERS,
    "prefix_forgotten": Expected(
        error="Did you mean 'kafka.linger.ms'?",
        why="Spark's sink ignores it without a word; this one refuses names that are close to one of its own",
    ),
    "too_large": Expected(
        says=(
            "is 2000088 bytes when serialized which is larger than 1048576, which is the value of",
        )
    ),
    "stream_with_bad_schema": Expected(says=(_NO_TOPIC, _NO_VALUE)),
    "stream_with_wrong_types": Expected(says=(_TOPIC, _BYTES.format("value"), _BYTES.format("key"), _PARTITION)),
    "stream_in_update_mode": Expected(
        error="pykafka-sink does not support Update mode",
        why="Spark has no update mode for sinks in Python, and does not ask them. "
        '`.outputMode("update").foreachBatch(…)` writes the same rows',
    ),
    "stream_with_continuous_trigger": Expected(
        seen={"epochs committed": False},
        why="Spark drops the rows of sinks in Python under this trigger "
        "([for its developers](../upstream/spark-continuous-trigger.md)). This sink refuses each commit, so "
        "that the offsets of these rows are not committed",
    ),
    "stream_in_real_time_mode": Expected(
        error="OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
        why='Spark has no real-time mode for sinks in Python. `trigger(processingTime="0 seconds")` is the '
        "nearest",
    ),
}  # fmt: skip
"""Cases that are not here: nothing is refused, and both write the same."""
