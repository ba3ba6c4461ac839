"""JSON Schemas for a registry: derived from columns, or as they were given; texts of schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.json_text import parse_json
from spark_kafka_sink.config.format_keys import JSON
from spark_kafka_sink.config.formats import FormatOptions, GivenSchema, PartOptions
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.json_misfits import Compared, compared
from spark_kafka_sink.formats.json_schema import Written, derived_json_schema


def json_schema_of(options: PartOptions, formats: FormatOptions, struct: StructType) -> str | None:
    """The text of what goes with a key or value of the fields of ``struct``, None for nothing.

    Raises ConfigError, FormatError.
    """
    if options.format != JSON or not options.has_id:
        return None
    if options.json_schema is not None:
        return _given(options.json_schema, f"{options.part}.json.schema")
    text = options.json
    written = Written(
        text.ignore_null_fields, text.date_format is not None, text.timestamp_format is not None
    )
    return derived_json_schema(struct.json(), formats.json_title, written)


def title_of(text: str) -> str | None:
    """What a JSON Schema calls what it describes: the name of a record. None where it has none."""
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
    """Raise FormatError where rows of one JSON Schema do not fit one of a registry. Returns notes
    on what cannot be compared, and on values that do not fit.

    files: names and texts of what ``wanted`` builds on
    schema_id: that was asked for, None for the latest schema of a subject
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
            f"{option}: the {which} for the {part} is no JSON Schema: {error}"
        ) from None
    if found.misfits:
        raise FormatError(
            f"{option}: the columns of the {part} do not fit the {which}: "
            f"{'; '.join(found.misfits)}. Change the columns, or set {strict} to false to write "
            "them all the same"
        )
    return [*_notes(found, option, which, part)]


def _notes(found: Compared, option: str, which: str, part: str) -> Iterator[str]:
    if found.of_some:
        yield (
            f"{option}: the {which} for the {part} does not have {'; '.join(found.of_some)}. Rows "
            "with such a value are written all the same"
        )
    if found.unknown:
        several = ", ".join(map(repr, found.unknown))
        yield (
            f"{option}: what the {which} has by the $ref {several} is not compared with the "
            f"columns of the {part}: neither the schema nor its references in the registry have "
            "what it names"
        )


def _parsed(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    for name, text in files:
        try:
            schema = parse_json(text)
        except ValueError:
            continue  # what refers to it is told as unknown
        yield name, schema


def _given(given: GivenSchema, option: str) -> str:
    text = given.text if not given.is_file else read_schema(given.text, f"{option}.file")
    try:
        schema: Any = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{option}: the JSON Schema is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"{option}: a JSON Schema of rows must be a JSON object")
    return text


def given_avro(text: str, option: str) -> str:
    """``text``, which is JSON. Raises ConfigError, also for the name of a file."""
    try:
        parse_json(text)
    except ValueError as error:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        raise ConfigError(
            f"{option}={shown}: the Avro schema is no JSON: {error}. For the path of a file: "
            f"{option}.file"
        ) from None
    return text


_MOST_SHOWN = 100


def read_schema(file: str, option: str) -> str:
    """The text of a file with a schema, on the driver. Raises ConfigError."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}={file}: it cannot be read on the driver: {error}") from None
