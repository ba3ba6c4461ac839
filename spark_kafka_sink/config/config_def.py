"""Options as a table: name, type, default, validator, importance, documentation.

Parsing, validation, error messages and docs/options.md all come from the table.

Source: ``ConfigDef`` of Kafka's clients.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Optional

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import HIDDEN, Secret
from spark_kafka_sink.config.reference_syntax import has_reference, problem_of_references

Validator = Callable[[Any], Optional[str]]
"""Returns what is wrong with a parsed value, or None."""


class ConfigType(Enum):
    """Types of values, named as in Kafka's documentation."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"


class Importance(Enum):
    """How likely a user is to need the key."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Required:
    """Default of a key that has none."""


REQUIRED = Required()

# Python's int() takes 1_000 and other scripts' digits as well, Java's does not.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_WITH_UNIT = re.compile(r"[0-9.]+ *[a-zA-Z]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


class ConfigKey(NamedTuple):
    """One option.

    java_default, difference: set when the default is not the Java client's; the second says why.
    convert: brings a value into its usual form before it is validated.
    takes_references: a text that holds ``${env:NAME}`` and the like stays as it is, for it is known
    only where it is resolved.
    hides_value: errors do not show the value, as those of a PASSWORD never do.
    prefix: what users write before the name; set by the table.
    """

    name: str
    type: ConfigType
    default: Any
    validator: Validator | None
    importance: Importance
    doc: str
    java_default: Any = None
    difference: str | None = None
    convert: Callable[[Any], Any] | None = None
    takes_references: bool = False
    hides_value: bool = False
    prefix: str = ""

    @property
    def full_name(self) -> str:
        """The name as users write it."""
        return self.prefix + self.name

    @property
    def field(self) -> str:
        """The name as a Python identifier: dots become underscores."""
        return self.name.replace(".", "_")

    def parse(self, value: str) -> Any:
        """``value`` in the key's type, validated. Raises ConfigError.

        The error shows the value, unless it may be a secret.
        """
        if self.takes_references:
            problem = problem_of_references(value)
            if problem is not None:
                raise self._invalid(value, problem)
            if has_reference(value):
                return _parse(self.type, value.strip())
        try:
            parsed = _parse(self.type, value.strip())
        except ValueError:
            raise self._invalid(value, _not_of(self.type, value.strip())) from None
        if self.convert is not None:
            parsed = self.convert(parsed)
        problem = self.validator(parsed) if self.validator is not None else None
        if problem is not None:
            raise self._invalid(value, problem)
        return parsed

    def _invalid(self, value: str, problem: str) -> ConfigError:
        is_hidden = self.hides_value or self.type is ConfigType.PASSWORD
        shown = HIDDEN if is_hidden else value
        return ConfigError(f"Invalid value {shown} for configuration {self.full_name}: {problem}")


def _not_of(config_type: ConfigType, text: str) -> str:
    """What is wrong with a text that is no value of the type."""
    if config_type in _INTEGER_RANGES and _INTEGER.fullmatch(text):
        lowest, highest = _INTEGER_RANGES[config_type]
        return f"must be between {lowest} and {highest}"
    if config_type in _INTEGER_RANGES and _WITH_UNIT.fullmatch(text):
        return "not a whole number: write it without a unit, in milliseconds or bytes"
    return f"not a {config_type.value}"


def _parse(config_type: ConfigType, text: str) -> Any:
    if config_type in (ConfigType.STRING, ConfigType.CLASS):
        return text
    if config_type is ConfigType.PASSWORD:
        return Secret(text)
    if config_type is ConfigType.LIST:
        return [item.strip() for item in text.split(",") if item.strip()]
    if config_type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if config_type is ConfigType.DOUBLE:
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        return float(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    lowest, highest = _INTEGER_RANGES[config_type]
    if not lowest <= number <= highest:
        raise ValueError(text)
    return number


def at_least(lowest: int) -> Validator:
    """Numbers from ``lowest`` on."""
    return lambda value: None if value >= lowest else f"must be at least {lowest}"


def between(lowest: float, highest: float) -> Validator:
    """Numbers from ``lowest`` to ``highest``."""
    return lambda value: (
        None if lowest <= value <= highest else f"must be between {lowest} and {highest}"
    )


def non_empty(value: str) -> str | None:
    """Any text but the empty one."""
    return None if value else "must not be empty"


def one_of(*allowed: str) -> Validator:
    """One of the given words, exactly."""
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def in_usual_case(*allowed: str) -> Callable[[str], str]:
    """For ``ConfigKey.convert``: the allowed word that ``value`` is, else ``value`` as it is."""
    return lambda value: next((word for word in allowed if word.lower() == value.lower()), value)


class ConfigDef:
    """A table of keys. ``prefix``: what users write before each name."""

    def __init__(self, keys: Iterable[ConfigKey], prefix: str = "") -> None:
        self.prefix = prefix
        self.keys: dict[str, ConfigKey] = {key.name: key._replace(prefix=prefix) for key in keys}

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Every key of the table by its field name: given values parsed, others at their default.

        Raises ConfigError for an unknown key, a wrong value, or a required key that is missing.
        """
        for name in values:
            if name not in self.keys:
                raise ConfigError(f"unknown option '{self.prefix}{name}'{self.suggestion(name)}")
        parsed = {}
        for key in self.keys.values():
            if key.name in values:
                parsed[key.field] = key.parse(values[key.name])
            elif key.default is REQUIRED:
                raise ConfigError(
                    f"Missing required configuration {key.full_name}, which has no default"
                )
            else:
                parsed[key.field] = key.default
        return parsed

    def suggestion(self, name: str) -> str:
        """``. Did you mean 'x'?`` for the nearest known name; empty when nothing is near."""
        near = self.near(name)
        return "" if near is None else f". Did you mean '{self.prefix}{near}'?"

    def near(self, name: str, others: Iterable[str] = ()) -> str | None:
        """The nearest of the names in the table and of ``others``, all without the prefix."""
        near = difflib.get_close_matches(name, [*self.keys, *others], n=1, cutoff=0.6)
        return near[0] if near else None
