"""Rows of which no key or no value can be made, as JSON: what their dead letters tell of them.

No row may end the task here, whatever is in it: text that is not UTF-8, dates of any year, several
columns of one name, time zones that only Java knows. So it is the JSON kernel that writes them, and
what has no form in JSON is given one.

Imported in tasks only: it loads kernels.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.json_layout import json_node
from spark_kafka_sink.formats.plan import JSON, FormatPlan, JsonOptions, PlannedField
from spark_kafka_sink.formats.zones import zone_table

_NO_ZONE = "UTC"


def rows_as_json(arrow_batch: ArrowBatch, time_zone: str) -> Any:
    """A LargeBinaryArray of a JSON object for each row, with all columns, nulls too.

    time_zone: of the Spark session; UTC is taken where it is not known to Python
    """
    columns = [_writable_column(arrow_batch.column(n)) for n in range(arrow_batch.num_columns)]
    # By number, for several columns may have one name.
    numbers = [str(number) for number in range(len(columns))]
    schema = pa.schema([(number, column.type) for number, column in zip(numbers, columns)])
    names = zip(numbers, arrow_batch.schema.names)
    fields = tuple(PlannedField((number,), name) for number, name in names)
    options = JsonOptions(ignore_null_fields=False, time_zone=_known(time_zone))
    encoder = RowEncoder(FormatPlan(JSON, fields, json_options=options), schema)
    return encoder.encode(pa.record_batch(columns, schema=schema)).values


def _known(time_zone: str) -> str:
    try:
        zone_table(time_zone)
    except FormatError:
        return _NO_ZONE
    return time_zone


def _writable_column(column: Any) -> Any:
    """The column as JSON can have it; a note in place of values that nothing can be made of."""
    kind = _writable(column.type)
    # Types are equal whatever their metadata are, and only those make a VARIANT of a struct.
    if column.type.equals(kind, check_metadata=True):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.repeat(pa.scalar(f"({column.type}: not shown)", pa.string()), len(column))


def _writable(kind: Any) -> Any:
    """The type as which values of this one are written: itself, if JSON has a form for it.

    Maps whose keys JSON cannot have are lists of keys and values; a VARIANT is its two parts; what
    remains is text.
    """
    try:
        json_node("", "", kind)
    except FormatError:
        pass
    else:
        return kind
    if pa.types.is_map(kind):
        entry = [("key", _writable(kind.key_type)), ("value", _writable(kind.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(kind):
        # Without the metadata, which is all that makes a VARIANT of a struct.
        inner = (kind.field(number) for number in range(kind.num_fields))
        return pa.struct([pa.field(f.name, _writable(f.type)) for f in inner])
    if pa.types.is_list(kind):
        return pa.list_(_writable(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_writable(kind.value_type))
    return pa.string()
