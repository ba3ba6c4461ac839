"""Properties files of Java: ``name=value`` lines with comments, escapes and continued lines.

Source: ``java.util.Properties.load``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """line: where it begins, counted from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str, where: str) -> list[Property]:
    """All properties of a text, in order; of those with the same name, the last one counts.

    where: names the text in errors. Raises ConfigError, which names the line and shows none of it.
    """
    return [_property(line, number, where) for number, line in _logical_lines(text)]


def read_properties(path: str) -> list[Property]:
    """Those of a file in UTF-8. Raises OSError, and ConfigError as ``parse_properties``."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return parse_properties(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not in UTF-8") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what is continued on the next ones, without comments and empty ones."""
    whole, begins_at, is_continued = "", 0, False
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not whole:  # also after a line of a backslash alone, as in Java
            if not line or line[0] in "#!":
                is_continued = False
                continue
            begins_at = number
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        whole += line[:-1] if is_continued else line
        if not is_continued:
            yield begins_at, whole
            whole = ""
    if is_continued:
        yield begins_at, whole


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
            "written \\\\"
        ) from None


def _unescaped(text: str) -> str:
    r"""Characters outside the basic plane are two escapes, as in Java: ``\ud83d\ude00``."""
    units = _ESCAPE.sub(_character, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")


def _character(match: re.Match[str]) -> str:
    escaped: str = match[1]
    if escaped == "u":
        raise ValueError("not a character")
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)
