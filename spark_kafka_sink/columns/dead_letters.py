"""Dead letters: rows that cannot be written, as rows of another topic, with headers that say why.

A dead letter keeps key, value, headers and timestamp of its row, as far as a Kafka record can have
them. What would be too large is cut off, and headers tell that.

Source of the headers' names: Kafka Connect's ``DeadLetterQueueReporter`` (KIP-298).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.faults import BAD_TIMESTAMP, Fault, is_null
from spark_kafka_sink.columns.headers import HEADERS_TYPE, repeated, with_headers
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import key_value_headers
from spark_kafka_sink.record.compiled.records import MAX_RECORD_OVERHEAD, content_sizes

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

MOST_TOLD = 8192
"""Bytes of MESSAGE: a reason of the user's own may have all of a row's contents in it."""
_CUT = b" [cut off]"

_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp", pa.timestamp("us")),
    ]
)
_HEADERS, _TIMESTAMP = 2, 3
# Spark's texts may be any bytes, of which Python makes no str.
_BYTES_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_BYTES_SCHEMA = _SCHEMA.set(_HEADERS, pa.field("headers", _BYTES_HEADERS))
_OWN_PREFIX = PREFIX.encode()
# Marks of what was cut off, at their largest: three headers with numbers of 10 digits.
_MARKS_BYTES = 200
_US_PER_MS = 1000


def positions_of(topic: str) -> ColumnPositions:
    """Where the columns of dead letters are. Whatever partitioner the rows have refused: the key
    decides.
    """
    return ColumnPositions(
        value=0, key=1, headers=2, timestamp=3, topic_option=topic, takes_partitioner=False
    )


class Origin(NamedTuple):
    """Of which task dead letters are: what their headers tell besides the cause.

    query_id, batch_id: of a stream, else None
    """

    task: int
    query_id: str | None
    batch_id: int | None

    def headers(self) -> dict[str, bytes]:
        """The same for all dead letters of a task."""
        told = {TASK: self.task, QUERY: self.query_id, BATCH: self.batch_id}
        return {name: str(value).encode() for name, value in told.items() if value is not None}


class DeadLetterColumns:
    """Makes dead letters of a task's rows.

    most_bytes: that a record of the dead letter topic may take; origin: None for no headers but
    those that tell what was cut off
    """

    def __init__(self, most_bytes: int, origin: Origin | None) -> None:
        self._most_bytes = most_bytes
        self._constants = None if origin is None else origin.headers()

    def of(
        self, rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]
    ) -> ArrowBatch:
        """A dead letter for each row, in their order. faults: one for each row."""
        told = {} if self._constants is None else self._told(rows, positions, faults)
        columns = [
            _binary(rows.column(positions.value)),
            _nulls(rows, pa.binary())
            if positions.key is None
            else _binary(rows.column(positions.key)),
            with_headers(_headers(rows, positions), rows.num_rows, told),
            _timestamps(rows, positions, faults),
        ]
        letters: ArrowBatch = pa.record_batch(columns, schema=_SCHEMA)
        return self._cut(letters)

    def _told(
        self, rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]
    ) -> dict[str, Any]:
        """Context headers, each a binary array with null where it is left out."""
        count = rows.num_rows
        told: dict[str, Any] = {}
        if positions.topic_option is not None:
            told[TOPIC] = repeated(positions.topic_option.encode(), count)
        elif positions.topic is not None:
            told[TOPIC] = _binary(rows.column(positions.topic))
        if positions.partition is not None:
            told[PARTITION] = _as_text(rows.column(positions.partition))
        if positions.timestamp is not None:
            told[TIMESTAMP] = _as_text(_millis(rows.column(positions.timestamp)))
        told[CAUSE] = pa.array([fault.cause.encode() for fault in faults], pa.binary())
        told[MESSAGE] = pa.array([_words(fault.message) for fault in faults], pa.binary())
        for name, value in (self._constants or {}).items():
            told[name] = repeated(value, count)
        return told

    def _cut(self, letters: ArrowBatch) -> ArrowBatch:
        """Make those fit that are too large. There are few of them, and each is large."""
        sizes = np.empty(letters.num_rows, np.int64)
        content_sizes(key_value_headers(letters, positions_of("")), sizes)
        too_large = np.flatnonzero(sizes + MAX_RECORD_OVERHEAD > self._most_bytes)
        if not len(too_large):
            return letters
        taken: Any = letters.take(pa.array(too_large))
        # As a number: Python has no time after the year 9999.
        micros = taken.column(_TIMESTAMP).cast(pa.int64())
        taken = taken.set_column(_TIMESTAMP, "timestamp", micros)
        headers = _with_keys_as(taken.column(_HEADERS), pa.binary())
        rows: list[dict[str, Any]] = taken.set_column(_HEADERS, "headers", headers).to_pylist()
        cut = [self._cut_row(row, int(sizes[n])) for row, n in zip(rows, too_large)]
        made = pa.RecordBatch.from_pylist(cut, schema=_BYTES_SCHEMA)
        headers = _with_keys_as(made.column(_HEADERS), pa.string())
        made = made.set_column(_HEADERS, _SCHEMA.field(_HEADERS), headers)
        rest = np.delete(np.arange(letters.num_rows), too_large)
        table = pa.Table.from_batches([letters.take(pa.array(rest)), made])
        found: ArrowBatch = table.combine_chunks().to_batches()[0]
        return found

    def _cut_row(self, row: dict[str, Any], size: int) -> dict[str, Any]:
        """Shorten the value; if that is not enough, leave out the row's own headers; then the key.

        Raises RecordTooLargeError where not even the context fits.
        """
        excess = size + MAX_RECORD_OVERHEAD + _MARKS_BYTES - self._most_bytes
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
                own = [h for h in row["headers"] or [] if not h["key"].startswith(_OWN_PREFIX)]
                if own:
                    marks[HEADERS_DROPPED] = len(own)
                    row["headers"] = [h for h in row["headers"] if h["key"].startswith(_OWN_PREFIX)]
                    excess -= sum(len(h["key"]) + len(h["value"] or b"") for h in own)
        if excess > 0:
            raise RecordTooLargeError(
                f"a dead letter does not fit into {self._most_bytes} bytes, even without key, "
                "value and headers: raise max.message.bytes of the topic of dead letters"
            )
        told = [{"key": name.encode(), "value": b"%d" % number} for name, number in marks.items()]
        return {**row, "headers": [*(row["headers"] or []), *told]}


def _words(message: str) -> bytes:
    """What is no Unicode in it, which the user's own text may have, as its escapes."""
    found = message.encode(errors="backslashreplace")
    if len(found) <= MOST_TOLD:
        return found
    return found[:MOST_TOLD].decode(errors="ignore").encode() + _CUT


