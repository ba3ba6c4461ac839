"""What records are made of, as it was asked for: the options of ``format_keys``, checked.

Which columns there are is not known here: ``spark/row_planning.py`` has the rules that need that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.format_keys import (
    AVRO,
    FORMAT_KEYS,
    JSON,
    PROTOBUF,
    RAW,
    STRING,
)

VALUE, KEY = "value", "key"
OTHER_PARTS = ("topic", "partition", "headers", "timestamp")
_GIVES_FIELDS = (JSON, AVRO, PROTOBUF)
_NAMES = frozenset(key.name for key in FORMAT_KEYS)


class JsonText(NamedTuple):
    """Options of ``to_json``; None for Spark's own default, of the time zone the session's."""

    ignore_null_fields: bool
    timestamp_format: str | None
    timestamp_ntz_format: str | None
    date_format: str | None
    time_zone: str | None


class GivenSchema(NamedTuple):
    """text: a schema, or the path of a file with one, on the driver"""

    text: str

    @property
    def is_file(self) -> bool:
        """Return whether it is a path: JSON of a schema is an object, a list or a text."""
        return not self.text.startswith(("{", "[", '"'))


class PartOptions(NamedTuple):
    """What the options say of a key or a value.

    column: a column that is it; empty for none, None where nothing is said
    columns: what it is made of; empty where nothing is said
    has_id: whether the id of a schema goes with it; None where nothing is said
    descriptor_file: with the descriptors of Protobuf messages; message: the name of one
    """

    part: str
    format: str
    column: str | None
    columns: tuple[str, ...]
    json: JsonText
    has_id: bool | None
    id_location: str
    avro_schema: GivenSchema | None
    descriptor_file: str | None
    message: str | None
    json_schema: GivenSchema | None = None

    @property
    def has_fields(self) -> bool:
        """Whether it is made of named fields."""
        return self.format in _GIVES_FIELDS


class FormatOptions(NamedTuple):
    """other_columns: by part, which column it is: as ``PartOptions.column``

    is_named: whether avro.record.name was given
    """

    value: PartOptions
    key: PartOptions
    other_columns: Mapping[str, str | None]
    null_when: str | None
    record_name: str
    namespace: str
    is_named: bool


def formats_of(sink: Mapping[str, Any], own: Iterable[str]) -> FormatOptions | None:
    """From parsed options; None where none of them is given. Raises ConfigError.

    own: names that were given
    """
    given = set(own)
    if not _NAMES & given:
        return None
    return FormatOptions(
        _value(sink),
        _key(sink),
        {part: sink[f"{part}_column"] for part in OTHER_PARTS},
        sink["value_null_when"],
        sink["avro_record_name"],
        sink["avro_namespace"],
        "avro.record.name" in given,
    )


def _value(sink: Mapping[str, Any]) -> PartOptions:
    value = _part(sink, VALUE, sink["value_format"])
    if value.format in (RAW, STRING) and len(value.columns) > 1:
        raise ConfigError(
            f"value.columns names {len(value.columns)} columns, of which value.format="
            f"{value.format} cannot make a value: set value.format to json, avro or protobuf"
        )
    return value


def _key(sink: Mapping[str, Any]) -> PartOptions:
    chosen = sink["key_format"]
    columns = sink["key_columns"]
    key = _part(sink, KEY, chosen or (STRING if columns else RAW))
    if key.format in (RAW, STRING) and len(columns) > 1:
        what = "without key.format" if chosen is None else f"with key.format={chosen}"
        raise ConfigError(
            f"key.columns names {len(columns)} columns, which is no key {what}: set key.format to "
            "json, avro or protobuf"
        )
    return key


def _part(sink: Mapping[str, Any], part: str, chosen: str) -> PartOptions:
    column, columns = sink[f"{part}_column"], tuple(sink[f"{part}_columns"])
    if column and columns:
        raise ConfigError(
            f"{part}.column names a column that is the {part}, and {part}.columns those that it is "
            "made of: leave one of them out"
        )
    if len(set(columns)) < len(columns):
        raise ConfigError(f"{part}.columns names a column twice: {', '.join(columns)}")
    descriptors, message = _message(sink, part, chosen)
    return PartOptions(
        part=part,
        format=chosen,
        column=column,
        columns=columns,
        json=_json_text(sink, part),
        has_id=sink[f"{part}_schema_id_prefix"],
        id_location=sink[f"{part}_schema_id_location"],
        avro_schema=_given(sink[f"{part}_avro_schema"]),
        descriptor_file=descriptors,
        message=message,
        json_schema=_given(sink[f"{part}_json_schema"]),
    )


def _json_text(sink: Mapping[str, Any], part: str) -> JsonText:
    return JsonText(
        sink[f"{part}_json_ignorenullfields"],
        sink[f"{part}_json_timestampformat"],
        sink[f"{part}_json_timestampntzformat"],
        sink[f"{part}_json_dateformat"],
        sink[f"{part}_json_timezone"],
    )


def _given(text: str | None) -> GivenSchema | None:
    return None if text is None else GivenSchema(text)


def _message(sink: Mapping[str, Any], part: str, chosen: str) -> tuple[str | None, str | None]:
    """The file with descriptors, and the name of a message."""
    file, message = sink[f"{part}_protobuf_descriptor_file"], sink[f"{part}_protobuf_message"]
    if chosen == PROTOBUF and file is not None and message is None:
        raise ConfigError(
            f"{part}.protobuf.descriptor.file needs {part}.protobuf.message, the full name of the "
            "message to write"
        )
    return file, message


def notes_on_formats(formats: FormatOptions | None, own: Iterable[str]) -> Iterator[str]:
    """Sentences about options without effect. own: names that were given"""
    if formats is None:
        return
    for part in (formats.value, formats.key):
        for name in own:
            for chosen in _GIVES_FIELDS:
                if name.startswith(f"{part.part}.{chosen}.") and part.format != chosen:
                    yield f"option '{name}' has no effect without {part.part}.format={chosen}"
        name = f"{part.part}.json.schema"
        if name in own and part.format == JSON and not part.has_id:
            yield f"option '{name}' has no effect without {part.part}.schema.id.prefix=true"
    if AVRO not in (formats.value.format, formats.key.format):
        for name in ("avro.record.name", "avro.namespace"):
            if name in own:
                yield f"option '{name}' has no effect without value.format={AVRO}"
