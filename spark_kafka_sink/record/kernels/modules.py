"""The modules in which kernels and their helpers are. Importing one makes its kernels known."""

from __future__ import annotations

from spark_kafka_sink.record.kernels import (
    append,
    avro_rows,
    digest,
    encoding,
    floating,
    hashing,
    json_rows,
    json_values,
    nodes,
    numbers,
    partition,
    patterns,
    protobuf_rows,
    protobuf_values,
    sizing,
    split,
    text,
    variant,
    variant_values,
)

MODULES = (append, avro_rows, digest, json_rows, partition, protobuf_rows, sizing, split)
SHARED = (
    *(
        encoding,
        floating,
        hashing,
        json_values,
        nodes,
        numbers,
        patterns,
        protobuf_values,
        text,
        variant,
        variant_values,
    ),
)
"""Helpers alone."""
