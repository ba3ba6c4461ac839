"""Build the kernels' table: nodes from Arrow's types, addresses from Arrow's arrays.

A format maps a schema to a tree of nodes once. For each Arrow batch, only addresses are written to
the table. The JSON format encodes columns as Spark's ``to_json`` does.

Source, for JSON: Spark's ``JacksonGenerator``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.formats.plan import FormatError
from spark_kafka_sink.formats.times import Steps, json_quoted
from spark_kafka_sink.record.compiled import nodes

Int64Array = npt.NDArray[np.int64]


class Node(NamedTuple):
    """A column, or a type nested in a column.

    kind: a kind of ``record.compiled.nodes``; offset_bytes: for strings, lists and maps
    name: bytes before the value; for a constant, the value itself
    source: index of the column, or of the field in the enclosing struct; -1: no source
    parameter, written_as, value_branch, null_branch: numbers for the kernel
    symbols: the enum's symbols, possibly empty; None for other types
    numbers: the number of each symbol, or, without symbols, the enum's valid numbers
    path: name in messages
    rules: rules of a Protobuf field, whose tag is ``name``
    rival: index of the next field of the same oneof in the enclosing struct, or -1
    pattern: steps of ``record.compiled.nodes`` of a date or time, which may be none; or None
    """

    kind: int
    name: bytes = b""
    source: int = 0
    parameter: int = 0
    written_as: int = 0
    value_branch: int = -1
    null_branch: int = -1
    offset_bytes: int = 0
    symbols: tuple[str, ...] | None = None
    numbers: tuple[int, ...] | None = None
    rules: int = 0
    rival: int = -1
    path: str = ""
    pattern: tuple[tuple[int, int], ...] | None = None
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and its descendants in the table's order."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def depth(self) -> int:
        """Return the number of nested levels from this node on; 0 for a scalar."""
        if self.kind < nodes.STRUCT:
            return 0
        return 1 + max((child.depth for child in self.children), default=0)


_SIMPLE: dict[Any, tuple[int, int]] = {
    pa.null(): (nodes.NULL, 0),
    pa.bool_(): (nodes.BOOLEAN, 0),
    pa.int8(): (nodes.INT8, 0),
    pa.int16(): (nodes.INT16, 0),
    pa.int32(): (nodes.INT32, 0),
    pa.int64(): (nodes.INT64, 0),
    pa.float32(): (nodes.FLOAT, 0),
    pa.float64(): (nodes.DOUBLE, 0),
    pa.string(): (nodes.STRING, 4),
    pa.large_string(): (nodes.STRING, 8),
    pa.binary(): (nodes.BINARY, 4),
    pa.large_binary(): (nodes.BINARY, 8),
    pa.date32(): (nodes.DATE, 0),
    pa.time64("ns"): (nodes.TIME, 0),
    pa.duration("us"): (nodes.INTERVAL, 0),
}
_MONTHS = pa.lib.Type_INTERVAL_MONTHS
"""The id of Arrow's intervals of months, which pyarrow has neither a type nor an array for."""
_OF_EARTH = (b"geometry", b"geography")
"""Types of Spark that are structs in Arrow."""


def kind_of(arrow_type: Any) -> tuple[int, int] | None:
    """Return (kind, offset_bytes) of a type.

    Return None for types that Spark never sends and for types that to_json rejects.
    """
    found = _SIMPLE.get(arrow_type)
    if found is not None:
        return found
    if arrow_type.id == _MONTHS:
        return nodes.INT32, 0
    if isinstance(arrow_type, pa.TimestampType) and arrow_type.unit == "us":
        return (nodes.TIMESTAMP_NTZ if arrow_type.tz is None else nodes.TIMESTAMP), 0
    if isinstance(arrow_type, pa.Decimal128Type):
        return nodes.DECIMAL, 0
    if isinstance(arrow_type, pa.StructType):
        is_of_earth = any(_is_marked(arrow_type, mark) for mark in _OF_EARTH)
        return None if is_of_earth else (nodes.STRUCT, 0)
    # Before ListType: Arrow's maps are lists.
    if isinstance(arrow_type, pa.MapType):
        return nodes.MAP, 4
    if isinstance(arrow_type, pa.ListType):
        return nodes.LIST, 4
    return (nodes.LIST, 8) if isinstance(arrow_type, pa.LargeListType) else None


def is_variant(arrow_type: Any) -> bool:
    """Return True for Spark's VARIANT."""
    return _is_marked(arrow_type, b"variant")


