"""Describe options as a table: name, type, default, validator, documentation.

Parsing, validation, error messages and docs/options.md all come from the table. Values may be
references: ``${env:NAME}``, ``${file:/path:key}``, ``${dir:/path:file}``. This module knows their
syntax; ``security/references.py`` resolves them in the process that needs the value.

An option that names a Java class is mapped to its counterpart here or rejected with advice.
Databricks ships Kafka's client and Amazon's library as ``kafkashaded.org.apache.kafka…`` and
``shadedmskiam.software.amazon…``; both prefixes are removed. Java's properties files are
``name=value`` lines with comments, escapes and continued lines.

Source: ``ConfigDef``, ``ConfigTransformer`` of Kafka 4.3; ``java.util.Properties.load``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Optional

from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.text import HIDDEN, Secret

Validator = Callable[[Any], Optional[str]]
"""Return what is wrong with a parsed value, or None if the value is valid."""


ConfigType = Literal[
    "boolean", "short", "int", "long", "double", "string", "list", "class", "password"
]
"""Types of values, named as in Kafka's documentation."""

KAFKA_PREFIX = "kafka."


REQUIRED = object()
"""Default of a key that must be set."""

# Python's int() accepts 1_000 and the digits of other scripts; Java's parser does not.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 4000
_WITH_UNIT = re.compile(r"[0-9.]+ *[a-zA-Z]+")
_PYTHON_LIST = re.compile(r"""\[\s*['"].*['"]\s*\]|\(\s*['"].*['"]\s*,?\s*\)""", re.DOTALL)
_ITEM = re.compile(r"(?:`[^`]*`|[^,])+")  # no comma ends it in backticks: names of columns
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER_RANGES = {
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}


_PART = re.compile(r"\n *> ")
_DIFFERS = re.compile(r"Differs(?: from (?P<default>\S+))?: (?P<reason>.*)")


class ConfigKey(NamedTuple):
    """One option.

    default: the value if the option is not set; None for no value
    convert: normalises a value before it is validated
    takes_references: a text with a reference such as ``${env:NAME}`` is neither converted nor
    validated, because its value is known only when it is resolved
    hides_value: errors do not show the value; errors never show the value of a PASSWORD
    text: the documentation, see ``about``
    prefix: text that users write before the name; set by the table
    """

    name: str
    type: ConfigType
    default: Any = None
    validator: Validator | None = None
    convert: Callable[[Any], Any] | None = None
    takes_references: bool = False
    hides_value: bool = False
    text: str = ""
    prefix: str = ""

    def about(self, text: str) -> ConfigKey:
        """Return the option with its documentation, parts of which begin with ``>`` in a new line.

        The parts are its meaning; when to set or change it; ``Differs from DEFAULT:``, the Java
        client's default, or ``Differs:``, and the reason or the other meaning.
        """
        return self._replace(text=text)

    @property
    def _parts(self) -> list[str]:
        return [" ".join(part.split()) for part in _PART.split(self.text)] + [""]

    @property
    def doc(self) -> str:
        """Return the meaning."""
        return self._parts[0]

    @property
    def when(self) -> str:
        """Return when to set or change the option."""
        return self._parts[1]

    @property
    def java_default(self) -> str | None:
        """Return the Java client's default if it differs."""
        found = _DIFFERS.match(self._parts[2])
        return found["default"] if found else None

    @property
    def difference(self) -> str | None:
        """Return why the default differs, or how the meaning differs from the Java client's."""
        found = _DIFFERS.match(self._parts[2])
        return found["reason"] if found else None

    @property
    def full_name(self) -> str:
        """Return the name as users write it."""
        return self.prefix + self.name

    @property
    def field(self) -> str:
        """Return the name as a Python identifier: dots become underscores."""
        return self.name.replace(".", "_")

    def parse(self, value: str) -> Any:
        """Return ``value`` converted to the key's type and validated. Raises ConfigError.

        The error shows the value unless the value may be a secret.
        """
        text = value.strip()
        if self.takes_references:
            problem = reference_problem(value)
            if problem is not None:
                raise self._invalid(value, problem, "OPTION-005")
        try:
            parsed = _parse(self.type, text)
        except ValueError as error:
            raise self._invalid(value, str(error), "OPTION-002") from None
        if self.takes_references and has_reference(value):
            return parsed
        if self.convert is not None:
            parsed = self.convert(parsed)
        problem = self.validator(parsed) if self.validator is not None else None
        if problem is not None:
            raise self._invalid(value, problem, "OPTION-003")
        return parsed

    def _invalid(self, value: str, problem: str, code: str) -> ConfigError:
        shown = HIDDEN if self.hides_value or self.type == "password" else value
        return ConfigError(
            f"Invalid value {shown} for configuration {self.full_name}: {problem}", code=code
        )


