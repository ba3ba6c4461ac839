"""Read lines back: the JSON Schema of a line, and a reader that follows a growing file.

The schema is generated from the tables of the fields. The reader follows the file over rotations.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, BinaryIO

from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.metrics.line import (
    COUNTERS,
    EXTREMES_OF_PARTITIONS,
    EXTREMES_OF_TASKS,
    LATENCY,
    LINE,
    LINE_VERSION,
    MOST_SLOW_TASKS,
    NODE,
    OPTIONAL_OF_SLOW_TASK,
    PARTITION,
    REQUIRED,
    REQUIRED_OF_NODE,
    SLOW_TASK,
    TOPIC,
    Field,
    field_names,
)

# --- schema --------------------------------------------------------------------------------------

Schema = dict[str, Any]

SINK = "pykafka-sink"
EVENTS = ("commit", "abort")
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, ms since 1970: code that shows a later moment fails."""
LARGEST = 2.0**63
"""Largest absolute value of a number, so that sums of such numbers are finite."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/"
_NUMBER_TYPES = {"integer": (int,), "number": (int, float)}
_MOMENTS = {"time_ms", *(one.name for one in (*LINE, *SLOW_TASK) if one.name.endswith("_at_ms"))}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}


def line_schema() -> Schema:
    """Return the JSON Schema of a line. It allows fields that later versions add."""
    schema = _object(LINE, REQUIRED)
    schema["properties"]["sink"] = {"const": SINK}
    schema["properties"]["event"] = {"enum": [*EVENTS]}
    schema["properties"]["version"] = {"const": LINE_VERSION}
    return {
        "$schema": _DIALECT,
        "title": "One line of metrics of pykafka-sink",
        **schema,
        "$defs": _definitions(),
    }


def read_line(text: bytes) -> dict[str, Any] | None:
    """Return the line that ``text`` holds, or None if ``text`` is not a usable line.

    A metrics file may hold lines that a full disk has cut off, and texts of other programs. Unknown
    fields may have any value, and fields of older versions may be missing.
    """
    try:
        line = decode(text.decode())
        # JSON allows a lone surrogate, which cannot be encoded again.
        is_text = b"\\u" not in text or bool(json.dumps(line, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        return None
    is_line = is_text and _fits(line, _SHAPE) and all(name in line for name in REQUIRED_TO_READ)
    return line if is_line else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Returns the value of a JSON text. Raises ValueError, also for NaN and Infinity."""


def _fits(value: Any, schema: Schema) -> bool:
    """Return True if ``value`` has the types in ``schema``; fields and counters may be missing."""
    schema = _DEFINITIONS[schema["$ref"].removeprefix(_REF)] if "$ref" in schema else schema
    kind = schema.get("type")
    if kind in _NUMBER_TYPES:
        return type(value) in _NUMBER_TYPES[kind] and -LARGEST <= value <= LARGEST
    if kind == "object":
        return isinstance(value, dict) and _fits_object(value, schema)
    if kind == "string":
        return isinstance(value, str)
    if kind == "array":
        return isinstance(value, list) and all(_fits(one, schema["items"]) for one in value)
    return value in schema.get("enum", [schema.get("const")])


def _fits_object(value: dict[str, Any], schema: Schema) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    names = schema.get("propertyNames", {}).get("pattern")
    if names is not None and not all(re.search(names, name) for name in value):
        return False
    may_lack_fields = schema is _SHAPE or schema is _DEFINITIONS["counters"]
    if not may_lack_fields and not all(map(value.__contains__, schema.get("required", ()))):
        return False
    for name, one in value.items():
        described = properties.get(name, others)
        if described is not None and not _fits(one, described):
            return False
        if name in _MOMENTS and name in properties and not 0 <= one <= LATEST_MS:
            return False
    return True


def _definitions() -> dict[str, Schema]:
    """Return the schemas of the types that the tables of fields name."""
    return {
        "counters": _object(COUNTERS, field_names(COUNTERS)),
        "latency": _object(LATENCY, ("p50_ms", "p95_ms", "p99_ms")),
        "histogram": {
            "type": "object",
            "description": "Bucket n has values above 2^(n/2^scale) ms, up to 2^((n+1)/2^scale).",
            "properties": {"scale": _INTEGER, "counts": _map_of(_INTEGER, "^-?[0-9]{1,3}$")},
            "required": ["scale", "counts"],
        },
        "nodes": _map_of(_object(NODE, REQUIRED_OF_NODE), "^-?[0-9]{1,10}$"),
        "by_error": _map_of(_INTEGER),
        "dead_letters": _map_of(_INTEGER),
        "settings": _map_of({"type": "string"}),
        "topics": _map_of(_object(TOPIC, field_names(TOPIC))),
        "partitions": _map_of(_map_of(_object(PARTITION, field_names(PARTITION)), "^[0-9]{1,10}$")),
        "partitions_summary": _summary(
            ("topics", "partitions"), EXTREMES_OF_PARTITIONS, {"topic": "string"}, "partition"
        ),
        "tasks_summary": _summary(("with_rows",), EXTREMES_OF_TASKS, {}, "task"),
        "slowest_tasks": {
            "type": "array",
            "items": _object(SLOW_TASK, field_names(SLOW_TASK[: -len(OPTIONAL_OF_SLOW_TASK)])),
            "maxItems": MOST_SLOW_TASKS,
        },
    }


def _object(fields: Sequence[Field], required: Sequence[str]) -> Schema:
    properties = {field.name: {**_type(field.type), "description": field.doc} for field in fields}
    return {"type": "object", "properties": properties, "required": list(required)}


