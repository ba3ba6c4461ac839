"""Which column is written as which field of an Avro schema, and how.

Fields are found by name, exactly or else without regard to case. A field that no column has gets
its default, or null. What fits what is as in Spark's ``AvroSerializer``, and what Avro promotes:
int to long, float and double, long to float and double, float to double, string to bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.formats.avro_defaults import encoded_default, varint
from spark_kafka_sink.formats.avro_names import NamedTypes, branches, logical_type, type_name
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.layout import Column, Node, is_variant, kind_of
from spark_kafka_sink.record.kernels import nodes
from spark_kafka_sink.record.kernels.avro_rows import (
    AS_DOUBLE,
    AS_FLOAT,
    DIVIDED,
    ENUM,
    FIXED,
    NO_NULLS,
    NOTHING,
    PLAIN,
)


class _Way(NamedTuple):
    """How a value is written. kind: of the column, as the kernel reads it"""

    kind: int
    written_as: int = PLAIN
    parameter: int = 0


# (kind of the column, Avro's type): where nothing else has to be looked at.
_SMALL = (nodes.INT8, nodes.INT16, nodes.INT32)
_WAYS: dict[tuple[int, str], _Way] = {
    (nodes.BOOLEAN, "boolean"): _Way(nodes.BOOLEAN),
    **{(kind, avro): _Way(kind) for kind in _SMALL for avro in ("int", "long")},
    **{(kind, "float"): _Way(kind, AS_FLOAT) for kind in (*_SMALL, nodes.INT64)},
    **{(kind, "double"): _Way(kind, AS_DOUBLE) for kind in (*_SMALL, nodes.INT64)},
    (nodes.INT64, "long"): _Way(nodes.INT64),
    (nodes.INTERVAL, "long"): _Way(nodes.INT64),
    (nodes.DATE, "int"): _Way(nodes.INT32),
    (nodes.FLOAT, "float"): _Way(nodes.FLOAT),
    (nodes.FLOAT, "double"): _Way(nodes.FLOAT, AS_DOUBLE),
    (nodes.DOUBLE, "double"): _Way(nodes.DOUBLE),
    (nodes.STRING, "string"): _Way(nodes.STRING),
    (nodes.STRING, "bytes"): _Way(nodes.STRING),
    (nodes.BINARY, "bytes"): _Way(nodes.BINARY),
}
# (kind, Avro's type, logical type): microseconds, and nanoseconds of a day, over so many.
_TIMES: dict[tuple[int, str, str], int] = {
    (nodes.TIMESTAMP, "long", "timestamp-micros"): 1,
    (nodes.TIMESTAMP, "long", "timestamp-millis"): 1000,
    (nodes.TIMESTAMP, "long", ""): 1000,
    (nodes.TIMESTAMP_NTZ, "long", "local-timestamp-micros"): 1,
    (nodes.TIMESTAMP_NTZ, "long", "local-timestamp-millis"): 1000,
    (nodes.TIMESTAMP_NTZ, "long", ""): 1000,
    (nodes.TIME, "long", "time-micros"): 1000,
    (nodes.TIME, "int", "time-millis"): 1_000_000,
}
_NESTED = {nodes.STRUCT: "record", nodes.LIST: "array", nodes.MAP: "map"}


def avro_root(schema: Any, columns: list[Column]) -> Node:
    """The node of a row. schema: of Avro, as ``json.loads`` has it; a record.

    Raises FormatError for a column without a field that it fits, or a field without a column.
    """
    names = NamedTypes()
    root = names.resolved(schema, "")
    if not isinstance(root, dict) or root.get("type") != "record":
        raise FormatError(f"the Avro schema of rows must be a record, not {type_name(root)}")
    return Node(nodes.STRUCT, children=_Matching(names).fields(root, columns, ""))


class _Matching:
    def __init__(self, names: NamedTypes) -> None:
        self._names = names

    def fields(self, record: Any, columns: list[Column], path: str) -> tuple[Node, ...]:
        names = [field["name"] for field in record["fields"]]
        found = {name: number for number, name in enumerate(c.name for c in columns)}
        lower = {column.name.lower(): number for number, column in enumerate(columns)}
        taken: dict[str, int] = {}
        for name in names:
            number = found.get(name, lower.get(name.lower()))
            if number is not None and number not in taken.values():
                taken[name] = number
        left = [c.path for n, c in enumerate(columns) if n not in taken.values()]
        if left:
            raise FormatError(
                f"the Avro schema has no field for {left}: {path or type_name(record)} has "
                f"{names}. Leave these columns out, or name them as the schema does"
            )
        space = self._names.space_of(record)
        return tuple(
            self.node(field["type"], space, columns[taken[field["name"]]])._replace(
                source=taken[field["name"]]
            )
            if field["name"] in taken
            else self._without_column(field, space, path)
            for field in record["fields"]
        )

    def node(self, schema: Any, space: str, column: Column) -> Node:
        """Of a column that is written as ``schema``, named types in it being those of ``space``."""
        several = branches(schema)
        if several is None:
            return self._value(self._names.resolved(schema, space), column)._replace(
                null_branch=NOTHING if schema == "null" else NO_NULLS
            )
        resolved = [self._names.resolved(branch, space) for branch in several]
        null = resolved.index("null") if "null" in resolved else NO_NULLS
        if column.type == pa.null():
            if null == NO_NULLS:
                raise FormatError(_does_not_fit(column, resolved))
            return Node(nodes.NULL, null_branch=null)
        for number, branch in enumerate(resolved):
            if branch != "null" and self._fits(branch, column):
                made = self._value(branch, column)
                return made._replace(value_branch=number, null_branch=null)
        values = [branch for branch in resolved if branch != "null"]
        if len(values) == 1:
            self._value(values[0], column)  # says what exactly does not fit
        raise FormatError(_does_not_fit(column, resolved))

    def _fits(self, schema: Any, column: Column) -> bool:
        try:
            self._value(schema, column)
        except FormatError:
            return False
        return True

    def _value(self, schema: Any, column: Column) -> Node:
        found = kind_of(column.type)
        if found is None or is_variant(column.type):
            given = "VARIANT" if found is not None else f"the Arrow type {column.type}"
            raise FormatError(
                f"column '{column.path}' has {given}, which cannot be written as Avro. Cast it to "
                "another type, or leave it out"
            )
        kind, offset_bytes = found
        name = schema if isinstance(schema, str) else schema["type"]
        if kind == nodes.NULL and name == "null":
            return Node(nodes.NULL)
        if kind >= nodes.STRUCT and _NESTED[kind] == name:
            made = Node(kind, offset_bytes=offset_bytes, path=column.path)
            return made._replace(children=self._children(schema, column))
        way = self._way(kind, name, schema, column)
        if way is None:
            raise FormatError(_does_not_fit(column, [schema]))
        symbols = tuple(schema["symbols"]) if way.written_as == ENUM else ()
        made = Node(way.kind, parameter=way.parameter, written_as=way.written_as)
        return made._replace(offset_bytes=offset_bytes, symbols=symbols, path=column.path)

    def _way(self, kind: int, name: str, schema: Any, column: Column) -> _Way | None:
        logical = logical_type(schema)
        divisor = _TIMES.get((kind, name, logical))
        if divisor is not None:
            return _Way(nodes.INT64) if divisor == 1 else _Way(nodes.INT64, DIVIDED, divisor)
        if kind == nodes.DECIMAL:
            return _decimal_way(name, schema, column.type) if logical == "decimal" else None
        if logical == "decimal":
            return None
        if kind == nodes.BINARY and name == "fixed":
            return _Way(kind, FIXED, schema["size"])
        if kind == nodes.STRING and name == "enum":
            return _Way(kind, ENUM)
        return _WAYS.get((kind, name))

    def _children(self, schema: Any, column: Column) -> tuple[Node, ...]:
        kind, path = column.type, column.path
        space = self._names.space_of(schema)
        if isinstance(kind, pa.StructType):
            fields = [kind.field(number) for number in range(kind.num_fields)]
            inner = [Column(f.name, f"{path}.{f.name}", f.type) for f in fields]
            return self.fields(schema, inner, path)
        if isinstance(kind, pa.MapType):
            key = kind_of(kind.key_type)
            if key is None or key[0] != nodes.STRING:
                raise FormatError(
                    f"keys of the map '{path}' have the Arrow type {kind.key_type}: Avro has text "
                    "alone. Make text of them by transform_keys()"
                )
            value = self.node(schema["values"], space, Column("", f"{path}[]", kind.item_type))
            return (Node(nodes.STRING, offset_bytes=key[1]), value)
        return (self.node(schema["items"], space, Column("", f"{path}[]", kind.value_type)),)

    def _without_column(self, field: Any, space: str, path: str) -> Node:
        name = f"{path}.{field['name']}" if path else field["name"]
        if "default" in field:
            written = encoded_default(field["type"], field["default"], self._names, space, name)
            return Node(nodes.CONSTANT, written, source=-1)
        several = branches(field["type"]) or [field["type"]]
        if "null" in several:
            written = b"" if field["type"] == "null" else varint(several.index("null"))
            return Node(nodes.CONSTANT, written, source=-1)
        raise FormatError(
            f"field '{name}' of the Avro schema ({type_name(field['type'])}) has no default, and "
            "there is no column for it. Add a column of this name, or give the field a default"
        )


def _decimal_way(name: str, schema: Any, kind: Any) -> _Way | None:
    if schema.get("scale", 0) != kind.scale or schema["precision"] < kind.precision:
        return None
    if name == "bytes":
        return _Way(nodes.DECIMAL)
    if 10**kind.precision > 2 ** (8 * schema["size"] - 1):
        return None
    return _Way(nodes.DECIMAL, FIXED, schema["size"])


def _does_not_fit(column: Column, schemas: list[Any]) -> str:
    wanted = ", ".join(type_name(schema) for schema in schemas)
    return (
        f"column '{column.path}' has the Arrow type {column.type}, which the Avro schema's type of "
        f"this field ({wanted}) cannot hold. Cast the column"
    )
