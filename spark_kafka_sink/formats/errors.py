"""What is wrong with columns and schemas, as users are told."""

from __future__ import annotations

from spark_kafka_sink.base.errors import SchemaError


class FormatError(SchemaError):
    """A column cannot be written in the format that was asked for, or does not match its schema."""