def _type(name: str) -> Schema:
    is_plain = name in ("integer", "number", "string")
    return {"type": name} if is_plain else {"$ref": _REF + name}


def _map_of(values: Schema, names: str | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    return schema if names is None else {**schema, "propertyNames": {"pattern": names}}


def _summary(
    counts: Sequence[str], extremes: Sequence[str], where: dict[str, str], number: str
) -> Schema:
    properties = dict.fromkeys(counts, _INTEGER)
    for name in extremes:
        at = {**{key: {"type": kind} for key, kind in where.items()}, number: _INTEGER}
        extreme = {"type": "object", "properties": {**at, name: _NUMBER}, "required": [*at, name]}
        properties[f"least_{name}"] = properties[f"most_{name}"] = extreme
    return {"type": "object", "properties": properties, "required": list(properties)}


REQUIRED_TO_READ = ("sink", "event", "time_ms")
"""A text without these fields is not a line of the sink."""
_SHAPE = line_schema()
_DEFINITIONS = _SHAPE["$defs"]


# --- following a file ----------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 1024 * 1024
MAX_LINE_BYTES = 256 * 1024 * 1024
"""Most bytes of a line, with its line feed."""


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines; a NUL, which no reader accepts, replaces one above MAX_LINE_BYTES."""
    while text := file.readline(MAX_LINE_BYTES + 1):
        if len(text) > MAX_LINE_BYTES:
            while text and not text.endswith(b"\n"):
                text = file.readline(_BUFFER_BYTES)
            text = b"\0" + text[-1:]
        yield text


class PinnedFile:
    """A file that stays open until the last reference to it goes.

    It stays readable after it was renamed or removed, and no new file gets its inode.
    """

    def __init__(self, path: str) -> None:
        """Open the file. Raises OSError; FileNotFoundError if ``path`` is no regular file."""
        self.path = path
        self._descriptor = -1
        # Without O_NONBLOCK, the opening of a pipe waits for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def is_same(self, other: PinnedFile) -> bool:
        """Return True if both are the same file, under any name."""
        return os.path.sameopenfile(self._descriptor, other._descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @property
    def changed_ns(self) -> int:
        """Return the time of the last write, ns since 1970."""
        return os.fstat(self._descriptor).st_mtime_ns

    def stream(self) -> BinaryIO:
        """Return a stream that starts at the beginning of the file."""
        file = open(os.dup(self._descriptor), "rb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        file.seek(0)
        return file


class LineTail:
    """Reads the lines of a growing file, which may not exist yet.

    Rotated files are ``path.1``, ``path.2``, …, the newest first.
    """

    def __init__(self, path: str, from_end: bool) -> None:
        """Start with the file as it is. from_end: skip the lines that it holds now."""
        self._path = path
        self._position = 0
        self._known: PinnedFile | None = next(iter(_opened(path)), None)
        if from_end and self._known is not None:
            self._position = self._known.size

    def read(self) -> list[dict[str, Any]]:
        """Return the lines since the last call, without texts that are not lines of the sink.

        After a rotation, the rest of the previous file comes first, then the files after it.
        """
        texts = self.read_texts().splitlines()
        return [line for text in texts if (line := read_line(text)) is not None]

    def read_texts(self) -> bytes:
        """Return the texts since the last call, unchecked; each ends with a line feed."""
        newer = self._newer()
        texts = self._rest()
        for file in reversed(newer):
            self._known, self._position = file, 0
            texts += self._rest()
        return texts

    def older(self) -> list[PinnedFile]:
        """Return the rotated files before the first file that is read, the oldest first."""
        found: list[PinnedFile] = []
        for file in _opened(self._path):
            is_known = self._known is not None and file.is_same(self._known)
            found = [] if is_known else [*found, file]
        return found[::-1]

    def _newer(self) -> list[PinnedFile]:
        """Return the files after the known file, the newest first."""
        found: list[PinnedFile] = []
        known = self._known
        for file in _opened(self._path):
            if known is not None and file.is_same(known):
                return found
            is_rotated = file.path != self._path
            if known is not None and is_rotated and file.changed_ns < known.changed_ns:
                return found  # an older file: the known file was removed or renamed
            found.append(file)
        if known is not None and len(found) > 1:
            warn(
                logger,
                "METRICS-007",
                f"{self._path} was rotated more often than its files are kept since it was read "
                "the last time: lines may be missing here. Raise metrics.path.max.bytes, "
                "or have it read more often",
            )
        return found

    def _rest(self) -> bytes:
        if self._known is None:
            return b""
        if self._known.size < self._position:  # the file was truncated
            self._position = 0
        with self._known.stream() as file:
            file.seek(self._position)
            whole: list[bytes] = []
            for text in lines_of(file):
                if text.endswith(b"\n"):  # the last line may be incomplete
                    whole.append(text)
                    self._position = file.tell()
        return b"".join(whole)


def _opened(path: str) -> Iterator[PinnedFile]:
    """Yield the file and its rotated files, the newest first, each once.

    A rotation renames the oldest file first. Meanwhile one name has no file, and a file that was
    opened here appears again under its next name.
    """
    last: PinnedFile | None = None
    missing = 0
    for number in count():
        try:
            file = PinnedFile(f"{path}.{number}" if number else path)
        except FileNotFoundError:
            missing += 1
            if missing > 1:
                return
            continue
        if last is None or not file.is_same(last):
            yield file
        last, missing = file, 0
