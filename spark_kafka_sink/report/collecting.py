"""Sums of all lines for a report, computed while reading, in the memory of a few lines."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.metrics.line import CAUSES_OF_DEAD_LETTERS, COUNTERS
from spark_kafka_sink.metrics.reading import read_line
from spark_kafka_sink.report.advice import Causes
from spark_kafka_sink.report.figures import PARTS
from spark_kafka_sink.report.reading import (
    Piece,
    column,
    files_of,
    numbers,
    parse,
    read_pieces,
    select,
)

# --- sums of many lines, in the shape of one line ------------------------------------------------

Summed = Union[float, dict[str, Any]]

SUMMED_FIELDS = (
    *("metrics", "tasks", "failed_attempts", "transactions", "commit_ms", "elapsed_ms"),
    *("records_acknowledged", "planning_ms", "dead_letters"),
)
"""Fields of a line that are summed over all lines."""
SUMMED_WHOLE_FIELDS = ("request_latency", "nodes", "topics", "partitions")
"""Fields of a line that are summed over the lines that are read whole."""
_LARGEST = {field.name for field in COUNTERS if "_max" in field.name} | {"request_max_bytes"}
_NOT_ADDITIVE = {"p50_ms", "p95_ms", "p99_ms", "scale", "first_offset", "last_offset"}


def summed(rows: pa.StructArray, names: Iterable[str]) -> dict[str, Any]:
    """Return the sums of all numbers in fields of lines, and the largest value of maxima."""
    line: dict[str, Any] = {}
    for name in names:
        index = rows.type.get_field_index(name)
        if index >= 0:
            found = _summed(name, pc.struct_field(rows, [index]))
            if found is not None:
                line[name] = found
    return line


def _summed(name: str, values: pa.Array) -> Summed | None:
    if pa.types.is_struct(values.type):
        fields = zip((field.name for field in values.type), values.flatten())
        found = ((field, _summed(field, array)) for field, array in fields)
        known = {field: value for field, value in found if value is not None}
        return known or None
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not is_number or name in _NOT_ADDITIVE:
        return None
    result = (pc.max if name in _LARGEST else pc.sum)(values).as_py()
    return None if result is None else float(result)


def add(line: dict[str, Any], other: dict[str, Any]) -> None:
    """Add the figures of another line, or of a sum of lines."""
    for name, value in other.items():
        if isinstance(value, dict):
            add(line.setdefault(name, {}), value)
        elif isinstance(value, (int, float)) and name not in _NOT_ADDITIVE:
            known = line.get(name, 0)
            line[name] = max(known, value) if name in _LARGEST else known + value


# --- settings that change between batches of a query ---------------------------------------------

_MOST_CHANGES = 30


class Change(NamedTuple):
    """A changed option. before, after: None if a line lacks it; batch_id: first batch after it."""

    batch_id: int | None
    time_ms: float
    name: str
    before: str | None
    after: str | None


class Changes:
    """Changes in the lines so far; only the latest are kept."""

    def __init__(self) -> None:
        self.found: deque[Change] = deque(maxlen=_MOST_CHANGES)
        self._known: dict[str, Mapping[str, str]] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Compare with the previous line of the same query."""
        settings = line.get("settings")
        if settings is None:
            return
        query = str(line.get("query_id", ""))
        known = self._known.get(query, settings)
        self._known[query] = settings
        if known == settings:
            return
        for name in dict.fromkeys((*known, *settings)):
            before, after = known.get(name), settings.get(name)
            if before != after:
                at = line.get("batch_id"), float(line["time_ms"])
                self.found.append(Change(*at, name, before, after))


Values = np.ndarray[Any, np.dtype[np.float64]]

LINE_COLUMNS = (
    *("time_ms", "planning_ms", "elapsed_ms", "commit_ms", "batch_id", "records_acknowledged"),
    "failed_attempts",
)
METRICS_COLUMNS = (
    *(part.field for part in PARTS),
    *("task_ms", "uncompressed_bytes", "compressed_bytes", "record_retries", "throttle_time_ms"),
    *("record_errors", "request_latency_max_ms", "throttle_left_ms"),
)
LATENCY_COLUMNS = ("p50_ms", "p95_ms", "p99_ms")
TIMES = ("planning_ms", "elapsed_ms", "commit_ms")
"""Parts of a batch's time."""
MOST_LATEST = 100
MOST_SLOWEST = 20
_BETWEEN = "\0"
_MOST_STEPS = 60
"""Steps of the heat map's time, at most twice as many while lines are read."""


