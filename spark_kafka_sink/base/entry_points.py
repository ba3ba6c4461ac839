"""The user's own code, which the sink calls by its name: ``package.module:name``.

A hook that raises fails the task; the error names file and line of the hook. If the hook raises
RefusedRowsError, the caller handles the rejected rows.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from functools import partialmethod
from types import FunctionType
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

    code = "ROW-008"

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
        text = f"{what} '{entry_point}' is not of the form package.module:name"
        raise ConfigError(text, code="HOOK-003")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # also of the module's own code
        why = str(error) if isinstance(error, (ImportError, AttributeError)) else repr(error)
        text = f"{what} '{entry_point}' cannot be loaded: {why}{raised_at(error)}"
        raise ConfigError(text, code="HOOK-003") from error
    if not callable(found):
        raise ConfigError(f"{what} '{entry_point}' is not callable", code="HOOK-003")
    return found


def raised_at(error: BaseException) -> str:
    """Return the place in the user's own code that ``error`` comes from; empty if there is none.

    The place is the innermost frame outside of Python's library and of installed packages. If all
    frames are of installed packages, the place is the outermost one, because the hook is installed
    too: `` (file masks.py, line 7, in on_send)``.
    """
    own, installed = [], []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(_INSTALLED):
            installed.append(frame)
        elif not frame.filename.startswith(_NO_HOOKS):
            own.append(frame)
    for frame in [*own[-1:], *installed]:
        if not frame.filename.startswith(_PACKAGE):
            return f" (file {frame.filename}, line {frame.lineno}, in {frame.name})"
    return ""


_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_INSTALLED = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib"))
_NO_HOOKS = (_PACKAGE, os.path.join(sysconfig.get_path("stdlib"), ""), "<")

INTERCEPTOR_METHODS = {"on_send": "the Arrow batch", "on_acknowledgement": "the summary"}
"""Method of an interceptor -> its only argument."""

_NEAR = 0.75


def check_interceptor(entry_point: str) -> None:
    """Raise ConfigError on the driver for an interceptor whose methods no task could call.

    A class that has the methods is not instantiated. A class without them may set them when it is
    created, so it is created once here; if that fails, the task reports it. A function that creates
    an interceptor may be expensive, so only the task calls it and checks its result.
    """
    create = load(entry_point, "interceptor")
    what = f"interceptor '{entry_point}'"
    _check_arguments(create, f"{what}: its creation", 0)
    if not isinstance(create, type):
        return
    if any(hasattr(create, name) for name in INTERCEPTOR_METHODS):
        _check_methods(create, what)
        return
    try:
        interceptor = create()
    except Exception:
        return
    _check_methods(interceptor, what)


def methods_of(interceptor: Any, entry_point: str) -> dict[str, Callable[..., Any]]:
    """Return the known methods of an interceptor by name. Raises ConfigError as the driver does."""
    _check_methods(interceptor, f"interceptor '{entry_point}'")
    found = {name: getattr(interceptor, name, None) for name in INTERCEPTOR_METHODS}
    return {name: method for name, method in found.items() if method is not None}


def _check_methods(owner: Any, what: str) -> None:
    """Raise ConfigError without a known method, for a misspelt one, or for other arguments."""
    public = [name for name in dir(owner) if not name.startswith("_")]
    missing = [name for name in INTERCEPTOR_METHODS if getattr(owner, name, None) is None]
    for name in missing:
        near = difflib.get_close_matches(name, public, n=1, cutoff=_NEAR)
        if near and near[0] not in INTERCEPTOR_METHODS:
            raise ConfigError(
                f"{what} has the method '{near[0]}', which the sink never calls. "
                f"Did you mean '{name}'?",
                code="HOOK-004",
            )
    if len(missing) == len(INTERCEPTOR_METHODS):
        known = " nor ".join(INTERCEPTOR_METHODS)
        raise ConfigError(
            f"{what} has neither {known}: the sink would call nothing. Its methods: "
            f"{', '.join(public) or 'none'}",
            code="HOOK-004",
        )
    for name, argument in INTERCEPTOR_METHODS.items():
        if name not in missing:
            _check_arguments(_as_called(owner, name), f"{what}: {name}", 1, f", {argument}")


def _as_called(owner: Any, name: str) -> Any:
    """Return the method as an object has it, without an object if ``owner`` is a class."""
    if not isinstance(owner, type):
        return getattr(owner, name)
    attribute = inspect.getattr_static(owner, name, None)
    kinds = (FunctionType, staticmethod, classmethod, partialmethod)
    if isinstance(attribute, kinds):
        return attribute.__get__(object(), owner)
    return None if hasattr(attribute, "__get__") else attribute  # of a property, not known


def _check_arguments(function: Any, what: str, count: int, which: str = "") -> None:
    """Raise ConfigError if ``function`` does not take ``count`` positional arguments.

    None, and a callable whose signature Python does not know, are accepted.
    """
    if function is None:
        return
    if not callable(function):
        raise ConfigError(f"{what} is not callable", code="HOOK-004")
    try:
        # A decorator may take other arguments than what it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        given = f"{count} argument{which}" if count else "no argument"
        text = f"{what} takes {signature}, but the sink passes {given}: {error}"
        raise ConfigError(text, code="HOOK-004") from None


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
        text = f"{hook.name} failed: {error!r}{raised_at(error)}"
        raise HookError(text, code="HOOK-001") from error


def refused_rows(hook: Hook, error: RefusedRowsError, rows_count: int) -> dict[int, str]:
    """Return the rows that ``hook`` rejects, ascending, with its reasons.

    Raises HookError if it names no row, or a row outside of its input.
    """
    rows = dict(sorted(error.rows.items()))
    outside = [row for row in rows if not 0 <= row < rows_count]
    if outside or not rows:
        wrong = f"row {outside[0]}; there are {rows_count}" if outside else "no row"
        text = f"{hook.name} raised RefusedRowsError for {wrong}"
        raise HookError(text, code="HOOK-002") from error
    return rows
