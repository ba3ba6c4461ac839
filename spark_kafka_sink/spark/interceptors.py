"""The user's interceptors: Arrow batches before they are appended, a summary after the last one.

An interceptor is a class with ``on_send(arrow_batch) -> arrow_batch``,
``on_acknowledgement(summary)``, or both.

Source: ``ProducerInterceptor``, ``ProducerInterceptors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_kafka_sink.base.entry_points import Hook, load, run


class Interceptors:
    """The user's interceptors of one task, in the order in which they were named."""

    def __init__(self, entry_points: Sequence[str], on_error: str) -> None:
        self._on_error = on_error
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

    def on_send(self, arrow_batch: Any) -> Any:
        """The Arrow batch after all interceptors; each gets what the one before it returned."""
        for hook in self._on_send:
            check = partial(_same_schema, arrow_batch.schema)
            changed = run(hook, self._on_error, check, arrow_batch)
            if changed is not None:
                arrow_batch = changed
        return arrow_batch

    def on_acknowledgement(self, summary: dict[str, Any]) -> None:
        """Tell all interceptors what the brokers have acknowledged."""
        for hook in self._on_acknowledgement:
            run(hook, self._on_error, lambda got: got, summary)


def _same_schema(schema: Any, arrow_batch: Any) -> Any:
    if arrow_batch is None or not hasattr(arrow_batch, "schema"):
        raise TypeError(f"it returned {type(arrow_batch).__name__}, not a pyarrow.RecordBatch")
    if not arrow_batch.schema.equals(schema):
        raise TypeError(f"it changed the columns from {schema} to {arrow_batch.schema}")
    return arrow_batch