def not_writable(path: str, arrow_type: Any, as_what: str) -> FormatError:
    """Return the error for a column whose type has no kind in ``kind_of``."""
    shown, instead = f"has the Arrow type {arrow_type}", "Cast it to another type"
    for mark in _OF_EARTH:
        if _is_marked(arrow_type, mark):
            shown, instead = f"is a {mark.decode().upper()}", "Write ST_AsBinary() of it"
    return FormatError(
        f"column '{path}' {shown}, which cannot be written as {as_what}. {instead}, or leave it "
        "out",
        code="FORMAT-007",
    )


def _is_marked(arrow_type: Any, mark: bytes) -> bool:
    """Return True if the metadata of a struct's fields mark it as the given type of Spark."""
    return isinstance(arrow_type, pa.StructType) and any(
        (arrow_type.field(index).metadata or {}).get(mark) == b"true"
        for index in range(arrow_type.num_fields)
    )


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> Any:
    """Return the type of a column or of a nested field. Raises FormatError if it is missing."""
    index = schema.get_field_index(path[0])
    if index < 0:
        raise FormatError(
            f"there is no column '{path[0]}', or several: there are {schema.names}", code="HOOK-002"
        )
    found = schema.field(index).type
    for depth, name in enumerate(path[1:], 1):
        here = ".".join(path[:depth])
        if not isinstance(found, pa.StructType):
            raise FormatError(
                f"'{here}' has no field '{name}': its type is {found}", code="HOOK-002"
            )
        index = found.get_field_index(name)
        if index < 0:
            known = [found.field(number).name for number in range(found.num_fields)]
            raise FormatError(
                f"'{here}' has no field '{name}', or several: it has {known}", code="HOOK-002"
            )
        found = found.field(index).type
    return found


def array_at(arrow_batch: Any, path: tuple[str, ...], readable_type: Any) -> Any:
    """Return the values of a column or a nested field; null if an enclosing struct is null.

    readable_type: of the column
    """
    array = arrow_batch.column(arrow_batch.schema.get_field_index(path[0]))
    if readable_type is not None:
        array = array.view(readable_type)
    return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array


def readable_type(schema: pa.Schema, path: tuple[str, ...]) -> Any:
    """Return the type by which the column of ``path`` can be read; None for its own type."""
    own = schema.field(path[0]).type
    found = _readable(own)
    return None if found.equals(own) else found


def _readable(arrow_type: Any) -> Any:
    """Return the type with int32 in place of months, whose arrays pyarrow cannot read."""
    if arrow_type.id == _MONTHS:
        return pa.int32()
    if isinstance(arrow_type, pa.StructType):
        fields = (arrow_type.field(number) for number in range(arrow_type.num_fields))
        return pa.struct([field.with_type(_readable(field.type)) for field in fields])
    if isinstance(arrow_type, pa.MapType):
        key, item = _readable(arrow_type.key_type), _readable(arrow_type.item_type)
        is_same = key.equals(arrow_type.key_type) and item.equals(arrow_type.item_type)
        # The type of map(), whose keys are null, cannot be made by pyarrow.
        return arrow_type if is_same else pa.map_(key, item)
    if isinstance(arrow_type, pa.ListType):
        return pa.list_(arrow_type.value_field.with_type(_readable(arrow_type.value_type)))
    if isinstance(arrow_type, pa.LargeListType):
        return pa.large_list(arrow_type.value_field.with_type(_readable(arrow_type.value_type)))
    return arrow_type


class Column(NamedTuple):
    """A column of the DataFrame or a nested field. path: name in messages"""

    name: str
    path: str
    type: Any


def matched(names: Sequence[str], columns: Sequence[Column], of: str) -> dict[str, int]:
    """Return field name -> column index: exact names first, then the other columns in any case.

    names: of the fields; of: the schema, for the message

    Raises FormatError for names that differ only by case, so that none is the column's own.
    """
    exact = {column.name: number for number, column in enumerate(columns)}
    found = {name: exact[name] for name in names if name in exact}
    taken = set(found.values())
    by_case: dict[str, tuple[list[str], list[int]]] = {}
    for name in names:
        if name not in found:
            by_case.setdefault(name.lower(), ([], []))[0].append(name)
    for number, column in enumerate(columns):
        if number not in taken and column.name.lower() in by_case:
            by_case[column.name.lower()][1].append(number)
    for fields, numbers in by_case.values():
        if numbers and len(fields) + len(numbers) > 2:
            raise FormatError(
                f"columns {[columns[number].path for number in numbers]} and fields {fields} of "
                f"{of} differ only by case: name each column exactly as the field that is meant",
                code="FORMAT-009",
            )
        found.update(zip(fields, numbers))
    return found


