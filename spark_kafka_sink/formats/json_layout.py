"""What JSON makes of columns: as Spark's ``to_json`` does.

Source: Spark's ``JacksonGenerator``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.layout import Node, is_variant, kind_of, not_writable
from spark_kafka_sink.formats.patterns import Steps
from spark_kafka_sink.record.compiled import nodes
from spark_kafka_sink.record.compiled.json_rows import DAY, HOUR, MINUTE, SECOND, UNITS

_UNITS = {"day": DAY, "hour": HOUR, "minute": MINUTE, "second": SECOND}
_VARIANT = "variant"
_INTERVAL = re.compile(r'^"?interval (day|hour|minute|second)(?: to (day|hour|minute|second))?"?$')
# Keys of maps are what Spark's own values are: days and microseconds.
_AS_KEYS = {
    nodes.DATE: nodes.INT32,
    nodes.TIMESTAMP: nodes.INT64,
    nodes.TIMESTAMP_NTZ: nodes.INT64,
    nodes.INTERVAL: nodes.INT64,
    nodes.TIME: nodes.INT64,
}


def with_patterns(node: Node, patterns: dict[int, Steps]) -> Node:
    """``node`` and all in it, with the patterns of dates and times. Keys of maps are numbers."""
    if not patterns:
        return node
    children = tuple(with_patterns(child, patterns) for child in node.children)
    return node._replace(pattern=patterns.get(node.kind, ()), children=children)


def json_node(path: str, name: str, arrow_type: Any, spark_type: Any = None) -> Node:
    """The node of a column, or of what is in one.

    path: for messages; spark_type: what ``DataType.jsonValue()`` has, None if that is not known
    Raises FormatError for a type that cannot be written.
    """
    found = kind_of(arrow_type)
    if found is None:
        raise not_writable(path, arrow_type, "JSON")
    kind, offset_bytes = found
    written = b"," + _quoted(name) + b":"
    # Whoever makes Arrow batches anew may lose the metadata of fields.
    if spark_type == _VARIANT or is_variant(arrow_type):
        return Node(nodes.VARIANT, written, path=path, children=_parts(path, arrow_type))
    node = Node(kind, written, offset_bytes=offset_bytes, path=path)
    if kind == nodes.DECIMAL:
        return node._replace(parameter=arrow_type.scale)
    if kind == nodes.INTERVAL:
        return node._replace(parameter=_units(spark_type))
    return node._replace(children=_children(path, kind, arrow_type, spark_type))


def _children(path: str, kind: int, arrow_type: Any, spark_type: Any) -> tuple[Node, ...]:
    given: dict[str, Any] = spark_type if isinstance(spark_type, dict) else {}
    if kind == nodes.STRUCT:
        types = {field["name"]: field["type"] for field in given.get("fields", ())}
        fields = [arrow_type.field(number) for number in range(arrow_type.num_fields)]
        return tuple(
            json_node(f"{path}.{f.name}", f.name, f.type, types.get(f.name))._replace(source=n)
            for n, f in enumerate(fields)
        )
    if kind == nodes.LIST:
        return (json_node(f"{path}[]", "", arrow_type.value_type, given.get("elementType")),)
    if kind == nodes.MAP:
        value = json_node(f"{path}[]", "", arrow_type.item_type, given.get("valueType"))
        return (_key_node(path, arrow_type.key_type), value)
    return ()


def _parts(path: str, arrow_type: Any) -> tuple[Node, ...]:
    """Those of a VARIANT: its value and its metadata."""
    found = []
    for name in ("value", "metadata"):
        number = arrow_type.get_field_index(name)
        kind = None if number < 0 else kind_of(arrow_type.field(number).type)
        if kind is None or kind[0] != nodes.BINARY:
            raise FormatError(
                f"column '{path}' is a VARIANT without binary fields 'value' and 'metadata': it is "
                f"{arrow_type}"
            )
        found.append(Node(nodes.BINARY, source=number, offset_bytes=kind[1]))
    return tuple(found)


def _key_node(path: str, arrow_type: Any) -> Node:
    node = json_node(f"{path}'s key", "", arrow_type)
    if node.kind >= nodes.STRUCT or node.kind == nodes.BINARY:
        raise FormatError(
            f"keys of the map '{path}' have the Arrow type {arrow_type}, for which JSON has no "
            "form that could be read back. Make text of them by transform_keys()"
        )
    return node._replace(kind=_AS_KEYS.get(node.kind, node.kind))


def _units(spark_type: Any) -> int:
    """Of an interval of which nothing is known: all of them."""
    found = _INTERVAL.match(spark_type) if isinstance(spark_type, str) else None
    if found is None:
        return DAY * UNITS + SECOND
    first, last = found.groups()
    return _UNITS[first] * UNITS + _UNITS[last or first]


def _quoted(name: str) -> bytes:
    """As Jackson writes it: only control characters' digits are other than Python's."""
    text = json.dumps(name, ensure_ascii=False)
    return re.sub(r"\\u00..", lambda found: "\\u" + found[0][2:].upper(), text).encode()