def _binary(column: Any) -> Any:
    return column.cast(pa.binary())


def _with_keys_as(headers: Any, kind: Any) -> Any:
    """The same bytes as another type. headers: of an array of its own, no slice, without nulls"""
    entries = headers.values
    made = pa.StructArray.from_arrays(
        [entries.field(0).view(kind), entries.field(1)], names=["key", "value"]
    )
    return pa.ListArray.from_arrays(headers.offsets, made)


def _nulls(rows: ArrowBatch, kind: Any) -> Any:
    return pa.nulls(rows.num_rows, kind)


def _as_text(column: Any) -> Any:
    return column.cast(pa.string()).cast(pa.binary())


def _millis(column: Any) -> Any:
    """Rounded down, also before 1970, as they would have been written."""
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(micros // _US_PER_MS, mask=is_null(column))


def _timestamps(rows: ArrowBatch, positions: ColumnPositions, faults: Sequence[Fault]) -> Any:
    """Those of the rows; null, the current time, for what Kafka cannot have or brokers refuse."""
    kind = _SCHEMA.field("timestamp").type
    if positions.timestamp is None:
        return _nulls(rows, kind)
    micros = rows.column(positions.timestamp).cast(pa.int64())
    is_bad = pa.array([fault.cause == BAD_TIMESTAMP for fault in faults], pa.bool_())
    return pc.if_else(pc.or_(pc.less(micros, 0), is_bad), None, micros).cast(kind)


def _headers(rows: ArrowBatch, positions: ColumnPositions) -> Any:
    return None if positions.headers is None else rows.column(positions.headers)
