"""Rows of columns as Avro of a schema that is given."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FormatPlan, PlannedField


def encoder(schema: pa.Schema, avro_schema: object, prefix: bytes = b"") -> RowEncoder:
    fields = tuple(PlannedField((name,), name) for name in schema.names)
    text = avro_schema if isinstance(avro_schema, str) else json.dumps(avro_schema)
    return RowEncoder(FormatPlan(AVRO, fields, prefix, text), schema)


def record(**fields: object) -> dict[str, object]:
    """A schema; a field's type, or a pair of it and its default."""
    made = [
        {"name": name, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": name, "type": kind}
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": "R", "fields": made}


def written(array: pa.Array, kind: object) -> list[bytes]:
    """What the values of a single column ``c`` are written as."""
    batch = pa.record_batch([array], ["c"])
    return encoder(batch.schema, record(c=kind)).encode(batch).values.to_pylist()
