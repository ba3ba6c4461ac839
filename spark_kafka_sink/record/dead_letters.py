"""Find rows that cannot be written and convert them to dead letters, rows of another topic.

Rows are checked only after an Arrow batch was rejected as a whole, so valid batches cost nothing.
The faults depend only on the rows, the options and the topics' settings, so a repeated task finds
the same faults.

:func:`content_faults` checks headers, topics and timestamps. ``producer/appender.py`` checks sizes
and keys, ``producer/partitioner.py`` partitions; ``KafkaProducer.find_faults`` calls all checks.
``spark/dead_letters.py`` writes the dead letters.

A dead letter keeps key, value, headers and timestamp of its row, as far as a Kafka record can hold
them. Parts that are too large are truncated, and headers report that.

Source of the headers' names: Kafka Connect's ``DeadLetterQueueReporter`` (KIP-298).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.base.model import ColumnPositions, schema_id_header_name
from spark_kafka_sink.record.columns import (
    ArrowBatch,
    check_types,
    java_texts,
    key_value_headers,
    valid_texts,
    with_valid_header_keys,
)
from spark_kafka_sink.record.compiled.calls import MAX_RECORD_OVERHEAD, content_sizes

INTERCEPTOR = "interceptor"
NOT_ENCODABLE = "not-encodable"
NULL_TOPIC = "null-topic"
INVALID_TOPIC = "invalid-topic"
NULL_HEADER = "null-header"
BAD_TIMESTAMP = "bad-timestamp"
TOO_LARGE = "too-large"
NULL_KEY = "null-key"
BAD_PARTITION = "bad-partition"
PARTITIONER = "partitioner"
REFUSED = "refused"
CAUSES = (
    INTERCEPTOR,
    NOT_ENCODABLE,
    NULL_HEADER,
    NULL_TOPIC,
    INVALID_TOPIC,
    BAD_TIMESTAMP,
    TOO_LARGE,
    NULL_KEY,
    BAD_PARTITION,
    PARTITIONER,
    REFUSED,
)
"""Causes in the order of the checks: the first fault of a row is its cause.

Brokers report REFUSED, and some rows of TOO_LARGE and BAD_TIMESTAMP.
"""

FROM_SPARK = "an Arrow batch"
FROM_INTERCEPTORS = f"{FROM_SPARK} as the interceptors have returned it"
BEFORE_INTERCEPTOR = f"{FROM_SPARK} as the interceptor got it"
"""Texts for messages: what a row's number refers to."""

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_US_PER_MS = 1000


class Fault(NamedTuple):
    """The reason why a row cannot be written. cause: one of CAUSES; message: without contents"""

    cause: str
    message: str


class RowFaults:
    """The faults of an Arrow batch's rows. ``found``: row -> fault"""

    def __init__(self, rows_count: int) -> None:
        self._is_good: BoolArray = np.ones(rows_count, np.bool_)
        self.found: dict[int, Fault] = {}

    @property
    def good(self) -> Int64Array:
        """Return the rows without a fault, ascending."""
        return np.flatnonzero(self._is_good)

    @property
    def bad(self) -> Int64Array:
        """Return the rows with a fault, ascending."""
        return np.flatnonzero(~self._is_good)

    def add(self, is_faulty: BoolArray, cause: str, message_of: Callable[[int], str]) -> None:
        """Add a fault to rows without one; a row keeps its first fault. is_faulty: bool[n]"""
        for row in np.flatnonzero(is_faulty & self._is_good).tolist():
            self.found[row] = Fault(cause, message_of(row))
        self._is_good &= ~is_faulty

    def add_from(self, others: RowFaults, numbers: Int64Array | None = None) -> None:
        """Add the faults of ``others`` to rows without one.

        numbers: for each row of ``others`` its number here; None for equal numbers
        """
        for other_row, fault in others.found.items():
            row = other_row if numbers is None else int(numbers[other_row])
            if self._is_good[row]:
                self.found[row] = fault
                self._is_good[row] = False


