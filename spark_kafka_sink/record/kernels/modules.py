"""List the modules of kernels and of helpers. Importing a module registers its kernels."""

from __future__ import annotations

from spark_kafka_sink.record.kernels import (
    avro_rows,
    hashing,
    json_rows,
    json_values,
    memory,
    protobuf_rows,
    records,
    text,
    variant,
)

MODULES = (avro_rows, hashing, json_rows, protobuf_rows, records)
SHARED = (json_values, memory, text, variant)
"""Modules that contain only helpers."""
