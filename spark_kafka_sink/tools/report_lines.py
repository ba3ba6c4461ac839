"""Read lines of metrics as columns, and add them up for a report in little memory.

Files, rotated files and folders are read some megabytes a time. pyarrow parses the fields that all
lines have, in 25 microseconds of CPU per line of 7 KB. Topics, partitions and brokers are names of
objects in a line, which pyarrow would turn into fields of structs. A thousand such fields would
take seconds.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.metrics.figures import PART_FIELDS
from spark_kafka_sink.metrics.line import CAUSES_OF_DEAD_LETTERS, COUNTERS, LATENCY, LINE
from spark_kafka_sink.metrics.reading import (
    LARGEST,
    LATEST_MS,
    REQUIRED_TO_READ,
    PinnedFile,
    lines_of,
    read_line,
)
from spark_kafka_sink.tools.report_advice import Causes

PIECE_BYTES = 16 * 1024 * 1024
_BLOCK_BYTES = 16 * 1024 * 1024
_MAX_NESTING = 1000
"""Most opening brackets in the text for pyarrow; a line of the sink has a hundred or so."""

_PLAIN = {"integer": pa.float64(), "number": pa.float64(), "string": pa.string()}
"""Integers become floats too: a line's are below 2^53, and columns are for sums and plots."""


def _struct(fields: Any) -> pa.StructType:
    return pa.struct([(one.name, _PLAIN[one.type]) for one in fields if one.type in _PLAIN])


_SCHEMA = pa.schema(
    [
        *((field.name, _PLAIN[field.type]) for field in LINE if field.type in _PLAIN),
        ("metrics", _struct(COUNTERS)),
        ("request_latency", _struct(LATENCY)),
        ("dead_letters", pa.struct([(cause, pa.float64()) for cause in CAUSES_OF_DEAD_LETTERS])),
    ]
)


_BEGINNING = b'{"sink"'
_UNPARSED_TAIL = b', "partitions": {'
"""pyarrow does not parse a line from here on: the rest has most bytes, but no columns.

A string cannot contain this text, because its quotes would have backslashes.
"""
_HISTOGRAM = b', "histogram": {'
"""Last part of ``request_latency``, which is the last field before those by name."""


class Piece(NamedTuple):
    """Some lines. texts: one per row of ``rows``; left_out: number of texts that are no lines."""

    texts: list[bytes]
    rows: pa.StructArray
    left_out: int


def files_of(path: str) -> list[str]:
    """Return the files of ``path``, oldest first: itself and its rotated files, or a folder's.

    Raises ConfigError if none exists.
    """
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith((".json", ".jsonl")))
        found = [os.path.join(path, name) for name in names]
    else:
        found = [*_rotated(path), path]
    found = list(filter(os.path.isfile, found))
    if not found:
        raise ConfigError(
            f"no metrics in {path}: name the file that option metrics.path names, or a folder with "
            "a file for each line",
            code="METRICS-008",
        )
    return found


def _rotated(path: str) -> list[str]:
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return []
    pattern = re.compile(rf"{re.escape(name)}\.(\d+)")
    numbers = (int(found[1]) for other in os.listdir(folder) if (found := pattern.fullmatch(other)))
    return [f"{path}.{number}" for number in sorted(numbers, reverse=True)]


def read_pieces(files: Iterable[str | PinnedFile]) -> Iterator[list[bytes]]:
    """Yield the files' lines, some megabytes at a time; small files are joined."""
    waiting: list[bytes] = []
    size = 0
    for one in files:
        opened = PinnedFile(one) if isinstance(one, str) else one
        with opened.stream() as file:
            for text in lines_of(file):
                waiting.append(text)
                size += len(text)
                if size >= PIECE_BYTES:
                    yield waiting
                    waiting, size = [], 0
    if waiting:
        yield waiting


def parse(texts: list[bytes], query: str | None) -> Piece:
    """Return the lines among these texts; of one query only, if its name or id is given."""
    texts = [text for text in texts if not text.isspace()]
    rows, left_out = None if any(map(_needs_validation, texts)) else _rows(texts), 0
    if rows is None:
        good = [text for text in texts if _is_line(text)]
        left_out, texts = len(texts) - len(good), good
        rows = _rows(texts)
        if rows is None:
            rows, texts = pa.array([], pa.struct(list(_SCHEMA))), []
    is_wanted = pc.fill_null(pc.equal(column(rows, "sink"), "pykafka-sink"), False)
    for name in REQUIRED_TO_READ:
        is_wanted = pc.and_(is_wanted, pc.is_valid(column(rows, name)))
    is_wanted = pc.and_(is_wanted, _in_range(rows))
    left_out += len(texts) - pc.sum(is_wanted.cast(pa.int64()), min_count=0).as_py()
    if query is not None:
        is_query = pc.or_(
            pc.fill_null(pc.equal(column(rows, "query_name"), query), False),
            pc.fill_null(pc.equal(column(rows, "query_id"), query), False),
        )
        is_wanted = pc.and_(is_wanted, is_query)
    mask = is_wanted.to_numpy(zero_copy_only=False)
    if not mask.all():
        rows = rows.filter(is_wanted)
        texts = [texts[number] for number in np.flatnonzero(mask)]
    return Piece(texts, rows, left_out)


