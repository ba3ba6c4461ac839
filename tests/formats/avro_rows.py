"""Rows of columns as Avro: of a schema that is given, and value by value in plain Python.

The twin is slow, obvious, written independently. Its values are as Arrow has them: days, micro- and
nanoseconds as integers. Its schemas are those that are derived of Arrow's types here, each nullable
field a union of its type and null.
"""

import json
import struct
from decimal import Context

import pyarrow as pa

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FieldSpec, FormatSpec
from tests.twin import zigzag_varint


def encoder(schema, avro_schema, prefix=b""):
    fields = tuple(FieldSpec((name,), name) for name in schema.names)
    text = avro_schema if isinstance(avro_schema, str) else json.dumps(avro_schema)
    return RowEncoder(FormatSpec(AVRO, fields, prefix, text), schema)


def record(**fields):
    """A schema; a field's type, or a pair of it and its default."""
    made = [
        {"name": name, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": name, "type": kind}
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": "R", "fields": made}


def written(array, kind):
    """What the values of a single column ``c`` are written as."""
    batch = pa.record_batch([array], ["c"])
    return encoder(batch.schema, record(c=kind)).encode(batch).values.to_pylist()


def row_bytes(row, schema):
    return b"".join(field_bytes(row[f.name], f.type, f.nullable) for f in schema)


def field_bytes(value, kind, nullable):
    if not nullable or kind == pa.null():
        return value_bytes(value, kind)
    return b"\x02" if value is None else b"\x00" + value_bytes(value, kind)


def value_bytes(value, kind):
    if kind == pa.null():
        return b""
    if pa.types.is_struct(kind):
        return b"".join(field_bytes(value[f.name], f.type, f.nullable) for f in kind)
    if pa.types.is_map(kind):
        return block([sized(k.encode()) + field_bytes(v, kind.item_type, True) for k, v in value])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return block([field_bytes(v, kind.value_type, True) for v in value])
    return scalar(value, kind)


def scalar(value, kind):
    if pa.types.is_boolean(kind):
        return bytes([value])
    if pa.types.is_floating(kind):
        return struct.pack("<f" if kind == pa.float32() else "<d", value)
    if pa.types.is_decimal(kind):
        return unscaled(value, kind.scale).to_bytes(fixed_size(kind.precision), "big", signed=True)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return sized(value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return sized(value.encode())
    return zigzag_varint(value // 1000 if pa.types.is_time(kind) else value)


def unscaled(value, scale):
    return int(Context(prec=60).scaleb(value, scale))


def fixed_size(precision):
    return next(n for n in range(1, 17) if 2 ** (8 * n - 1) >= 10**precision)


def sized(data):
    return zigzag_varint(len(data)) + data


def block(items):
    return zigzag_varint(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def twin_schema(kind, name):
    """As ``derived_schema`` has it, but for names, which are unique by their paths."""
    if pa.types.is_struct(kind):
        fields = [
            {"name": f.name, "type": or_null(twin_schema(f.type, f"{name}_{f.name}"), f.nullable)}
            for f in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_map(kind):
        return {"type": "map", "values": or_null(twin_schema(kind.item_type, f"{name}_v"), True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": or_null(twin_schema(kind.value_type, f"{name}_v"), True)}
    if pa.types.is_decimal(kind):
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": name, "size": fixed_size(kind.precision), **decimal}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if pa.types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    return {"type": "int", "logicalType": "date"} if kind == pa.date32() else NAMES[kind]


NAMES = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.duration("us"): "long",
}


def or_null(schema, nullable):
    return [schema, "null"] if nullable and schema != "null" else schema
