"""The user's own code in the way of a record: ``package.module:name``.

A partitioner is a callable ``(keys, values, partitions_count) -> int32 array``, all Arrow arrays;
a null in its result leaves the row to the key. An interceptor is a class with
``on_send(arrow_batch) -> arrow_batch``, ``on_acknowledgement(summary)``, or both.

A hook that raises fails the task, with its own traceback as the cause; or, with
``hooks.on.error=log``, is logged and skipped for that Arrow batch.

Source: ``Partitioner``, ``ProducerInterceptor``, ``ProducerInterceptors``.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from spark_kafka_sink.errors import ConfigError, KafkaSinkError

logger = logging.getLogger("spark_kafka_sink")

FAIL = "fail"
LOG = "log"


class HookError(KafkaSinkError):
    """A user's hook raised, or returned what it must not. Its own exception is the cause."""


def load(entry_point: str, what: str) -> Any:
    """What ``package.module:name`` names. Raises ConfigError when it cannot be had."""
    module_name, separator, name = entry_point.partition(":")
    if not separator or not module_name or not name:
        raise ConfigError(f"{what} '{entry_point}' is not of the form package.module:name")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{what} '{entry_point}' cannot be loaded: {error}") from error
    if not callable(found):
        raise ConfigError(f"{what} '{entry_point}' is not callable")
    return found


class Hook(NamedTuple):
    """One method of a user's hook, with its name for error messages."""

    name: str
    call: Callable[..., Any]


def run(hook: Hook, on_error: str, check: Callable[[Any], Any], *arguments: Any) -> Any:
    """``check(hook(*arguments))``; None if it failed and ``on_error`` is ``log``.

    ``check`` raises for a result that may not be used. Raises HookError.
    """
    try:
        return check(hook.call(*arguments))
    except Exception as error:
        if on_error == LOG:
            logger.warning(f"{hook.name} failed and is skipped: {error!r}", exc_info=True)
            return None
        raise HookError(f"{hook.name} failed: {error!r}") from error


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
