"""Rows written as Protobuf, in few words."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import PROTOBUF, FormatPlan, PlannedField
from spark_kafka_sink.formats.protobuf_descriptors import read_descriptor_set
from tests.formats import official
from tests.formats.protobuf_files import one_message

PREFIX = b"\0\0\0\0\1\0"


def encoder(schema: pa.Schema, protobuf, prefix: bytes = b"") -> RowEncoder:
    fields = tuple(PlannedField((name,), name) for name in schema.names)
    return RowEncoder(FormatPlan(PROTOBUF, fields, prefix, protobuf_schema=protobuf), schema)


def schema_of(file):
    return read_descriptor_set(official.descriptor_set([file]), "pkg.Root").schema


def written(array: pa.Array, kind: str, syntax: str = "proto3") -> list[bytes]:
    """What the values of a single column ``c`` are written as."""
    batch = pa.record_batch([array], ["c"])
    schema = schema_of(one_message(syntax, c=kind))
    found = encoder(batch.schema, schema).encode(batch)
    assert found.faults is None
    return found.values.to_pylist()
