"""The table of options that make records of typed columns: formats, and which columns are what.

Source of the names: Spark's ``to_json`` and ``to_avro``, Confluent's serializers.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    in_usual_case,
    non_empty,
    one_of,
)

RAW, STRING, JSON, AVRO, PROTOBUF = "raw", "string", "json", "avro", "protobuf"
FORMATS = (RAW, STRING, JSON, AVRO, PROTOBUF)
PREFIX, HEADER = "prefix", "header"

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_TEXT, _LIST, _BOOLEAN = ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN


def _of_part(part: str, importance: Importance) -> Iterator[ConfigKey]:
    """What value and key have alike."""
    yield ConfigKey(
        f"{part}.format",
        _TEXT,
        None if part == "key" else RAW,
        one_of(*FORMATS),
        importance,
        f"What a record's {part} is made of columns as: raw, one column of bytes or text as it is; "
        "string, the text of one column; json, as to_json(struct(...)) makes it; avro; protobuf: "
        "docs/formats.md."
        + (" None: string if key.columns names a column, else raw." if part == "key" else ""),
        convert=in_usual_case(*FORMATS),
    )
    yield ConfigKey(
        f"{part}.columns",
        _LIST,
        [],
        None,
        importance,
        f"Columns that a {part} of a format is made of, in this order, separated by commas; a.b is "
        "a field of a struct."
        + (
            " Default: all but those of the record's other parts and of value.null.when. Columns "
            "of key.columns are in the value, too."
            if part == "value"
            else " They stay in the value. One column without key.format: its text."
        ),
    )


def _of_ids(part: str) -> Iterator[ConfigKey]:
    """Of a schema registry's ids."""
    yield ConfigKey(
        f"{part}.schema.id.prefix",
        _BOOLEAN,
        None,
        None,
        _MEDIUM,
        f"Put the id of a schema in a schema registry before each {part}, as Confluent's "
        "serializers do. Default: true for avro and protobuf with schema.registry.url. true for "
        "json: with a JSON Schema of the registry. true for raw: before bytes that are encoded "
        "already, as by to_avro.",
    )
    yield ConfigKey(
        f"{part}.schema.id.location",
        _TEXT,
        PREFIX,
        one_of(PREFIX, HEADER),
        _LOW,
        f"Where that id goes: prefix, or header, which is __{part}_schema_id with the schema's "
        "GUID, for consumers that look there (Confluent Platform 8.1 and newer).",
        convert=in_usual_case(PREFIX, HEADER),
    )


def _of_avro(part: str) -> Iterator[ConfigKey]:
    yield ConfigKey(
        f"{part}.avro.schema",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        f"The Avro schema that a {part} is written with, as JSON, or the path of a file with it "
        "on the driver. Default: derived from the columns as to_avro does, or what "
        "use.latest.version or use.schema.id finds.",
    )


def _of_protobuf(part: str) -> Iterator[ConfigKey]:
    yield ConfigKey(
        f"{part}.protobuf.descriptor.file",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        f"A file, on the driver, with the descriptors of the Protobuf message that a {part} is "
        "written as: what protoc --include_imports --descriptor_set_out writes. to_protobuf's "
        "descFilePath. Default: what use.latest.version or use.schema.id finds.",
    )
    yield ConfigKey(
        f"{part}.protobuf.message",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        "The full name of that message: to_protobuf's messageName. Default, without a file: the "
        "first message of the registry's schema.",
    )


def _of_json(part: str) -> Iterator[ConfigKey]:
    yield ConfigKey(
        f"{part}.json.ignorenullfields",
        _BOOLEAN,
        True,
        None,
        _MEDIUM,
        "to_json's ignoreNullFields: leave fields out that are null.",
    )
    written = "are written by. Its letters: docs/formats.md. Default: Spark's own"
    yield ConfigKey(
        f"{part}.json.schema",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        f"The JSON Schema that is registered for a {part}, with {part}.schema.id.prefix=true; or "
        "the path of a file with it on the driver. Rows are not compared with it. Default: derived "
        "from the columns, with the title Row.",
    )
    for name, meaning in (
        ("timestampFormat", f"the pattern that timestamps {written}"),
        ("timestampNTZFormat", f"the pattern that timestamps without a time zone {written}"),
        ("dateFormat", f"the pattern that dates {written}"),
        ("timeZone", "the time zone of timestamps. Default: that of the Spark session"),
    ):
        doc = f"to_json's {name}: {meaning}."
        yield ConfigKey(f"{part}.json.{name.lower()}", _TEXT, None, non_empty, _LOW, doc)


def _of_columns() -> Iterator[ConfigKey]:
    yield ConfigKey(
        "value.column",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        "The column that is the value: of bytes or text for raw, any for string; for other formats "
        "a struct, whose fields the value is made of, and null where the struct is. Default for "
        "raw: value.",
    )
    for part in ("key", "topic", "partition", "headers", "timestamp"):
        yield ConfigKey(
            f"{part}.column",
            _TEXT,
            None,
            None,
            _MEDIUM,
            f"The column that is a record's {part}. Default: {part}, if there is one. Empty: none, "
            f"so that a column {part} is one like others.",
        )
    yield ConfigKey(
        "value.null.when",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        "A column of booleans: where it is true, the value of a format is null, which deletes a "
        "key from a compacted topic. It is no part of the value, unless value.columns names it.",
    )


FORMAT_KEYS = (
    *_of_part("value", _HIGH),
    *_of_part("key", _HIGH),
    *_of_columns(),
    *_of_ids("value"),
    *_of_ids("key"),
    *_of_json("value"),
    *_of_json("key"),
    *_of_avro("value"),
    *_of_avro("key"),
    *_of_protobuf("value"),
    *_of_protobuf("key"),
    ConfigKey(
        "avro.record.name",
        _TEXT,
        "topLevelRecord",
        non_empty,
        _LOW,
        "Name of the record in a schema that is derived from columns; the default is to_avro's.",
    ),
    ConfigKey(
        "avro.namespace",
        _TEXT,
        "",
        None,
        _LOW,
        "Namespace of the record in a schema that is derived from columns.",
    ),
)