class CheckedRows(NamedTuple):
    """An Arrow batch without headers that are null or lack a key, and its faults."""

    rows: ArrowBatch
    faults: RowFaults


def content_faults(
    arrow_batch: ArrowBatch, positions: ColumnPositions, decision_log: str | None = None
) -> CheckedRows:
    """Find faults of headers, topics and timestamps. Raises SchemaError for a wrong column type.

    decision_log: with exactly-once, a topic to which no row may be written
    """
    check_types(arrow_batch, positions)
    faults = RowFaults(arrow_batch.num_rows)
    if positions.headers is not None:
        arrow_batch = _with_keys(arrow_batch, positions.headers, faults)
    if positions.topic_option is None and positions.topic is not None:
        _find_topics(arrow_batch.column(positions.topic), faults, decision_log)
    if positions.timestamp is not None:
        _find_timestamps(arrow_batch.column(positions.timestamp), faults)
    return CheckedRows(arrow_batch, faults)


def is_legal(topic: str) -> bool:
    """Return True for a valid topic name. Source: ``Topic.validate``."""
    return _LEGAL_TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def rows_of(arrow_batch: ArrowBatch, rows: Int64Array | Sequence[int]) -> ArrowBatch:
    """Return these rows in this order."""
    return (
        arrow_batch
        if len(rows) == arrow_batch.num_rows
        else arrow_batch.take(pa.array(rows, pa.int64()))
    )


def is_null(array: Any) -> BoolArray:
    """Return bool[n], True for nulls."""
    found: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return found


def illegal_topic(topic: str) -> str:
    """Return the message about an invalid topic name."""
    return (
        f"Invalid topic name '{topic[:300]}': topic names have 1 to 249 characters out of "
        "a-z A-Z 0-9 . _ -"
    )


def decision_log_topic(topic: str) -> str:
    """Return the message about a row for the query's own decision log."""
    return (
        f"Invalid topic '{topic}': it is the decision log, transaction.log.topic, where a row may "
        "be taken for a decision. Name another topic in one of the two"
    )


def _find_topics(column: Any, faults: RowFaults, decision_log: str | None) -> None:
    faults.add(is_null(column), NULL_TOPIC, lambda row: "null topic present in the data")
    encoded = column.dictionary_encode()
    # The dictionary has no entry for null topics.
    names = java_texts(encoded.dictionary)
    problem = {name: illegal_topic(name) for name in names if not is_legal(name)}
    if decision_log in names:
        problem[decision_log] = decision_log_topic(decision_log)
    if problem:
        indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        is_wrong = np.array([name in problem for name in names])[indices]
        faults.add(is_wrong, INVALID_TOPIC, lambda row: problem[names[indices[row]]])


def _find_timestamps(column: Any, faults: RowFaults) -> None:
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    faults.add(
        micros < 0,
        BAD_TIMESTAMP,
        lambda row: (
            f"Invalid timestamp: {micros[row] // _US_PER_MS} ms since 1970-01-01 00:00:00 "
            "UTC. Timestamps of Kafka records must not be negative"
        ),
    )


def _with_keys(arrow_batch: ArrowBatch, position: int, faults: RowFaults) -> ArrowBatch:
    """Add faults of rows with a null header or header key, and drop these headers."""
    column: Any = arrow_batch.column(position)
    entries = column.flatten()
    is_bad = is_null(entries) | is_null(entries.field(0))
    if not is_bad.any():
        return arrow_batch
    row_of = _rows_of_entries(column)
    is_faulty = np.zeros(len(column), np.bool_)
    is_faulty[row_of[is_bad]] = True
    faults.add(is_faulty, NULL_HEADER, lambda row: "a header is null, or its key is")
    columns = [arrow_batch.column(index) for index in range(arrow_batch.num_columns)]
    columns[position] = _with_entries(column, ~is_bad)
    changed: ArrowBatch = pa.record_batch(columns, names=arrow_batch.schema.names)
    return changed


