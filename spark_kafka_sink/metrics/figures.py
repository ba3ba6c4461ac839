"""Figures of a line of metrics for people: numbers, parts of a batch's time, text for the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from spark_kafka_sink.base.text import printable

# --- numbers for people --------------------------------------------------------------------------

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: float) -> str:
    """Return a whole number with separated thousands."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Return bytes in the largest unit that gives at least 1."""
    for unit in _BYTES:
        if abs(number) < 1024 or unit == _BYTES[-1]:
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:,.1f} {unit}"


def duration(ms: float) -> str:
    """Return milliseconds in a suitable unit."""
    if ms < 1000:
        return f"{ms:,.0f} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:,.1f} s"
    minutes = seconds / 60
    return f"{minutes:,.1f} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


def percent(share: float) -> str:
    """Return a share of 1 in percent."""
    return f"{100 * share:.0f} %"


def moment(time_ms: float) -> str:
    """Return milliseconds since 1970 as a time in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


# --- the parts of a batch's time -----------------------------------------------------------------


class Part(NamedTuple):
    """A part of task time. field: of ``metrics``, or ``QUOTA_WAIT``"""

    field: str
    name: str


QUOTA_WAIT = "quota_wait_ms"
"""The part that ``part_times`` derives from the pauses that brokers requested."""

PARTS = (
    Part("input_wait_ms", "waiting for Spark's rows"),
    Part("encode_ms", "encoding"),
    Part("compress_ms", "compressing"),
    Part("metadata_wait_ms", "waiting for metadata"),
    Part("buffer_wait_ms", "waiting for buffer memory"),
    Part("ack_wait_ms", "waiting for acknowledgements"),
    Part("transaction_begin_ms", "beginning transactions"),
    Part("load_ms", "loading"),
    Part("limit_wait_ms", "waiting for the task limit"),
    Part(QUOTA_WAIT, "waiting for broker quotas"),
)
PAUSES = ("throttle_time_ms", "throttle_left_ms")
PART_FIELDS = (*(part.field for part in PARTS if part.field != QUOTA_WAIT), *PAUSES)
"""The fields of ``metrics`` that ``part_times`` needs."""
OTHER = "other"
COMMIT = "committing"
PLANNING = "planning"
NAMES = (*(part.name for part in PARTS), OTHER, COMMIT, PLANNING)
"""The parts of a batch's seconds, in the order of display."""


def part_times(found: Mapping[str, Any], least: Callable[[Any, Any], Any] = min) -> dict[str, Any]:
    """Return the ms of each of ``PARTS``, which do not overlap.

    While a task waits for memory or acknowledgements, the limit or a pause may hold its batches.
    That time is a part of its own, and the two waits are shorter by it, in proportion.

    found: each of ``PART_FIELDS``; numbers, or arrays with a value for each line
    least: returns the smaller one of two numbers or, for arrays, of each pair
    """
    waited = found["buffer_wait_ms"] + found["ack_wait_ms"]
    limited = least(found["limit_wait_ms"], waited)
    throttled = least(sum(found[name] for name in PAUSES), waited - limited)
    kept = (waited - limited - throttled) / (waited + (waited == 0))
    times = {name: found[name] for name in PART_FIELDS if name not in PAUSES}
    times.update({"limit_wait_ms": limited, QUOTA_WAIT: throttled})
    times.update({name: found[name] * kept for name in ("buffer_wait_ms", "ack_wait_ms")})
    return {part.field: times[part.field] for part in PARTS}


def shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return each field's share of the tasks' time, for ``PARTS`` and ``OTHER``: together 1.

    Compression beside the task's thread may make the parts longer than the tasks; then the shares
    are those of the parts' sum. All shares are 0 without a time.
    """
    times = part_times({name: float(metrics.get(name) or 0) for name in PART_FIELDS})
    known = sum(times.values())
    whole = max(known, float(metrics.get("task_ms") or 0))
    if not whole:
        return {**dict.fromkeys(times, 0.0), OTHER: 0.0}
    return {**{field: ms / whole for field, ms in times.items()}, OTHER: (whole - known) / whole}


def batch_duration_ms(line: Mapping[str, Any]) -> float:
    """Return planning, elapsed (first task's start to last task's end) and commit time, in ms."""
    return sum(float(line.get(name) or 0) for name in ("planning_ms", "elapsed_ms", "commit_ms"))


def largest_part(line: Mapping[str, Any]) -> tuple[str, float]:
    """Return name and ms of the largest part of a batch's time; "" and 0 if nothing is known."""
    found = shares(line.get("metrics") or {})
    elapsed_ms = float(line.get("elapsed_ms") or 0)
    times = [(found[part.field] * elapsed_ms, part.name) for part in PARTS]
    times.append((found[OTHER] * elapsed_ms, OTHER))
    times.append((float(line.get("commit_ms") or 0), COMMIT))
    times.append((float(line.get("planning_ms") or 0), PLANNING))
    most_ms, name = max(times)
    return (name, most_ms) if most_ms > 0 else ("", 0.0)


# --- the text in the log -------------------------------------------------------------------------

MOST_IN_LOG = 98
"""Characters of a batch's text: with time, level and logger, a line of the log has 160."""
UNKNOWN_CAUSE = "a task failed, or the query or job was stopped"
"""Spark does not pass the cause of an abort to a Python data source."""
_STOPPED = re.compile(
    r"^KeyboardInterrupt\b|\n: java\.lang\.InterruptedException\b|\bJob \d+ cancel"
)
_LEAST_OF_QUERY = 4
_LETTERS_OF_ID = 8


def batch_text(line: Mapping[str, Any]) -> str:
    """Return the text of a committed batch: number, records, bytes, time, its largest part.

    The text has at most ``MOST_IN_LOG`` characters. If they do not suffice, the query's name is
    cut, and the last parts are omitted.
    """
    name, whole_ms = _batch(line), batch_duration_ms(line)
    sent = float((line.get("metrics") or {}).get("compressed_bytes") or 0)
    text = f": {_records(line)}, {size(sent)} in {duration(whole_ms)}"
    letters = sum((line.get("dead_letters") or {}).values())
    part, part_ms = largest_part(line)
    for more, is_known in (
        ("replay dropped", "replay" in line),
        (f"{count(letters)} dead letters", letters),
        (f"{percent(part_ms / (whole_ms or 1))} {part}", part),
    ):
        if is_known and len(name) + len(text) + len(more) + len(", ") <= MOST_IN_LOG:
            text += f", {more}"
    return _with_query(name, line, MOST_IN_LOG - len(name) - len(text)) + text


def abort_text(line: Mapping[str, Any]) -> str:
    """Return the text of an aborted batch: number, why, failed tasks, records, what remains.

    The note may have commands for the operator: the text is never cut.
    """
    name = _with_query(_batch(line), line, MOST_IN_LOG)
    if was_stopped(line):
        return f"{name} was stopped. {line.get('note', '')}".rstrip()
    text = f"{name} was aborted" + f": {UNKNOWN_CAUSE}" * ("error" not in line)
    if "failed_tasks" in line:
        text += f". {count(line['failed_tasks'])} of {count(line['tasks'])} tasks did not end, "
        text += f"{_records(line)} acknowledged"
    if "note" in line:
        text += f". {line['note']}"
    if "error" in line:
        text += f". {printable(' '.join(line['error'].split()))}"
    return text


def was_stopped(line: Mapping[str, Any]) -> bool:
    """Return True if the error says that a user stopped the query or job, or cancelled its jobs."""
    return _STOPPED.search(line.get("error") or "") is not None


def _records(line: Mapping[str, Any]) -> str:
    number = line.get("records_acknowledged")
    if number is None:
        return "an unknown number of records"
    return "1 record" if number == 1 else f"{count(number)} records"


def _batch(line: Mapping[str, Any]) -> str:
    number = line.get("batch_id")
    return "job" if number is None else f"batch {number}"


def _with_query(name: str, line: Mapping[str, Any], room: int) -> str:
    """Return the batch's name with its query's name, else the beginning of the query's id."""
    query = printable(line.get("query_name") or str(line.get("query_id") or "")[:_LETTERS_OF_ID])
    room -= len(" of ")
    if not query or room < min(_LEAST_OF_QUERY, len(query)):
        return name
    return f"{name} of {query if len(query) <= room else query[: room - 1] + '…'}"
