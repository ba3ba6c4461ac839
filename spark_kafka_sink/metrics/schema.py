"""The JSON Schema of the line, from the tables of its fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from spark_kafka_sink.metrics.fields import (
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
