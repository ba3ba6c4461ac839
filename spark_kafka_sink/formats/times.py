"""Turn time zones into tables of offsets, and patterns of dates and times into kernel steps.

Zone names are those that Spark accepts; a table lists the offsets from UTC with their start times.
Letters are those of Spark's datetime patterns that write numbers; texts in a language and weeks are
rejected.

Source: Spark's ``SparkDateTimeUtils.getZoneId`` and ``DateTimeFormatterHelper``; Java's
``ZoneId.of``, ``ZoneId.SHORT_IDS`` and ``java.time.format.DateTimeFormatterBuilder``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.formats.plan import FormatError, JsonOptions
from spark_kafka_sink.record.compiled import nodes
from spark_kafka_sink.record.compiled.nodes import ZONES_CYCLE, ZONES_REPEAT

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EVER = 2**62
_FIRST = int((datetime(1800, 1, 1, tzinfo=timezone.utc) - _EPOCH).total_seconds())
_STEP = 4 * 86_400
_FIXED = re.compile(r"(UTC|GMT|UT)?([+-].*)")
_OFFSET = re.compile(r"[0-9]{2}(?::[0-9]{2}){0,2}|[0-9]{4}|[0-9]{6}|[0-9]")
# Spark accepts one digit in some offsets for which Java needs two.
_ONE_DIGIT_HOUR = re.compile(r"([+-])([0-9]):")
_ONE_DIGIT_MINUTE = re.compile(r"([+-][0-9]{2}:)([0-9])$")
_MAX_OFFSET_S = 18 * 3600
"""Java's largest offset in both directions. Kernels support offsets of less than a day."""
_OF_UTC = frozenset(["UTC", "GMT", "UT", "Z", "Zulu", "Etc/UTC", "Etc/GMT", "Universal"])
_SHORT = {
    **{"ACT": "Australia/Darwin", "AET": "Australia/Sydney", "ART": "Africa/Cairo"},
    **{"AGT": "America/Argentina/Buenos_Aires", "AST": "America/Anchorage"},
    **{"BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare"},
    **{"CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai"},
    **{"EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00"},
    **{"IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo"},
    **{"MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland"},
    **{"PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico"},
    **{"PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh"},
}


@cache
def zone_table(name: str) -> npt.NDArray[np.int64]:
    """Return int64[n + 1, 2]: start of an offset in seconds since 1970, offset in seconds from UTC.

    The first row starts before all times; the last row only ends the row before. Complete from 1800
    to ZONES_REPEAT; earlier clocks showed local mean time. Raises FormatError for an unknown name
    and for offsets beyond 18 hours.
    """
    java_name, offset = _java_zone(name)
    changes = [(_FIRST, offset)] if offset is not None else _changes(_zone(java_name))
    rows = [(-_EVER, changes[0][1]), *changes[1:], (_EVER, 0)]
    return np.array(rows, np.int64)


def seconds_ahead(seconds: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    """Return int64[n]: offsets from UTC, s, at these seconds since 1970. Raises FormatError."""
    table = zone_table(name)
    later = ZONES_REPEAT - ZONES_CYCLE + (seconds - ZONES_REPEAT) % ZONES_CYCLE
    within = np.where(seconds < ZONES_REPEAT, seconds, later)
    found: npt.NDArray[np.int64] = table[np.searchsorted(table[:, 0], within, "right") - 1, 1]
    return found


def zone_id(name: str) -> str:
    """Return Java's id of the zone: ``PST`` is America/Los_Angeles, ``+1:00`` is +01:00.

    Raises FormatError for an offset that Java does not have.
    """
    return _java_zone(name)[0]


def _java_zone(name: str) -> tuple[str, int | None]:
    """Return Java's id of the zone, and its offset in seconds if the offset is fixed."""
    padded = _ONE_DIGIT_HOUR.sub(r"\g<1>0\g<2>:", name, count=1)
    padded = _ONE_DIGIT_MINUTE.sub(r"\g<1>0\g<2>", padded)
    java_name = _SHORT.get(padded, padded)
    found = _FIXED.fullmatch(java_name)
    if found is None:
        return java_name, 0 if java_name in _OF_UTC else None
    prefix, offset = found[1] or "", _offset_of(found[2])
    if offset is None:
        raise FormatError(
            f"the time zone '{name}' is none: offsets are from -18:00 to +18:00, as +05:30",
            code="FORMAT-018",
        )
    return (f"{prefix}{_offset_id(offset)}" if offset else prefix or "Z"), offset


def _offset_of(text: str) -> int | None:
    """Return the seconds of a signed offset; None if Java's ZoneOffset rejects it."""
    if not _OFFSET.fullmatch(text[1:]):
        return None
    digits = text[1:].replace(":", "")
    digits = digits.zfill(2).ljust(6, "0")
    hours, minutes, seconds = (int(digits[place : place + 2]) for place in (0, 2, 4))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MAX_OFFSET_S:
        return None
    return -total if text[0] == "-" else total


def _offset_id(offset: int) -> str:
    minutes, seconds = divmod(abs(offset), 60)
    end = f":{seconds:02d}" if seconds else ""
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}{end}"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise FormatError(
            f"the time zone '{name}' is not known to Python here: {error}. Install the package "
            "tzdata on all machines, or set spark.sql.session.timeZone to another one",
            code="FORMAT-018",
        ) from error


def _changes(zone: tzinfo) -> list[tuple[int, int]]:
    """Return (start, offset in seconds) of each offset, found by a search in steps of four days."""
    before, ahead = _FIRST, _ahead(zone, _FIRST)
    found = [(before, ahead)]
    while before < ZONES_REPEAT:
        after = before + _STEP
        if _ahead(zone, after) != ahead:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                if _ahead(zone, middle) == ahead:
                    low = middle
                else:
                    high = middle
            ahead = _ahead(zone, high)
            found.append((high, ahead))
            # Another change may follow within the same step.
            after = high
        before = after
    return found