class Step:
    """Consecutive lines. counts: records by partition, summed over ``lines`` lines

    name: of the first line: the number of its batch, or "job"
    """

    def __init__(
        self, name: str, started_ms: float, lines: int, counts: dict[tuple[str, str], float]
    ) -> None:
        self.name = name
        self.started_ms = started_ms
        self.lines = lines
        self.counts = counts

    def joined(self, other: Step) -> Step:
        """Return both steps as one."""
        counts = dict(self.counts)
        for where, records in other.counts.items():
            counts[where] = counts.get(where, 0.0) + records
        return Step(self.name, self.started_ms, self.lines + other.lines, counts)


class LineAggregate:
    """Figures of the lines read so far.

    query: name or id of the only query to read; None reads all
    sampling_interval: one of so many lines is read with its partitions and brokers
    lines, left_out: number of lines, and of texts that are not lines
    """

    def __init__(self, query: str | None = None, sampling_interval: int = 1) -> None:
        self._query = query
        self.sampling_interval = sampling_interval
        self.lines = 0
        self.left_out = 0
        self.aborted = 0
        self.queries: dict[tuple[str, str], int] = {}
        self.steps: list[Step] = []
        self.changes = Changes()
        self.causes = Causes()
        self._sums: dict[str, Any] = {}
        self._columns: list[dict[str, Values]] = []
        self._latest: deque[tuple[int, bytes]] = deque(maxlen=MOST_LATEST)
        self._slowest: list[tuple[float, int, bytes]] = []
        self._lines_of_a_step = 1

    def add(self, texts: list[bytes]) -> None:
        """Add whole lines, in the order in which they were written."""
        piece = parse(texts, self._query)
        if any(read_line(piece.texts[number]) is None for number in self._read_whole(piece)):
            good = [n for n, text in enumerate(piece.texts) if read_line(text) is not None]
            piece = select(piece, good)
        self.left_out += piece.left_out
        if not piece.texts:
            return
        found = {name: numbers(piece.rows, name) for name in LINE_COLUMNS}
        found.update((name, numbers(piece.rows, "metrics", name)) for name in METRICS_COLUMNS)
        found.update(
            (name, numbers(piece.rows, "request_latency", name)) for name in LATENCY_COLUMNS
        )
        letters = [numbers(piece.rows, "dead_letters", cause) for cause in CAUSES_OF_DEAD_LETTERS]
        found["dead_letters"] = np.nansum(letters, axis=0)
        events = column(piece.rows, "event").to_numpy(zero_copy_only=False)
        found["aborted"] = (events == "abort").astype(np.float64)
        self.aborted += int(found["aborted"].sum())
        self._columns.append(found)
        self._count_queries(piece.rows)
        add(self._sums, summed(piece.rows, SUMMED_FIELDS))
        self._keep(piece.texts, found)
        first = -self.lines % self.sampling_interval
        self._add_whole(piece.texts[first :: self.sampling_interval])
        self.lines += len(piece.texts)

    def _read_whole(self, piece: Piece) -> set[int]:
        """Return the numbers of the lines of ``piece`` that are read beyond their columns."""
        count = len(piece.texts)
        first = -self.lines % self.sampling_interval
        whole = {
            *range(first, count, self.sampling_interval),
            *range(max(count - MOST_LATEST, 0), count),
        }
        durations_ms = np.nansum([numbers(piece.rows, name) for name in TIMES], axis=0)
        return whole.union(np.argsort(-durations_ms, kind="stable")[:MOST_SLOWEST].tolist())

    def columns(self) -> dict[str, Values]:
        """Return a value for each line, sorted by time; NaN if the line has none."""
        names = (*LINE_COLUMNS, *METRICS_COLUMNS, *LATENCY_COLUMNS, "aborted", "dead_letters")
        if not self._columns:
            return {name: np.empty(0) for name in names}
        found = {name: np.concatenate([each[name] for each in self._columns]) for name in names}
        self._columns = [found]
        order = np.argsort(found["time_ms"], kind="stable")
        return {name: values[order] for name, values in found.items()}

    def total(self) -> dict[str, Any]:
        """Return all lines as one, for ``advice``."""
        slow = sorted(
            (
                {**task, "batch_id": line.get("batch_id")}
                for _, line in self.slowest()
                for task in line.get("slowest_tasks") or ()
            ),
            key=lambda task: -float(task["task_ms"]),
        )
        return {**self._sums, "aborted": self.aborted, "slowest_tasks": slow[:10]}

    def latest(self) -> list[dict[str, Any]]:
        """Return whole lines, the last one first."""
        return [json.loads(text) for _, text in reversed(self._latest)]

    def slowest(self) -> list[tuple[float, dict[str, Any]]]:
        """Return milliseconds and whole lines, the slowest first."""
        return [(ms, json.loads(text)) for ms, _, text in sorted(self._slowest, reverse=True)]

    def _count_queries(self, rows: pa.StructArray) -> None:
        ids, names = (pc.fill_null(column(rows, name), "") for name in ("query_id", "query_name"))
        pairs = pc.binary_join_element_wise(ids, names, _BETWEEN)
        for pair in pairs.value_counts().to_pylist():
            query_id, _, name = pair["values"].partition(_BETWEEN)
            self.queries[query_id, name] = self.queries.get((query_id, name), 0) + pair["counts"]

    def _keep(self, texts: list[bytes], found: dict[str, Values]) -> None:
        durations_ms = np.nansum([found[name] for name in TIMES], axis=0)
        most = np.argsort(-durations_ms, kind="stable")[:MOST_SLOWEST]
        for number in most:
            entry = (float(durations_ms[number]), self.lines + int(number), texts[number])
            keep = heappush if len(self._slowest) < MOST_SLOWEST else heappushpop
            keep(self._slowest, entry)
        first = max(len(texts) - MOST_LATEST, 0)
        self._latest.extend((self.lines + n, texts[n]) for n in range(first, len(texts)))

    def _add_whole(self, texts: list[bytes]) -> None:
        for text in texts:
            line = json.loads(text)
            add(self._sums, {name: line[name] for name in SUMMED_WHOLE_FIELDS if name in line})
            self.changes.add(line)
            self.causes.add(line)
            self._add_to_steps(line)

    def _add_to_steps(self, line: dict[str, Any]) -> None:
        if not self.steps or self.steps[-1].lines == self._lines_of_a_step:
            if len(self.steps) == 2 * _MOST_STEPS:
                self._lines_of_a_step *= 2
                self.steps = list(_halved(self.steps))
            self.steps.append(Step(str(line.get("batch_id", "job")), float(line["time_ms"]), 0, {}))
        step = self.steps[-1]
        step.lines += 1
        for topic, partitions in (line.get("partitions") or {}).items():
            for number, partition in partitions.items():
                where = (topic, number)
                step.counts[where] = step.counts.get(where, 0.0) + partition["records"]


