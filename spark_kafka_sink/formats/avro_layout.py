"""Match columns with the fields of an Avro schema and choose how each column is encoded.

Fields match by name, exactly or else without regard to case. A field without a column gets its
default, or null. Types match as in Spark's ``AvroSerializer`` and as Avro promotes: int to long,
float and double, long to float and double, float to double, string to bytes. Of a union, the first
branch with the least loss is written; of records, the one with the fewest fields without a column,
because each record is another kind of event.

A schema that is no record is the type of the only column, whose nulls are null values, as in
Java's ``KafkaAvroSerializer`` and in ``to_avro``. If the schema is a union with records, the branch
that fits the columns is written.

The whole schema is checked, including fields without a column. The rules are those of Java's Avro,
which Spark and registries use; Avro's Python libraries accept more. Defaults, which are JSON in a
schema, are written in Avro's binary encoding.

Source: Avro's specification, "Schema Declaration" and "Complex Types", on defaults;
``Schema.parse`` and ``NameValidator`` of Java's Avro 1.12.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.base.errors import sentence
from spark_kafka_sink.base.model import zigzag_varint
from spark_kafka_sink.formats.avro_schema import (
    NAMED,
    PRIMITIVE,
    UNNAMED,
    AvroSchemaError,
    NamedTypes,
    full_name,
    is_name,
    logical_type,
    type_name,
)
from spark_kafka_sink.formats.layout import (
    Column,
    Node,
    is_variant,
    kind_of,
    matched,
    not_writable,
)
from spark_kafka_sink.formats.plan import OF_VARIANTS, FormatError
from spark_kafka_sink.record.compiled import nodes

# The loss of a union's branch, by which the branch is chosen: the smallest loss wins.
_EXACT = 0
_PROMOTED = 1  # the same value in another type
_LIMITED = 2  # not every value can be written, or not all of its digits
_FEWEST_DIGITS = 3


class _Match(NamedTuple):
    """The node of a column, and the greatest loss in its tree: _EXACT and others.

    filled: the fields of records in its tree that have no column
    """

    node: Node
    loss: int = _EXACT
    filled: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Return what decides between branches of a union; the smallest is best."""
        return self.loss, self.filled


def _as(kind: int, loss: int = _EXACT, written_as: int = nodes.PLAIN, parameter: int = 0) -> _Match:
    return _Match(Node(kind, parameter=parameter, written_as=written_as), loss)