def _ahead(zone: tzinfo, seconds: int) -> int:
    moment = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone)
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


Steps = tuple[tuple[int, int], ...]

# Letter -> its step, and the largest count.
_NUMBERS = {
    "y": (nodes.YEAR, 6),
    "M": (nodes.MONTH, 2),
    "d": (nodes.DAY, 2),
    "H": (nodes.HOUR, 2),
    "m": (nodes.MINUTE, 2),
    "s": (nodes.SECOND, 2),
    "S": (nodes.FRACTION, 9),
}
_OFFSETS = {
    1: nodes.OFFSET_HHMM_SHORT,
    2: nodes.OFFSET_HHMM,
    3: nodes.OFFSET_HH_MM,
    4: nodes.OFFSET_HHMMSS,
    5: nodes.OFFSET_HH_MM_SS,
}
_ZEROS = {
    1: nodes.ZERO_HH,
    2: nodes.ZERO_HHMM,
    3: nodes.ZERO_HH_MM,
    4: nodes.ZERO_HHMM,
    5: nodes.ZERO_HH_MM,
}
_OF_DATES, _OF_CLOCKS, _OF_ZONES = "yMd", "yMdHmsS", "yMdHmsSXxZV"
_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
_RESERVED = frozenset("[]{}#'")


def patterns_of(options: JsonOptions, option_prefix: str = "") -> dict[int, Steps]:
    """Return the kernel steps by kind of node, for options with a pattern. Raises FormatError.

    option_prefix: prefix of the option names in messages: value.json. or key.json.
    """
    zone = options.time_zone or "UTC"
    requested = (
        (nodes.DATE, "dateFormat", options.date_format, _OF_DATES),
        (nodes.TIMESTAMP, "timestampFormat", options.timestamp_format, _OF_ZONES),
        (nodes.TIMESTAMP_NTZ, "timestampNTZFormat", options.timestamp_ntz_format, _OF_CLOCKS),
    )
    return {
        kind: _steps(pattern, option_prefix + name, letters, zone)
        for kind, name, pattern, letters in requested
        if pattern is not None
    }


class _Section:
    """A part of a pattern. is_written: False if the type lacks a field of the section"""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.is_written = True


def _steps(pattern: str, name: str, letters: str, zone: str) -> Steps:
    """Return the steps of a pattern; see ``patterns_of``.

    As in Java, an optional section, in brackets, is left out as a whole if the type has no field
    for one of its letters, and the end of the pattern closes open sections.
    """
    sections = [_Section()]
    for found in _PARTS.finditer(pattern):
        text, letter, whole = found[1], found[2], found[0]
        section, problem = sections[-1], ""
        if text is not None:
            section.steps += _bytes(text.replace("''", "'") if text else "'")
        elif whole == "'":
            problem = "the quote is not closed. "
        elif whole == "[":
            sections.append(_Section())
        elif whole == "]" and len(sections) > 1:
            _close(sections)
        elif letter is None:
            section.steps += _bytes(whole)
            problem = f"{whole} is not supported there. " if whole in _RESERVED else ""
        elif letter not in (letters if len(sections) == 1 else _OF_ZONES):
            problem = (
                f"the letter {letter} is not supported there: {', '.join(letters)} are, and "
                f"text in quotes. {_hint(letter)}"
            )
        else:
            steps = [*_of_letter(letter, len(whole), zone)]
            section.steps += steps
            section.is_written = section.is_written and letter in letters
            problem = "" if steps else f"{whole} is not supported. "
        if problem:
            raise FormatError(f"{name}={pattern}: {problem}{_ELSE}", code="FORMAT-017")
    while len(sections) > 1:
        _close(sections)
    return tuple(sections[0].steps)


def _close(sections: list[_Section]) -> None:
    """End the innermost section."""
    section = sections.pop()
    if section.is_written:
        sections[-1].steps += section.steps


def _hint(letter: str) -> str:
    return "For the letter itself write 'T' in quotes. " if letter == "T" else ""


_ELSE = "For another form make a column of text by date_format() and write that"


def _of_letter(letter: str, count: int, zone: str) -> Iterator[tuple[int, int]]:
    """Yield the steps of a letter; none if the count is not supported."""
    if letter == "y" and count == 2:
        yield nodes.YEAR_OF_CENTURY, 2
    elif letter in _NUMBERS:
        step, most = _NUMBERS[letter]
        if count <= most:
            yield step, count
    elif letter == "V":
        if count == 2:
            yield from _bytes(zone_id(zone))
    else:
        yield from _offset(letter, count)


def _offset(letter: str, count: int) -> Iterator[tuple[int, int]]:
    if letter == "Z" and count != 4:
        kind = _OFFSETS[2 if count < 4 else 5] if count <= 5 else None
        zero = nodes.ZERO_HHMM if count < 4 else nodes.ZERO_Z
    else:
        kind = None if letter == "Z" else _OFFSETS.get(count)
        zero = nodes.ZERO_Z if letter == "X" else _ZEROS.get(count, nodes.ZERO_Z)
    if kind is not None:
        yield nodes.OFFSET, nodes.OFFSET_KINDS * zero + kind


def _bytes(text: str) -> Iterator[tuple[int, int]]:
    """Yield steps for the bytes of a text as JSON escapes it."""
    return ((nodes.BYTE, byte) for byte in json_quoted(text)[1:-1].encode())


def json_quoted(text: str) -> str:
    """Return a JSON string as Jackson writes it, with control characters in upper case."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\u00..", lambda found: "\\u" + found[0][2:].upper(), quoted)
