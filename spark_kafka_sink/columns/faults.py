"""Which rows of an Arrow batch cannot be written, and why: what the columns alone can tell.

Looked for only after an Arrow batch was refused as a whole, which costs nothing for batches in
order. What is found is a function of the rows, the options and the topics' settings, so that a task
that runs again comes to the same.

Sizes, partitions and the user's own partitioner are looked at by the producer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.columns.arrow_types import ArrowBatch, check_types, shown_texts
from spark_kafka_sink.columns.positions import ColumnPositions

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
"""In the order in which they are looked for: the first one is the cause of a row with several.

The last one, and some rows of TOO_LARGE and BAD_TIMESTAMP, are what brokers have found out.
"""

AN_ARROW_BATCH = "an Arrow batch"
AS_RETURNED = f"{AN_ARROW_BATCH} as the interceptors have returned it"
AS_GOT = f"{AN_ARROW_BATCH} as the interceptor got it"
"""What numbers of rows count, in messages."""

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_US_PER_MS = 1000


class Fault(NamedTuple):
    """Why a row cannot be written. cause: one of CAUSES; message: in words, without its contents"""

    cause: str
    message: str


class RowFaults:
    """The faults of an Arrow batch's rows. ``found``: by row, in the order of CAUSES."""

    def __init__(self, rows_count: int) -> None:
        self._is_good: BoolArray = np.ones(rows_count, np.bool_)
        self.found: dict[int, Fault] = {}

    @property
    def good(self) -> Int64Array:
        """Rows without a fault, ascending."""
        return np.flatnonzero(self._is_good)

    @property
    def bad(self) -> Int64Array:
        """Rows with a fault, ascending."""
        return np.flatnonzero(~self._is_good)

    def add(self, is_faulty: BoolArray, cause: str, message_of: Callable[[int], str]) -> None:
        """``is_faulty``: bool[n]. A row that has a fault already keeps that one."""
        for row in np.flatnonzero(is_faulty & self._is_good).tolist():
            self.found[row] = Fault(cause, message_of(row))
        self._is_good &= ~is_faulty

    def add_those_of(self, others: RowFaults, numbers: Int64Array | None = None) -> None:
        """``others``: of the same rows, or of those with these ``numbers`` here."""
        for other_row, fault in others.found.items():
            row = other_row if numbers is None else int(numbers[other_row])
            if self._is_good[row]:
                self.found[row] = fault
                self._is_good[row] = False


class Readable(NamedTuple):
    """An Arrow batch whose headers all have a key: those without were left out. And its faults."""

    rows: ArrowBatch
    faults: RowFaults


def content_faults(
    arrow_batch: ArrowBatch, positions: ColumnPositions, decision_log: str | None = None
) -> Readable:
    """Faults of headers, topics and timestamps. Raises SchemaError for a type of a column.

    decision_log: the topic that no row may go to, with exactly-once
    """
    check_types(arrow_batch, positions)
    faults = RowFaults(arrow_batch.num_rows)
    if positions.headers is not None:
        arrow_batch = _with_keys(arrow_batch, positions.headers, faults)
    if positions.topic_option is None and positions.topic is not None:
        _find_topics(arrow_batch.column(positions.topic), faults, decision_log)
    if positions.timestamp is not None:
        _find_timestamps(arrow_batch.column(positions.timestamp), faults)
    return Readable(arrow_batch, faults)


def is_legal(topic: str) -> bool:
    """Source: ``Topic.validate``."""
    return _LEGAL_TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def rows_of(arrow_batch: ArrowBatch, rows: Int64Array) -> ArrowBatch:
    """These rows, in this order."""
    return arrow_batch if len(rows) == arrow_batch.num_rows else arrow_batch.take(pa.array(rows))


def is_null(array: Any) -> BoolArray:
    """bool[n]"""
    found: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return found


def illegal_topic(topic: str) -> str:
    """What is said of a name that no topic can have."""
    return (
        f"Invalid topic name '{topic[:300]}': topic names have 1 to 249 characters out of "
        "a-z A-Z 0-9 . _ -"
    )


def decision_log_topic(topic: str) -> str:
    """Return what is said of a row that names the query's own decision log."""
    return (
        f"Invalid topic '{topic}': it is the decision log, transaction.log.topic, where a row may "
        "be taken for a decision. Name another topic in one of the two"
    )


def _find_topics(column: Any, faults: RowFaults, decision_log: str | None) -> None:
    faults.add(is_null(column), NULL_TOPIC, lambda row: "null topic present in the data")
    encoded = column.dictionary_encode()
    # Those of a dictionary: a row without a topic has none.
    names = shown_texts(encoded.dictionary)

    def told(name: str) -> str:
        return decision_log_topic(name) if name == decision_log else illegal_topic(name)

    is_wrong = np.array([name == decision_log or not is_legal(name) for name in names], np.bool_)
    if is_wrong.any():
        indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        faults.add(is_wrong[indices], INVALID_TOPIC, lambda row: told(names[indices[row]]))


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
    """Note rows with a header that is null or has no key, and leave such headers out."""
    column: Any = arrow_batch.column(position)
    entries = column.flatten()
    is_bad = is_null(entries) | is_null(entries.field(0))
    if not is_bad.any():
        return arrow_batch
    rows_count = len(column)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    row_of = np.repeat(np.arange(rows_count), lengths)
    is_faulty = np.zeros(rows_count, np.bool_)
    is_faulty[row_of[is_bad]] = True
    faults.add(is_faulty, NULL_HEADER, lambda row: "a header is null, or its key is")
    kept = entries.filter(pa.array(~is_bad))
    offsets = np.zeros(rows_count + 1, np.int64)
    np.cumsum(np.bincount(row_of[~is_bad], minlength=rows_count), out=offsets[1:])
    is_large = pa.types.is_large_list(column.type)
    kind, width = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    headers = kind.from_arrays(pa.array(offsets).cast(width), kept)
    columns = [arrow_batch.column(index) for index in range(arrow_batch.num_columns)]
    columns[position] = headers
    changed: ArrowBatch = pa.record_batch(columns, names=arrow_batch.schema.names)
    return changed