def _beginning(text: bytes) -> bytes:
    """Return the part of a line that has columns.

    A text that a full disk has cut off, perhaps with the next line behind it, is returned
    unchanged.
    """
    end = text.find(_UNPARSED_TAIL)
    is_one = end > 0 and text.endswith((b"}", b"}\n")) and text.rfind(_BEGINNING) == 0
    if not is_one:
        return text
    histogram = text.find(_HISTOGRAM, 0, end)
    return text[:end] + b"}" if histogram < 0 else text[:histogram] + b"}}"


def _rows(texts: list[bytes]) -> pa.StructArray | None:
    """Return the rows; None if a text is not a JSON object, or has other types."""
    if not texts:
        return None
    parsed = list(map(_beginning, texts))
    # A block must hold a whole line.
    block_bytes = max(_BLOCK_BYTES, 2 * max(map(len, parsed)) + 2)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(b"\n".join(parsed)),
            # more threads would take twice the CPU, and save no time with so little
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block_bytes),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None
    rows = table.to_struct_array()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return rows if len(rows) == len(texts) else None


def _needs_validation(text: bytes) -> bool:
    """Return True if pyarrow must not parse ``text`` before a check.

    pyarrow limits no nesting, and accepts strings of any bytes.
    """
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return True
    beginning = _beginning(text)
    return beginning.count(b"[") + beginning.count(b"{") > _MAX_NESTING


def _in_range(rows: pa.StructArray) -> pa.BooleanArray:
    """Return True for rows whose numbers are finite, and whose time can be shown."""
    fields = pa.RecordBatch.from_struct_array(rows)
    time_ms = column(rows, "time_ms")
    found = pc.and_(pc.greater_equal(time_ms, 0), pc.less_equal(time_ms, LATEST_MS))
    found = pc.fill_null(found, False)
    for array in fields.columns:
        for one in array.flatten() if pa.types.is_struct(array.type) else [array]:
            if pa.types.is_floating(one.type):
                is_good = pc.less_equal(pc.abs(one), LARGEST)
                found = pc.and_(found, pc.fill_null(is_good, True))
    return found


def select(piece: Piece, numbers: list[int]) -> Piece:
    """Return the lines of ``piece`` with these numbers; the others count as left out."""
    texts = [piece.texts[number] for number in numbers]
    left_out = piece.left_out + len(piece.texts) - len(texts)
    return Piece(texts, piece.rows.take(pa.array(numbers, pa.int64())), left_out)


def _is_line(text: bytes) -> bool:
    """Return True for a line; a foreign or cut-off text must not stop the reading of others."""
    return read_line(text) is not None and _fits(text)


def _fits(text: bytes) -> bool:
    """Return True if the text has the types of the schema."""
    return _rows([text]) is not None


def column(rows: pa.StructArray, *names: str) -> pa.Array:
    """Return a field, or a field of a field; nulls if it does not exist."""
    found = rows
    for name in names:
        if not pa.types.is_struct(found.type) or found.type.get_field_index(name) < 0:
            return pa.nulls(len(rows), pa.string() if name in _STRINGS else pa.float64())
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    return found


_STRINGS = {field.name for field in LINE if field.type == "string"}


def numbers(rows: pa.StructArray, *names: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column of numbers; NaN if a row has none."""
    found = column(rows, *names).cast(pa.float64())
    values: np.ndarray[Any, np.dtype[np.float64]] = found.to_numpy(zero_copy_only=False)
    return values


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

_MAX_CHANGES = 30


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
        self.found: deque[Change] = deque(maxlen=_MAX_CHANGES)
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
    *PART_FIELDS,
    *("task_ms", "uncompressed_bytes", "compressed_bytes", "record_retries"),
    *("record_errors", "request_latency_max_ms"),
)
LATENCY_COLUMNS = ("p50_ms", "p95_ms", "p99_ms")
TIMES = ("planning_ms", "elapsed_ms", "commit_ms")
"""Parts of a batch's time."""
MOST_LATEST = 100
MOST_SLOWEST = 20
_BETWEEN = "\0"
_MAX_STEPS = 60
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
            if len(self.steps) == 2 * _MAX_STEPS:
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
        raise ConfigError(no_line_message(path, query), code="METRICS-008")
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
