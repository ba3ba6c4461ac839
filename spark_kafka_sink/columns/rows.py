"""Rows in Python's own types as an Arrow batch, for the few that are written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.columns.headers import HEADERS_TYPE

_MILLIS = pa.timestamp("ms", "UTC")
_SCHEMA = pa.schema(
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
    """A dead letter's row, and why it is one."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    topic: str | None
    partition: int | None
    timestamp_ms: int
    cause: str


def row_batch(rows: Sequence[Row]) -> Any:
    """Columns value, key, headers, topic, partition, timestamp, and cause."""
    headers = [[{"key": k, "value": v} for k, v in row.headers] for row in rows]
    given = {field: [getattr(row, field) for row in rows] for field in ("value", "key", "topic")}
    columns = [
        pa.array(given["value"], pa.binary()),
        pa.array(given["key"], pa.binary()),
        pa.array(headers, HEADERS_TYPE),
        pa.array(given["topic"], pa.string()),
        pa.array([row.partition for row in rows], pa.int32()),
        pa.array([row.timestamp_ms for row in rows], _MILLIS).cast(_SCHEMA.field(5).type),
        pa.array([row.cause for row in rows], pa.string()),
    ]
    return pa.record_batch(columns, schema=_SCHEMA)


def changed_rows(before: Any, after: Any) -> Any:
    """``after``, if it has the columns of ``before``. Raises TypeError."""
    if not isinstance(after, pa.RecordBatch):
        raise TypeError(f"it returned {type(after).__name__}, not a pyarrow.RecordBatch")
    if after.schema.names != before.schema.names or after.schema.types != before.schema.types:
        raise TypeError(f"it changed the columns from {before.schema} to {after.schema}")
    return after
