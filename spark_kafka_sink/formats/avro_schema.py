"""Derive the Avro schema of a Spark schema, and resolve type names.

Every derived type may be null. Spark's own statement on nulls is not used, because Spark derives it
while it optimises a micro-batch: it may change with the next one of the same query.

Source: ``org.apache.spark.sql.avro.SchemaConverters.toAvroType``; for schemas in a registry,
Confluent's ``AvroData.fromConnectSchema``; Avro's specification, "Names".
"""

from __future__ import annotations

import json
import re
from typing import Any

from spark_kafka_sink.base.text import parse_json
from spark_kafka_sink.formats.plan import OF_VARIANTS, FormatError

PRIMITIVE = frozenset(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"],
)
NAMED = frozenset(["record", "enum", "fixed"])
UNNAMED = frozenset(["array", "map"])


class AvroSchemaError(FormatError):
    """An Avro schema, or the default of a field in it, is invalid."""

    code = "FORMAT-012"


def parsed_schema(text: str) -> Any:
    """Return a schema as ``json.loads`` returns it. Raises FormatError."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise AvroSchemaError(f"the Avro schema is no JSON: {error}") from None


def is_name(name: Any) -> bool:
    """Return True for letters of any alphabet, digits and ``_``, without a digit first.

    Source: ``NameValidator.UTF_VALIDATOR`` of Java's Avro 1.12, which checks UTF-16 units and thus
    rejects letters beyond U+FFFF.
    """
    return (
        isinstance(name, str)
        and bool(name)
        and not name[0].isdecimal()
        and all(c == "_" or ((c.isalpha() or c.isdecimal()) and c <= "\uffff") for c in name)
    )


def full_name(schema: Any, space: str) -> str:
    """Return the full name of a named type in the namespace ``space``."""
    before, dot, name = schema["name"].rpartition(".")
    declared = schema.get("namespace")
    namespace = before if dot else space if declared is None else declared
    return f"{namespace}.{name}" if namespace else name


def has_field(schema: str, name: str) -> bool:
    """Return True if a column of this name, in any case, may be written by a schema, as JSON text.

    Of a union, by one of its branches; a type that is no record takes a column of any name.

    The schema may be invalid: ``avro_layout.checked_types`` reports that. Raises FormatError for a
    text that is not JSON.
    """
    root = parsed_schema(schema)
    branches = [one for one in (root if isinstance(root, list) else [root]) if one != "null"]
    return any(_may_have(branch, name) for branch in branches)


def _may_have(schema: Any, name: str) -> bool:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return True
    names = (field.get("name") for field in fields if isinstance(field, dict))
    return any(isinstance(n, str) and n.lower() == name.lower() for n in names)


class NamedTypes:
    """Records, enums and fixed types of a schema, and the namespaces of types.

    ``avro_layout.checked_types`` adds all types before the first look-up.
    """

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._spaces: dict[int, str] = {}

    def define(self, schema: Any, space: str) -> bool:
        """Add a named type; return False if another type has the name already.

        space: the namespace of the enclosing type
        """
        full = full_name(schema, space)
        self.put(schema, full.rpartition(".")[0])
        return bool(self._known.setdefault(full, schema) == schema)

    def put(self, schema: Any, space: str) -> None:
        """Set the namespace of names in an array, a map or a named type."""
        self._spaces[id(schema)] = space

    def found(self, name: str, space: str) -> Any:
        """Return the type that ``name`` means in the namespace ``space``, or None."""
        return self._known.get(self.found_name(name, space))

    def found_name(self, name: str, space: str) -> str:
        """Return the full name of the type that ``name`` means; ``name`` if it is not defined."""
        full = name if "." in name or not space else f"{space}.{name}"
        return full if full in self._known else name

    def resolved(self, schema: Any, space: str) -> Any:
        """Return a primitive type's name, or the dict of another type except a union.

        schema: a checked schema; space: the namespace around it
        """
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in PRIMITIVE:
            has_more = isinstance(schema, dict) and "logicalType" in schema and kind != "null"
            return schema if has_more else kind
        is_itself = isinstance(schema, dict) and (kind in NAMED or kind in UNNAMED)
        return schema if is_itself else self.found(kind, space)

    def space_of(self, schema: Any) -> str:
        """Return the namespace of names in a resolved type."""
        return self._spaces.get(id(schema), "")


def logical_type(schema: Any) -> str:
    """Return the logical type of a resolved type; empty if it has none or an invalid decimal."""
    found = str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""
    return "" if found == "decimal" and not _is_decimal(schema) else found


def _is_decimal(schema: Any) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return False
    return schema["type"] in ("bytes", "fixed") and precision > 0 and 0 <= scale <= precision


def type_name(schema: Any) -> str:
    """Return a short description of a type for messages."""
    if isinstance(schema, list):
        return "union of " + " and ".join(type_name(branch) for branch in schema)
    if not isinstance(schema, dict):
        return str(schema)
    logical = logical_type(schema)
    if logical == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    name = f" {schema['name']}" if "name" in schema else ""
    return f"{type_name(schema.get('type'))}{name}{f' of {logical}' if logical else ''}"


RECORD_NAME = "topLevelRecord"

_SIMPLE: dict[str, Any] = {
    **{name: name for name in ("boolean", "long", "float", "double", "string")},
    **dict.fromkeys(("byte", "short", "integer"), "int"),
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


def derived_schema(
    struct_json: str,
    record_name: str = RECORD_NAME,
    namespace: str = "",
    is_registered: bool = False,
) -> str:
    """Return the Avro schema, as JSON text, of the fields in ``StructType.json()``.

    record_name, namespace: avro.record.name and avro.namespace
    is_registered: for a registry, whose rules of compatibility apply: as Kafka Connect derives
        it, so that a column may be added, dropped or get more digits. Otherwise as ``to_avro`` of
        nullable columns.

    Raises FormatError for a type or a name that Avro does not have.
    """
    _check_names(record_name, namespace)
    deriving = _Derived(is_registered)
    found = deriving.record(json.loads(struct_json), record_name, namespace, record_name)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _check_names(record_name: str, namespace: str) -> None:
    space, _, last = record_name.rpartition(".")
    if space and is_name(last):
        raise FormatError(
            f"avro.record.name={record_name}: put what is before the last dot into avro.namespace, "
            f"as avro.namespace={space} and avro.record.name={last}",
            code="FORMAT-013",
        )
    if not is_name(record_name):
        raise FormatError(f"avro.record.name={record_name}: {_OF_NAMES}", code="FORMAT-013")
    if namespace and not all(is_name(part) for part in namespace.split(".")):
        raise FormatError(
            f"avro.namespace={namespace}: {_OF_NAMES}; dots separate names", code="FORMAT-013"
        )


_OF_OTHERS = "Cast it to another type, or leave it out"
_OF_NAMES = "a name in Avro has letters, digits and _, and begins with no digit"


class _Derived:
    """Derives types. Paths are for messages; a record's fields have a namespace of their own."""

    def __init__(self, is_registered: bool) -> None:
        self._is_registered = is_registered

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
            return self._decimal(int(decimal[1]), int(decimal[2]), space)
        if spark_type.startswith("time("):
            return {"type": "long", "logicalType": "time-micros", _SPARKS_OWN: spark_type}
        interval = _INTERVAL.fullmatch(spark_type)
        if interval is not None:
            return {"type": "long" if interval[1] else "int", _SPARKS_OWN: spark_type}
        what_to_do = OF_VARIANTS if spark_type == "variant" else _OF_OTHERS
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which Avro has no type for. "
            f"{what_to_do}",
            code="FORMAT-007",
        )

    def record(self, struct: dict[str, Any], name: str, namespace: str, path: str) -> Any:
        _check_field_name(path, name)
        inner = f"{namespace}.{name}" if namespace else name
        fields = []
        for field in struct["fields"]:
            here = field["name"] if path == name else f"{path}.{field['name']}"
            _check_field_name(here, field["name"])
            kind = self._or_null(self.type(field["type"], field["name"], inner, here))
            default = {"default": None} if self._is_registered else {}
            fields.append({"name": field["name"], "type": kind, **default})
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
            return {"type": "array", "items": self._or_null(inner)}
        if spark_type["keyType"] != "string":
            raise FormatError(
                f"keys of the map '{path}' are {spark_type['keyType']}: Avro has text alone. Make "
                "text of them by transform_keys()",
                code="FORMAT-008",
            )
        inner = self.type(spark_type["valueType"], name, namespace, f"{path}[]")
        return {"type": "map", "values": self._or_null(inner)}

    def _decimal(self, precision: int, scale: int, namespace: str) -> dict[str, Any]:
        decimal = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if self._is_registered:  # a fixed type of another size would not be compatible
            return {"type": "bytes", **decimal}
        size = (10**precision - 1).bit_length() // 8 + 1  # with the sign's bit
        return {"type": "fixed", "name": "fixed", "namespace": namespace, "size": size, **decimal}

    def _or_null(self, kind: Any) -> Any:
        """Return the union with null; its first branch is the type of a field's default."""
        if kind == "null":
            return kind
        return ["null", kind] if self._is_registered else [kind, "null"]


def _check_field_name(path: str, name: str) -> None:
    if not is_name(name):
        raise FormatError(
            f"'{path}' cannot be a field of an Avro record: '{name}' is no name there, which has "
            "letters, digits and _, and begins with no digit. Rename it with withColumnRenamed(), "
            "or leave it out",
            code="FORMAT-013",
        )
