"""Lines that are read back: the JSON Schema of a line, and a file followed while it grows.

The schema is made of the tables of the fields. Following goes on after rotations.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, BinaryIO

from spark_kafka_sink.metrics.line import (
    COUNTERS,
    EXTREMES_OF_PARTITIONS,
    EXTREMES_OF_TASKS,
    LATENCY,
    LINE,
    LINE_VERSION,
    MOST_SLOW_TASKS,
    NODE,
    PARTITION,
    REQUIRED,
    SLOW_TASK,
    TOPIC,
    Field,
)

# --- schema --------------------------------------------------------------------------------------

Schema = dict[str, Any]

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: what shows a later moment fails."""
LARGEST = 2.0**63
"""Of any number. Sums of such are still finite."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}


def line_schema() -> Schema:
    """A reader may meet fields that are added later; what is described is as it is described."""
    schema = _object(LINE, REQUIRED)
    schema["properties"]["sink"] = {"const": "pykafka-sink"}
    schema["properties"]["event"] = {"enum": ["commit", "abort"]}
    schema["properties"]["version"] = {"const": LINE_VERSION}
    return {
        "$schema": _DIALECT,
        "title": "One line of metrics of pykafka-sink",
        **schema,
        "$defs": _definitions(),
    }


def read_line(text: bytes) -> dict[str, Any] | None:
    """Return the line that ``text`` is, or None where a reader could not use it as one.

    A file of metrics may hold what a full disk has cut off, and what others have written. Fields
    that are not known may have any value, and those of versions before may be missing.
    """
    try:
        line = json.loads(text.decode(), parse_constant=_refuse_constant)
        # A lone surrogate is JSON, and nothing that can be written again.
        is_text = b"\\u" not in text or bool(json.dumps(line, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        return None
    is_line = is_text and _fits(line, _SHAPE) and all(name in line for name in NEEDED)
    return line if is_line else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _fits(value: Any, schema: Schema) -> bool:
    """Whether ``value`` has the types that ``schema`` describes; counters may be missing."""
    schema = _DEFINITIONS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    kind = schema.get("type")
    if kind in ("integer", "number"):
        is_kind = isinstance(value, int) or (kind == "number" and isinstance(value, float))
        return is_kind and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
    if kind == "string":
        return isinstance(value, str)
    if kind == "array":
        return isinstance(value, list) and all(_fits(one, schema["items"]) for one in value)
    if kind == "object":
        return isinstance(value, dict) and _fits_object(value, schema)
    return value in schema.get("enum", [schema.get("const")])


def _fits_object(value: dict[str, Any], schema: Schema) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    names = schema.get("propertyNames", {}).get("pattern")
    if names is not None and not all(re.search(names, name) for name in value):
        return False
    if schema not in (_SHAPE, _DEFINITIONS["counters"]) and any(
        name not in value for name in schema.get("required", ())
    ):
        return False
    for name, one in value.items():
        described = properties.get(name, others)
        if described is not None and not _fits(one, described):
            return False
        is_moment = name in properties and (name == "time_ms" or name.endswith("_at_ms"))
        if is_moment and not 0 <= one <= LATEST_MS:
            return False
    return True


def _definitions() -> dict[str, Schema]:
    """The types that tables of fields name."""
    return {
        "counters": _object(COUNTERS, all_of(COUNTERS)),
        "latency": _object(LATENCY, ("p50_ms", "p95_ms", "p99_ms")),
        "histogram": {
            "type": "object",
            "description": "Bucket n has values above 2^(n/2^scale) ms, up to 2^((n+1)/2^scale).",
            "properties": {
                "scale": _INTEGER,
                "counts": _map_of(_INTEGER, "^-?[0-9]{1,3}$"),
            },
            "required": ["scale", "counts"],
        },
        "nodes": _map_of(_object(NODE, all_of(NODE[:-1])), "^-?[0-9]{1,10}$"),
        "dead_letters": _map_of(_INTEGER),
        "settings": _map_of({"type": "string"}),
        "topics": _map_of(_object(TOPIC, all_of(TOPIC))),
        "partitions": _map_of(_map_of(_object(PARTITION, all_of(PARTITION)), "^[0-9]{1,10}$")),
        "partitions_summary": _summary(
            ("topics", "partitions"), EXTREMES_OF_PARTITIONS, {"topic": "string"}, "partition"
        ),
        "tasks_summary": _summary(("with_rows",), EXTREMES_OF_TASKS, {}, "task"),
        "slowest_tasks": {
            "type": "array",
            "items": _object(SLOW_TASK, all_of(SLOW_TASK)),
            "maxItems": MOST_SLOW_TASKS,
        },
    }


def all_of(fields: Iterable[Field]) -> tuple[str, ...]:
    """Their names."""
    return tuple(field.name for field in fields)


def _object(fields: Sequence[Field], required: Sequence[str]) -> Schema:
    properties = {field.name: {**_type(field.type), "description": field.doc} for field in fields}
    return {"type": "object", "properties": properties, "required": list(required)}


def _type(name: str) -> Schema:
    is_plain = name in ("integer", "number", "string")
    return {"type": name} if is_plain else {"$ref": f"#/$defs/{name}"}


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


NEEDED = ("sink", "event", "time_ms")
"""What a text without is no line of the sink."""
_SHAPE = line_schema()
_DEFINITIONS = _SHAPE["$defs"]


# --- following a file ----------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 1024 * 1024


class OpenedFile:
    """Open until nobody knows it any more. What is renamed or removed meanwhile can be read, and
    no new file gets its inode.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def is_same(self, other: OpenedFile) -> bool:
        """Whether it is the same file, under whatever name."""
        return os.path.sameopenfile(self._descriptor, other._descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @property
    def changed_ns(self) -> int:
        """When it was written the last time."""
        return os.fstat(self._descriptor).st_mtime_ns

    def stream(self) -> BinaryIO:
        """From its beginning."""
        file = open(os.dup(self._descriptor), "rb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        file.seek(0)
        return file


class FollowedLines:
    """The lines of a file, from ``start`` on. The file may come later.

    Rotated ones are ``path.1``, ``path.2``, …, the newest first.
    """

    def __init__(self, path: str, from_end: bool) -> None:
        """from_end: only lines that are appended from now on"""
        self._path = path
        self._position = 0
        self._known: OpenedFile | None = next(iter(_opened(path)), None)
        if from_end and self._known is not None:
            self._position = self._known.size

    def read(self) -> list[dict[str, Any]]:
        """The lines since the last call; what is no line of the sink is left out.

        After rotations, first the rest of the file that was the last one, and those after it.
        """
        texts = self.read_texts().splitlines()
        return [line for text in texts if (line := read_line(text)) is not None]

    def read_texts(self) -> bytes:
        """The same as they were written, whatever they are; each ends with a line feed."""
        newer = self._newer()
        texts = self._rest()
        for file in reversed(newer):
            self._known, self._position = file, 0
            texts += self._rest()
        return texts

    def older(self) -> list[OpenedFile]:
        """The rotated files before the one that is read first, the oldest one first."""
        found: list[OpenedFile] = []
        for file in _opened(self._path):
            is_known = self._known is not None and file.is_same(self._known)
            found = [] if is_known else [*found, file]
        return found[::-1]

    def _newer(self) -> list[OpenedFile]:
        """Those after the known one, the newest first."""
        found: list[OpenedFile] = []
        known = self._known
        for file in _opened(self._path):
            if known is not None and file.is_same(known):
                return found
            is_rotated = file.path != self._path
            if known is not None and is_rotated and file.changed_ns < known.changed_ns:
                return found  # it is older: the known one was removed, or has another name
            found.append(file)
        if known is not None and len(found) > 1:
            logger.warning(
                f"{self._path} was rotated more often than its files are kept since it was read "
                "the last time: lines may be missing here. Raise metrics.path.max.bytes, "
                "or have it read more often"
            )
        return found

    def _rest(self) -> bytes:
        if self._known is None:
            return b""
        if self._known.size < self._position:  # it was emptied
            self._position = 0
        with self._known.stream() as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last one may still be being written
        self._position += len(whole)
        return whole


def _opened(path: str) -> Iterator[OpenedFile]:
    """The file and its rotated ones, the newest first, each once.

    A rotation renames the oldest one first, so meanwhile one name has no file, and a file that was
    opened here has its next name later.
    """
    last: OpenedFile | None = None
    missing = 0
    for number in count():
        try:
            file = OpenedFile(f"{path}.{number}" if number else path)
        except FileNotFoundError:
            missing += 1
            if missing > 1:
                return
            continue
        if last is None or not file.is_same(last):
            yield file
        last, missing = file, 0
