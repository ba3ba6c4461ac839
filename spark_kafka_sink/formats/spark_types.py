"""Return Arrow's types of the columns that a plan uses, as Spark sends them.

PySpark's own table converts all columns of a DataFrame at once and lacks types that Spark does
send, such as CHAR. Here, a type of a column that is not written does not matter.

Source: Spark's ``ArrowUtils.toArrowType``. Types have the names of ``DataType.jsonValue()``.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from spark_kafka_sink.formats.plan import FormatError, FormatSpec

_SIMPLE: dict[str, Any] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_BY_NAME = (
    (re.compile(r"(?:char|varchar)\(\d+\)|string\b.*"), pa.string()),
    (re.compile(r"time\(\d+\)"), pa.time64("ns")),
    (re.compile(r"interval (?:day|hour|minute|second).*"), pa.duration("us")),
    # pyarrow has no name for Arrow's months, which the encoder reads as int32.
    (re.compile(r"interval (?:year|month).*"), pa.int32()),
)
_EARTH = {"srid": pa.int32(), "wkb": pa.binary()}
_MARKED = {
    "variant": {"value": pa.binary(), "metadata": pa.binary()},
    "geometry": _EARTH,
    "geography": _EARTH,
}
"""Types that are structs in Arrow, with the type's name in the metadata of the last field."""


def planned_schema(plan: FormatSpec) -> pa.Schema:
    """Return a schema with the columns and fields that ``plan`` uses.

    Raises FormatError for a type that Spark does not send.
    """
    columns: dict[str, Any] = {}
    for field in sorted(plan.fields, key=lambda field: len(field.path)):
        *outer, name = field.path
        inner = columns
        for one in outer:
            inner = inner.setdefault(one, {})
            if not isinstance(inner, dict):
                break  # the whole column is a field, too
        else:
            inner[name] = arrow_type(json.loads(field.spark_type), ".".join(field.path))
    if plan.null_when is not None:
        columns.setdefault(plan.null_when, pa.bool_())
    return pa.schema([(name, _of_fields(kind)) for name, kind in columns.items()])


def _of_fields(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    return pa.struct([(name, _of_fields(inner)) for name, inner in kind.items()])


def arrow_type(spark_type: Any, path: str) -> Any:
    """Return Arrow's type. spark_type: of the column ``path``, as ``DataType.jsonValue()``

    Raises FormatError for a type that Spark does not send.
    """
    if isinstance(spark_type, dict):
        return _nested(spark_type, path)
    if spark_type in _SIMPLE:
        return _SIMPLE[spark_type]
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    mark = spark_type.partition("(")[0]
    if mark in _MARKED:
        first, last = (pa.field(name, kind) for name, kind in _MARKED[mark].items())
        return pa.struct([first, last.with_metadata({mark: "true"})])
    found = next((kind for name, kind in _BY_NAME if name.fullmatch(spark_type)), None)
    if found is None:
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which is not written. Cast it to "
            "another type, or leave it out",
            code="FORMAT-007",
        )
    return found


def _nested(spark_type: dict[str, Any], path: str) -> Any:
    kind = spark_type["type"]
    if kind == "udt":
        return arrow_type(spark_type["sqlType"], path)
    if kind == "array":
        return pa.list_(arrow_type(spark_type["elementType"], f"{path}[]"))
    if kind == "map":
        # The keys of ``map()`` have type void, which a key of Arrow cannot have.
        is_empty = spark_type["keyType"] == "void"
        key = pa.string() if is_empty else arrow_type(spark_type["keyType"], f"{path}'s key")
        return pa.map_(key, arrow_type(spark_type["valueType"], f"{path}[]"))
    fields = spark_type["fields"]
    return pa.struct([(f["name"], arrow_type(f["type"], f"{path}.{f['name']}")) for f in fields])