# Number in the table -> attribute of a node.
_COPIED = {
    nodes.KIND: "kind",
    nodes.OFFSET_BYTES: "offset_bytes",
    nodes.PARAMETER: "parameter",
    nodes.WRITTEN_AS: "written_as",
    nodes.VALUE_BRANCH: "value_branch",
    nodes.NULL_BRANCH: "null_branch",
    nodes.RULES: "rules",
}


class Table:
    """The table of a tree of nodes: ``numbers`` is int64[nodes, NODE_FIELDS]."""

    def __init__(self, root: Node) -> None:
        self.root = root
        every = list(root.walk())
        self.numbers: Int64Array = np.zeros((len(every), nodes.NODE_FIELDS), np.int64)
        # Kernels read names eight bytes at a time.
        self._names = np.frombuffer(b"".join(n.name for n in every) + bytes(8), np.uint8).copy()
        self._kept: list[npt.NDArray[Any]] = []
        address = self._names.ctypes.data
        for row, node in zip(self.numbers, every):
            for column, attribute in _COPIED.items():
                row[column] = getattr(node, attribute)
            row[nodes.NAME], row[nodes.NAME_BYTES] = address, len(node.name)
            row[nodes.TAG] = int.from_bytes(node.name[-8:].rjust(8, b"\0"), "little", signed=True)
            address += len(node.name)
            # An enum without symbols has a table too, because a kernel reads the count.
            if node.symbols is not None or node.numbers is not None:
                row[nodes.PARAMETER] = self._keep_symbols(node.symbols, node.numbers or ())
            if node.pattern is not None:
                steps = (number for step in node.pattern for number in step)
                row[nodes.PARAMETER] = self._keep([len(node.pattern), *steps])
        self._number(root, 0)

    def _keep_symbols(self, symbols: tuple[str, ...] | None, numbers: tuple[int, ...]) -> int:
        """Return the address of int64[]: count, address and length of each symbol, numbers."""
        encoded = [symbol.encode() for symbol in symbols or ()]
        text = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        self._kept.append(text)
        kept = [len(numbers) if symbols is None else len(encoded)]
        address = text.ctypes.data
        for symbol in encoded:
            kept += [address, len(symbol)]
            address += len(symbol)
        return self._keep([*kept, *numbers])

    def _keep(self, numbers: list[int]) -> int:
        """Return the address of these numbers as int64[]."""
        self._kept.append(np.array(numbers, np.int64))
        return int(self._kept[-1].ctypes.data)

    def _number(self, node: Node, index: int) -> int:
        after, places = index + 1, []
        for child in node.children:
            places.append(after)
            after = self._number(child, after)
        for child, place in zip(node.children, places):
            if child.rival >= 0:
                self.numbers[place, nodes.RIVAL] = self._address(places[child.rival])
        self.numbers[index, nodes.AFTER] = self._address(after)
        return after

    def _address(self, index: int) -> int:
        return self.numbers.ctypes.data + index * nodes.NODE_BYTES

    def point_at(self, arrays: list[Any]) -> None:
        """Write the addresses of ``arrays``, one array per column, to the table."""
        index = 1
        for child in self.root.children:
            if child.source < 0:
                index += 1
            else:
                array = arrays[child.source]
                index = self._point(child, index, array, array.offset)

    def _point(self, node: Node, index: int, array: Any, first: int) -> int:
        """Write the addresses of a node's array and return the next node's index.

        first: offset added to a row number of the enclosing array
        """
        row = self.numbers[index]
        row[nodes.FIRST] = first
        if node.kind == nodes.NULL:
            return index + 1
        buffers = array.buffers()
        row[nodes.VALIDITY] = buffers[0].address if array.null_count and buffers[0] else 0
        index += 1
        if node.kind in (nodes.STRUCT, nodes.VARIANT):
            for child in node.children:
                if child.source < 0:
                    index += 1
                else:
                    inner = array.field(child.source)
                    index = self._point(child, index, inner, inner.offset - array.offset)
            return index
        if node.offset_bytes == 0:
            row[nodes.DATA] = _address(buffers[1])
            return index
        row[nodes.OFFSETS] = _address(buffers[1])
        if node.kind < nodes.STRUCT:
            row[nodes.DATA] = _address(buffers[2])
            return index
        inner = array.values
        parts = [inner.field(0), inner.field(1)] if node.kind == nodes.MAP else [inner]
        for child, part in zip(node.children, parts):
            index = self._point(child, index, part, part.offset)
        return index


def _address(buffer: Any) -> int:
    return 0 if buffer is None else buffer.address


