"""The JSON Schema of the line, from the tables of its fields."""

from __future__ import annotations

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
                "counts": _map_of(_INTEGER, "^-?[0-9]+$"),
            },
            "required": ["scale", "counts"],
        },
        "nodes": _map_of(_object(NODE, all_of(NODE[:-1])), "^-?[0-9]+$"),
        "dead_letters": _map_of(_INTEGER),
        "settings": _map_of({"type": "string"}),
        "topics": _map_of(_object(TOPIC, all_of(TOPIC))),
        "partitions": _map_of(_map_of(_object(PARTITION, all_of(PARTITION)), "^[0-9]+$")),
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
