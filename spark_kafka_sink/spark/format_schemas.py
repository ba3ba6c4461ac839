"""Read JSON Schemas and Protobuf descriptors from files, or derive a JSON Schema from columns.

The driver uses this module, and ``pykafka-sink check`` uses it without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.codes import coded
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import parse_json, redacted
from spark_kafka_sink.config.formats import JSON, PartOptions, UserSchema
from spark_kafka_sink.formats.json_schema import Compared, Written, compared, derived_json_schema
from spark_kafka_sink.formats.plan import FormatError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.formats.protobuf_descriptors import DescribedMessage


def json_schema_of(options: PartOptions, struct: StructType) -> str | None:
    """Return the JSON Schema for a key or value with the fields of ``struct``, or None.

    Raises ConfigError, FormatError.
    """
    if options.format != JSON or not options.has_id:
        return None
    if options.json_schema is not None:
        schema_text, schema = read_user_schema(options.json_schema, f"{options.part}.json.schema")
        if not isinstance(schema, dict):
            raise ConfigError(
                f"{options.part}.json.schema: a JSON Schema of rows must be a JSON object",
                code="FORMAT-005",
            )
        return schema_text
    text = options.json
    written = Written(
        text.ignore_null_fields, text.date_format is not None, text.timestamp_format is not None
    )
    return derived_json_schema(struct.json(), written=written)


def title_of(text: str) -> str | None:
    """Return the title of a JSON Schema, which is the record's name, or None."""
    schema: Any = parse_json(text)
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else None


def check_json_fits(
    part: str,
    written: str,
    wanted: str,
    files: Iterable[tuple[str, str]],
    schema_id: int | None = None,
) -> list[str]:
    """Raise FormatError if rows of a JSON Schema do not fit a registry's schema.

    Return notes on parts that cannot be compared, and on rare values that do not fit.

    files: names and texts to which ``wanted`` refers
    schema_id: use.schema.id, None for the latest schema of a subject
    """
    option = "use.latest.version=true"
    which, strict = "latest schema of the registry", "latest.compatibility.strict"
    if schema_id is not None:
        option = f"{'' if part == 'value' else 'key.'}use.schema.id={schema_id}"
        which, strict = "registry's schema of this id", "id.compatibility.strict"
    try:
        found = compared(parse_json(written), parse_json(wanted), _parsed(files))
    except (RecursionError, TypeError, ValueError) as error:
        raise FormatError(
            f"{option}: the {which} for the {part} is no JSON Schema: {error}",
            code="REGISTRY-016",
        ) from None
    if found.misfits:
        raise FormatError(
            f"{option}: the columns of the {part} do not fit the {which}: change the columns, or "
            f"set {strict} to false to write them all the same. {'; '.join(found.misfits)}",
            code="REGISTRY-020",
        )
    return [*_notes(found, option, which, part)]


_NOT_COMPARED = "REGISTRY-022"


def _notes(found: Compared, option: str, which: str, part: str) -> Iterator[str]:
    if found.of_some:
        yield coded(
            f"{option}: the {which} for the {part} does not have {'; '.join(found.of_some)}. Rows "
            "with such a value are written all the same",
            _NOT_COMPARED,
        )
    if found.unknown:
        several = redacted(", ".join(map(repr, found.unknown)))
        yield coded(
            f"{option}: what the {which} has by the $ref {several} is not compared with the "
            f"columns of the {part}: neither the schema nor its references in the registry have "
            "what it names",
            _NOT_COMPARED,
        )


def _parsed(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    for name, text in files:
        try:
            schema = parse_json(text)
        except ValueError:
            continue  # references to this schema are reported as unknown
        yield name, schema


def read_user_schema(user_schema: UserSchema, option: str) -> tuple[str, Any]:
    """Return the text of a schema and the parsed JSON. Raise ConfigError."""
    shown = (
        f"{option}={user_schema.text[:_MAX_SHOWN]}{'…' if user_schema.text[_MAX_SHOWN:] else ''}"
    )
    text = user_schema.text
    if user_schema.is_file:
        try:
            text = Path(user_schema.text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f'{shown}: it is no schema as JSON, which begins with {{, [ or ", and as a file '
                f"it cannot be read on the driver: {reason}",
                code="FORMAT-004",
            ) from None
    try:
        return text, parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{shown}: the schema is no JSON: {error}", code="FORMAT-005") from None


_MAX_SHOWN = 100


def described(options: PartOptions) -> DescribedMessage:
    """Return the message of ``protobuf.message`` in ``protobuf.descriptor.file``.

    Raises ConfigError for a file that cannot be read, or without Protobuf's package; FormatError
    for a file that is no descriptor set or lacks the message.
    """
    from spark_kafka_sink.formats.protobuf_descriptors import check_installed

    assert options.descriptor_file is not None
    assert options.message is not None
    check_installed(f"{options.part}.format")
    name = f"{options.part}.protobuf.descriptor.file={options.descriptor_file}"
    try:
        data = Path(options.descriptor_file).read_bytes()
    except OSError as error:
        text = f"{name}: it cannot be read on the driver: {error}"
        raise ConfigError(text, code="FORMAT-004") from None
    try:
        return _read(data, options.message)
    except FormatError as error:
        raise FormatError(f"{name}: {error}", code=error.code) from None


@lru_cache(maxsize=20)  # each micro-batch of a stream is planned
def _read(data: bytes, name: str) -> DescribedMessage:
    from spark_kafka_sink.formats.protobuf_descriptors import read_descriptor_set

    return read_descriptor_set(data, name)