# (kind of the column, Avro's type) -> encoding, for types that need no other check.
_SMALL = (nodes.INT8, nodes.INT16, nodes.INT32)
_INTEGERS = (*_SMALL, nodes.INT64)
_ENCODINGS: dict[tuple[int, str], _Match] = {
    (nodes.BOOLEAN, "boolean"): _as(nodes.BOOLEAN),
    **{(kind, "int"): _as(kind) for kind in _SMALL},
    **{(kind, "long"): _as(kind, _PROMOTED) for kind in _SMALL},
    **{(kind, "double"): _as(kind, _LIMITED, nodes.AVRO_AS_DOUBLE) for kind in _INTEGERS},
    **{(kind, "float"): _as(kind, _FEWEST_DIGITS, nodes.AS_FLOAT) for kind in _INTEGERS},
    (nodes.INT64, "long"): _as(nodes.INT64),
    (nodes.INTERVAL, "long"): _as(nodes.INT64),
    (nodes.DATE, "int"): _as(nodes.INT32),
    (nodes.FLOAT, "float"): _as(nodes.FLOAT),
    (nodes.FLOAT, "double"): _as(nodes.FLOAT, _PROMOTED, nodes.AVRO_AS_DOUBLE),
    (nodes.DOUBLE, "double"): _as(nodes.DOUBLE),
    (nodes.STRING, "string"): _as(nodes.STRING),
    (nodes.STRING, "bytes"): _as(nodes.STRING, _PROMOTED),
    (nodes.STRING, "enum"): _as(nodes.STRING, _LIMITED, nodes.ENUM),
    (nodes.BINARY, "bytes"): _as(nodes.BINARY),
}
# (kind, Avro's type, logical type) -> divisor of microseconds, or of a day's nanoseconds.
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
# Logical types of the same Avro type whose readers would take a date or an interval for a time.
_OTHER_TIMES = {
    nodes.DATE: frozenset(["time-millis"]),
    nodes.INTERVAL: frozenset(
        f"{name}-{unit}"
        for name in ("time", "timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
}
_NESTED = {nodes.STRUCT: "record", nodes.LIST: "array", nodes.MAP: "map"}


class _SeveralRecordsError(FormatError):
    """Several records of a union fit a column equally well; no other branch decides that."""

    code = "FORMAT-019"


class Root(NamedTuple):
    """The node of a row. is_single: it is the value of the only column, whose null is no value"""

    node: Node
    is_single: bool = False


def avro_root(schema: Any, columns: list[Column], record_name: str | None = None) -> Root:
    """Return the node of a row.

    schema: as ``json.loads`` returns it
    record_name: full name of the record to write, if the schema is a union that has it

    Raises FormatError for a column without a matching field, for a field without a column, and for
    a schema that adds more than ``MOST_ADDED_BYTES`` to each row.
    """
    root = _root(schema, columns, record_name)
    added = sum(map(_added_bytes, root.node.walk()))
    if added > MOST_ADDED_BYTES:
        raise AvroSchemaError(
            f"the Avro schema adds {added:,} bytes to each row, more than {MOST_ADDED_BYTES:,}: "
            "the defaults of fields without a column, and fixed types of decimals"
        )
    return root


MOST_ADDED_BYTES = 16 * 1024
"""Limit of the bytes that a row has without having brought them.

An Arrow batch has 10,000 rows, which are encoded together: 160 MiB.
"""


def _added_bytes(node: Node) -> int:
    if node.kind == nodes.CONSTANT:
        return len(node.name)
    is_padded = node.kind == nodes.DECIMAL and node.written_as == nodes.FIXED
    return node.parameter if is_padded else 0


def _root(schema: Any, columns: list[Column], record_name: str | None) -> Root:
    names = checked_types(schema)
    matching = _Matching(names)
    is_union = isinstance(schema, list)
    branches = [names.resolved(branch, "") for branch in (schema if is_union else [schema])]
    if any(map(_is_record, branches)):
        if is_union:
            return matching.union(branches, columns, record_name)
        return Root(matching.fields(branches[0], columns, "").node)
    if len(columns) != 1:
        raise FormatError(
            f"the Avro schema is no record but {type_name(schema)}, the type of one column, and "
            f"there are the columns {_paths(columns)}: name one by value.columns or key.columns",
            code="FORMAT-009",
        )
    return _single(matching.field(schema, "", columns[0]))


def _single(match: _Match) -> Root:
    node = match.node._replace(source=0)
    return Root(Node(nodes.STRUCT, children=(node,)), is_single=True)


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema["type"] == "record"


def _paths(columns: list[Column]) -> list[str]:
    return [column.path for column in columns]


class _Matching:
    def __init__(self, names: NamedTypes) -> None:
        self._names = names
        self._defaults = Defaults(names)
        # By the type's identity, or name, and the column: a record may be used many times.
        self._matches: dict[tuple[int | str, Column], _Match | FormatError] = {}

    def fields(self, record: Any, columns: list[Column], path: str) -> _Match:
        """Return the node of a record, with the nodes of its fields as children."""
        names = [field["name"] for field in record["fields"]]
        by_field = matched(names, columns, path or type_name(record))
        unmatched = [c.path for n, c in enumerate(columns) if n not in by_field.values()]
        if unmatched:
            raise FormatError(
                f"the Avro schema has no field for {unmatched}: leave these columns out, or name "
                f"them as the schema does. {path or type_name(record)} has {names}",
                code="FORMAT-009",
            )
        space = self._names.space_of(record)
        found, loss, filled = [], _EXACT, 0
        for field in record["fields"]:
            number = by_field.get(field["name"])
            if number is None:
                found.append(self._without_column(field, space, path))
                filled += 1
            else:
                match = self.field(field["type"], space, columns[number])
                found.append(match.node._replace(source=number))
                loss, filled = max(loss, match.loss), filled + match.filled
        return _Match(Node(nodes.STRUCT, children=tuple(found)), loss, filled)

    def field(self, schema: Any, space: str, column: Column) -> _Match:
        if isinstance(schema, list):
            return self._branch([self._names.resolved(b, space) for b in schema], column)
        resolved = self._names.resolved(schema, space)
        match = self._value(resolved, column)
        null = nodes.NOTHING if resolved == "null" else nodes.NO_NULLS
        return match._replace(node=match.node._replace(null_branch=null))

    def union(self, union: list[Any], columns: list[Column], record_name: str | None) -> Root:
        """Return the node of the only branch that fits the columns.

        union: resolved types, of which one is a record at least
        """
        records = {
            full_name(branch, self._names.space_of(branch)): (number, branch)
            for number, branch in enumerate(union)
            if _is_record(branch)
        }
        named = {name: one for name, one in records.items() if name == record_name}
        fits: dict[str, Root] = {}
        errors: dict[str, FormatError] = {}
        for name, (number, record) in (named or records).items():
            try:
                row = self.fields(record, columns, "").node
            except FormatError as error:
                errors[name] = error
            else:
                branch = Node(nodes.CONSTANT, zigzag_varint(number), source=-1)
                fits[name] = Root(row._replace(children=(branch, *row.children)))
        others = [(n, one) for n, one in enumerate(union) if one != "null" and not _is_record(one)]
        if others and len(columns) == 1 and not named:
            name = " or ".join(type_name(one) for _, one in others)
            try:
                fits[name] = _single(self._best(others, columns[0]))
            except FormatError as error:
                errors[name] = error
        if len(fits) == 1:
            return next(iter(fits.values()))
        if not fits and len(errors) == 1:
            raise next(iter(errors.values()))
        raise _no_branch(columns, [*fits], errors)

    def _branch(self, union: list[Any], column: Column) -> _Match:
        """Return the node of the branch with the least loss."""
        null = union.index("null") if "null" in union else nodes.NO_NULLS
        if column.type == pa.null() and null != nodes.NO_NULLS:
            return _Match(Node(nodes.NULL, null_branch=null))
        best = self._best([*enumerate(union)], column)
        return best._replace(node=best.node._replace(null_branch=null))

    def _best(self, branches: list[tuple[int, Any]], column: Column) -> _Match:
        """Return the node of the branch with the least loss. branches: numbers and types

        Raises FormatError if several records fit the column equally well.
        """
        best, errors = None, []
        records: dict[tuple[int, int], list[str]] = {}
        for number, schema in branches:
            if schema == "null":
                continue
            try:
                match = self._value(schema, column)
            except _SeveralRecordsError:
                raise
            except FormatError as error:
                errors.append(error)
                continue
            if _is_record(schema):
                records.setdefault(match.rank, []).append(schema["name"])
            if best is None or match.rank < best.rank:
                best = match._replace(node=match.node._replace(value_branch=number))
        if best is not None:
            if len(names := records.get(best.rank, [])) > 1:
                raise _several_records(column, names)
            return best
        if len(errors) == 1:
            raise errors[0]  # names the part that does not fit
        raise FormatError(_does_not_fit(column, [b for _, b in branches]), code="FORMAT-011")

    def _value(self, schema: Any, column: Column) -> _Match:
        key = (schema if isinstance(schema, str) else id(schema), column)
        if key not in self._matches:
            try:
                self._matches[key] = self._match(schema, column)
            except FormatError as error:
                self._matches[key] = error
        found = self._matches[key]
        if isinstance(found, FormatError):
            raise found
        return found

    def _match(self, schema: Any, column: Column) -> _Match:
        found = kind_of(column.type)
        if is_variant(column.type):
            raise FormatError(
                f"column '{column.path}' is a VARIANT, which cannot be written as Avro. "
                f"{OF_VARIANTS}",
                code="FORMAT-007",
            )
        if found is None:
            raise not_writable(column.path, column.type, "Avro")
        kind, offset_bytes = found
        name = schema if isinstance(schema, str) else schema["type"]
        if kind == nodes.NULL and name == "null":
            return _Match(Node(nodes.NULL))
        if kind >= nodes.STRUCT and _NESTED[kind] == name:
            inside = self._children(schema, column)
            node = inside.node._replace(kind=kind, offset_bytes=offset_bytes, path=column.path)
            return inside._replace(node=node)
        match = _scalar_match(kind, name, schema, column)
        if match is None:
            raise FormatError(_does_not_fit(column, [schema]), code="FORMAT-011")
        symbols = tuple(schema["symbols"]) if match.node.written_as == nodes.ENUM else None
        node = match.node._replace(offset_bytes=offset_bytes, symbols=symbols, path=column.path)
        return match._replace(node=node)

    def _children(self, schema: Any, column: Column) -> _Match:
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
                    "alone. Make text of them by transform_keys()",
                    code="FORMAT-008",
                )
            match = self.field(schema["values"], space, Column("", f"{path}[]", kind.item_type))
            key_node = Node(nodes.STRING, offset_bytes=key[1])
            return match._replace(node=Node(nodes.MAP, children=(key_node, match.node)))
        match = self.field(schema["items"], space, Column("", f"{path}[]", kind.value_type))
        return match._replace(node=Node(nodes.LIST, children=(match.node,)))

    def _without_column(self, field: Any, space: str, path: str) -> Node:
        name = f"{path}.{field['name']}" if path else field["name"]
        if "default" in field:
            encoded = self._defaults.encoded(field["type"], field["default"], space, name)
            return Node(nodes.CONSTANT, encoded, source=-1)
        is_union = isinstance(field["type"], list)
        branches = field["type"] if is_union else [field["type"]]
        types = [self._names.resolved(kind, space) for kind in branches]
        if "null" in types:
            encoded = zigzag_varint(types.index("null")) if is_union else b""
            return Node(nodes.CONSTANT, encoded, source=-1)
        raise FormatError(
            f"field '{name}' of the Avro schema ({type_name(field['type'])}) has no default, and "
            "there is no column for it. Add a column of this name, or give the field a default",
            code="FORMAT-010",
        )


def _scalar_match(kind: int, name: str, schema: Any, column: Column) -> _Match | None:
    logical = logical_type(schema)
    divisor = _TIMES.get((kind, name, logical))
    if divisor is not None:
        loss = _EXACT if logical.endswith("-micros") else _LIMITED
        return _as(nodes.INT64, loss, nodes.PLAIN if divisor == 1 else nodes.DIVIDED, divisor)
    if kind == nodes.DECIMAL:
        return _decimal_match(name, schema, column, logical)
    if logical == "decimal":
        return None
    if logical in _OTHER_TIMES.get(kind, ()):
        return None
    if kind == nodes.BINARY and name == "fixed":
        return _as(kind, _LIMITED, nodes.FIXED, schema["size"])
    return _ENCODINGS.get((kind, name))


def _decimal_match(name: str, schema: Any, column: Column, logical: str) -> _Match | None:
    if logical != "decimal":
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            raise AvroSchemaError(
                f"column '{column.path}' cannot be written: its logical type 'decimal' in the Avro "
                f"schema has no valid precision and scale: {str(schema)[:200]}"
            )
        return None
    kind = column.type
    if schema.get("scale", 0) != kind.scale or schema["precision"] < kind.precision:
        return None
    if name == "bytes":
        return _as(nodes.DECIMAL)
    if (10**kind.precision - 1).bit_length() > 8 * schema["size"] - 1:
        return None
    return _as(nodes.DECIMAL, _EXACT, nodes.FIXED, schema["size"])


_MOST_SHOWN = 10
"""Limit of the branches in an error."""


def _no_branch(
    columns: list[Column], fits: list[str], errors: dict[str, FormatError]
) -> FormatError:
    """Return the error for columns that no branch fits, or several."""
    if fits:
        text = (
            f"several branches of the Avro schema's union fit the columns {_paths(columns)}: "
            f"{', '.join(fits)}. Set avro.record.name and avro.namespace to the record that is "
            "meant"
        )
    else:
        why = [f"{name}: {sentence(error)}" for name, error in errors.items()]
        more = f"; and {len(why) - _MOST_SHOWN} more" if len(why) > _MOST_SHOWN else ""
        text = (
            f"no branch of the Avro schema's union fits the columns {_paths(columns)}. "
            f"{'; '.join(why[:_MOST_SHOWN])}{more}"
        )
    return FormatError(text, code="FORMAT-019")


def _several_records(column: Column, names: list[str]) -> FormatError:
    shown = ", ".join(names[:_MOST_SHOWN])
    return _SeveralRecordsError(
        f"several records of the Avro schema's union fit column '{column.path}' equally well: "
        f"{shown}. Give the column a field that only the meant one has, or give a schema with that "
        "one alone"
    )


def _does_not_fit(column: Column, schemas: list[Any]) -> str:
    expected = ", ".join(type_name(schema) for schema in schemas)
    return (
        f"column '{column.path}' has the Arrow type {column.type}, which the Avro schema's type of "
        f"this field ({expected}) cannot hold. Cast the column"
    )


_ORDERS = ("ascending", "descending", "ignore")
_LARGEST_FIXED = 2**31 - 9
"""Size of Java's largest array, bytes."""
_INSIDE = {"array": "items", "map": "values"}


def checked_types(schema: Any) -> NamedTypes:
    """Return the types that ``schema`` defines. schema: of Avro, as ``json.loads`` returns it

    Raises FormatError for an invalid schema; the error names the field and the reason.
    """
    names = NamedTypes()
    try:
        _Checking(names).type(schema, "", "")
    except RecursionError:
        raise AvroSchemaError("the Avro schema is nested too deeply") from None
    return names


class _Checking:
    """Checks of a schema. Paths are for messages; a space is the namespace around a type."""

    def __init__(self, names: NamedTypes) -> None:
        self._names = names

    def type(self, schema: Any, space: str, path: str) -> str:
        """Check a type and return its name, which a union may have only once."""
        if isinstance(schema, list):
            return self._union(schema, space, path)
        is_object = isinstance(schema, dict)
        kind = schema.get("type") if is_object else schema
        if not isinstance(kind, str):
            raise AvroSchemaError(f"{_at(path)} has no type that Avro knows: {str(schema)[:200]}")
        if is_object and kind in NAMED:
            return self._named(schema, space, path)
        if is_object and kind in UNNAMED:
            inside = _INSIDE[kind]
            if inside not in schema:
                article = "an" if kind == "array" else "a"
                raise AvroSchemaError(f"{_at(path)} has {article} {kind} without {inside}")
            self._names.put(schema, space)
            self.type(schema[inside], space, f"{path}[]")
            return kind
        if kind not in PRIMITIVE and self._names.found(kind, space) is None:
            raise AvroSchemaError(
                f"{_at(path)} has a type '{kind}' that the schema does not define: one of "
                f"{sorted(PRIMITIVE | NAMED | UNNAMED)}, or a name that is defined before"
            )
        return kind if kind in PRIMITIVE else self._names.found_name(kind, space)

    def _union(self, union: list[Any], space: str, path: str) -> str:
        seen = set()
        for branch in union:
            if isinstance(branch, list):
                raise AvroSchemaError(f"{_at(path)} has a union in a union")
            name = self.type(branch, space, path)
            if name in seen:
                raise AvroSchemaError(f"{_at(path)} has a union with '{name}' twice")
            seen.add(name)
        return "union"

    def _named(self, schema: Any, space: str, path: str) -> str:
        kind, name = schema["type"], schema.get("name")
        if not isinstance(name, str):
            raise AvroSchemaError(f"{_at(path)} has a {kind} without a name")
        here = f"{_at(path)} has a {kind} '{name}'"
        if not isinstance(schema.get("namespace", ""), (str, type(None))):
            raise AvroSchemaError(f"{here} whose namespace is no text: {schema['namespace']}")
        full = full_name(schema, space)
        aliases = (alias.rpartition(".")[2] for alias in _aliases(schema, here))
        for part in [*full.split("."), *aliases]:
            _check_name(part, here)
        if full in PRIMITIVE:
            raise AvroSchemaError(f"{here}, which is the name of a primitive type")
        if not self._names.define(schema, space):
            raise AvroSchemaError(
                f"{_at(path)} has another type '{name}' than the one defined before"
            )
        if kind == "enum":
            _check_symbols(schema, here)
        size = schema.get("size")
        if kind == "fixed" and not (type(size) is int and 0 <= size <= _LARGEST_FIXED):
            raise AvroSchemaError(f"{here} without a size of 0 to {_LARGEST_FIXED}")
        if kind == "record":
            self._fields(schema, path, here)
        return full

    def _fields(self, record: Any, path: str, here: str) -> None:
        if not isinstance(record.get("fields"), list):
            raise AvroSchemaError(f"{here} without a list of fields")
        space = self._names.space_of(record)
        seen = set()
        for field in record["fields"]:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise AvroSchemaError(f"{here} with a field that has no name: {str(field)[:200]}")
            if name in seen:
                raise AvroSchemaError(f"{here} with two fields '{name}'")
            seen.add(name)
            _check_name(name, here)
            _aliases(field, f"{here} with a field '{name}'")
            if str(field.get("order", "ignore")).lower() not in _ORDERS:
                raise AvroSchemaError(
                    f"{here} with a field '{name}' whose order is none of {_ORDERS}"
                )
            self.type(field.get("type"), space, f"{path}.{name}" if path else name)


def _check_name(name: str, here: str) -> None:
    if not is_name(name):
        shown = name.encode("utf-8", "backslashreplace").decode()
        raise AvroSchemaError(
            f"{here} with '{shown}', which is no name: letters, digits and _, no digit first"
        )


def _aliases(schema: Any, here: str) -> list[str]:
    aliases = schema.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise AvroSchemaError(f"{here} whose aliases are no list of texts")
    return aliases


def _check_symbols(enum: Any, here: str) -> None:
    symbols = enum.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise AvroSchemaError(f"{here} without a list of symbols")
    for symbol in symbols:
        _check_name(symbol, here)
    if len(set(symbols)) < len(symbols):
        raise AvroSchemaError(f"{here} with a symbol twice")
    default = enum.get("default")
    if isinstance(default, str) and default not in symbols:
        raise AvroSchemaError(f"{here} whose default '{default}' is none of its symbols")


def _at(path: str) -> str:
    return f"field '{path}' of the Avro schema" if path else "the Avro schema"


_JSON: dict[str, type] = {"record": dict, "map": dict, "array": list}
# Errors that encoding raises for a default of another type, out of range, or nested too deeply.
_DEFAULT_ERRORS = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError),
    *(struct.error, RecursionError),
)
_MAX_DEFAULT_BYTES = 1 << 20
"""Limit of a default, which each row holds: nested records could have any size."""


