"""List the options that build records from typed columns, and check them against each other.

The columns of the input are not known here: ``spark/row_planning.py`` has the rules that need them.

Source of the names: Spark's ``to_json`` and ``to_avro``, Confluent's serializers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    choice,
    flag,
    non_empty,
    optional_text,
)

RAW, STRING, JSON, AVRO, PROTOBUF = "raw", "string", "json", "avro", "protobuf"
FORMATS = (RAW, STRING, JSON, AVRO, PROTOBUF)
PREFIX, HEADER = "prefix", "header"
VALUE, KEY, TIMESTAMP = "value", "key", "timestamp"


_LETTERS = "Its letters: docs/formats.md. Default: Spark's own"
_TO_JSON = {
    "timestampFormat": f"the pattern of timestamps. {_LETTERS}",
    "timestampNTZFormat": f"the pattern of timestamps without a time zone. {_LETTERS}",
    "dateFormat": f"the pattern of dates. {_LETTERS}",
    "timeZone": "the time zone of timestamps. Default: the Spark session's",
}


def _part_keys(part: str) -> Iterator[ConfigKey]:
    """Yield the options that value and key share."""
    yield flag(f"{part}.schema.id.prefix", None).about("""
        Writes the id of the registry's schema with each value or key, as Confluent's serializers
        do. Default: true for avro and protobuf with schema.registry.url.
        > Set true for json to register a JSON Schema, and for raw bytes that are encoded, as by
        to_avro. Set false if consumers expect no id.""")
    yield choice(f"{part}.schema.id.location", PREFIX, (PREFIX, HEADER)).about("""
        Place of that id: prefix, or header (`__value_schema_id`, `__key_schema_id`) with the
        schema's GUID.
        > Set header if consumers look there (Confluent Platform 8.1 and newer).""")
    yield flag(f"{part}.json.ignorenullfields", None).about("""
        to_json's ignoreNullFields: omits fields that are null. Default: the Spark session's
        spark.sql.jsonGenerator.ignoreNullFields, which is true unless you change it.
        > Set false if consumers expect null fields.""")
    yield optional_text(f"{part}.json.schema").about("""
        JSON Schema to register with schema.id.prefix=true, as JSON or as the path of a file on the
        driver. The sink does not validate rows with it. Default: derived from the columns, with the
        title Row.
        > Set it if the registered schema needs titles or descriptions.""")
    for name, meaning in _TO_JSON.items():
        yield optional_text(f"{part}.json.{name.lower()}").about(f"""
            to_json's {name}: {meaning}.
            > Set it if consumers expect another one.""")
    yield optional_text(f"{part}.avro.schema").about("""
        Avro schema to write with, as JSON or as the path of a file on the driver. Default: derived
        from the columns, or selected by use.latest.version or use.schema.id.
        > Set it if derived names, types or defaults do not fit the consumers.""")
    yield optional_text(f"{part}.protobuf.descriptor.file").about("""
        Descriptor file on the driver, as `protoc --include_imports --descriptor_set_out` writes it
        (to_protobuf's descFilePath). Default: selected by use.latest.version or use.schema.id.
        > Set it with format protobuf, unless a registry has the schema.""")
    yield optional_text(f"{part}.protobuf.message").about("""
        Full name of the message (to_protobuf's messageName). Default without a file: the first
        message of the registry's schema.
        > Set it with a descriptor file, or for another message of the registry's schema.""")


def _column_key(part: str) -> ConfigKey:
    return ConfigKey(f"{part}.column", "string").about("""
        Column of this part of the record. Default: the column of the same name, if it exists.
        Empty: no column; a column of that name is an ordinary one.
        > Set it if the column has another name, or if a column of that name is for something else.
        """)


OTHER_PARTS = ("topic", "partition", "headers", TIMESTAMP)
RECORD_NAMES = ("avro.record.name", "avro.namespace")

FORMAT_KEYS = (
    choice("value.format", RAW, FORMATS).about("""
        Format of the value: docs/formats.md. raw takes one column of bytes or text, string the text
        of one column. json, avro and protobuf encode columns.
        > Set it unless a column holds the finished value."""),
    ConfigKey("value.columns", "list", []).about("""
        Columns of the value, in this order; a.b is a field of a struct. Names with commas, outer
        spaces or backticks are written in backticks, as in Spark: `a,b`. Default: all except those
        of the record's other parts and of value.null.when. Columns of key.columns stay in the
        value.
        > Set it to leave columns out of the value."""),
    choice("key.format", None, FORMATS).about("""
        Format of the key: docs/formats.md. raw takes one column of bytes or text, string the text
        of one column. json, avro and protobuf encode columns. Default: string if key.columns names
        a column, else raw.
        > Set it unless a column holds the finished key."""),
    ConfigKey("key.columns", "list", []).about("""
        Columns of the key, in this order; a.b is a field of a struct. They stay in the value. One
        column without key.format gives its text.
        > Set it if rows need a key, for their order, their partition or compaction."""),
    optional_text("value.column").about("""
        Column that is the whole value: bytes or text for raw, any type for string, else a struct
        whose fields form the value. A null struct gives a null value. Default for raw: value.
        > Set it if one column is the whole value and has another name."""),
    *map(_column_key, (KEY, *(part for part in OTHER_PARTS if part != TIMESTAMP))),
    ConfigKey(f"{TIMESTAMP}.column", "string").about("""
        Column of the record's timestamp. Default: none: records get the current time, and a column
        `timestamp` is ignored or stays in the value, as in Spark's own sink.
        > Set it if records need the time of their rows. Brokers delete records by this time."""),
    optional_text("value.null.when").about("""
        Boolean column. If it is true, the value is null, which deletes the key from a compacted
        topic. It is no part of the value, unless value.columns names it.
        > Set it if rows mark deletions."""),
    *_part_keys(VALUE),
    *_part_keys(KEY),
    ConfigKey("avro.record.name", "string", "topLevelRecord", non_empty).about("""
        Name of the record in a schema that is derived from columns. The default is to_avro's. If
        the schema is a union, the record of this name is written.
        > Set it if consumers expect another name, or if the columns fit several records of a union.
        """),
    ConfigKey("avro.namespace", "string", "").about("""
        Namespace of the record that avro.record.name names.
        > Set it if consumers expect one."""),
)


_FORMATS_WITH_FIELDS = (JSON, AVRO, PROTOBUF)
_NAMES = frozenset(key.name for key in FORMAT_KEYS)


class ToJsonOptions(NamedTuple):
    """Options of ``to_json``. None: Spark's default, or the session's setting."""

    ignore_null_fields: bool | None
    timestamp_format: str | None
    timestamp_ntz_format: str | None
    date_format: str | None
    time_zone: str | None


class UserSchema(NamedTuple):
    """A schema that the user gives. text: the schema, or the path of its file on the driver"""

    text: str

    @property
    def is_file(self) -> bool:
        """Return True for a path: a schema in JSON is an object, a list or a text."""
        return not self.text.startswith(("{", "[", '"'))


class PartOptions(NamedTuple):
    """Options of the key or of the value.

    column: the column that holds the whole part; empty for no column, None if the option is not set
    columns: columns that the part is built from; empty if the option is not set
    has_id: whether a schema id is written with the part; None if the option is not set
    descriptor_file: path of the Protobuf descriptors; message: full name of the message
    """

    part: str
    format: str
    column: str | None
    columns: tuple[str, ...]
    json: ToJsonOptions
    has_id: bool | None
    id_location: str
    avro_schema: UserSchema | None
    descriptor_file: str | None
    message: str | None
    json_schema: UserSchema | None = None

    @property
    def has_fields(self) -> bool:
        """Return True if the format has named fields."""
        return self.format in _FORMATS_WITH_FIELDS


class FormatOptions(NamedTuple):
    """Options of all formats.

    other_columns: part -> its column, as ``PartOptions.column``
    is_record_name_set: whether avro.record.name was set
    """

    value: PartOptions
    key: PartOptions
    other_columns: Mapping[str, str | None]
    null_when: str | None
    record_name: str
    namespace: str
    is_record_name_set: bool

    @property
    def full_record_name(self) -> str | None:
        """Return the record's name with its namespace; None unless avro.record.name was set."""
        name = f"{self.namespace}.{self.record_name}" if self.namespace else self.record_name
        return name if self.is_record_name_set else None


def parse_formats(sink: Mapping[str, Any], option_names: Iterable[str]) -> FormatOptions | None:
    """Build the options from the parsed table; None if no format option is set.

    option_names: names of the options that are set. Raises ConfigError.
    """
    set_names = set(option_names)
    if not _NAMES & set_names:
        return None
    return FormatOptions(
        _part(sink, VALUE),
        _part(sink, KEY),
        {part: sink[f"{part}_column"] for part in OTHER_PARTS},
        sink["value_null_when"],
        sink["avro_record_name"],
        sink["avro_namespace"],
        "avro.record.name" in set_names,
    )


def _part(sink: Mapping[str, Any], part: str) -> PartOptions:
    column, columns = sink[f"{part}_column"], tuple(sink[f"{part}_columns"])
    format_name = sink[f"{part}_format"] or (STRING if columns else RAW)
    _check_columns(sink, part, format_name)
    schemas = [sink[f"{part}_{name}_schema"] for name in (AVRO, JSON)]
    avro_schema, json_schema = (None if text is None else UserSchema(text) for text in schemas)
    names = ("ignorenullfields", "timestampformat", "timestampntzformat", "dateformat", "timezone")
    return PartOptions(
        part=part,
        format=format_name,
        column=column,
        columns=columns,
        json=ToJsonOptions(*(sink[f"{part}_json_{name}"] for name in names)),
        has_id=sink[f"{part}_schema_id_prefix"],
        id_location=sink[f"{part}_schema_id_location"],
        avro_schema=avro_schema,
        descriptor_file=sink[f"{part}_protobuf_descriptor_file"],
        message=sink[f"{part}_protobuf_message"],
        json_schema=json_schema,
    )


def _check_columns(sink: Mapping[str, Any], part: str, format_name: str) -> None:
    """Raise ConfigError for columns that contradict the part's other options."""
    columns, file = sink[f"{part}_columns"], sink[f"{part}_protobuf_descriptor_file"]
    if sink[f"{part}_column"] and columns:
        raise ConfigError(
            f"{part}.column names a column that is the {part}, and {part}.columns those that it is "
            "made of: leave one of them out",
            code="OPTION-009",
        )
    if len(set(columns)) < len(columns):
        raise ConfigError(
            f"{part}.columns names a column twice: {', '.join(columns)}", code="FORMAT-002"
        )
    if format_name == PROTOBUF and file is not None and sink[f"{part}_protobuf_message"] is None:
        raise ConfigError(
            f"{part}.protobuf.descriptor.file needs {part}.protobuf.message, the full name of the "
            "message to write",
            code="OPTION-008",
        )
    if format_name in (RAW, STRING) and len(columns) > 1:
        problem = f"columns, of which value.format={format_name} cannot make a value"
        if part == KEY:
            is_set = sink["key_format"] is not None
            condition = f"with key.format={format_name}" if is_set else "without key.format"
            problem = f"columns, which is no key {condition}"
        raise ConfigError(
            f"{part}.columns names {len(columns)} {problem}: set {part}.format to json, "
            "avro or protobuf",
            code="FORMAT-001",
        )


def unused_format_options(formats: FormatOptions) -> Iterator[tuple[str, str]]:
    """Yield the options of formats that are not used, with the reason."""
    for part in (formats.value, formats.key):
        for format_name in _FORMATS_WITH_FIELDS:
            if part.format != format_name:
                prefix = f"{part.part}.{format_name}."
                for name in _NAMES:
                    if name.startswith(prefix):
                        yield name, f"without {part.part}.format={format_name}"
        if part.format == JSON and not part.has_id:
            yield f"{part.part}.json.schema", f"without {part.part}.schema.id.prefix=true"
    if AVRO not in (formats.value.format, formats.key.format):
        yield from ((name, f"without value.format={AVRO}") for name in RECORD_NAMES)
