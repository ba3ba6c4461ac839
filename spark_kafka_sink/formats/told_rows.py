"""Rows of which no key or no value can be made, as JSON: what their dead letters tell of them.

No row may end the task here, whatever is in it: text that is not UTF-8, dates of any year, several
columns of one name, time zones that only Java knows. So it is the JSON kernel that writes them, and
what has no form in JSON is given one.

Imported in tasks only: it loads kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.faults import rows_of
from spark_kafka_sink.formats.encoder import EncodedRows, RowEncoder
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.json_layout import json_node
from spark_kafka_sink.formats.plan import JSON, FormatPlan, JsonOptions, PlannedField
from spark_kafka_sink.formats.zones import zone_table
from spark_kafka_sink.record.compiled import nodes

_NO_ZONE = "UTC"
_MAY_BE_DAMAGED = (nodes.VARIANT, nodes.TIME)


def rows_as_json(arrow_batch: ArrowBatch, time_zone: str | None) -> Any:
    """A LargeBinaryArray of a JSON object for each row, with all columns, nulls too.

    time_zone: of the Spark session, or None; UTC is taken where it is not known to Python
    """
    zone = _known(time_zone)
    values, faults = _encoded(arrow_batch, zone, are_all_read=True)
    if faults is None:
        return values
    damaged = np.flatnonzero(faults)
    others = _encoded(rows_of(arrow_batch, damaged), zone, are_all_read=False).values
    return pc.replace_with_mask(values, pa.array(faults != 0), others)


def _encoded(arrow_batch: ArrowBatch, time_zone: str | None, are_all_read: bool) -> EncodedRows:
    """The rows as JSON. With ``are_all_read`` the value of a row is null where a VARIANT is damaged
    or a time is none of a day.
    """
    given = (arrow_batch.column(number) for number in range(arrow_batch.num_columns))
    columns = [_writable_column(column, are_all_read) for column in given]
    # By number, for several columns may have one name.
    numbers = [str(number) for number in range(len(columns))]
    schema = pa.schema([(number, column.type) for number, column in zip(numbers, columns)])
    names = zip(numbers, arrow_batch.schema.names)
    fields = tuple(PlannedField((number,), name) for number, name in names)
    options = JsonOptions(ignore_null_fields=False, time_zone=time_zone)
    encoder = RowEncoder(FormatPlan(JSON, fields, json_options=options), schema)
    return encoder.encode(pa.record_batch(columns, schema=schema))


def _known(time_zone: str | None) -> str | None:
    try:
        if time_zone is not None:
            zone_table(time_zone)
    except FormatError:
        return _NO_ZONE
    return time_zone


def _writable_column(column: Any, are_all_read: bool) -> Any:
    """The column as JSON can have it; a note in place of values that nothing can be made of."""
    kind = _writable(column.type, are_all_read)
    # Types are equal whatever their metadata are, and only those make a VARIANT of a struct.
    if column.type.equals(kind, check_metadata=True):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.repeat(pa.scalar(f"({column.type}: not shown)", pa.string()), len(column))


def _writable(kind: Any, are_all_read: bool) -> Any:
    """The type as which values of this one are written: itself, if JSON has a form for it.

    Maps whose keys JSON cannot have are lists of keys and values; a VARIANT that is not read is its
    two parts; what remains, a time that is not read, too, is text.
    """
    try:
        inside = json_node("", "", kind).walk()
    except FormatError:
        pass
    else:
        if are_all_read or all(node.kind not in _MAY_BE_DAMAGED for node in inside):
            return kind
    inner = partial(_writable, are_all_read=are_all_read)
    if pa.types.is_map(kind):
        entry = [("key", inner(kind.key_type)), ("value", inner(kind.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(kind):
        # Without the metadata, which is all that makes a VARIANT of a struct.
        fields = (kind.field(number) for number in range(kind.num_fields))
        return pa.struct([pa.field(f.name, inner(f.type)) for f in fields])
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(inner(kind.value_type))
    return pa.string()
