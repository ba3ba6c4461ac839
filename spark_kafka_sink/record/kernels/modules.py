"""The modules in which kernels and their helpers are. Importing one makes its kernels known."""

from __future__ import annotations

from spark_kafka_sink.record.kernels import (
    append,
    digest,
    encoding,
    hashing,
    partition,
    sizing,
    split,
)

MODULES = (append, digest, partition, sizing, split)
SHARED = (encoding, hashing)
"""Helpers alone."""
