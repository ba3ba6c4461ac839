"""The user's interceptors: Arrow batches before they are appended, a summary after the last one.

An interceptor is a class with ``on_send(arrow_batch) -> arrow_batch``,
``on_acknowledgement(summary)``, or both.

Source: ``ProducerInterceptor``, ``ProducerInterceptors``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from spark_kafka_sink.base.entry_points import Hook, RefusedRowsError, load, refused_rows, run
from spark_kafka_sink.columns.dead_letters import AN_ARROW_BATCH, AS_RETURNED
from spark_kafka_sink.columns.record_columns import ArrowBatch

OnRefused = Callable[[ArrowBatch, Mapping[int, str]], None]
"""Takes an Arrow batch as an interceptor got it and, by row, why rows of it are refused."""


class Interceptors:
    """The user's interceptors of one task, in the order in which they were named."""

    def __init__(self, entry_points: Sequence[str]) -> None:
        self._on_send: list[Hook] = []
        self._on_acknowledgement: list[Hook] = []
        for entry_point in entry_points:
            interceptor = load(entry_point, "interceptor")()
            for name, hooks in (
                ("on_send", self._on_send),
                ("on_acknowledgement", self._on_acknowledgement),
            ):
                method = getattr(interceptor, name, None)
                if method is not None:
                    hooks.append(Hook(f"{name} of interceptor '{entry_point}'", method))

    @property
    def rows_are_of(self) -> str:
        """What numbers of rows in messages count. Rows that an interceptor leaves out, or puts
        somewhere else, cannot be traced back.
        """
        return AS_RETURNED if self._on_send else AN_ARROW_BATCH

    def on_send(self, arrow_batch: ArrowBatch, on_refused: OnRefused | None = None) -> ArrowBatch:
        """The Arrow batch after all interceptors; each gets what the one before it returned.

        on_refused: takes rows that one refuses, which then gets the others again. Without it,
        raises RefusedRowsError
        """
        for hook in self._on_send:
            arrow_batch = self._after(hook, arrow_batch, on_refused)
        return arrow_batch

    def _after(
        self, hook: Hook, arrow_batch: ArrowBatch, on_refused: OnRefused | None
    ) -> ArrowBatch:
        came_in = arrow_batch
        left: Sequence[int] = range(arrow_batch.num_rows)
        while arrow_batch.num_rows:
            try:
                check = partial(_same_columns, arrow_batch)
                changed: ArrowBatch = run(hook, check, arrow_batch)
            except RefusedRowsError as error:
                if on_refused is None:
                    raise
                reasons = refused_rows(hook, error, arrow_batch.num_rows)
                on_refused(came_in, {left[row]: reason for row, reason in reasons.items()})
                left = [number for row, number in enumerate(left) if row not in reasons]
                arrow_batch = came_in.take(pa.array(left, pa.int64()))
            else:
                return changed
        return arrow_batch

    def on_acknowledgement(self, summary: dict[str, Any]) -> None:
        """Tell all interceptors what the brokers have acknowledged."""
        for hook in self._on_acknowledgement:
            run(hook, lambda got: got, summary)


def _same_columns(before: ArrowBatch, after: Any) -> ArrowBatch:
    """``after``, if it has the columns of ``before``: names and types, whatever may be null."""
    if not isinstance(after, pa.RecordBatch):
        raise TypeError(f"it returned {_name_of(after)}, not a pyarrow.RecordBatch")
    if after.schema.names != before.schema.names:
        raise TypeError(
            f"it changed the columns from {before.schema.names} to {after.schema.names}"
        )
    for expected, got in zip(before.schema, after.schema):
        if _may_be_null(got.type) != _may_be_null(expected.type):
            raise TypeError(
                f"it changed the type of column '{got.name}' from {expected.type} to {got.type}: "
                "cast the column to the type that it had"
            )
    checked: ArrowBatch = after
    return checked


def _may_be_null(kind: Any) -> Any:
    """The type with everything inside nullable, as pyarrow's functions leave it."""
    if isinstance(kind, pa.StructType):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(field.name, _may_be_null(field.type)) for field in fields])
    if isinstance(kind, pa.ListType):
        return pa.list_(_may_be_null(kind.value_type))
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(_may_be_null(kind.value_type))
    return kind


def _name_of(value: Any) -> str:
    """``pyarrow.Table``, ``None``, ``list``."""
    if value is None:
        return "None"
    kind = type(value)
    module = kind.__module__.split(".")[0]
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"