def _parse(config_type: ConfigType, text: str) -> Any:
    """Return the value of a type. Raises ValueError, which says what is wrong with the text."""
    if config_type in ("string", "class"):
        return text
    if config_type == "password":
        return Secret(text)
    if config_type == "list":
        if _PYTHON_LIST.fullmatch(text):
            raise ValueError("it is a Python list: write one text with commas, such as 'a,b'")
        return [item.strip() for item in _ITEM.findall(text) if item.strip()]
    if config_type == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if config_type == "double":
        if not _NUMBER.fullmatch(text):
            raise ValueError("must be a number")
        return float(text)
    if _WITH_UNIT.fullmatch(text):
        raise ValueError("not a whole number: write it without a unit, in milliseconds or bytes")
    if not _INTEGER.fullmatch(text):
        raise ValueError("must be a whole number")
    lowest, highest = _INTEGER_RANGES[config_type]
    # Python does not read numbers of thousands of digits.
    if len(text) > _MOST_DIGITS or not lowest <= int(text) <= highest:
        raise ValueError(f"must be between {lowest} and {highest}")
    return int(text)


def at_least(lowest: int) -> Validator:
    """Return a validator that accepts numbers of at least ``lowest``."""
    return lambda value: None if value >= lowest else f"must be at least {lowest}"


def between(lowest: float, highest: float) -> Validator:
    """Return a validator that accepts numbers from ``lowest`` to ``highest``, both included."""
    return lambda value: (
        None if lowest <= value <= highest else f"must be between {lowest} and {highest}"
    )


def minus_one_or(validator: Validator) -> Validator:
    """Return a validator that accepts -1, too, which stands for a default of others."""

    def problem(value: Any) -> str | None:
        found = None if value == -1 else validator(value)
        return None if found is None else found.replace("must be ", "must be -1 or ")

    return problem


def non_empty(value: str) -> str | None:
    """Reject the empty text."""
    return None if value else "must not be empty"


def one_of(*allowed: str) -> Validator:
    """Return a validator that accepts the given words; upper and lower case differ."""
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def one_of_or_own(kind: str, *allowed: str) -> Validator:
    """Return a validator that accepts the given words, and the user's ``package.module:name``."""
    problem = f"must be one of {', '.join(allowed)}, or package.module:{kind}"
    return lambda value: None if value in allowed or ":" in value else problem


def canonical_case(*allowed: str) -> Callable[[str], str]:
    """Return a ``ConfigKey.convert`` that replaces an allowed word in another case by that word."""
    return lambda value: next((word for word in allowed if word.lower() == value.lower()), value)


def optional_text(name: str, takes_references: bool = False) -> ConfigKey:
    """Return a key whose value is any text but the empty one."""
    return ConfigKey(name, "string", None, non_empty, takes_references=takes_references)


def secret(name: str) -> ConfigKey:
    """Return a key whose value is not shown, and may be a reference."""
    return ConfigKey(name, "password", takes_references=True)


def flag(name: str, default: bool | None) -> ConfigKey:
    """Return a key whose value is true or false."""
    return ConfigKey(name, "boolean", default)


def choice(
    name: str, default: str | None, allowed: Iterable[str], validator: Validator | None = None
) -> ConfigKey:
    """Return a key whose value is one of ``allowed``, in upper or lower case.

    validator: accepts other values, too
    """
    convert = canonical_case(*allowed)
    return ConfigKey(name, "string", default, validator or one_of(*allowed), convert)


