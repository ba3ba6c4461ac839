"""The Arrow types whose memory the kernels can read, and what of pyarrow's objects is used.

A kernel gets addresses and no types: in an array of another layout it would read what is not there.
So the types are looked at once per Arrow batch, before an address is taken. Interceptors may have
made the batch, or a caller that is not Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.columns.positions import ColumnPositions


class ArrowBuffer(Protocol):
    """A pyarrow.Buffer: bytes that begin at ``address``."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


class ArrowArray(Protocol):
    """A pyarrow.Array. Its row 0 is at ``offset`` in its buffers, the first being validity."""

    @property
    def type(self) -> Any: ...

    @property
    def offset(self) -> int: ...

    @property
    def null_count(self) -> int: ...

    def __len__(self) -> int: ...

    def buffers(self) -> list[ArrowBuffer | None]: ...

    def is_null(self) -> Any: ...


class ArrowStructArray(ArrowArray, Protocol):
    """A pyarrow.StructArray."""

    def field(self, index: int, /) -> ArrowArray: ...


class ArrowListArray(ArrowArray, Protocol):
    """A pyarrow.ListArray or LargeListArray of structs. ``flatten``: what its own rows refer to."""

    @property
    def values(self) -> ArrowStructArray: ...

    def flatten(self) -> ArrowStructArray: ...


class ArrowBatch(Protocol):
    """A pyarrow.RecordBatch. Of which type a column is, :func:`check_types` has seen."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_columns(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def schema(self) -> Any: ...

    def column(self, position: int, /) -> Any: ...

    def take(self, indices: Any, /) -> ArrowBatch: ...


_BYTES = "binary, large_binary, string or large_string"


def is_bytes(kind: Any) -> bool:
    """Offsets of 32 or 64 bits into one buffer; no views, no dictionary."""
    return kind in (pa.binary(), pa.large_binary()) or is_text(kind)


def is_text(kind: Any) -> bool:
    """Text, with offsets of 32 or 64 bits."""
    return kind in (pa.string(), pa.large_string())


def is_headers(kind: Any) -> bool:
    """A list of structs of key and value, with offsets of 32 or 64 bits."""
    if not isinstance(kind, (pa.ListType, pa.LargeListType)):
        return False
    entry = kind.value_type
    return (
        isinstance(entry, pa.StructType)
        and entry.num_fields == 2
        and is_text(entry.field(0).type)
        and is_bytes(entry.field(1).type)
    )


def is_timestamp(kind: Any) -> bool:
    """Microseconds, as Spark has them."""
    return isinstance(kind, pa.TimestampType) and bool(kind.unit == "us")


def is_partition(kind: Any) -> bool:
    """int32."""
    return bool(kind == pa.int32())


_Check = Callable[[Any], bool]


def check_types(arrow_batch: ArrowBatch, positions: ColumnPositions) -> None:
    """Raise SchemaError unless every column that is read has a type that kernels can read."""
    if not isinstance(arrow_batch, pa.RecordBatch):
        raise SchemaError(f"rows must come as a pyarrow.RecordBatch, not {type(arrow_batch)}")
    topic = positions.topic if positions.topic_option is None else None
    wanted: tuple[tuple[str, int | None, _Check, str], ...] = (
        ("value", positions.value, is_bytes, _BYTES),
        ("key", positions.key, is_bytes, _BYTES),
        ("headers", positions.headers, is_headers, "(large_)list<struct<key, value>>"),
        ("topic", topic, is_text, "string or large_string"),
        ("partition", positions.partition, is_partition, "int32"),
        ("timestamp", positions.timestamp, is_timestamp, "timestamp[us]"),
    )
    for name, position, is_readable, expected in wanted:
        if position is None:
            continue
        if position >= arrow_batch.num_columns:
            raise SchemaError(f"column '{name}' is missing in an Arrow batch")
        kind = arrow_batch.schema.field(position).type
        if not is_readable(kind):
            raise SchemaError(f"column '{name}' has the Arrow type {kind}: it must be {expected}")


def shown_texts(array: Any) -> list[str]:
    """The texts of a string array without nulls. Bytes that are no UTF-8 are U+FFFD, as in Java.

    Spark hands over such strings as they are, and pyarrow's ``to_pylist`` fails at the first one.
    """
    kind = pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()
    return [data.decode("utf-8", "replace") for data in array.view(kind).to_pylist()]
