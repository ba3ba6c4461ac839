"""Interceptors and a partitioner with the mistakes that users make."""

from __future__ import annotations

import pyarrow as pa


class Misspelt:
    def on_sned(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        return arrow_batch


class TooMany:
    def on_send(self, arrow_batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return arrow_batch


class Raises:
    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("on_send")


class CannotBeMade:
    def __init__(self) -> None:
        raise KeyError("__init__")

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        return arrow_batch


class Forgets:
    """Without its ``return``."""

    def on_send(self, arrow_batch: pa.RecordBatch) -> None:
        arrow_batch.slice(0, 1)


def too_few(keys: pa.Array, values: pa.Array, partitions_count: int) -> pa.Array:
    return pa.array([], pa.int32())


def raises(keys: pa.Array, values: pa.Array, partitions_count: int) -> pa.Array:
    raise KeyError("raises")


def gives_no_token() -> str:
    raise KeyError("gives_no_token")