class _FinalError(AvroSchemaError):
    """An error after which no other branch of a union is tried.

    With another branch, the default would depend on the record at which encoding starts.
    """


class Defaults:
    """Encoded defaults of a schema's fields; the schema must not change. names: its types

    The default of a record is encoded once, even if the record is used in many places.
    """

    def __init__(self, names: NamedTypes) -> None:
        self._names = names
        # By identity of a record and of its default; None for a default of another type.
        self._encoded: dict[tuple[int, int], bytes | None] = {}
        self._running: set[tuple[int, int]] = set()

    def encoded(self, schema: Any, value: Any, space: str, field: str) -> bytes:
        """Return the bytes of a default; for a union, of the first branch that fits.

        Raises FormatError for a default that has another type, is too large, or contains itself.
        """
        if not isinstance(schema, list):
            try:
                return self._of_type(self._names.resolved(schema, space), value, field)
            except _FinalError:
                raise
            except _DEFAULT_ERRORS as error:
                raise _default_error(schema, value, field) from error
        for number, branch in enumerate(schema):
            try:
                return zigzag_varint(number) + self.encoded(branch, value, space, field)
            except _FinalError:
                raise
            except FormatError:
                continue
        raise _default_error(schema, value, field)

    def _of_type(self, schema: Any, value: Any, field: str) -> bytes:
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _JSON and not isinstance(value, _JSON[kind]):
            raise ValueError(kind)
        if kind == "record":
            return self._record_once(schema, value, field)
        space = self._names.space_of(schema)
        if kind == "array":
            return _block([self.encoded(schema["items"], v, space, field) for v in value], field)
        if kind == "map":
            encoded = (
                (k, self.encoded(schema["values"], v, space, field)) for k, v in value.items()
            )
            return _block([_sized(k.encode()) + item for k, item in encoded], field)
        return _scalar(kind, schema, value)

    def _record_once(self, schema: Any, value: Any, field: str) -> bytes:
        key = (id(schema), id(value))
        if key not in self._encoded:
            if key in self._running:
                raise _FinalError(
                    f"the default of field '{field}' of the Avro schema has itself in it without "
                    f"an end: {type_name(schema)}. Give a field of it another default"
                )
            self._running.add(key)
            try:
                self._encoded[key] = self._record(schema, value, field)
            except _FinalError:
                raise
            except _DEFAULT_ERRORS:
                self._encoded[key] = None
                raise
        found = self._encoded[key]
        if found is None:
            raise ValueError("record")
        return found

    def _record(self, schema: Any, value: Any, field: str) -> bytes:
        space = self._names.space_of(schema)
        found = []
        for inner in schema["fields"]:
            name = inner["name"]
            default = value[name] if name in value else inner["default"]
            found.append(self.encoded(inner["type"], default, space, f"{field}.{name}"))
        return _joined(found, field)


