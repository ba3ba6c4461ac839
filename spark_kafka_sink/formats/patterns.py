"""Patterns of dates and times → steps for the kernel.

Letters are those of Spark's datetime patterns that write numbers; texts in a language, weeks and
optional parts are refused.

Source: Spark's ``DateTimeFormatterHelper``; ``java.time.format.DateTimeFormatterBuilder``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.plan import JsonOptions
from spark_kafka_sink.formats.zones import zone_id
from spark_kafka_sink.record.compiled import nodes, patterns

Steps = tuple[tuple[int, int], ...]

_NUMBERS = {
    "M": patterns.MONTH,
    "d": patterns.DAY,
    "H": patterns.HOUR,
    "m": patterns.MINUTE,
    "s": patterns.SECOND,
}
_MOST_OF_A_YEAR, _MOST_OF_A_SECOND = 6, 9
_OFFSETS = {
    1: patterns.OFFSET_HHMM_SHORT,
    2: patterns.OFFSET_HHMM,
    3: patterns.OFFSET_HH_MM,
    4: patterns.OFFSET_HHMMSS,
    5: patterns.OFFSET_HH_MM_SS,
}
_ZEROS = {
    1: patterns.ZERO_HH,
    2: patterns.ZERO_HHMM,
    3: patterns.ZERO_HH_MM,
    4: patterns.ZERO_HHMM,
    5: patterns.ZERO_HH_MM,
}
_OF_DATES, _OF_CLOCKS, _OF_ZONES = "yMd", "yMdHmsS", "yMdHmsSXxZV"
_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
_RESERVED = frozenset("[]{}#'")


def patterns_of(options: JsonOptions, option_prefix: str = "") -> dict[int, Steps]:
    """By kind of node, where the options have a pattern. Raises FormatError.

    option_prefix: what messages have before the names of the options: value.json. or key.json.
    """
    zone = options.time_zone or "UTC"
    asked = (
        (nodes.DATE, "dateFormat", options.date_format, _OF_DATES),
        (nodes.TIMESTAMP, "timestampFormat", options.timestamp_format, _OF_ZONES),
        (nodes.TIMESTAMP_NTZ, "timestampNTZFormat", options.timestamp_ntz_format, _OF_CLOCKS),
    )
    return {
        kind: tuple(_steps(pattern, option_prefix + name, letters, zone))
        for kind, name, pattern, letters in asked
        if pattern is not None
    }


def _steps(pattern: str, name: str, letters: str, zone: str) -> Iterator[tuple[int, int]]:
    for found in _PARTS.finditer(pattern):
        text, letter, whole = found[1], found[2], found[0]
        if text is not None:
            yield from _bytes(text.replace("''", "'") if text else "'")
        elif letter is None:
            if whole == "'":
                raise FormatError(f"{name}={pattern}: the quote is not closed. {_ELSE}")
            if whole in _RESERVED:
                raise FormatError(f"{name}={pattern}: {whole} is not supported there. {_ELSE}")
            yield from _bytes(whole)
        elif letter not in letters:
            known = ", ".join(letters)
            raise FormatError(
                f"{name}={pattern}: the letter {letter} is not supported there: {known} are, and "
                f"text in quotes. {_hint(letter, len(whole), letters)}{_ELSE}"
            )
        else:
            steps = [*_of_letter(letter, len(whole), zone)]
            if not steps:
                raise FormatError(f"{name}={pattern}: {whole} is not supported. {_ELSE}")
            yield from steps


# Letters that others have for the same, or nearly so.
_NEAR = {"Y": "y", "u": "y", "h": "H", "K": "H", "k": "H", "D": "d", "n": "S", "z": "XXX"}


def _hint(letter: str, count: int, letters: str) -> str:
    if letter == "T":
        return "For the letter itself write 'T' in quotes. "
    near = _NEAR.get(letter)
    if near is None or near[0] not in letters:
        return ""
    count = min(count, 2) if near in ("d", "H") else count
    return f"Did you mean {near * count if len(near) == 1 else near}? "


_ELSE = "For another form make a column of text by date_format() and write that"


def _of_letter(letter: str, count: int, zone: str) -> Iterator[tuple[int, int]]:
    """Nothing for a count that is not supported."""
    if letter == "y":
        if count == 2:
            yield patterns.YEAR_OF_CENTURY, 2
        elif count <= _MOST_OF_A_YEAR:
            yield patterns.YEAR, count
    elif letter in _NUMBERS:
        if count <= 2:
            yield _NUMBERS[letter], count
    elif letter == "S":
        if count <= _MOST_OF_A_SECOND:
            yield patterns.FRACTION, count
    elif letter == "V":
        if count == 2:
            yield from _bytes(zone_id(zone))
    else:
        yield from _offset(letter, count)


def _offset(letter: str, count: int) -> Iterator[tuple[int, int]]:
    if letter == "Z" and count != 4:
        kind = _OFFSETS[2 if count < 4 else 5] if count <= 5 else None
        zero = patterns.ZERO_HHMM if count < 4 else patterns.ZERO_Z
    else:
        kind = None if letter == "Z" else _OFFSETS.get(count)
        zero = patterns.ZERO_Z if letter == "X" else _ZEROS.get(count, patterns.ZERO_Z)
    if kind is not None:
        yield patterns.OFFSET, patterns.OFFSET_KINDS * zero + kind


def _bytes(text: str) -> Iterator[tuple[int, int]]:
    """As they stand in a text of JSON."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    escaped = re.sub(r"\\u00..", lambda found: "\\u" + found[0][2:].upper(), quoted)
    return ((patterns.BYTE, byte) for byte in escaped.encode())