_UNITS = {
    "day": nodes.UNIT_DAY,
    "hour": nodes.UNIT_HOUR,
    "minute": nodes.UNIT_MINUTE,
    "second": nodes.UNIT_SECOND,
    "year": nodes.UNIT_YEAR,
    "month": nodes.UNIT_MONTH,
}
_INTERVAL = re.compile(r"interval ([a-z]+)(?: to ([a-z]+))?")
_ALL_UNITS = {
    nodes.INTERVAL: ("day", "second"),
    nodes.MONTHS: ("year", "month"),
}
"""First and last unit, if Spark's type is unknown."""
# Dates and times as map keys are written as Spark's internal numbers, such as days.
_AS_KEYS = {
    nodes.DATE: nodes.INT32,
    nodes.TIMESTAMP: nodes.INT64,
    nodes.TIMESTAMP_NTZ: nodes.INT64,
    nodes.INTERVAL: nodes.INT64,
    nodes.MONTHS: nodes.INT32,
    nodes.TIME: nodes.INT64,
}


def with_patterns(node: Node, patterns: dict[int, Steps]) -> Node:
    """Return the tree of ``node`` with the patterns of dates and times.

    Map keys get no pattern because they are numbers.
    """
    if not patterns:
        return node
    children = tuple(with_patterns(child, patterns) for child in node.children)
    return node._replace(pattern=patterns.get(node.kind), children=children)


def json_node(path: str, name: str, arrow_type: Any, spark_type: Any = None) -> Node:
    """Return the node of a column or of a nested type.

    path: name in messages; spark_type: as ``DataType.jsonValue()`` returns it, None if unknown
    Raises FormatError for a type that cannot be written.
    """
    found = kind_of(arrow_type)
    if found is None:
        raise not_writable(path, arrow_type, "JSON")
    kind, offset_bytes = found
    written = f",{json_quoted(name)}:".encode()
    # Code that rebuilds Arrow batches may lose the metadata that marks a VARIANT.
    if spark_type == "variant" or is_variant(arrow_type):
        return Node(nodes.VARIANT, written, path=path, children=_parts(path, arrow_type))
    if isinstance(spark_type, dict) and spark_type["type"] == "udt":
        spark_type = spark_type["sqlType"]
    interval = _INTERVAL.fullmatch(spark_type) if isinstance(spark_type, str) else None
    if kind == nodes.INT32 and (interval is not None or arrow_type.id == _MONTHS):
        kind = nodes.MONTHS
    node = Node(kind, written, offset_bytes=offset_bytes, path=path)
    if kind == nodes.DECIMAL:
        return node._replace(parameter=arrow_type.scale)
    if kind in _ALL_UNITS:
        first, last = _ALL_UNITS[kind] if interval is None else interval.groups()
        return node._replace(parameter=_UNITS[first] * nodes.UNITS + _UNITS[last or first])
    return node._replace(children=_children(path, kind, arrow_type, spark_type))


def _children(path: str, kind: int, arrow_type: Any, spark_type: Any) -> tuple[Node, ...]:
    spark_fields: dict[str, Any] = spark_type if isinstance(spark_type, dict) else {}
    if kind == nodes.STRUCT:
        types = {field["name"]: field["type"] for field in spark_fields.get("fields", ())}
        fields = [arrow_type.field(number) for number in range(arrow_type.num_fields)]
        return tuple(
            json_node(f"{path}.{f.name}", f.name, f.type, types.get(f.name))._replace(source=n)
            for n, f in enumerate(fields)
        )
    if kind == nodes.LIST:
        return (json_node(f"{path}[]", "", arrow_type.value_type, spark_fields.get("elementType")),)
    if kind == nodes.MAP:
        value = json_node(f"{path}[]", "", arrow_type.item_type, spark_fields.get("valueType"))
        return (_key_node(path, arrow_type.key_type), value)
    return ()


def _parts(path: str, arrow_type: Any) -> tuple[Node, ...]:
    """Return the nodes of a VARIANT's value and metadata."""
    found = []
    for name in ("value", "metadata"):
        number = arrow_type.get_field_index(name)
        kind = None if number < 0 else kind_of(arrow_type.field(number).type)
        if kind is None or kind[0] != nodes.BINARY:
            raise FormatError(
                f"column '{path}' is a VARIANT without binary fields 'value' and 'metadata': it is "
                f"{arrow_type}",
                code="HOOK-002",
            )
        found.append(Node(nodes.BINARY, source=number, offset_bytes=kind[1]))
    return tuple(found)


def _key_node(path: str, arrow_type: Any) -> Node:
    node = json_node(f"{path}'s key", "", arrow_type)
    if node.kind >= nodes.STRUCT or node.kind == nodes.BINARY:
        raise FormatError(
            f"keys of the map '{path}' have the Arrow type {arrow_type}, for which JSON has no "
            "form that could be read back. Make text of them by transform_keys()",
            code="FORMAT-008",
        )
    return node._replace(kind=_AS_KEYS.get(node.kind, node.kind))