def _rows_of_entries(lists: Any) -> Int64Array:
    """Return the row of each entry of a column of lists."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths)


def _offsets(row_of: Int64Array, count: int) -> Any:
    """Return the offsets of ``count`` lists. row_of: the row of each entry"""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(row_of, minlength=count), out=offsets[1:])
    return pa.array(offsets)


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def repeated(value: bytes, count: int) -> Any:
    """Return a binary array that repeats ``value``."""
    return pa.repeat(pa.scalar(value, pa.binary()), count)


def without_headers(headers: Any, names: Iterable[str]) -> Any:
    """Return the headers without those of these names, the same column if no row has one."""
    entries = headers.flatten()
    dropped = pc.is_in(entries.field(0).cast(pa.binary()), pa.array(names, pa.binary()))
    if not pc.any(dropped).as_py():
        return headers
    return _with_entries(headers, ~dropped.to_numpy(zero_copy_only=False))


def _with_entries(headers: Any, is_kept: BoolArray) -> Any:
    """Return the headers with these entries only. is_kept: one per entry of all rows"""
    offsets = _offsets(_rows_of_entries(headers)[is_kept], len(headers))
    is_large = pa.types.is_large_list(headers.type)
    kind, width = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return kind.from_arrays(offsets.cast(width), headers.flatten().filter(pa.array(is_kept)))


def with_headers(existing: Any, count: int, added: Mapping[str, Any]) -> Any:
    """Return each row's own headers, including null ones, followed by its headers in ``added``.

    added: name -> binary array; null: the row does not get this header
    """
    keys, values = [pa.array([], pa.string())], [pa.array([], pa.binary())]
    row_of = [np.empty(0, np.int64)]
    is_null_header: BoolArray = np.empty(0, np.bool_)
    if existing is not None:
        entries = existing.flatten()
        keys.append(entries.field(0).cast(pa.string()))
        values.append(entries.field(1).cast(pa.binary()))
        is_null_header = is_null(entries)
        row_of.append(_rows_of_entries(existing))
    for name, column in added.items():
        has_it = np.flatnonzero(~is_null(column))
        keys.append(pa.repeat(pa.scalar(name, pa.string()), len(has_it)))
        values.append(column.drop_null())
        row_of.append(has_it)
    rows = np.concatenate(row_of)
    order = np.argsort(rows, kind="stable")
    others = np.zeros(len(rows) - len(is_null_header), np.bool_)
    mask = np.concatenate([is_null_header, others])[order]
    entries = pa.StructArray.from_arrays(
        [pa.concat_arrays(parts).take(pa.array(order)) for parts in (keys, values)],
        fields=[*HEADERS_TYPE.value_type],
        mask=pa.array(mask) if mask.any() else None,
    )
    offsets = _offsets(rows, count).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, type=HEADERS_TYPE)


_ROWS_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("cause", pa.string()),
    ]
)


class Row(NamedTuple):
    """The row of a dead letter, with its cause."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    topic: str | None
    partition: int | None
    timestamp_ms: int
    cause: str


def row_batch(rows: Sequence[Row]) -> Any:
    """Return an Arrow batch of value, key, headers, topic, partition, timestamp, cause."""
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    columns["headers"] = [[{"key": k, "value": v} for k, v in row.headers] for row in rows]
    times = pa.array(columns.pop("timestamp_ms"), pa.timestamp("ms", "UTC"))
    columns["timestamp"] = times.cast(_ROWS_SCHEMA.field("timestamp").type)
    arrays = [pa.array(columns[field.name], field.type) for field in _ROWS_SCHEMA]
    return pa.record_batch(arrays, schema=_ROWS_SCHEMA)


def changed_rows(before: Any, after: Any) -> Any:
    """Return ``after``. Raises TypeError if its columns differ from those of ``before``."""
    if not isinstance(after, pa.RecordBatch):
        raise TypeError(f"it returned {type(after).__name__}, not a pyarrow.RecordBatch")
    if after.schema.names != before.schema.names or after.schema.types != before.schema.types:
        raise TypeError(f"it changed the columns from {before.schema} to {after.schema}")
    return after