class ConfigDef:
    """A table of keys. ``prefix``: text that users write before each name."""

    def __init__(self, prefix: str, *keys: ConfigKey) -> None:
        self.prefix = prefix
        self.keys: dict[str, ConfigKey] = {key.name: key._replace(prefix=prefix) for key in keys}

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return all keys of the table by field name: given values parsed, others by default.

        Raises ConfigError for an unknown key, an invalid value, or a missing required key.
        """
        for name in values:
            if name not in self.keys:
                raise ConfigError(
                    f"unknown option '{self.prefix}{name}'{self.suggestion(name)}",
                    code="OPTION-001",
                )
        parsed = {}
        for key in self.keys.values():
            if key.name in values:
                parsed[key.field] = key.parse(values[key.name])
            elif key.default is REQUIRED:
                raise ConfigError(
                    f"Missing required configuration {key.full_name}, which has no default",
                    code="OPTION-004",
                )
            else:
                parsed[key.field] = key.default
        return parsed

    def suggestion(self, name: str) -> str:
        """Return ``. Did you mean 'x'?`` for the nearest known name, or an empty text."""
        closest = self.closest_name(name)
        return "" if closest is None else f". Did you mean '{self.prefix}{closest}'?"

    def closest_name(self, name: str, others: Iterable[str] = ()) -> str | None:
        """Return the nearest name in the table or ``others``, without the prefix, or None."""
        matches = difflib.get_close_matches(name, [*self.keys, *others], n=1, cutoff=0.6)
        return matches[0] if matches else None


ENV, FILE, DIR = "env", "file", "dir"
REFERENCE_SYNTAX = "${env:NAME}, ${file:/path:key} or ${dir:/path:file}"

REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
# Text before the first colon that does not match cannot be a provider's name and stays unchanged.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class Reference(NamedTuple):
    """A parsed reference. provider: ENV, FILE, DIR, or an unknown word. path: None for ENV."""

    provider: str
    path: str | None
    key: str


def reference_of(match: re.Match[str]) -> Reference | None:
    """Return the reference in a match of REFERENCE; None if the provider is not a word."""
    return Reference(match[1], match[2], match[3]) if _WORD.fullmatch(match[1]) else None


def references_in(text: str) -> list[Reference]:
    """Return all references in order."""
    found = (reference_of(match) for match in REFERENCE.finditer(text))
    return [reference for reference in found if reference is not None]


def has_reference(text: str) -> bool:
    """Return True if the text contains a reference."""
    return bool(references_in(text))


def reference_problem(text: str) -> str | None:
    """Return what is wrong with the syntax of the references; None if they are valid.

    The answer shows no part of the text because the text may hold a secret.
    """
    for reference in references_in(text):
        if reference.provider not in (ENV, FILE, DIR):
            return (
                "it holds a reference of a kind that is not known here: write "
                f"{REFERENCE_SYNTAX}; a text that holds ${{ itself must be given by reference"
            )
        has_path = bool(reference.path)
        if not reference.key or has_path is (reference.provider == ENV):
            return f"it holds a reference that is not complete: write {REFERENCE_SYNTAX}"
    return None


RECIPES = "docs/security.md (pykafka-sink docs security)"


def without_shaded_prefix(java_class: str) -> str:
    """Return the class's name without the prefix of a shaded library."""
    return java_class.removeprefix("kafkashaded.").removeprefix("shadedmskiam.")


def java_class(
    name: str, known: Mapping[str, str], advice: str, default: str | None = None
) -> ConfigKey:
    """Return a key that names one of the ``known`` Java classes; its value is the simple name.

    known: full name -> simple name; advice: what to do instead of setting another class
    """

    def problem(value: str) -> str | None:
        if value in known.values():
            return None
        return unknown_class_problem(known, advice) if value else "is empty: leave it out"

    def simple_name(value: str) -> str:
        return known.get(without_shaded_prefix(value), value)

    return ConfigKey(name, "class", default, problem, simple_name)


def unknown_class_problem(known: Iterable[str], advice: str) -> str:
    """Return why a class outside ``known`` is rejected and what the user can do."""
    problem = (
        f"names a Java class, and there is no JVM here. Instead: {advice}. Taken by name: "
        f"{', '.join(known)}"
    )
    return coded(problem, "OPTION-006")


_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One property of a file. line: its first line, counted from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str, where: str) -> list[Property]:
    """Return all properties of a text in order; the last property with the same name counts.

    where: names the text in errors. Raises ConfigError, which names the line and hides its text.
    """
    return [_property(line, number, where) for number, line in _logical_lines(text)]


def read_properties(path: str) -> list[Property]:
    """Return the properties of a UTF-8 file. Raises OSError, ConfigError (``parse_properties``)."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return parse_properties(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not in UTF-8", code="OPTION-014") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines with their first line's number; skip comments and empty lines."""
    logical, first_number, is_continued = "", 0, False
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not logical:  # also after a line of a backslash alone, as in Java
            if not line or line[0] in "#!":
                is_continued = False
                continue
            first_number = number
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        logical += line[:-1] if is_continued else line
        if not is_continued:
            yield first_number, logical
            logical = ""
    if is_continued:
        yield first_number, logical


def _property(line: str, number: int, where: str) -> Property:
    match = _NAME.match(line)
    assert match is not None, "the pattern matches the empty text"
    separator = _SEPARATOR.match(line, match.end())
    assert separator is not None, "the pattern matches the empty text"
    try:
        return Property(_unescaped(match[0]), _unescaped(line[separator.end() :]), number)
    except ValueError:
        raise ConfigError(
            f"{where}, line {number}: \\u without four hexadecimal digits after it; a backslash is "
            "written \\\\",
            code="OPTION-014",
        ) from None


def _unescaped(text: str) -> str:
    r"""Return the text without escapes; two escapes form a surrogate pair: ``\ud83d\ude00``."""
    units = _ESCAPE.sub(_character, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")


def _character(match: re.Match[str]) -> str:
    escaped: str = match[1]
    if escaped == "u":
        raise ValueError("not a character")
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)