def _halved(steps: list[Step]) -> Iterator[Step]:
    for number in range(0, len(steps), 2):
        both = steps[number : number + 2]
        yield both[0].joined(both[1]) if len(both) == 2 else both[0]


# --- from files of metrics -----------------------------------------------------------------------

WHOLE_BYTES = 8 * 1024 * 1024
"""Bytes of lines that are read with partitions and brokers; larger files are sampled."""


def collect(path: str, query: str | None) -> LineAggregate:
    """Read a file and its rotated files, or a folder.

    query: name or id of the only query to read
    Raises ConfigError if no line exists, or no line of the query.
    """
    files = files_of(path)
    aggregate = LineAggregate(query, _sampling_interval(files))
    for texts in read_pieces(files):
        aggregate.add(texts)
    if not aggregate.lines:
        raise ConfigError(no_line_message(path, query))
    return aggregate


def no_line_message(path: str, query: str | None) -> str:
    """Return the message for a file that has no wanted line."""
    which = f" of the query {query}" if query is not None else ""
    return (
        f"no line of metrics{which} in {path}. Option metrics.path names the file that the sink "
        "writes them to, on the driver"
    )


def _sampling_interval(files: list[str]) -> int:
    size = sum(os.path.getsize(path) for path in files)
    return -(-size // WHOLE_BYTES) if size else 1