PREFIX = "__connect.errors."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
TIMESTAMP = PREFIX + "timestamp"
CAUSE = PREFIX + "cause"
MESSAGE = PREFIX + "exception.message"
TASK = PREFIX + "task.id"
QUERY = PREFIX + "spark.query.id"
BATCH = PREFIX + "spark.batch.id"
VALUE_SIZE = PREFIX + "value.truncated.from"
KEY_SIZE = PREFIX + "key.truncated.from"
HEADERS_DROPPED = PREFIX + "headers.dropped"

MAX_REASON_BYTES = 8192
"""Limit of MESSAGE, bytes: a reason of the user's code may quote a whole row."""
_CUT = b" [cut off]"

_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp", pa.timestamp("us")),
    ]
)
_TIMESTAMP = 3
# Largest size of the headers about truncation: three headers with numbers of 10 digits.
_MARKS_BYTES = 200


def positions_of(topic: str) -> ColumnPositions:
    """Return the positions of the columns of dead letters.

    The key decides the partition, whatever partitioner the options set.
    """
    return ColumnPositions(
        value=0, key=1, headers=2, timestamp=3, topic_option=topic, takes_partitioner=False
    )


class Origin(NamedTuple):
    """The task that wrote dead letters, for their headers.

    query_id, batch_id: of a stream, else None
    """

    task: int
    query_id: str | None
    batch_id: int | None

    def headers(self) -> dict[str, bytes]:
        """Return the headers that all dead letters of a task share."""
        values = {TASK: self.task, QUERY: self.query_id, BATCH: self.batch_id}
        return {name: str(value).encode() for name, value in values.items() if value is not None}


class DeadLetterColumns:
    """Converts a task's rows to dead letters.

    max_bytes: largest record of the dead letter topic
    origin: None for no context headers; headers about truncation are always added
    """

    def __init__(self, max_bytes: int, origin: Origin | None) -> None:
        self._max_bytes = max_bytes
        self._constants = None if origin is None else origin.headers()

    def of(
        self, rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]
    ) -> ArrowBatch:
        """Return a dead letter per row, in order. faults: one per row"""
        context = {} if self._constants is None else self._context_headers(rows, positions, faults)
        rows = with_valid_header_keys(rows, positions)
        key = pa.nulls(rows.num_rows) if positions.key is None else rows.column(positions.key)
        headers = None if positions.headers is None else rows.column(positions.headers)
        columns = [
            rows.column(positions.value).cast(pa.binary()),
            key.cast(pa.binary()),
            with_headers(headers, rows.num_rows, context),
            _timestamps(rows, positions, faults),
        ]
        letters: ArrowBatch = pa.record_batch(columns, schema=_SCHEMA)
        return self._cut(letters)

    def _context_headers(
        self, rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]
    ) -> dict[str, Any]:
        """Return the context headers, each a binary array; null: the row has no such header."""
        count = rows.num_rows
        headers: dict[str, Any] = {}
        if positions.topic_option is not None:
            headers[TOPIC] = repeated(positions.topic_option.encode(), count)
        elif positions.topic is not None:
            headers[TOPIC] = valid_texts(rows.column(positions.topic))
        if positions.partition is not None:
            headers[PARTITION] = rows.column(positions.partition).cast(pa.string())
        if positions.timestamp is not None:
            headers[TIMESTAMP] = _millis(rows.column(positions.timestamp)).cast(pa.string())
        messages = [_truncated_message(fault.message) for fault in faults]
        headers[CAUSE] = pa.array([fault.cause for fault in faults], pa.string())
        headers[MESSAGE] = pa.array(messages, pa.binary())
        constants = self._constants or {}
        headers.update((name, repeated(value, count)) for name, value in constants.items())
        return {name: column.cast(pa.binary()) for name, column in headers.items()}

    def _cut(self, letters: ArrowBatch) -> ArrowBatch:
        """Truncate the dead letters that are too large, row by row because they are few."""
        sizes = np.empty(letters.num_rows, np.int64)
        content_sizes(key_value_headers(letters, positions_of("")), sizes)
        too_large = np.flatnonzero(sizes + MAX_RECORD_OVERHEAD > self._max_bytes)
        if not len(too_large):
            return letters
        taken: Any = letters.take(pa.array(too_large))
        # As a number: Python's datetime ends with the year 9999.
        micros = taken.column(_TIMESTAMP).cast(pa.int64())
        rows = taken.set_column(_TIMESTAMP, "timestamp", micros).to_pylist()
        cut = [self._cut_row(row, int(sizes[n])) for row, n in zip(rows, too_large)]
        truncated = pa.RecordBatch.from_pylist(cut, schema=_SCHEMA)
        fitting = np.delete(np.arange(letters.num_rows), too_large)
        table = pa.Table.from_batches([letters.take(pa.array(fitting)), truncated])
        result: ArrowBatch = table.combine_chunks().to_batches()[0]
        return result

    def _cut_row(self, row: dict[str, Any], size: int) -> dict[str, Any]:
        """Truncate the value; if that is not enough, drop the row's own headers; then the key.

        Raises RecordTooLargeError if the context headers alone do not fit.
        """
        excess = size + MAX_RECORD_OVERHEAD + _MARKS_BYTES - self._max_bytes
        marks: dict[str, int] = {}
        for name, mark in (("value", VALUE_SIZE), ("key", KEY_SIZE)):
            if excess <= 0:
                break
            data = row[name] or b""
            kept = max(len(data) - excess, 0)
            if kept < len(data):
                row[name] = data[:kept]
                marks[mark] = len(data)
                excess -= len(data) - kept
            if name == "value" and excess > 0:
                headers = row["headers"] or []
                row["headers"] = [h for h in headers if h["key"].startswith(PREFIX)]
                dropped = [h for h in headers if not h["key"].startswith(PREFIX)]
                if dropped:
                    marks[HEADERS_DROPPED] = len(dropped)
                    excess -= sum(len(h["key"].encode()) + len(h["value"] or b"") for h in dropped)
        if excess > 0:
            raise RecordTooLargeError(
                f"a dead letter does not fit into {self._max_bytes} bytes, even without key, "
                "value and headers: raise max.message.bytes of the topic of dead letters",
                code="DEADLETTER-005",
            )
        headers = _of_whole_parts(row["headers"] or [], marks)
        added = ({"key": name, "value": b"%d" % n} for name, n in marks.items())
        return {**row, "headers": [*headers, *added]}


