"""What is wrong with columns and schemas, as users are told."""

from __future__ import annotations

from spark_kafka_sink.base.errors import SchemaError

OF_VARIANTS = "Make text of it by to_json(), or columns by variant_get(), or leave it out"
"""What to do with a VARIANT in a format that has no form for it."""


class FormatError(SchemaError):
    """A column cannot be written in the format that was asked for, or does not match its schema."""
