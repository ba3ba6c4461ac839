"""Plans for encoding a query's rows: the driver builds and pickles them, tasks read them.

A plan does not depend on Arrow's layout of columns, which a task reads from its Arrow batches.
Protobuf messages are described without the official package, which tasks do not need.

Source: type numbers of Protobuf's ``descriptor.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.base.errors import SchemaError

OF_VARIANTS = "Make text of it by to_json(), or columns by variant_get(), or leave it out"
"""Advice for a VARIANT in a format that has no form for it."""


class FormatError(SchemaError):
    """A column cannot be written in the chosen format or does not match its schema."""


JSON = "json"
AVRO = "avro"
PROTOBUF = "protobuf"


@dataclass(frozen=True)
class FieldSpec:
    """One column of the DataFrame, or a field in a column, and its name in the encoded value.

    path: the column's name, then the names of nested fields: ``a.b`` is ``("a", "b")``
    name: name of the field in the format
    spark_type: Spark's type as ``DataType.json()`` returns it, for facts that Arrow's type lacks,
        such as the unit of an interval. Empty if Arrow's type suffices.
    """

    path: tuple[str, ...]
    name: str
    spark_type: str = ""


@dataclass(frozen=True)
class JsonOptions:
    """Options of Spark's ``to_json`` with the same names. None: Spark's default.

    time_zone: None if the Spark session's zone is unknown and only VARIANTs may need it
    """

    ignore_null_fields: bool = True
    time_zone: str | None = "UTC"
    timestamp_format: str | None = None
    timestamp_ntz_format: str | None = None
    date_format: str | None = None


@dataclass(frozen=True)
class FormatSpec:
    """The encoding of a row's key or value from fields.

    fields: in the order in which they are written
    prefix: bytes before each encoded row, such as a schema registry's five bytes
    avro_schema: the Avro schema as JSON text; None for other formats
    avro_record: full name of the record to write, if the Avro schema is a union that has it
    protobuf_schema: the Protobuf messages; None for other formats
    json_schema: schema to register, until the driver has asked the registry; None in tasks
    null_when: a boolean column: true writes null as the value; or None
    """

    format: str
    fields: tuple[FieldSpec, ...]
    prefix: bytes = b""
    avro_schema: str | None = None
    json_schema: str | None = None
    json_options: JsonOptions = JsonOptions()
    null_when: str | None = None
    protobuf_schema: ProtobufSchema | None = None
    avro_record: str | None = None


class PartSpec(NamedTuple):
    """The source of the key or the value: a column, or fields.

    column: position of the column that holds it; or, with ``plan``, of the struct with its fields,
        whose nulls are null values; None without such a column
    plan: how it is encoded from fields; None if ``column`` holds it
    is_text: write the column's text, whatever its type; otherwise its bytes unchanged
    prefix: bytes before ``column``; a ``plan`` has its own prefix
    header: name and value, of the records whose key or value is encoded with the part's schema
    takes_session_zone: whether the time zone of ``plan`` is that of the Spark session
    takes_session_nulls: whether the session decides if the JSON of ``plan`` omits null fields
    has_id: whether records name a schema in a registry
    """

    column: int | None = None
    plan: FormatSpec | None = None
    is_text: bool = False
    prefix: bytes = b""
    takes_session_zone: bool = False
    takes_session_nulls: bool = False
    has_id: bool = False
    header: tuple[str, bytes] | None = None


class RowSpec(NamedTuple):
    """The columns to append, built from Spark's columns.

    kept: part of the record and position of its column, for the other parts
    null_when: position of a boolean column: true writes null as the value
    session_zone: the time zone of the Spark session, None if unknown
    is_ansi: spark.sql.ansi.enabled of the Spark session, which decides the texts of decimals
    ignores_nulls: spark.sql.jsonGenerator.ignoreNullFields of the Spark session
    """

    value: PartSpec
    key: PartSpec | None = None
    kept: tuple[tuple[str, int], ...] = ()
    null_when: int | None = None
    session_zone: str | None = None
    is_ansi: bool = True
    ignores_nulls: bool = True


VALUE, KEY, HEADERS = "value", "key", "headers"


def names_of(plan: RowSpec) -> list[str]:
    """Return the names of the appended columns, in order."""
    names = [VALUE]
    if plan.key is not None:
        names.append(KEY)
    names += [part for part, _ in plan.kept]
    if HEADERS not in names and any(part and part.header for part in (plan.value, plan.key)):
        names.append(HEADERS)
    return names


_TYPES = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum "
    "sfixed32 sfixed64 sint32 sint64"
)
TYPES = dict(enumerate(_TYPES.split(), 1))
"""Number in ``descriptor.proto`` -> Protobuf's type."""
MESSAGE, ENUM, GROUP = "message", "enum", "group"


class ProtobufField(NamedTuple):
    """A field of a message.

    type: one of TYPES; type_name: the full name of a message or an enum
    has_presence: whether a default value is written; oneof: name of the field's oneof, or empty
    """

    name: str
    number: int
    type: str
    type_name: str = ""
    is_repeated: bool = False
    is_required: bool = False
    is_packed: bool = False
    has_presence: bool = False
    oneof: str = ""

    @property
    def words(self) -> str:
        """Return the type as error messages show it."""
        return f"{'repeated ' if self.is_repeated else ''}{self.type_name or self.type}"


class ProtobufMessage(NamedTuple):
    """A message. is_entry: a map's entry, with the key in field 1 and the value in field 2"""

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False


class ProtobufEnum(NamedTuple):
    """An enum. values: names and numbers"""

    name: str
    values: tuple[tuple[str, int], ...]


class ProtobufSchema(NamedTuple):
    """A message with all messages and enums that it uses.

    root: the message's full name
    indexes: the message's index in its file: one number per enclosing message, then its own
    """

    root: str
    messages: tuple[ProtobufMessage, ...]
    enums: tuple[ProtobufEnum, ...] = ()
    indexes: tuple[int, ...] = (0,)

    def has_field(self, name: str) -> bool:
        """Return True if the root message has a field of this name, in any case."""
        root = next(message for message in self.messages if message.name == self.root)
        return any(field.name.lower() == name.lower() for field in root.fields)


class ProtobufFile(NamedTuple):
    """A .proto file as a registry accepts it. name: the name in imports

    text: a FileDescriptorProto in Base64
    imports: names of imported files, without the files that every registry knows
    """

    name: str
    text: str
    imports: tuple[str, ...] = ()
