"""Types of an Avro schema that are given by name, and what a type is called in messages.

Source: Avro's specification, "Names".
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.base.json_text import parse_json
from spark_kafka_sink.formats.errors import FormatError

PRIMITIVE = frozenset(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"],
)
NAMED = frozenset(["record", "enum", "fixed"])
UNNAMED = frozenset(["array", "map"])


def parsed_schema(text: str) -> Any:
    """A schema as ``json.loads`` has it. Raises FormatError."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise FormatError(f"the Avro schema is no JSON: {error}") from None


def is_name(name: Any) -> bool:
    """Whether it is a text of letters, digits and ``_``, no digit first: of any alphabet.

    Source: ``NameValidator.UTF_VALIDATOR`` of Java's Avro 1.12, which looks at UTF-16: a letter
    beyond U+FFFF is none.
    """
    return (
        isinstance(name, str)
        and bool(name)
        and not name[0].isdecimal()
        and all(c == "_" or ((c.isalpha() or c.isdecimal()) and c <= "\uffff") for c in name)
    )


def full_name(schema: Any, space: str) -> str:
    """Of a type with a name that stands in the namespace ``space``."""
    before, dot, name = schema["name"].rpartition(".")
    given = schema.get("namespace")
    own = before if dot else space if given is None else given
    return f"{own}.{name}" if own else name


def has_field(schema: str, name: str) -> bool:
    """Whether the record of a schema, as JSON text, has a field of this name, in any case.

    The schema need not be a right one: what is wrong with it is told by ``avro_checks``. Raises
    FormatError for a text that is no JSON.
    """
    root = parsed_schema(schema)
    fields = root.get("fields") if isinstance(root, dict) else None
    if not isinstance(fields, list):
        return False
    names = (field.get("name") for field in fields if isinstance(field, dict))
    return any(isinstance(n, str) and n.lower() == name.lower() for n in names)


class NamedTypes:
    """Records, enums and fixed types of a schema, and the namespaces in which types stand.

    All are known before one is asked for; see ``avro_checks``.
    """

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._spaces: dict[int, str] = {}

    def define(self, schema: Any, space: str) -> bool:
        """Keep a type that has a name; False if another type has it already.

        space: the namespace of what is around the type
        """
        full = full_name(schema, space)
        self.put(schema, full.rpartition(".")[0])
        return bool(self._known.setdefault(full, schema) == schema)

    def put(self, schema: Any, space: str) -> None:
        """Keep the namespace of the names in an array, a map or a type with a name."""
        self._spaces[id(schema)] = space

    def found(self, name: str, space: str) -> Any:
        """What was defined by a name that stands in the namespace ``space``, or None."""
        return self._known.get(self.found_name(name, space))

    def found_name(self, name: str, space: str) -> str:
        """The full name of what was defined; ``name`` where nothing was."""
        full = name if "." in name or not space else f"{space}.{name}"
        return full if full in self._known else name

    def resolved(self, schema: Any, space: str) -> Any:
        """A primitive type's name, or a dict of another type that is no union.

        schema: one that was checked; space: the namespace in which it stands
        """
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in PRIMITIVE:
            has_more = isinstance(schema, dict) and "logicalType" in schema and kind != "null"
            return schema if has_more else kind
        is_itself = isinstance(schema, dict) and (kind in NAMED or kind in UNNAMED)
        return schema if is_itself else self.found(kind, space)

    def space_of(self, schema: Any) -> str:
        """The namespace of names in a type that was resolved."""
        return self._spaces.get(id(schema), "")


def branches(schema: Any) -> list[Any] | None:
    """Of a union; None for what is none."""
    return schema if isinstance(schema, list) else None


def logical_type(schema: Any) -> str:
    """Of a type that was resolved, or empty, also where it is a decimal that is not valid."""
    found = str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""
    return "" if found == "decimal" and not _is_decimal(schema) else found


def _is_decimal(schema: Any) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return False
    return schema["type"] in ("bytes", "fixed") and precision > 0 and 0 <= scale <= precision


def type_name(schema: Any) -> str:
    """A type in few words."""
    if isinstance(schema, list):
        return "union of " + " and ".join(type_name(branch) for branch in schema)
    if not isinstance(schema, dict):
        return str(schema)
    logical = logical_type(schema)
    if logical == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    name = f" {schema['name']}" if "name" in schema else ""
    return f"{type_name(schema.get('type'))}{name}{f' of {logical}' if logical else ''}"
