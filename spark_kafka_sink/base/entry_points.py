"""The user's own code, which the sink calls by its name: ``package.module:name``.

A hook that raises fails the task, with its own traceback as the cause. If it raises
RefusedRowsError, the caller handles the rejected rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError


class HookError(KafkaSinkError):
    """A user's hook raised, or returned an invalid result. Its own exception is the cause."""


class RefusedRowsError(KafkaSinkError, ValueError):
    """Raised by your own interceptor or partitioner: these rows must not be written.

    rows: numbers of rows in the given Arrow batch, from 0, each with the reason

    The task fails; with ``errors.tolerance=all``, these rows become dead letters, and the other
    rows are written. A header of the dead letter has the reason.

    Example
    -------
    >>> raise RefusedRowsError({3: "no customer id", 17: "unknown country"})
    """

    def __init__(self, rows: Mapping[int, str]) -> None:
        self.rows = {int(row): _encodable(str(reason)) for row, reason in rows.items()}
        shown = "; ".join(f"row {row}: {text}" for row, text in [*self.rows.items()][:3])
        super().__init__(f"{len(self.rows)} row(s) refused: {shown}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rows,)


def _encodable(text: str) -> str:
    """Escape characters that are no Unicode, which Spark could not send to the driver."""
    return text.encode(errors="backslashreplace").decode()


def load(entry_point: str, what: str) -> Any:
    """Return the object ``package.module:name``. Raises ConfigError if it cannot be loaded."""
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


def run(hook: Hook, check: Callable[[Any], Any], *arguments: Any) -> Any:
    """Return ``check(hook(*arguments))``.

    ``check`` raises for an invalid result. Raises HookError, and the hook's own RefusedRowsError.
    """
    try:
        return check(hook.call(*arguments))
    except RefusedRowsError:
        raise
    except Exception as error:
        raise HookError(f"{hook.name} failed: {error!r}") from error


def refused_rows(hook: Hook, error: RefusedRowsError, rows_count: int) -> dict[int, str]:
    """Return the rows that ``hook`` rejects, ascending, with its reasons.

    Raises HookError if it names no row, or a row outside of its input.
    """
    rows = dict(sorted(error.rows.items()))
    outside = [row for row in rows if not 0 <= row < rows_count]
    if outside or not rows:
        wrong = f"row {outside[0]}; there are {rows_count}" if outside else "no row"
        raise HookError(f"{hook.name} raised RefusedRowsError for {wrong}") from error
    return rows
