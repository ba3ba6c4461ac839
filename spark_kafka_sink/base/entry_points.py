"""The user's own code, which the sink calls by its name: ``package.module:name``.

A hook that raises fails the task, with its own traceback as the cause; or, with
``hooks.on.error=log``, is logged and skipped for that Arrow batch.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError

logger = logging.getLogger(__name__)

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