def _of_whole_parts(headers: list[dict[str, Any]], marks: dict[str, int]) -> list[dict[str, Any]]:
    """Return the headers without the schema ids of truncated parts, and count these in ``marks``.

    A truncated part is no longer what its schema has encoded, and may be read as something else.
    """
    cut = {
        schema_id_header_name(part)
        for part, mark in (("value", VALUE_SIZE), ("key", KEY_SIZE))
        if mark in marks
    }
    kept = [header for header in headers if header["key"] not in cut]
    if len(kept) < len(headers):
        marks[HEADERS_DROPPED] = marks.get(HEADERS_DROPPED, 0) + len(headers) - len(kept)
    return kept


def _truncated_message(message: str) -> bytes:
    """Return the bytes of a message, truncated; lone surrogates become escapes."""
    encoded = message.encode(errors="backslashreplace")
    if len(encoded) <= MAX_REASON_BYTES:
        return encoded
    return encoded[:MAX_REASON_BYTES].decode(errors="ignore").encode() + _CUT


def _millis(column: Any) -> Any:
    """Return milliseconds, rounded down also before 1970, as the record would have them."""
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(micros // _US_PER_MS, mask=is_null(column))


def _timestamps(rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]) -> Any:
    """Return the rows' timestamps; null, the current time, for those that Kafka rejects."""
    kind = _SCHEMA.field("timestamp").type
    if positions.timestamp is None:
        return pa.nulls(rows.num_rows, kind)
    micros = rows.column(positions.timestamp).cast(pa.int64())
    is_bad = pa.array([fault.cause == BAD_TIMESTAMP for fault in faults], pa.bool_())
    return pc.if_else(pc.or_(pc.less(micros, 0), is_bad), None, micros).cast(kind)
