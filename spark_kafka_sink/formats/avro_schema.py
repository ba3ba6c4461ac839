"""Avro's schema of a Spark schema, as Spark's own ``to_avro`` derives it.

Source: ``org.apache.spark.sql.avro.SchemaConverters.toAvroType``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from spark_kafka_sink.formats.avro_names import is_name
from spark_kafka_sink.formats.errors import OF_VARIANTS, FormatError

RECORD_NAME = "topLevelRecord"

_SIMPLE: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "void": "null",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_SPARKS_OWN = "spark.sql.catalyst.type"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TEXT = re.compile(r"(?:char|varchar)\(\d+\)|string\b.*")
_INTERVAL = re.compile(r"interval (?:(day|hour|minute|second)|(year|month)).*")


def derived_schema(struct_json: str, record_name: str = RECORD_NAME, namespace: str = "") -> str:
    """Avro's schema, as JSON text, of the fields that ``StructType.json()`` tells of.

    record_name, namespace: avro.record.name and avro.namespace

    Raises FormatError for a type or a name that Avro does not have.
    """
    _check_names(record_name, namespace)
    found = _Derived().record(json.loads(struct_json), record_name, namespace, record_name)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _check_names(record_name: str, namespace: str) -> None:
    space, _, last = record_name.rpartition(".")
    if space and is_name(last):
        raise FormatError(
            f"avro.record.name={record_name}: put what is before the last dot into avro.namespace, "
            f"as avro.namespace={space} and avro.record.name={last}"
        )
    if not is_name(record_name):
        raise FormatError(f"avro.record.name={record_name}: {_OF_NAMES}")
    if namespace and not all(is_name(part) for part in namespace.split(".")):
        raise FormatError(f"avro.namespace={namespace}: {_OF_NAMES}; dots separate names")


_OF_OTHERS = "Cast it to another type, or leave it out"
_OF_NAMES = "a name in Avro has letters, digits and _, and begins with no digit"


class _Derived:
    """Paths are for messages; a namespace is that of records, whose fields are in one of theirs."""

    def type(self, spark_type: Any, name: str, namespace: str, path: str) -> Any:
        if isinstance(spark_type, dict):
            return self._nested(spark_type, name, namespace, path)
        if spark_type in _SIMPLE:
            return _SIMPLE[spark_type]
        if _TEXT.fullmatch(spark_type):
            return "string"
        decimal = _DECIMAL.fullmatch(spark_type)
        if decimal is not None:
            space = f"{namespace}.{name}" if namespace else name
            return _fixed_decimal(int(decimal[1]), int(decimal[2]), space)
        if spark_type.startswith("time("):
            return {"type": "long", "logicalType": "time-micros", _SPARKS_OWN: spark_type}
        interval = _INTERVAL.fullmatch(spark_type)
        if interval is not None:
            return {"type": "long" if interval[1] else "int", _SPARKS_OWN: spark_type}
        what_to_do = OF_VARIANTS if spark_type == "variant" else _OF_OTHERS
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which Avro has no type for. "
            f"{what_to_do}"
        )

    def record(self, struct: dict[str, Any], name: str, namespace: str, path: str) -> Any:
        if not is_name(name):
            raise FormatError(_no_name(path, name))
        inner = f"{namespace}.{name}" if namespace else name
        fields = []
        for field in struct["fields"]:
            here = field["name"] if path == name else f"{path}.{field['name']}"
            if not is_name(field["name"]):
                raise FormatError(_no_name(here, field["name"]))
            kind = self.type(field["type"], field["name"], inner, here)
            fields.append({"name": field["name"], "type": _or_null(kind, field["nullable"])})
        found: dict[str, Any] = {"type": "record", "name": name}
        if namespace:
            found["namespace"] = namespace
        return {**found, "fields": fields}

    def _nested(self, spark_type: dict[str, Any], name: str, namespace: str, path: str) -> Any:
        kind = spark_type["type"]
        if kind == "struct":
            return self.record(spark_type, name, namespace, path)
        if kind == "udt":
            return self.type(spark_type["sqlType"], name, namespace, path)
        if kind == "array":
            inner = self.type(spark_type["elementType"], name, namespace, f"{path}[]")
            return {"type": "array", "items": _or_null(inner, spark_type["containsNull"])}
        if spark_type["keyType"] != "string":
            raise FormatError(
                f"keys of the map '{path}' are {spark_type['keyType']}: Avro has text alone. Make "
                "text of them by transform_keys()"
            )
        inner = self.type(spark_type["valueType"], name, namespace, f"{path}[]")
        return {"type": "map", "values": _or_null(inner, spark_type["valueContainsNull"])}


def _fixed_decimal(precision: int, scale: int, namespace: str) -> dict[str, Any]:
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return {
        "type": "fixed",
        "name": "fixed",
        "namespace": namespace,
        "size": size,
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


def _or_null(kind: Any, nullable: bool) -> Any:
    return [kind, "null"] if nullable and kind != "null" else kind


def _no_name(path: str, name: str) -> str:
    return (
        f"'{path}' cannot be a field of an Avro record: '{name}' is no name there, which has "
        "letters, digits and _, and begins with no digit. Rename it with withColumnRenamed(), or "
        "leave it out"
    )