def _default_error(schema: Any, value: Any, field: str) -> FormatError:
    return AvroSchemaError(
        f"the default of field '{field}' of the Avro schema is no {type_name(schema)}: "
        f"{str(value)[:100]}"
    )


def _scalar(kind: str, schema: Any, value: Any) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if kind in ("int", "long") and isinstance(value, int) and not isinstance(value, bool):
        bits = 31 if kind == "int" else 63
        if -(2**bits) <= value < 2**bits:
            return zigzag_varint(value)
    if kind in ("float", "double") and isinstance(value, (int, float)) and type(value) is not bool:
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind == "bytes":
        return _sized(value.encode("latin-1"))
    if kind == "fixed" and len(value) == schema["size"]:
        return bytes(value.encode("latin-1"))
    if kind == "enum":
        return zigzag_varint(schema["symbols"].index(value))
    raise ValueError(kind)


def _sized(data: bytes) -> bytes:
    return zigzag_varint(len(data)) + data


def _block(items: list[bytes], field: str) -> bytes:
    return (zigzag_varint(len(items)) + _joined(items, field) if items else b"") + b"\0"


def _joined(items: list[bytes], field: str) -> bytes:
    if sum(map(len, items)) > _MAX_DEFAULT_BYTES:
        raise _FinalError(
            f"the default of field '{field}' of the Avro schema has more than "
            f"{_MAX_DEFAULT_BYTES:,} bytes, which each row would have"
        )
    return b"".join(items)
